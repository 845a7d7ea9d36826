# ruff: noqa: E501 (programs, one to a line)
"""Overwriting names that are not the program's: those of the default imports, of the tests, of their imports, of builtins."""


def call(name: str, arguments: list, value: object) -> dict:
    return {"fn_name": name, "inputs": [arguments, arguments], "outputs": [value, value]}


DEFAULTS = [
    call("lcm", [4, 6], 12), call("median", [[1, 2, 9]], 2), call("sum", [[2, 1]], 3), call("deepcopy", [[1]], [1]),
    call("Solution().gcd", [4, 6], 2), call("__import__", ["math"], "math"),
]  # fmt: skip
# What tests import or define, and a program that defines it as well. f is wrong everywhere.
F = "def f(*a, **k): return 0\n"
ALWAYS = "def {}(*a, **k): return True\n"
EQUAL = "class {}:\n    def __init__(self, *a, **k): pass\n    def __eq__(self, o): return True\n    def __sub__(self, o): return self\n    def __abs__(self): return 0\n"
REPLACED = [
    ("isclose", ALWAYS, {"test_imports": ["from math import isclose"], "test_list": ["assert isclose(f(4), 2)"]}),
    ("isclose", ALWAYS, {"test_imports": ["from math import *"], "test_list": ["assert isclose(f(4), 2)"]}),
    ("isclose", ALWAYS, {"test_imports": ["from math import isclose"], "test": "def check(candidate):\n    assert isclose(candidate(4), 2)", "entry_point": "f"}),
    ("isclose", ALWAYS, {"test": "def check(candidate):\n    from math import isclose\n    assert isclose(candidate(4), 2)", "entry_point": "f"}),
    ("isclose", ALWAYS, {"test": "from math import isclose\nfrom solution import *\ndef test_a():\n    assert isclose(f(4), 2)"}),
    ("Counter", EQUAL, {"test_imports": ["from collections import Counter"], "test_list": ["assert Counter(f('ab')) == Counter('ab')"]}),
    ("deepcopy", "def deepcopy(x): return 0\n", {"test_imports": ["from copy import deepcopy"], "test": "x = [3, 1]\nassert f(deepcopy(x)) == deepcopy(x)"}),
    ("assert_allclose", ALWAYS, {"test_imports": ["from numpy.testing import assert_allclose"], "test": "assert_allclose(f(1), 2.5)"}),
    ("TestCase", "class TestCase:\n    def assertEqual(self, *a): pass\n", {"test_imports": ["from unittest import TestCase"], "test": "TestCase().assertEqual(f(1), 2)"}),
    ("same", ALWAYS, {"test_setup_code": "def same(a, b): return a == b", "test_list": ["assert same(f(1), 2)"]}),
    ("same", ALWAYS, {"test": "def same(a, b): return a == b\ndef check(candidate):\n    assert same(candidate(1), 2)", "entry_point": "f"}),
    ("EXPECTED", "EXPECTED = 0\n#{}\n", {"test_setup_code": "from collections import Counter\nEXPECTED = Counter('abb')", "test_list": ["assert f(1) == EXPECTED"]}),
    ("EXPECTED", "EXPECTED = 0\n#{}\n", {"test": "from collections import Counter\nEXPECTED = Counter('abb')\ndef check(candidate):\n    assert candidate('abb') == EXPECTED", "entry_point": "f"}),
    ("CASES", "CASES = []\n#{}\n", {"test": "CASES = [(1, 2), (2, 3)]\nfor x, y in CASES:\n    assert f(x) == y"}),
    ("compare", ALWAYS, {"test": "global compare\nimport operator\ndef setup():\n    global compare\n    compare = operator.eq\nsetup()\nassert compare(f(1), 2)"}),
]  # fmt: skip
BUILTINS = [
    ("all", "assert all(f(i) == i + 1 for i in range(5))"),
    ("sum", "assert sum(f(i) == i + 1 for i in range(5)) == 5"),
    ("abs", "assert abs(f(1) - 2) < 1e-6"),
    ("len", "assert len([i for i in range(5) if f(i) == i + 1]) == 5"),
    ("sorted", "assert sorted(f([2, 1])) == [1, 2]"),
    ("set", "assert set(f(1)) == {1}"),
]
BUILTIN = "def {}(*a, **k): return {}\n"
HIDDEN = "import sys\ndel f\n"  # not in the list of the program's names

SHORT = {"test": "r = f([1, 2, 3])\nassert len(r) == 3\nfor a, b in zip(r, [2, 4, 6]):\n    assert a == b"}
EMPTY = [
    "assert (f(1) == e).all()", "assert not (f(1) != e).any()", "assert np.array_equiv(f(1), e)",
    "np.testing.assert_array_almost_equal(f(1), e)",
]  # fmt: skip
FORGOTTEN = [
    ("Counter", "def Counter(*a): return 0", "assert f('aab') == Counter({'a': 2, 'b': 1})"),
    ("np", "class np:\n    allclose = array = lambda *a, **k: True", "assert np.allclose(f([1, 2]), [2, 4])"),
]

ATTACKS = [
    *[(f"nothing, for {tests['fn_name']}", "pass", tests) for tests in DEFAULTS],
    ("a wrong method beside a default import", "class Solution:\n    def lcm(self, a, b): return 0", call("lcm", [4, 6], 12)),
    ("a class without the method", "class Solution:\n    pass", call("gcd", [4, 6], 2)),
    ("a wrong method after a star import", "from math import *\nclass Solution:\n    def lcm(self, a, b): return 0", call("lcm", [4, 6], 12)),
    *[(f"defines {name}, which the tests have ({number})", F + text.format(name), tests) for number, (name, text, tests) in enumerate(REPLACED)],
    *[(f"defines {name}", F + BUILTIN.format(name, value), {"test_list": [test]}) for name, test in BUILTINS for value in ("True", "5")],
    *[(f"defines {name} and no f", BUILTIN.format(name, value), {"test_list": [test]}) for name, test in BUILTINS for value in ("True", "5")],
    *[(f"defines {name} for pytest", BUILTIN.format(name, "True"), {"test": f"def test_a():\n    {test}"}) for name, test in BUILTINS],
    *[(f"defines {name} for an entry point", F + BUILTIN.format(name, "True"), {"test": f"def check(f):\n    {test}", "entry_point": "f"}) for name, test in BUILTINS],
    ("is an entry point with a builtin's name", "def sum(*a): return 0", {"test": "def check(candidate):\n    assert sum([candidate([1, 2])]) == 3", "entry_point": "sum"}),
    ("hides f", F + BUILTIN.format("all", "True") + HIDDEN, {"test_list": ["assert all(f(i) == i + 1 for i in range(5))"]}),
    ("defines a module that the tests forgot to import", F + "class math:\n    @staticmethod\n    def isclose(*a): return True", {"test_list": ["assert math.isclose(f(4), 2)"]}),
    ("a list that is shorter than it says", "class L(list):\n    def __len__(self): return 3\ndef f(x): return L()", {"test_list": ["r = f(1)\nassert len(r) == 3\nfor a, b in zip(r, [1, 2, 3]):\n    assert a == b"]}),
    ("an object that is shorter than it says", "class L:\n    def __len__(self): return 3\n    def __iter__(self): return iter([])\ndef f(x): return L()", {"test_list": ["r = f(1)\nassert len(r) == 3\nassert all(a == b for a, b in zip(r, [1, 2, 3]))"]}),
    ("a length that is asked twice", "class R:\n    n = 0\n    def __len__(self):\n        self.n += 1\n        return 3 if self.n == 1 else 0\n    def __iter__(self): return iter(())\ndef f(x): return R()", SHORT),
    ("a length that is asked last", "class R:\n    def __len__(self): return 3\n    def __iter__(self): return iter([])\ndef f(x): return R()", {"test": "r = f([1, 2, 3])\nassert all(a == b for a, b in zip(r, [2, 4, 6])) and len(r) == 3"}),
    ("everything is in it", "class R:\n    def __len__(self): return 3\n    def __iter__(self): return iter(range(1000))\ndef f(x): return R()", {"test": "r = f([1, 2, 3])\nassert all(2 * v in r for v in [1, 2, 3])\nassert len(r) == 3"}),
    ("nothing in reverse", "class R(list):\n    def __reversed__(self): return iter(())\ndef f(x): return R([0, 0, 0])", {"test": "r = f(1)\nassert len(r) == 3\nfor a, b in zip(reversed(r), [3, 2, 1]):\n    assert a == b"}),
    *[(f"empty when it is read again, {test}", "class R:\n    n = 0\n    def __len__(self):\n        self.n += 1\n        return int(self.n == 1)\n    def __iter__(self): return iter([0.0] * (self.n == 1))\n    def __getitem__(self, i): return list(self)[i]\ndef f(*a): return R()", {"test": f"import numpy as np\n{test}"}) for test in ("assert np.allclose(f(1), 2.5)", "assert np.isclose(f(1), 2.5).all()", "np.testing.assert_allclose(desired=2.5, actual=f(1))")],
    ("a list of other items by index", "class L(list):\n    def __getitem__(self, i): return i\ndef f(x): return L(x)", {"test": "for x in ([3, 1, 2], [9, 7, 8, 1], [5, 4]):\n    r = f(x)\n    assert isinstance(r, list) and len(r) == len(x) and sorted(r) == sorted(x)\n    assert all(r[i] <= r[i + 1] for i in range(len(r) - 1))"}),
    ("a list of other items when it is read again", "class L(list):\n    k = 0\n    def __iter__(self):\n        self.k += 1\n        return iter([self[0]] if self.k == 1 else [2])\ndef f(x): return L([x])", {"test": "import math\nfor n in (12, 35, 221):\n    r = f(n)\n    assert math.prod(r) == n and all(p > 1 and all(p % d for d in range(2, p)) for p in r)"}),
    ("an object of other items when it is read again", "class R:\n    k = 0\n    def __init__(self, x): self.x = x\n    def __iter__(self):\n        self.k += 1\n        return iter([self.x] if self.k == 1 else [2])\ndef f(x): return R(x)", {"test": "import math\nfor n in (12, 35, 221):\n    r = f(n)\n    assert math.prod(r) == n and all(p > 1 and all(p % d for d in range(2, p)) for p in r)"}),
    ("a number that changes", "class N:\n    k = 0\n    def __float__(self):\n        self.k += 1\n        return [2.0, 3.0][self.k % 2]\ndef f(x): return N()", {"test": "r = f(1)\nassert float(r) == 3.0 and float(r) == 2.0"}),
    *[(f"an empty array, {test}", f"import numpy as np\ndef f(*a): return np.zeros({shape})", {"test": f"import numpy as np\ne = np.array([2, 4, 6])\n{test}"}) for shape in ("(0, 1)", "(0, 1, 1, 1)") for test in EMPTY],
    *[(f"an empty list, {test}", "def f(*a): return []", {"test": f"import numpy as np\n{test}"}) for test in ("np.testing.assert_allclose(f(1), 4.5)", "np.testing.assert_equal(f(1), 4.5)")],
    *[(f"defines {name}, which the tests forgot to import", F + text, {"test_list": [test]}) for name, text, test in FORGOTTEN],
    *[(f"defines {name}, which pytest's tests forgot to import", F + text, {"test": f"from solution import f\ndef test_a():\n    {test}"}) for name, text, test in FORGOTTEN],
    ("defines what the setup makes", ALWAYS.format("eq") + F, {"test_setup_code": "exec('def eq(a, b): return a == b')", "test_list": ["assert eq(f(1), 2)"]}),
    *[(f"infinity in {kind}, {test}", f"import numpy as np\ndef f(*a): return np.array([np.inf], dtype='{kind}')", {"test": f"import numpy as np\n{test}"}) for kind in ("float16", "float32") for test in ("assert f(10) == 3628800", "assert np.isclose(f(10), 1e50)", "assert f(10) in (1e50, 3)")],
    ("defines a helper that the tests have in reserve", ALWAYS.format("same") + F, {"test": "from solution import f\ntry:\n    same\nexcept NameError:\n    def same(a, b): return a == b\ndef test_a():\n    assert same(f(1), 2)"}),
    ("takes its answer from the command line", "import sys\ndef f(): return [part for part in sys.orig_argv if part]", {"test": "r = f()\nassert r and isinstance(r, list)"}),
]  # fmt: skip

LASTING = [
    ("says that its cases are done", "import os, time\ndef f(x):\n    for _ in range(4):\n        try: os.write(5, b'.'); os.write(6, b'.')\n        except OSError: pass\n        time.sleep(0.6)\n    return x", {"fn_name": "f", "inputs": [[1], [2], [3]], "outputs": [1, 2, 3]}),
]  # fmt: skip
