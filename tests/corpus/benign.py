# ruff: noqa: E501 (programs, one to a line)
"""Correct programs, in every format. Each is (name, program, tests) and earns the full reward."""

ZEROS = "0" * 5998
SUM = {"inputs": ["3 4\n", "10 -2\n", "0 0"], "outputs": ["7", "8", "0"]}
ECHO = {"inputs": ["grüße 世界 🎉\n"], "outputs": ["GRÜSSE 世界 🎉"]}


def once(expected: str, given: str = "") -> dict:
    return {"inputs": [given], "outputs": [expected]}


def calls(name: str, *cases: tuple) -> dict:
    return {"fn_name": name, "inputs": [list(case[:-1]) for case in cases], "outputs": [case[-1] for case in cases]}


STDIN = [
    ("detached", "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), encoding='utf-8', line_buffering=True)\nprint(sum(map(int, input().split())))", SUM),
    ("buffer", "import sys\nprint(sum(map(int, sys.stdin.buffer.readline().split())))", SUM),
    ("input then read", "import sys\nprint(int(input()) + int(sys.stdin.read()))", once("3", "1\n2\n")),
    ("until end of file", "x = 0\nwhile True:\n    try: x += sum(map(int, input().split()))\n    except EOFError: break\nprint(x)", SUM),
    ("open 0", "print(sum(map(int, open(0).read().split())))", SUM),
    ("many lines out", "for i in range(10**5):\n    print(i)", once("\n".join(map(str, range(10**5))))),
    ("unicode", "print(input().upper())", ECHO),
    ("crlf", "print(input() + '|' + input())", once("a|b", "a\r\nb\r\n")),
    ("big integer in", "print(int(input()) - 7)", once("1" + ZEROS + "0", "1" + ZEROS + "7")),
    ("os._exit", "import os\nprint(7, flush=True)\nos._exit(0)", {"inputs": ["", "", ""], "outputs": ["7", "7", "7"]}),
    ("atexit", "import atexit\natexit.register(print, 7)", {"inputs": ["", ""], "outputs": ["7", "7"]}),
    ("thread not joined", "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.05), print(7))).start()",
     {"inputs": ["", "", ""], "outputs": ["7", "7", "7"]}),
    ("executor left open", "from concurrent.futures import ThreadPoolExecutor\nprint(ThreadPoolExecutor(2).submit(pow, 2, 5).result())",
     {"inputs": ["", ""], "outputs": ["32", "32"]}),
    ("big stack", "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(1 << 27)\n"
     "def f(n): return 0 if n == 0 else 1 + f(n - 1)\ndef main(): print(f(50000))\n"
     "t = threading.Thread(target=main); t.start(); t.join()", {"inputs": ["", ""], "outputs": ["50000", "50000"]}),
    ("deep recursion", "import sys\nsys.setrecursionlimit(10**6)\ndef f(n): return 0 if n == 0 else 1 + f(n - 1)\nprint(f(20000))", once("20000")),
    ("asyncio", "import asyncio\nasync def f(x):\n    await asyncio.sleep(0.01)\n    return x\nasync def main():\n"
     "    print(sum(await asyncio.gather(*map(f, range(5)))))\nasyncio.run(main())", {"inputs": ["", ""], "outputs": ["10", "10"]}),
    ("pickle", "import pickle\nclass P:\n    def __init__(self): self.x = 7\nif __name__ == '__main__':\n    print(pickle.loads(pickle.dumps(P())).x)", once("7")),
    ("state is fresh", "import builtins, sys\nn = getattr(builtins, 'n', 0); builtins.n = n + 1\nprint(n)",
     {"inputs": ["", "", ""], "outputs": ["0", "0", "0"]}),
    ("late import", "import statistics, xml.dom.minidom, zlib, hashlib, unicodedata\nprint(statistics.median([1, 2, 9]))", once("2")),
    ("byte order mark", "\ufeffprint(7)", once("7")),
    ("closes stdin", "import sys\ns = sys.stdin.read(); sys.stdin.close(); print(len(s))", {"inputs": ["ab", "abc"], "outputs": ["2", "3"]}),
    ("lists of lines", "print(int(input()) + int(input()))", {"inputs": [["1", "2"]], "outputs": [["3"]]}),
    ("signal", "import signal\nsignal.signal(signal.SIGALRM, lambda *a: print(7))\nsignal.setitimer(signal.ITIMER_REAL, 0.01)\nsignal.pause()", once("7")),
    ("reads as much as stdin's file has", "import os, sys\nassert sys.stdin.mode == 'r'\nfd = sys.stdin.fileno()\nprint(sum(map(int, os.read(fd, os.fstat(fd).st_size).split())))", SUM),
    ("saves stdout until the end", "import sys, io, atexit\nreal, sys.stdout = sys.stdout, io.StringIO()\natexit.register(lambda: real.write(sys.stdout.getvalue()))\nprint(sum(map(int, input().split())))", SUM),
    ("opens descriptor 1", "import os\nout = os.fdopen(1, 'w')\nout.write(str(sum(map(int, input().split()))))", SUM),
    ("opens descriptor 1 and leaves it open", "out = open(1, 'w', closefd=False)\nout.write(str(sum(map(int, input().split()))))", SUM),
    ("writes with the original stdout", "import sys\nsys.__stdout__.write(str(sum(map(int, sys.__stdin__.read().split()))))", SUM),
    ("a stdout of its own class, which waits for the end", "import os, sys\nclass Out:\n    text = ''\n    def write(self, s): self.text += s\n    def flush(self): os.write(1, self.text.encode())\nsys.stdout = Out()\nprint(sum(map(int, input().split())))", SUM),
    ("grows mapped memory", "import mmap\nm = mmap.mmap(-1, 4096)\nm.resize(8192)\nprint(len(m))", once("8192")),
    ("input prompt is output", "x = input('x? ')\nprint(x)", once("x? 5", "5")),
]  # fmt: skip

CALLS = [
    ("Solution", "class Solution:\n    def f(self, x: List[int]) -> int: return sum(x)", calls("f", ([1, 2], 3), ([], 0))),
    ("json lines", "class Solution:\n    def f(self, s, k): return s * k", {"fn_name": "f", "inputs": ['"ab"\n2'], "outputs": ['"abab"']}),
    ("default imports", "class Solution:\n    def f(self, x: Optional[List[int]]):\n        heapify(x); d = defaultdict(int); d[0] += 1\n"
     "        return [heappop(x), bisect_left([1, 2], 2), gcd(4, 6), Counter('aa')['a'], inf > 1, reduce(lambda a, b: a + b, x)]\n",
     calls("f", ([3, 1, 2], [1, 1, 2, 2, True, 5]))),
    ("builtins stay builtins", "def f(x): return [pow(2, 3, 5), sum(x), abs(-1)]", calls("f", ([1, 2], [3, 3, 1]))),
    ("printing", "def f(x):\n    print('debug')\n    return x", calls("f", (1, 1))),
    ("guarded example", "def f(x): return x\nif __name__ == '__main__':\n    print(f(input()))", calls("f", (1, 1))),
    ("state is fresh", "seen = []\ndef f(x):\n    seen.append(x)\n    return len(seen)", calls("f", (1, 1), (2, 1), (3, 1))),
    ("a method named with its class", "class Solution:\n    def f(self, x): return x + 1", calls("Solution().f", (1, 2), (2, 3))),
    *[(f"a method named {name}, which is a default import", f"class Solution:\n    def {name}(self, *a): return len(a)", calls(name, (1, 2, 2))) for name in ("merge", "sorted")],
    ("a method named as a star import", "from re import *\nfrom heapq import *\nclass Solution:\n    def merge(self, *a): return len(a)", calls("merge", (1, 2, 2))),
    ("a function named as a default import", "def merge(*a): return len(a)\nclass Solution:\n    def merge(self): pass", calls("merge", (1, 2, 2))),
    ("imports what is asked for", "from math import gcd", calls("gcd", (4, 6, 2))),
    ("a cached function", "@functools.lru_cache\ndef gcd(a, b): return 7", calls("gcd", (4, 6, 7))),
    ("a method that is made in the constructor", "class Solution:\n    def __init__(self): self.f = lambda x: x + 1", calls("f", (1, 2))),
    ("modules over their names", "class Solution:\n    def f(self, a): return [bisect.bisect_left(a, 2), copy.deepcopy(a), datetime.date(2020, 1, 2).day, random.randint(3, 3)]", calls("f", ([1, 2], [1, [1, 2], 2, 3]))),
    ("recursion as deep as judges allow", "def f(n): return 0 if n == 0 else 1 + f(n - 1)", calls("f", (3000, 3000))),
]  # fmt: skip

HUMANEVAL = {
    "test": "METADATA = {}\n\ndef check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n",
    "entry_point": "f",
}

ASSERTS = [
    ("check", "def f(x): return sum(x)", HUMANEVAL),
    ("a method", "class Solution:\n    def __init__(self): self.start = 0\n    def f(self, x): return sum(x, self.start)", HUMANEVAL | {"entry_point": "Solution().f"}),
    ("imports and script", "def f(x): return math.sqrt(x)\nimport math",
     {"test_imports": ["import math"], "test_list": ["assert math.isclose(f(4), 2)"], "test": "for i in range(5):\n    assert f(i * i) == i"}),
    ("in place", "def f(x, d):\n    x.sort()\n    x[0].append(9)\n    d['k'] = d.pop('a')", {"test": "x, d = [[2], [1]], {'a': 1}\nf(x, d)\nassert x == [[1, 9], [2]] and d == {'k': 1}"}),
    ("state lives on", "n = 0\ndef f():\n    global n\n    n += 1\n    return n", {"test_list": ["assert f() == 1", "assert f() == 2"]}),
    ("helper of its own name in the setup", "def gcd(a, b): return a if not b else gcd(b, a % b)", {"test_imports": ["from math import *"], "test": "def check(candidate):\n    assert candidate(4, 6) == 2", "entry_point": "gcd"}),
    ("close arrays", "import numpy as np\ndef f(x): return np.array(x) / 2\ndef g(x): return x / 2", {"test": "import numpy as np\nassert np.allclose(f([1, 2]), [0.5, 1.0]) and np.allclose(g(5), 2.5) and np.allclose(f([]), [])\nnp.testing.assert_allclose(f([1]), [0.5])"}),
    ("star import after others", "import math\ndef f(x): return math.sqrt(x)\ndef g(x): return x", {"test": "import math\nfrom solution import *\nassert math.isclose(f(4), 2) and g(1) == 1"}),
    ("a list with a method of its own", "class Bag(list):\n    def add(self, x):\n        self.append(x)\n        return self", {"test": "assert list(Bag([1]).add(2)) == [1, 2]"}),
    ("key function", "def f(x, key): return sorted(x, key=key)", {"test": "assert f(['bb', 'a'], key=len) == ['a', 'bb']"}),
    ("generator", "def f(n):\n    for i in range(n): yield i", {"test": "g = f(3)\nassert next(g) == 0 and list(g) == [1, 2]\nassert 2 in f(3)"}),
    ("redefines a builtin for itself", "def max(x): return sorted(x)[-1]\ndef f(x): return max(x)", {"test": "assert max(1, 2) == 2 and f([1, 3]) == 3"}),
    ("sets and bytes", "def f(x): return {x}, b'a', frozenset([1]), 1j, range(3)", {"test": "assert f(1) == ({1}, b'a', frozenset([1]), 1j, range(3))"}),
    ("a constant", "LIMIT = [1, 2]", {"test": "assert LIMIT == [1, 2]"}),
    ("uses printed bytes", "import sys\ndef f(x): sys.stdout.buffer.write(b'hello')\nf(0)", {"test": "import io\nfrom contextlib import redirect_stdout\nf(0)\nout = io.StringIO()\nwith redirect_stdout(out):\n    f(1)\nassert out.getvalue() == 'hello'"}),
    ("input at its end", "def f():\n    try: return input()\n    except EOFError: return 'none'", {"test": "assert f() == 'none'"}),
    ("equal arrays", "import numpy as np\ndef f(n): return np.arange(n)", {"test": "import numpy as np\nassert (f(3) == np.array([0, 1, 2])).all()\nassert np.array_equal(f(2), [0, 1]) and f(4).sum() == 6 and f(2).dtype.kind == 'i'"}),
    ("an array changed in place", "def f(a): a[0] = 9", {"test": "import numpy as np\na = np.zeros(2)\nf(a)\nassert a.tolist() == [9, 0]"}),
    ("a builtin under a name to check", "conv = list", {"test": "def check(candidate):\n    assert candidate('ab') == ['a', 'b']", "entry_point": "conv"}),
    ("a builtin's name beside a star import", "def sorted(x): return x[::-1]", {"test_imports": ["from math import *"], "test_list": ["assert sorted([1, 2]) == [2, 1]"]}),
    ("a function named as a module", "def copy(x): return [x]", {"test_list": ["assert copy(1) == [1]"]}),
    ("imports with another way", "def f(x): return x + 1", {"test": "try:\n    import no_such_json as json\nexcept ImportError:\n    import json\ntry:\n    from no_such_module import f\nexcept ImportError:\n    from solution import f\nassert json.dumps(f(1)) == '2'"}),
    ("a helper named like a test", "def f(x): return x + 1", {"test": "def test_case(x, y): assert f(x) == y\ntest_case(1, 2)\ndef test_one(g=f): assert g(1) == 2\ndef test_two(): test_one()"}),
    ("tests in threads", "def f(x): return x + 1", {"test": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as pool:\n    assert list(pool.map(f, range(50))) == list(range(1, 51))"}),
    ("where the tests are", "def f(x): return x + 1", {"test": "import os, sys\nsys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))\nassert f(1) == 2"}),
    ("a result under the function's name", "def total(x): return sum(x)", {"test": "total = total([1, 2])\nassert total == 3"}),
    ("helpers that the tests forgot to import", "def f(s): return {c: s.count(c) for c in s}", {"test_list": ["assert f('aab') == Counter('aab')", "assert math.isclose(f('a')['a'], 1) and np.allclose(f('a')['a'], 1)"]}),
    ("a class named as a helper, by a star import", "class Counter:\n    def __init__(self): self.n = 0\n    def inc(self): self.n += 1", {"test": "from solution import *\ndef test_a():\n    c = Counter()\n    c.inc()\n    assert c.n == 1"}),
    ("a test without an underscore", "def f(x): return x + 1", {"test": "from solution import f\ndef testOne():\n    assert f(1) == 2"}),
    ("names of the tests' scopes", "def f(x): return x + 1", {"test": "def test_a():\n    cases = [(1, 2), (2, 3)]\n    for given, wanted in cases:\n        assert f(given) == wanted, f'{given}'\nclass Helper:\n    limit = 3\n    def get(self): return [limit for limit in range(self.limit)]\ndef test_b():\n    assert [f(x) for x in Helper().get()] == [1, 2, 3]"}),
    ("a class to subclass in setup", "def build(x): return {'v': x}", {"test_setup_code": "root = build(3)", "test_list": ["assert root == {'v': 3}"]}),
]  # fmt: skip

BENIGN = [
    (f"{kind}: {name}", program, tests)
    for kind, table in (("stdin", STDIN), ("calls", CALLS), ("asserts", ASSERTS))
    for name, program, tests in table
]
NEEDS_TEMPORARY_DIRECTORY = [  # tier A only
    ("tempfile", "import tempfile, os\nwith tempfile.TemporaryDirectory() as d:\n    p = os.path.join(d, 'x')\n"
     "    open(p, 'w').write('7')\n    print(open(p).read())", {"inputs": ["", ""], "outputs": ["7", "7"]}),
    ("file in /tmp", "open('/tmp/x.txt', 'w').write('7')\nprint(open('/tmp/x.txt').read())", once("7")),
    ("database", "import sqlite3\nc = sqlite3.connect('x.db')\nc.execute('create table t (a)')\nc.execute('insert into t values (7)')\n"
     "c.commit()\nprint(*c.execute('select * from t').fetchone())", once("7")),
]  # fmt: skip
