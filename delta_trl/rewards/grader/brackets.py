"""The nesting of brackets in a text, and its parts outside of them."""

import itertools
import re


BRACKET = re.compile(
    r"(?P<opening>[(\[{]|\\(?:begin|lbrace|langle|lfloor|lceil)(?![A-Za-z]))"
    r"|[)\]}]|\\(?:end|rbrace|rangle|rfloor|rceil)(?![A-Za-z])"
)


def depths(text: str) -> list[int]:
    """How many brackets and environments are open before each character, and at the end. All kinds count alike."""
    changes = [0] * len(text)
    for bracket in BRACKET.finditer(text):
        changes[bracket.start()] = 1 if bracket["opening"] else -1
    return [0, *itertools.accumulate(changes)]


def is_balanced(text: str) -> bool:
    """Whether every bracket has its counterpart."""
    nesting = depths(text)
    return min(nesting) == nesting[-1] == 0


def split_top_level(text: str, pattern: re.Pattern) -> list[str]:
    """Split where `pattern` matches outside all brackets and environments."""
    nesting = depths(text)
    parts = []
    start = 0
    for match in pattern.finditer(text):
        if nesting[match.start()] == 0:
            parts.append(text[start : match.start()])
            start = match.end()
    return [*parts, text[start:]]
