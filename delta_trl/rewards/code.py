"""The code reward: does the program in the completion pass its unit tests?"""

import functools
import io
import logging
import re
import textwrap
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ..sandbox import Limits, RemoteSandbox, Sandbox, TestsError, grade, parse_tests
from ..sandbox.grading import is_syntax_error
from ..sandbox.unit_tests import METHOD, CallTests, Suite, Tests
from .grader.extraction import REASONING_BEGINS, REASONING_ENDS, Completions
from .reasoning import Log, begun_texts, graded_texts, no_log, refuse_ungradable


logger = logging.getLogger(__name__)

PYTHON = re.compile(r"\W{0,2}py(?:thon)?[\d.]*(?![\w-])", re.IGNORECASE)
# Anything may stand before a mark of Python: a heading, `<answer>`
FENCE = re.compile(
    r"(?P<lead>[ \t]*+)(?:[^`~]*+(?=[`~]{3,}+\W{0,2}py))?(?P<mark>`{3,}+|~{3,}+)(?P<info>[^`]*+)", re.IGNORECASE
)
TAG = r"(?m)^\[(?:/?PYTHON|BEGIN|DONE)\][ \t]*$"  # around code in few-shot prompts
BEGINS_AS_CODE = re.compile(
    r"(?:\s|#[^\n]*\n)*+(?:(?:import|from|def|class|async|for|while|if|try|with)\b|@\w|print\(|[\w.,\[\] \t]*=)"
)
# A function or class, also inside another, or an assigned name
DEFINED = re.compile(r"^(?:[ \t]*+(?:async +)?(?:def|class) +|(?=\w+ *(?::[^=\n]*)?=(?!=)))(\w+)", re.MULTILINE)
CALLED = re.compile(r"(?<![\w.])(\w++)[ \t]*+\(")
READS = re.compile(r"\b(?:input|open) *\(|\b(?:stdin|fileinput)\b|\bos\.read\b")
WRITES = re.compile(r"\b(?:print|stdout|os\.write)\b")
PARAMETERS = r"\((?:[^()]++|\((?:[^()]++|\([^()]*+\))*+\))*+\)"
DOCSTRING = r"""[rR]?(?:"{3}.*?"{3}|'{3}.*?'{3}|"[^"\n]*"|'[^'\n]*')"""
# Signatures whose bodies are still to be written, with what may stand around them
NO_BODY = re.compile(
    rf"(?:\s++|(?:#|@|from\b|import\b|raise NotImplementedError\b)[^\n]*+|\.\.\.|pass\b|{DOCSTRING}"
    rf"|(?:async ++)?def ++\w++\s*+{PARAMETERS}\s*+(?:->[^:\n]++)?:|class ++\w++[^:\n]*+:)*+",
    re.DOTALL,
)
# From the first line of code on
CODE_IN_PROMPT = re.compile(r"(?m:^)(?:from [\w.]+ import |import \w|(?:async )?def |class |@\w).*", re.DOTALL)
NO_PROGRAM = "no Python program"
FENCED = r"(?m)^[ \t]*+(?:```|~~~)"


Block = tuple[int, str]  # likelihood and content


def likelihood(info: str) -> int:
    """How likely a block is a program by what stands after its opening backticks: 2 for Python, 1 for nothing."""
    if PYTHON.match(info.strip()):
        return 2
    return 0 if info.strip() else 1


def ends(fence: re.Match, opening: re.Match) -> bool:
    """Whether a fence ends a block. One that is indented further is part of the block, as in a docstring's example."""
    is_indented = len(fence["lead"]) > len(opening["lead"]) + 3
    return fence["mark"].startswith(opening["mark"]) and not is_indented


def extract_program(text: str, tests: Tests | None = None, prompt: str = "") -> str | None:
    """
    The program of a completion: the last block of Python with a body that defines what the tests ask for; if they ask
    for no name, the last that reads and writes. Without such a block it is the last block marked as Python; otherwise
    the last unmarked block; otherwise the last block; without fences, the whole text.

    A completion may continue its prompt: if it does not define what the tests ask for, and the prompt's code with it
    does, both together are the program.

    Args:
        text (`str`): The completion. Only what follows its reasoning (`</think>`, `</reasoning>`) counts.
        tests (`Tests`, *optional*): The tests that the program has to pass.
        prompt (`str`, *optional*, defaults to `""`): The text that the completion continues.

    Returns:
        `str | None`: `None` if there is no text, or reasoning that is not closed.
    """
    text = re.sub(TAG, "```", REASONING_ENDS.split(text)[-1])
    blocks = read_blocks(text)
    if not blocks or not text.strip():
        return None
    begun = "".join(CODE_IN_PROMPT.findall(prompt.rpartition("```")[2]))  # a closed block is not continued
    defined = set().union(*map(defined_names, [begun, *(content for _, content in blocks)]))
    asked = called_names(tests) & defined
    block = last_program(blocks, asked)
    program = textwrap.dedent(block)
    if asked <= defined_names(program):
        return program
    written = re.split(FENCED, text, maxsplit=1)[0]
    continued = begun + (written if written.strip() else f"\n{block}")
    return continued if asked <= defined_names(continued) else program


def read_blocks(text: str) -> list[Block]:
    """Likelihood and content of each fenced block that is not blank; without such blocks, the text as Python."""
    blocks: list[Block] = []
    opening: re.Match | None = None
    content = ""
    for line in io.StringIO(text):
        fence = FENCE.fullmatch(line)
        if opening is None and REASONING_BEGINS.search(line):
            return []  # unclosed reasoning; inside a block the tag is part of the program
        if fence is None or (opening is not None and not ends(fence, opening)):
            content += line
            continue
        likely = likelihood(fence["info"])
        if opening is not None:
            blocks.append((likelihood(opening["info"]), content))
            opening = fence if likely == 2 else None
        elif not blocks and likely == 1 and BEGINS_AS_CODE.match(text):
            blocks.append((1, content))  # the fence closes what the prompt has opened
        else:
            opening = fence
        content = ""
    if opening is not None:  # the completion ends inside its last block
        content = content.removesuffix(opening["mark"])  # print(1)```
        blocks.append((likelihood(opening["info"]), content))
    return [block for block in blocks if block[1].strip()] or [(2, text)]


def called_names(tests: Tests | None) -> set[str]:
    """The names that tests ask a program for, and others that they call."""
    match tests:
        case CallTests(function=name):
            return {name}
        case Suite(entry_point=str(name)):
            return {name.removeprefix(METHOD)}
        case Suite():
            code = "\n".join([tests.setup, *tests.units])
            return set(CALLED.findall(code)) - defined_names(code)
    return set()


def defined_names(code: str) -> set[str]:
    """The functions, classes and names that code defines."""
    return set(DEFINED.findall(textwrap.dedent(code)))


def last_program(blocks: list[Block], asked: set[str]) -> str:
    """The last of the blocks that suit best; see `extract_program`."""

    def rank(block: Block) -> tuple[bool, int]:
        likely, code = block
        if asked:
            return asked <= defined_names(code) and not NO_BODY.fullmatch(code), likely
        return bool(READS.search(code) and WRITES.search(code)), likely

    return max(reversed(blocks), key=rank)[1]


def is_prose(text: str) -> bool:
    """Whether a completion has no block, and does not begin as code does."""
    answer = re.sub(TAG, "```", REASONING_ENDS.split(text)[-1])
    return not re.search("```|~~~", answer) and not BEGINS_AS_CODE.match(answer)


class CodeReward:
    r"""
    Unit tests as a reward.

    Args:
        timeout (`float`, *optional*, defaults to `6.0`): Wall-clock seconds that one test may take.
        memory_mb (`int`, *optional*, defaults to `1024`): Address space of one test, in MiB.
        workers (`int`, *optional*):
            Tests that run at the same time in each training process; by default its share of the processors.
        partial_credit (`bool`, *optional*, defaults to `False`):
            Reward the fraction of tests passed; otherwise 1.0 for all tests and 0.0 for fewer.
        tier (`str`, *optional*): See `Sandbox`.
        remote_url (`str`, *optional*): Run programs on this server instead of this machine; see `RemoteSandbox`.
        reasoning_opened (`bool`, *optional*):
            Whether the chat template ends the prompt with `<think>`, which rewards do not see. A completion that does
            not close it scores 0. By default, the trainer and the commands ask the template.

    Example:

    ```python
    >>> program = "```python\nprint(sum(map(int, input().split())))\n```"
    >>> code_reward([program], tests=[{"inputs": ["1 2", "3 4"], "outputs": ["3", "7"]}])
    [1.0]
    ```
    """

    __name__ = "code_reward"

    def __init__(
        self,
        timeout: float = 6.0,
        memory_mb: int = 1024,
        workers: int | None = None,
        partial_credit: bool = False,
        tier: str | None = None,
        remote_url: str | None = None,
        reasoning_opened: bool | None = None,
    ):
        self.limits = Limits(wall_seconds=timeout, memory_mb=memory_mb)
        self.partial_credit = partial_credit
        self.reasoning_opened = reasoning_opened
        self.sandbox_options = (workers, tier, remote_url)
        self.sandbox  # noqa: B018 (wrong options raise now, not at the first batch)

    @property
    def sandbox(self) -> Sandbox | RemoteSandbox:
        """Looked up at each use: a reward is pickled without its processes."""
        return get_sandbox(*self.sandbox_options)

    def __call__(
        self,
        completions: Completions,
        tests: list[dict | str],
        log_extra: Log = no_log,
        log_metric: Log = no_log,
        prompts: list | None = None,
        **kwargs: Any,
    ) -> list[float | None]:
        """
        Grade completions.

        Args:
            completions (`list[str] | list[list[dict]]`): Strings, or chat messages.
            tests (`list[dict | str]`): For each completion, a dict or its JSON in a format of docs/sandbox.md.
            log_extra (`Log`, *optional*): TRL's hook for the completions table; gets each verdict.
            log_metric (`Log`, *optional*):
                TRL's hook for metrics; gets the share of completions that could not be graded.
            prompts (`list`, *optional*):
                Of each completion, texts or chat messages. A completion may continue the code of its prompt, and a
                prompt that ends with `<think>` opens its reasoning.

        Returns:
            `list[float | None]`: 1.0 or 0.0 (or the fraction of tests passed); `None` where the tests cannot be used
            or the sandbox failed.

        Raises:
            ValueError: If there are not as many `tests` as completions.
        """
        refuse_ungradable(completions, tests=tests)
        texts = graded_texts(completions, prompts, self.reasoning_opened)
        begun = begun_texts(prompts, len(texts))
        jobs = list(zip(texts, tests, begun, strict=True))
        with ThreadPoolExecutor(self.sandbox.workers) as threads:
            graded = list(threads.map(lambda job: self._grade(*job), jobs))
        rewards = [reward for reward, _ in graded]
        log_extra("code_verdict", [verdict for _, verdict in graded])
        log_metric("code_reward/ungraded", rewards.count(None) / max(len(rewards), 1))
        return rewards

    def _grade(self, text: str, tests: dict | str, prompt: str) -> tuple[float | None, str]:
        """Reward and verdict."""
        try:
            parsed = parse_tests(tests)
            program = extract_program(text, parsed, prompt)
            if program is None:
                return 0.0, NO_PROGRAM
            result = grade(self.sandbox, program, parsed, self.limits, stop_at_failure=not self.partial_credit)
        except TestsError as error:
            logger.warning("code_reward: tests that cannot be used: %.500r", str(error))  # it may quote the tests
            return None, "unusable tests"
        if not result.graded:
            return None, str(result)
        share = result.passed / result.total
        verdict = NO_PROGRAM if is_syntax_error(result.verdict) and is_prose(text) else str(result)
        return (share if self.partial_credit else float(share == 1)), verdict


@functools.cache
def get_sandbox(workers: int | None, tier: str | None, remote_url: str | None = None) -> Sandbox | RemoteSandbox:
    """This process's sandbox with these options. Rewards with the same options share its workers."""
    if remote_url is not None:
        return RemoteSandbox(remote_url, workers=workers or 16)
    return Sandbox(workers=workers, tier=tier)


code_reward = CodeReward()
