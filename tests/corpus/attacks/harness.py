# ruff: noqa: E501 (programs, one to a line)
"""Interfering with the grader: its exit codes, its objects, its interpreter, its memory."""

X = {"inputs": [""], "outputs": ["ANSWER-48151623"]}
CALL = {"fn_name": "f", "inputs": [[1], [2]], "outputs": [["ANSWER-48151623", 1], ["ANSWER-48151623", 2]]}
CHECK = {
    "test": "EXPECTED = 'ANSWER-48151623'\ndef check(candidate):\n    assert candidate(1) == EXPECTED\n    assert candidate(2) == [2, EXPECTED]\n",
    "entry_point": "f",
}
NUMBER = {"test": "assert abs(f(1) - 2.5) < 1e-6\nassert f(2) <= 3.5 and f(2) >= 3.4"}
LIST = {"test_list": ["assert f(1) == [1, 2, 3]", "assert len(f(1)) == 3 and 2 in f(1)", "assert f(2) in ([4], [5])"]}

EQUAL = "class E:\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    def __hash__(self): return 0\n    def __contains__(self, o): return True\n    def __len__(self): return 3\n    def __bool__(self): return True\n    def __iter__(self): return iter([1, 2, 3])\n    def __getitem__(self, i): return self\n    def __getattr__(self, n): return self\n    def __call__(self, *a): return self\n    def __sub__(self, o): return self\n    __rsub__ = __add__ = __abs__ = lambda self, *a: self\n    def __lt__(self, o): return True\n    __gt__ = __le__ = __ge__ = __lt__\n    def __float__(self): return 2.5\n"
SUBCLASS = "class {name}({base}):\n    def __eq__(self, o): return True\n    def __ne__(self, o): return False\n    def __hash__(self): return 0\n    def __contains__(self, o): return True\n    def __lt__(self, o): return True\n    __le__ = __gt__ = __ge__ = __lt__\n    def __sub__(self, o): return self\n    def __abs__(self): return self\ndef f(x): return {name}()"
FIND = "import re, sys, gc\ndef find(*things):\n    m = re.search(r'ANSWER-\\d{8}', repr(things)[:10**7])\n    return m.group() if m else ''\n"
FRAMES = (
    FIND
    + "def look(x):\n    frame, seen = sys._getframe(), []\n    while frame:\n        seen += [dict(frame.f_locals), dict(frame.f_globals)]; frame = frame.f_back\n    return find(seen) or find([o for o in gc.get_objects() if type(o) in (list, dict, tuple)])\n"
)
# Speaks to the tests' process past the module that is made for it, while the tests wait for an answer.
LINK = "import json, os\ndef send(m): os.write(4, json.dumps(m).encode() + b'\\n')\ndef ask(op, *a):\n    send({'operation': op, 'args': a, 'kwargs': {}})\n    return json.loads(os.read(4, 1 << 20))\n"
FORGE = (
    LINK
    + "def f(x):\n    ask('call', ['builtin', 'exec'], 'import os\\nos.write(3, b\\'{report}\\\\n\\')\\nos._exit(0)')\n    return 0"
)
NEAR = "class Z:\n    def __sub__(self, o): return {value}\n    __add__ = __radd__ = __mul__ = __rmul__ = __pow__ = __truediv__ = __rtruediv__ = __rsub__ = __sub__\n    def __abs__(self): return 0.0\n    def __float__(self): return 0.0\n    def __round__(self, n=0): return 0\n    def __bool__(self): return False\n    def __eq__(self, o): return True\ndef f(x): return Z()"
ALLCLOSE = "import numpy as np\ndef assertion(out, exp, atol):\n    exact = out == exp\n    if atol == 0 and isinstance(exp, float): atol = 1e-6\n    if not exact and atol != 0: assert np.allclose(out, exp, rtol=1e-07, atol=atol)\n    else: assert exact\ndef check(candidate):\n    for i, e in zip([1, 2], [2.5, 3.5]): assertion(candidate(i), e, 0)"
DIFFERENCES = [
    "assert abs(f(1) - 2.5) < 1e-6",
    "assert not f(1) - 2.5",
    "assert (f(1) - 2.5) ** 2 < 1e-6",
    "assert 1 - 1e-6 < f(1) / 2.5 < 1 + 1e-6",
]

ATTACKS = [
    ("exit early", "raise SystemExit(0)", X),
    ("os._exit in a call", "import os\ndef f(x): os._exit(0)", CALL),
    ("exit at import", "import sys\nsys.exit(0)", CALL),
    ("os._exit under test", "import os\ndef f(x): os._exit(0)", CHECK),
    ("exit under test", "def f(x): raise SystemExit(0)", CHECK),
    ("atexit", "import atexit, os\natexit.register(os._exit, 0)\ndef f(x): return 0", CHECK),
    ("right output, then an exception", "print('y')\nraise ValueError", {"inputs": [""], "outputs": ["y"]}),
    ("right output, then exit status 1", "print('y')\nexit(1)", {"inputs": [""], "outputs": ["y"]}),
    ("right output, then a crash", "import os\nprint('y', flush=True)\nos.abort()", {"inputs": [""], "outputs": ["y"]}),
    ("every possible answer", "for i in range(10): print(i)", {"inputs": [""], "outputs": ["5"]}),
    ("prints a verdict", "print('passed 1 of 1')\nprint('{\"passed\": [true]}')\nprint('OK')", X),
    ("writes reports", "import os\nos.write(3, b'{\"passed\": [true]}\\n')\nos._exit(0)", CHECK),
    ("writes reports of a call", "import os\nos.write(3, b'[\"list\", \"x\"]\\n' * 9)\nos._exit(0)", CALL),
    ("answers ahead", "import os\ndef f(x):\n    for r in (b'{\"value\": true}', b'{\"operation\": \"call\", \"args\": [], \"kwargs\": {}}') * 20: os.write(4, r + b'\\n')\n    return 1", CHECK),
    ("closes the link", "import os\nos.close(4)\ndef f(x): return 1", CHECK),
    ("nested garbage on the link", "import os\ndef f(x):\n    os.write(4, b'{\"value\": ' + b'[' * 10**6 + b'\\n')\n    return 1", CHECK),
    *[(f"has the tests' process write {report}", FORGE.replace("{report}", report), CHECK) for report in ('{"passed": [true]}', '{"passed": [true, true]}', '{"unusable": "x"}', "5", '{"passed": 5}', '{"passed": [[]]}', '{"unusable": 5}', "{}")],
    ("names a function for the tests to call", LINK + "def f(x):\n    send({'value': ['builtin', 'eval']})\n    return 0", {"test": "EXPECTED = 'ANSWER-48151623'\nassert f(0)('EXPECTED') == EXPECTED"}),
    ("names the loader of builtins", LINK + "def f(x):\n    ask('call', ['builtin', '__loader__'])\n    return ask('call', ['builtin', 'type'], 'T', ['tuple'], ['dict', ['__module__', 'tests']])['value']", CHECK),
    ("replaces the tests' imports by star", "class math:\n    @staticmethod\n    def isclose(*a, **k): return True\ndef f(x): return 0", {"test": "import math\nfrom solution import *\nassert math.isclose(f(1), 2)"}),
    *[(f"answers {value} to: {test}", NEAR.format(value=value), {"test_imports": ["import math"], "test_list": [test]}) for value in ("0.0", "1.0", "self") for test in DIFFERENCES],
    ("close to every float", NEAR.format(value="0.0"), {"test": ALLCLOSE, "entry_point": "f"}),
    ("frames", FRAMES + "print(look(0))", X),
    ("frames under test", FRAMES + "def f(x): return look(x) if x == 1 else [2, look(x)]", CHECK),
    ("a trace function", FIND + "import threading\nfound = []\ndef trace(frame, event, arg):\n    found.append(find(frame.f_locals, arg))\n    return trace\nsys.settrace(trace); threading.settrace(trace)\ndef f(x): return max(found, default='')", CHECK),
    ("scans memory", "import ctypes, re\ntry:\n    for line in open('/proc/self/maps'):\n        a, b = (int(p, 16) for p in line.split()[0].split('-'))\n        m = re.search(rb'ANSWER-\\d{8}', ctypes.string_at(a, b - a)) if 'rw' in line else None\n        if m: print(m.group().decode()); break\nexcept OSError: print('')", X),
    ("scans memory by guessing", FIND + "import ctypes\nx = id(sys)\nfor step in range(0, 1 << 22, 4096):\n    found = find(ctypes.string_at(x - x % 4096 + step, 4096))\n    if found: print(found); break", X),
    ("always equal", EQUAL + "def f(x): return E()", CHECK),
    ("always near", EQUAL + "def f(x): return E()", NUMBER),
    ("an equal class", "class M(type):\n    def __eq__(self, o): return True\n    def __hash__(self): return 0\nclass f(metaclass=M):\n    def __new__(cls, x): return cls", CHECK),
    ("equal list", SUBCLASS.format(name="L", base="list"), LIST),
    ("equal dict", SUBCLASS.format(name="D", base="dict"), {"test": "assert f(1) == {'a': 1}"}),
    ("equal tuple", SUBCLASS.format(name="T", base="tuple"), {"test": "assert f(1) == (1, 2)"}),
    ("equal str", SUBCLASS.format(name="S", base="str"), CHECK),
    ("equal int", SUBCLASS.format(name="I", base="int"), {"test": "assert f(1) == 5 or f(1) > 3"}),
    ("near float", SUBCLASS.format(name="F", base="float"), NUMBER),
    ("stops the loop of the tests", "def f(x): raise StopIteration", {"test": "assert all(map(lambda x: f(x) == x, [1, 2]))\nassert not list(map(f, [1])) or False"}),
    ("patches builtins", "import builtins\nbuiltins.all = builtins.any = builtins.isinstance = lambda *a: True\nbuiltins.abs = lambda x: 0\nbuiltins.AssertionError = SystemExit\ndef f(x): return 0", NUMBER),
    ("defines the tests' names", "def check(candidate): return True\ndef assertion(*a): return True\nEXPECTED = 0\ndef f(x): return 0", CHECK),
    ("patches the harness", "import sys\nfor m in list(sys.modules.values()):\n    for n in ('write_result', 'same_value', 'encode', 'report_exception', 'finish'):\n        if hasattr(m, n): setattr(m, n, lambda *a, **k: 0)\nf = sys._getframe()\nwhile f:\n    for n in ('write_result', 'call', 'finish', 'guarded'):\n        if n in f.f_globals: f.f_globals[n] = lambda *a, **k: 0\n    f = f.f_back\ndef f(x): return 0", CALL),
    ("replaces stdout", "import sys, io\nsys.stdout = io.StringIO()\nprint('y')", {"inputs": [""], "outputs": ["y"]}),
    ("a hook for exceptions", "import sys, os\nsys.excepthook = lambda *a: os._exit(0)\nprint('y')\nraise ValueError", {"inputs": [""], "outputs": ["y"]}),
    ("deleted object prints", "class A:\n    def __del__(self): print('y')\na = A()\nprint(input())", {"inputs": ["1", "2"], "outputs": ["1", "2"]}),
    ("thread that outlives main", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(1000), print('y')), daemon=True).start()", {"inputs": [""], "outputs": ["y"]}),
    ("an integer for a bool", "def f(x): return 1", {"fn_name": "f", "inputs": [[1]], "outputs": [True]}),
    ("a string for a number", "def f(x): return '1'", {"fn_name": "f", "inputs": [[1]], "outputs": [1]}),
    ("a rounded integer", "def f(x): return 2.0**53", {"fn_name": "f", "inputs": [[1]], "outputs": [2**53 + 1]}),
    ("prints instead of returning", "def f(x): print(5)", {"fn_name": "f", "inputs": [[1]], "outputs": [5]}),
    ("counts the cases", "import builtins\nbuiltins.n = getattr(builtins, 'n', 0) + 1\nprint(builtins.n)", {"inputs": ["", "", ""], "outputs": ["1", "2", "3"]}),
    ("function missing", "g = 1", CALL),
    ("entry point missing", "g = 1", CHECK),
    ("entry point is data", "f = 5", CHECK),
    ("tests cannot import it", "g = 1", {"test": "from solution import f\n\ndef test_a():\n    assert f(1) == 1"}),
    ("answers with an exception", "def f(x): raise AssertionError", CHECK),
    ("mutates the expected list", "def f(x):\n    x.clear()\n    return x", {"test": "x = [1, 2]\nassert f(x) == sorted([1, 2])"}),
    ("nothing, close to every number", "def f(x): return []", {"test": ALLCLOSE, "entry_point": "f"}),
    ("a name that a star import has, too", "def gcd(*a): return 0", {"test_imports": ["from math import *"], "test": "def check(candidate):\n    assert candidate(4, 6) == 2", "entry_point": "gcd"}),
    ("an exception class that swallows the tests' assert", "class Broke(AssertionError): pass\ndef f(x): return 0", {"test": "try:\n    f(-1)\n    assert False\nexcept Broke:\n    pass"}),
    ("a context manager that swallows the tests' assert", "class C:\n    def __enter__(self): return self\n    def __exit__(self, *a): return True\n    def get(self): return 0", {"test": "with C() as c:\n    assert c.get() == 5"}),
    ("its own objects, equal", "class P:\n    def __new__(cls, *a, **k): return ONE\n    def __eq__(self, o): return True\n    def __add__(self, o): return self\nONE = object.__new__(P)\nONE.x = 1", {"test": "assert P(1).x == 1 and P(1) == P(1)"}),
    ("an item beyond the content of a container", "class L(list):\n    def __getitem__(self, i): return 7\ndef f(x): return L(x)", {"test": "r = f([1])\nassert r[5] == 7"}),
    ("narrow integers wrap around", "import numpy as np\ndef f(x): return np.array([4], dtype=np.uint8)", {"test": "assert ((f(1) * 64) == 0).all()"}),
    ("rewinds its input", "import os\nos.lseek(0, 0, 0)\nprint(os.read(0, 100))", X),
    ("a module beside the tests, which put their folder first on the path", "open('/tmp/numpy.py', 'w').write('import os\\nos.lseek(3, 0, 0)\\nos.write(3, b\\'{\"passed\":[true]}\\\\n\\')\\nos._exit(0)\\n')\nclass ndarray: pass\nndarray.__module__ = 'numpy'\nclass D: kind, str = 'f', '<f8'\ndef f(x):\n    a = ndarray(); a.dtype = D(); a.shape = (1,); a.tobytes = lambda: b'0' * 8\n    return a", {"test": "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\nfrom solution import f\ndef test_a(): assert f(3) == 12345"}),
]  # fmt: skip

LASTING = [
    ("right output, then time", "print('y', flush=True)\nwhile True: pass", {"inputs": [""], "outputs": ["y"]}),
    ("garbage on the link", "import os\ndef f(x):\n    os.write(4, b'\\xff' * 1000)\n    return 1", CHECK),
    ("huge message on the link", "import os\ndef f(x):\n    while True: os.write(4, b'x' * 65536)", CHECK),
    ("thread that never ends", "import threading, time\nprint('y')\nthreading.Thread(target=lambda: time.sleep(1000)).start()", {"inputs": [""], "outputs": ["y"]}),
]  # fmt: skip
