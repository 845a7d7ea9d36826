"""Whether an answer equals the gold: math-verify's judgement. Runs in a worker process only."""

import functools

from math_verify import LatexExtractionConfig, parse, verify


CONFIG = [LatexExtractionConfig(boxed_match_priority=0, try_extract_without_anchor=False)]


@functools.lru_cache(maxsize=4096)
def parse_gold(gold: str):
    return parse(f"\\boxed{{{gold}}}", CONFIG, fallback_mode="no_fallback", parsing_timeout=None)


def judge(gold: str, answer: str) -> str:
    """`"right"`, `"wrong"`, or `"unusable gold"`."""
    if gold.replace(" ", "") == answer.replace(" ", ""):
        return "right"
    parsed = parse_gold(gold)
    if not parsed:
        return "unusable gold"
    target = parse(f"\\boxed{{{answer}}}", CONFIG, fallback_mode="no_fallback", parsing_timeout=None)
    return "right" if verify(parsed, target, float_rounding=12, timeout_seconds=None) else "wrong"
