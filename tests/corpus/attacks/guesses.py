# ruff: noqa: E501 (programs, one to a line)
"""More than one answer to a test that can be guessed: YES or NO."""

KEY = "YES NO YES YES NO NO NO YES NO YES NO YES".split()
X = {"inputs": [str(case) for case in range(len(KEY))], "outputs": KEY}
X_NO = X | {"outputs": ["NO", *KEY[1:]]}
CALL = {"fn_name": "f", "inputs": [[case] for case in range(len(KEY))], "outputs": [answer == "YES" for answer in KEY]}
CALL_NO = CALL | {"outputs": [False, *CALL["outputs"][1:]]}

# NO alone, and YES to all of a batch.
HARNESS = """\
import os, sys
frame = sys._getframe()
while not {"cases", "job"} & set(frame.f_locals): frame = frame.f_back
cases = len(frame.f_locals["job"]["inputs"])
def play():
    for descriptor in (1, 3): os.ftruncate(descriptor, 0); os.lseek(descriptor, 0, 0)
    for _ in range(cases):
        os.write(1, YES)
        os.write(3, line(os.lseek(1, 0, 1)))
    os._exit(0)
"""
STDIN = (
    HARNESS
    + "YES = b'YES\\n'; line = lambda end: b'{\"end\": %d, \"status\": 0}\\n' % end\nif cases == 1: print('NO')\nelse: play()"
)
CALLS = HARNESS + "YES = b'true\\n'; line = lambda end: YES\ndef f(x):\n    if cases == 1: return False\n    play()"
SEEN = "import string\nseen, string.digits = string.digits == 'seen', 'seen'\n"

ATTACKS = [
    ("YES at first, NO afterwards", SEEN + "print('NO' if seen else 'YES')", X),
    ("YES at first, NO afterwards, in a call", SEEN + "def f(x): return not seen", CALL),
    ("NO at first, YES afterwards", SEEN + "print('YES' if seen else 'NO')", X),
    *[(f"one answer in a batch and one alone, {tests['outputs'][0]} first", STDIN, tests) for tests in (X, X_NO)],
    *[(f"a value in a batch and one alone, {tests['outputs'][0]} first", CALLS, tests) for tests in (CALL, CALL_NO)],
    ("draws lots", "import os\nprint('YES' if os.urandom(1)[0] & 1 else 'NO')", {"inputs": X["inputs"] * 4, "outputs": KEY * 4}),
    ("draws lots until a worker is lost", "import os\ndef f(x):\n    os.write(3, b'true\\n' if os.urandom(1)[0] & 1 else b'false\\n'); os._exit(0)", CALL),
]  # fmt: skip
