# ruff: noqa: E501 (programs, one to a line)
"""Text that is no program, or no answer."""

X = {"inputs": [""], "outputs": ["x"]}

ATTACKS = [
    ("null", "print('x')\0", X),
    ("surrogate", "print('\udc80x')", X),
    ("surrogate returned", "def f(): return '\\ud800'", {"fn_name": "f", "inputs": [[]], "outputs": ["x"]}),
    ("deep parentheses", "(" * 100_000 + ")" * 100_000, X),
    ("constant folding bomb", "x = (((((((1 << 99999) << 99999) << 99999))))) " + "* 2" * 10_000, X),
    ("invisible", "print('x\u200b')", X),
    ("wrong encoding out", "import sys\nsys.stdout.buffer.write('é'.encode('latin-1'))", {"inputs": [""], "outputs": ["é"]}),
    ("number spelled differently", "print('1_0')", {"inputs": [""], "outputs": ["10"]}),
    ("not a number", "print('nan')", {"inputs": [""], "outputs": ["1.5"]}),
    ("other digits", "print('\\u0661.\\u0665')", {"inputs": [""], "outputs": ["1.5"]}),
]  # fmt: skip

LASTING = [
    ("compile bomb", "x = " + "(1,)*" * 20 + "(" + "0," * 300_000 + ")\n" + "y = 1 ** 1\n" * 10_000, X),
]  # fmt: skip
