"""The code reward: from completions to rewards."""

import http.server
import json
import threading

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from delta_trl.rewards.code import CodeReward, code_reward, extract_program
from delta_trl.sandbox import Outcome, parse_tests, remote

from ..corpus.bytes import BYTES


ADD = {"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}
RIGHT = "```python\nprint(sum(map(int, input().split())))\n```"


@pytest.mark.parametrize(
    ("completion", "program"),
    [
        ("```python\na\n```\nNo:\n```python\nb\n```\nDone.", "b\n"),
        ("```py\na\n```\nOutput:\n```\n3\n```", "a\n"),
        ("~~~python\na\n~~~", "a\n"),
        ("````python\n```\n````", "```\n"),
        ("```code\na\n```\n```text\nb\n```\n```code\nc\n```", "c\n"),
        ("```python\na\n\nBetter:\n```python\nb\n```", "b\n"),
        ("```python\na\n``` This works.\n```\n3\n```", "a\n"),
        ("print(1)", "print(1)"),
        ("<thinking>```python\na\n```</thinking>\n```python\nb\n```", "b\n"),
        ("```python\na\nb```", "a\nb"),
        ("text\r\n```\r\na\r\n```\r\n```bash\r\nls\r\n```\r\n", "a\r\n"),
        ("- So:\n\t```python\n\tif a:\n\t\tb\n\n\tc\n\t```", "if a:\n\tb\n\nc\n"),
        ("  ```python\n\n  if a:\n    b\n", "\nif a:\n  b\n"),
        ("```python\n\n```", "```python\n\n```"),
        (" \n", None),
        ("```python\nprint('<think>')\n```", "print('<think>')\n"),
        ("```python\na\n```\n<think>\n```python\nb\n```", None),
        ("```python\na\n```\n```python", "a\n"),
        (
            '```python\ndef f():\n    """\n    ```\n    f()\n    ```\n    """\n```',
            'def f():\n    """\n    ```\n    f()\n    ```\n    """\n',
        ),
        ("```Python3.11\na\n```\n```\nb\n```", "a\n"),
        ("```{python}\na\n```\n```\nb\n```", "a\n"),
        ("a = 1\n```", "a = 1\n"),
        ("def f():\n    pass\n```\nIt does nothing.", "def f():\n    pass\n"),
        ("print(input())\n```\nIt needs input() and print().\n```\n2\n```", "print(input())\n"),
        ("time = O(n):\n```python\na\n```", "a\n"),
        ("So:\n```\na = 1", "a = 1"),
        ("\u200b```python\na\n```", "a\n"),
        ("```pytest\na\n```\n```\nb\n```", "b\n"),
        ("```python\na\n   ```\nOutput:\n```\n3\n```", "a\n"),
        ("- So:\n    ```python\n    a\n    ```\n    Output:\n    ```\n    3\n    ```", "a\n"),
        ("```python\na\n````\nDone.", "a\n"),
        ("```python\na\n```\n</think>\n```python\nb\n```\n</think>\nc = 1", "\nc = 1"),
    ],
)
def test_program_of_a_completion(completion, program):
    assert extract_program(completion) == program


BEGINNINGS = [
    *("import os", "from os import *", "def f(): 1", "class A: 1", "async def f(): 1", "for i in x: 1", "while 1: 1"),
    *("if 1: 1", "try: 1", "with f: 1", "@f\ndef g(): 1", "print(1)", "a, b[0] = 1, 2", "# One\n\nx = 1", "  x = 1"),
]


@pytest.mark.parametrize("code", BEGINNINGS)
def test_a_fence_ends_what_begins_as_code(code):
    """The prompt has opened the block."""
    assert extract_program(f"{code}\n```\nIt ends.").strip() == code.strip()


SOLUTION = "```python\ndef sq(n):\n    return n * n\n```\nThen:\n```python\n"
READER = "```python\nn = int(input())\nprint(n * n)\n```\nThen:\n```python\n"
SQUARES = [
    {"fn_name": "sq", "inputs": [[2]], "outputs": [4]},
    {"test_list": ["assert abs(sq(2)) == 4"]},
    {"test": "def check(candidate):\n    assert candidate(2) == 4", "entry_point": "sq"},
    {"test": "from solution import sq\ndef test_a(): assert sq(2) == 4"},
]


@pytest.mark.parametrize(
    "example",
    [
        "# sq(2) is 4",
        "[1, 4]",
        "print(list(map(sq, [1, 2])))",
        "import timeit\nprint(timeit.timeit('sq(2)', globals=globals()))",
        "from solution import sq",
        "result = sq(2)\nresult",
        "$ python solution.py",
        "def test_a():\n    assert sq(2) == 4",
        "def sq(n): ...",
        "async def sq(n): ...",
        'def sq(n: int) -> int:\n    "A square."\n    # to be written\n    pass',
        'import math\nfrom math import prod\n\n@cache\ndef sq(\n    n: int = (2),\n):\n    r"""A "square"."""',
        "class Sq:\n    'Of n.'\n    def sq(self, n):\n        '''A\nsquare.'''\n        raise NotImplementedError(n)",
        "n = int(input())",
    ],
)
def test_the_program_is_what_defines_what_the_tests_ask_for(example):
    completions = [f"{SOLUTION}{example}\n```"] * 4 + [f"{READER}{example}\n```"]
    assert code_reward(completions, [*SQUARES, {"inputs": ["2"], "outputs": ["4"]}]) == [1.0] * 5


FROM_2_AND_3 = {"inputs": ["2", "3"], "outputs": ["4", "9"]}


@pytest.mark.parametrize(
    ("program", "tests"),
    [
        ("async def sq(n): return n * n", {"test": "import asyncio\nassert asyncio.run(sq(2)) == 4"}),
        ("class Square: area = 4", {"test": "assert Square().area == 4"}),
        ("class Solution:\n    def sq(self, n): return n * n", {**SQUARES[2], "entry_point": "Solution().sq"}),
        ("sq: object = lambda n: n * n", SQUARES[0]),
        # only `check` is called with the entry point
        ("def sq(n): return n * n", {"test": "def test_a(): assert sq(2) == 4", "entry_point": "sq"}),
        ("def sq(n): return n * n", {"test_setup_code": "four = sq(2)", "test_list": ["assert four == 4"]}),
        ("import sys\nfor line in sys.stdin: sys.stdout.write(str(int(line) ** 2))", FROM_2_AND_3),
        ("import fileinput\nfor line in fileinput.input(): print(int(line) ** 2)", FROM_2_AND_3),
        ("print(int(open(0).read()) ** 2)", FROM_2_AND_3),
        ("import os\nos.write(1, b'%d' % int(os.read(0, 9)) ** 2)", FROM_2_AND_3),
    ],
)
def test_ways_to_define_and_to_read_and_write(program, tests):
    completion = f"```python\n{program}\n```\nWhat else prints a square:\n```python\nprint(4)\n```"
    assert code_reward([completion], [tests]) == [1.0]


def test_the_last_definition_counts_and_an_unmarked_one_does_too():
    wrong = "```python\nsq = lambda n: 0\n```"
    unmarked = "```\nsq = lambda n: n * n\n```\n```python\nprint(1)\n```"
    java = "```java\nclass sq {}\n```"
    completions = [f"{SOLUTION}```\n{wrong}", f"{wrong}\n{SOLUTION}```", unmarked, f"{SOLUTION}```\n{java}"]
    assert code_reward(completions, SQUARES[:1] * 4) == [0.0, 1.0, 1.0, 1.0]
    unmarked_reader = "```\nprint(int(input()) ** 2)\n```\nPowers:\n```python\nprint(2 ** 2)\n```"
    assert code_reward([unmarked_reader], [FROM_2_AND_3]) == [1.0]
    halves = "One:\n```python\ndef f(): 1\n```\nTwo:\n```python\ndef g(): 2\n```"
    assert extract_program(halves, parse_tests({"test": "assert f() < g()"})) == "def g(): 2\n"


BODY = "    return n * n\n"


@pytest.mark.parametrize(
    ("prompt", "completion", "reward"),
    [
        ("def sq(n):\n", BODY, 1.0),
        ("def sq(n):", "\n" + BODY, 1.0),
        ("from math import prod as times\n\n\ndef sq(n):\n", "    return times([n, n])\n\n\nprint(sq(2))", 1.0),
        ('Square it.\n```python\ndef sq(n):\n    """\n    >>> sq(1)\n    1\n    """\n', BODY + "```\nDone.", 1.0),
        ("~~~python\ndef sq(n):\n", BODY + "  ~~~", 1.0),
        ("Explain it.\n```python\ndef sq(n):\n    return n * n\n```\n", "```python\nprint(sq(2))\n```", 0.0),
        ("import math as m\n\ndef sq(n):\n", "    return m.prod([n, n])\n", 1.0),
        ("class One: n = 1\n\ndef sq(n):\n", "    return n * n * One.n\n", 1.0),
        ("Square it.\n@lambda f: lambda n: f(n) * n\ndef sq(n):\n", "    return n\n", 1.0),
        ("Square it.\n[BEGIN]\n", f"def sq(n):\n{BODY}[DONE]\n\nNow cube it.", 1.0),
        ("Square it.", f"[BEGIN]\ndef sq(n):\n{BODY}[DONE]", 1.0),
        ("Square it.", f"[PYTHON]\ndef sq(n):\n{BODY}[/PYTHON]<|im_end|>", 1.0),
        ("def sq(n):\n", f"```python\n{BODY}```", 1.0),
        ("def sq(n):\n", BODY + "</s>", 1.0),
        ("def sq(n):\n    return n * n\n", "I do not know.", 0.0),
        ("def sq(n):\n    return n * n\n", "def sq(n):\n    return 0", 0.0),
        ("One base:\nclass Base:\n    power = 2\n", "```python\ndef sq(n): return n**Base.power\n```", 0.0),
        ([{"role": "user", "content": "def sq(n):\n"}], [{"role": "assistant", "content": BODY}], 0.0),
    ],
)
def test_a_completion_may_continue_the_code_of_its_prompt(prompt, completion, reward):
    assert code_reward([completion] * 4, SQUARES, prompts=[prompt] * 4) == [reward] * 4


def test_code_of_the_prompt_that_the_tests_ask_for_belongs_to_the_program():
    tests = {"test": "node = Node(2)\nassert sq(node) == 4"}
    prompt = "Square the node.\nclass Node:\n    def __init__(self, n): self.n = n\n"
    completion = "```python\ndef sq(node): return node.n ** 2\n```"
    assert code_reward([completion], [tests], prompts=[prompt]) == [1.0]


ONE_CALL = {"fn_name": "f", "inputs": [[1]], "outputs": [1]}


def test_rewards_and_verdicts():
    ends_with_its_code = RIGHT.replace("\n```", "```")
    rows = [
        (RIGHT, ADD, 1.0, "passed 2 of 2"),
        ([{"role": "assistant", "content": RIGHT}], json.dumps(ADD), 1.0, "passed 2 of 2"),
        (f"{ends_with_its_code} \n", ADD, 1.0, "passed 2 of 2"),
        (f"{ends_with_its_code} <eos>\n", ADD, 1.0, "passed 2 of 2"),
        ("```python\nprint(3)\n```", ADD, 0.0, "wrong answer on test 2 of 2"),
        ("[print(sum(map(int, input().split())))]", ADD, 1.0, "passed 2 of 2"),
        ("", ADD, 0.0, "no Python program"),
        ("Add both, of course.", ADD, 0.0, "no Python program"),
        ("x = 1\nprint(", ADD, 0.0, "SyntaxError in line 2 on test 1 of 2"),
        ("```python\nx = 1\n\n  y = 2\n```", ADD, 0.0, "IndentationError in line 3 on test 1 of 2"),
        ("```python\nif 1:\n        x = 1\n\ty = 2\n```", ADD, 0.0, "TabError in line 3 on test 1 of 2"),
        ("~~~\nx = (\n~~~", ADD, 0.0, "SyntaxError in line 1 on test 1 of 2"),
        ("[PYTHON]\nx = (\n[/PYTHON]", ADD, 0.0, "SyntaxError in line 1 on test 1 of 2"),
        ("```\ndef f(x)\n```", ONE_CALL, 0.0, "SyntaxError in line 1 on test 1 of 1"),
        ("```\nx = 1\nf = (\n```", {"test": "assert f(1)"}, 0.0, "SyntaxError in line 2 on test 1 of 1"),
        ("x = 1\n  y = 2", {"test": "assert f(1)"}, 0.0, "IndentationError in line 2 on test 1 of 1"),
        ("import os\ndef f(x): os._exit(0)", {"test": "assert f(1)"}, 0.0, "exception on test 1 of 1"),
        ("import os\ndef f(x): os._exit(0)", ONE_CALL, 0.0, "wrong answer on test 1 of 1"),
        ("It is f.", {"test": "assert f(1)"}, 0.0, "no Python program"),
        ("```\nf\n```</think>It is f.", {"test": "assert f(1)"}, 0.0, "no Python program"),
        ("```python\neval('(')\n```", ADD, 0.0, "exception on test 1 of 2"),
        ("def f(x): raise MemoryError", {"test": "assert f(1)"}, 0.0, "memory on test 1 of 1"),
        ("def f(x): return 1", {"test_list": ["assert f(1)", "assert f(0) == 0"]}, 0.0, "wrong answer on test 2 of 2"),
        (
            "def f(x): return 1",
            {"test": "assert f(lambda: 1)"},
            0.0,
            "tests that hand over their own objects on test 1 of 1",
        ),
        (RIGHT, {"inputs": []}, None, "unusable tests"),
        (RIGHT, {"test": "import no_such_module\nassert f(1)"}, None, "unusable tests"),
    ]
    completions, tests, wanted, verdicts = map(list, zip(*rows, strict=True))
    logged, metrics = {}, {}
    hooks = {"log_extra": logged.__setitem__, "log_metric": metrics.__setitem__}
    assert code_reward(completions, tests, prompts=["p"] * len(rows), **hooks) == wanted
    assert logged["code_verdict"] == verdicts
    assert metrics == {"code_reward/ungraded": pytest.approx(2 / len(rows))}
    assert code_reward([], []) == []


def test_what_a_program_awaits_may_go_on_in_its_next_call():
    program = """
import asyncio
class Box:
    async def put(self, n):
        self.task = asyncio.create_task(asyncio.sleep(0.01, n))
    async def get(self):
        return await self.task
"""
    test = """
import asyncio
async def both():
    box = Box()
    await box.put(4)
    assert await box.get() == 4
asyncio.run(both())
"""
    assert code_reward([f"```python{program}```"], [{"test": test}]) == [1.0]


def test_partial_credit_counts_functions_and_cases():
    reward = CodeReward(partial_credit=True)
    functions = "def test_a(): assert f(1) == 1\ndef test_b(): assert f(2) == 0"
    suite = {"test_list": [functions, "assert f(3) == 3"]}
    completions = ["```python\nprint(3)\n```", "```python\ndef f(x): return x\n```"]
    assert reward(completions, [ADD, suite]) == [0.5, pytest.approx(2 / 3)]


def test_options_reach_the_sandbox():
    slow, large = ["import time; time.sleep(0.5); print(1)"], ["x = bytearray(300 << 20); print(1)"]
    tests = [{"inputs": [""], "outputs": ["1"]}]
    assert CodeReward(memory_mb=200)(slow, tests) == CodeReward()(large, tests) == [1.0]
    assert CodeReward(timeout=0.3)(slow, tests) == CodeReward(memory_mb=200)(large, tests) == [0.0]
    assert CodeReward(workers=3).sandbox.workers == 3
    weaker = CodeReward(tier="B")  # where the better one may work, too
    assert weaker(slow, tests) == [1.0]
    assert weaker.sandbox.tier == "B"
    server = CodeReward(remote_url="", workers=3).sandbox  # an address that somebody forgot to set: nothing runs here
    assert not server.is_local
    assert server.workers == 3


def test_a_prompt_may_open_the_block_or_the_reasoning():
    cases = [
        ("Print 1.\n```python\n", "print(1)\n```\nIt prints 1.", 1.0),
        ("1.\n<think>\n", "```python\nprint(1)\n```", 0.0),
    ]
    prompts, completions, expected = map(list, zip(*cases, strict=True))
    tests = [{"inputs": [""], "outputs": ["1"]}] * 2
    assert code_reward(completions, tests, prompts=prompts) == expected
    completions = ["```python\nprint(1)\n```", "```python\nprint(2)\n```</think>print(1)"]
    assert code_reward(completions, tests) == [1.0, 1.0]
    assert CodeReward(reasoning_opened=True)(completions, tests) == [0.0, 1.0]


def test_only_a_last_message_of_the_assistant_is_continued():
    begun = {"role": "assistant", "content": "```python\ndef f(x):\n    return x\n"}
    prompts = [[begun], [begun, {"role": "user", "content": "Go on."}]]
    tests = [{"test_list": ["assert f(1) == 1"]}] * 2
    assert code_reward(["y = 1\n```"] * 2, tests, prompts=prompts) == [1.0, 0.0]


def run_here(request: dict) -> bytes:
    """What SandboxFusion answers, from the local sandbox."""
    result = code_reward.sandbox.run(request["code"], request["stdin"])
    code = int(result.outcome is not Outcome.OK)
    run = {"status": "Finished", "return_code": code, "stdout": result.stdout.decode()}
    return json.dumps({"status": "Success", "run_result": run}).encode()


class Fusion(http.server.BaseHTTPRequestHandler):
    """A server that speaks SandboxFusion's protocol."""

    failures = 0
    requests = 0
    answer = staticmethod(run_here)
    missing = 0  # bytes that are promised and do not come

    def do_POST(self):
        Fusion.requests += 1
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if Fusion.failures > 0 or self.path not in ("/run_code", "/proxy/run_code"):
            Fusion.failures -= 1
            self.send_error(503, "busy\x1b[2J")
            return
        body = Fusion.answer(request)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body) + Fusion.missing))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(remote, "RETRY_SECONDS", 0.01)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Fusion) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,)).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_remote_server(server, caplog):
    reward = CodeReward(remote_url=server)
    call = {"fn_name": "f", "inputs": [[[2, 1]]], "outputs": [[1, 2]]}
    solution = (
        "```python\nclass Solution:\n    def f(self, x: List[int]):\n        print(9)\n        return sorted(x)\n```"
    )
    completions = [RIGHT, "```python\nprint(3)\n```", solution, "```python\ndef f(x): return x\n```"]
    assert reward(completions, [ADD, ADD, call, call]) == [1.0, 0.0, 1.0, 0.0]
    assert reward([solution], [{"test": "assert f(1)"}]) == [None]
    Fusion.failures = 2
    assert reward([RIGHT], [ADD]) == [1.0]
    Fusion.failures = 100
    assert reward([RIGHT], [ADD]) == [None]
    Fusion.failures = 0
    assert r"busy\x1b[2J" in caplog.text  # what a server says does not act on the terminal
    assert "\x1b" not in caplog.text


def test_a_remote_server_gets_the_limits_and_says_what_ended_a_program(server, monkeypatch):
    requests, logged = [], {}
    slow = {"status": "Failed", "run_result": {"status": "TimeLimitExceeded", "return_code": None, "stdout": "3\n"}}
    failed = {"status": "Failed", "run_result": {"status": "Finished", "return_code": 1, "stdout": "\ud800"}}
    ended = {"status": "Success", "run_result": {"status": "Finished", "stdout": "3\n"}}
    answers = {"slow = 1": slow, "x = 1": failed, "y = 1": ended}

    def answer(request):
        requests.append(request)
        return json.dumps(answers[request["code"]]).encode()

    monkeypatch.setattr(Fusion, "answer", answer)
    monkeypatch.setattr(remote, "OVERHEAD_SECONDS", 0.0)
    reward = CodeReward(timeout=2.5, memory_mb=77, remote_url=f"{server}/proxy/")
    assert reward(list(answers), [ADD] * 3, log_extra=logged.__setitem__) == [0.0] * 3
    assert logged["code_verdict"] == ["timeout on test 1 of 2", *["exception on test 1 of 2"] * 2]
    for request in requests:
        assert (request["run_timeout"], request["memory_limit_MB"]) == (2.5, 77)
        assert (request["language"], request["stdin"]) == ("python", "1 2")


VALUES = st.one_of(
    st.none(), st.integers(-1, 1), st.lists(st.integers()), BYTES.map(lambda part: part.decode("latin-1"))
)
STATUS = st.sampled_from(["Success", "Finished", "TimeLimitExceeded", "SandboxError"])
RUNS = st.fixed_dictionaries({"status": STATUS | VALUES}, optional=dict.fromkeys(("return_code", "stdout"), VALUES))
REPLIES = st.fixed_dictionaries({"status": STATUS | VALUES}, optional={"run_result": RUNS | VALUES, "message": VALUES})


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(REPLIES.map(lambda reply: json.dumps(reply).encode()) | BYTES)
def test_whatever_a_remote_server_answers_raises_nothing(server, body):
    call = {"fn_name": "f", "inputs": [[1]], "outputs": [7]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Fusion, "answer", lambda request: body)
        rewards = CodeReward(remote_url=server)([RIGHT, "```python\ndef f(x): return 7\n```"], [ADD, call])
    assert set(rewards) <= {0.0, 1.0, None}


@pytest.mark.parametrize(
    ("body", "missing", "reason"),
    [
        (b'{"status": "Success", "run_result": "7"}', 0, "TypeError"),
        (b'{"status": "Success", "run_result": {}}', 0, "KeyError"),
        (b'{"status": "SandboxError", "message": "no disk"}', 0, "no disk"),
        (b"7", 0, "TypeError"),
        (b"[" * 100_000, 0, "RecursionError"),
        (b'{"status":', 1000, "IncompleteRead"),
    ],
)
def test_a_remote_answer_that_is_none(body, missing, reason, server, monkeypatch, caplog):
    """Also one that stops halfway: tried again, and then no reward."""
    for name, value in (("answer", lambda request: body), ("missing", missing), ("requests", 0)):
        monkeypatch.setattr(Fusion, name, value)
    logged = {}
    assert CodeReward(remote_url=server)([RIGHT], [ADD], log_extra=logged.__setitem__) == [None]
    assert logged["code_verdict"] == ["sandbox error"]
    assert Fusion.requests == 3
    for attempt, message in zip((1, 2, 3), caplog.messages, strict=True):
        assert f"attempt {attempt} of 3" in message
        assert reason in message
