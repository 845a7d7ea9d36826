"""The arms of a comparison: a rule of token credit, and what it is compared with."""

from collections.abc import Iterable, Sequence
from typing import Any

from ..arguments.errors import UsageError
from ..credit import make_rule
from ..evaluation.paired import IN_WORDS
from ..trainer.config import CreditArguments


CONTROLS = ("side_mean", "shuffled")  # rules that change the weights of the rule


def rule_of(arms: Iterable[str]) -> str | None:
    """The arm that all others are compared with, and that the controls change: the first that is neither."""
    return next((arm for arm in arms if arm not in IN_WORDS), None)


def arms_of(words: Sequence[str] | None, recipe: CreditArguments) -> dict[str, dict[str, Any]]:
    """
    The arms: for each `token_credit`, its `token_credit_kwargs`.

    Args:
        words (`Sequence[str]`, *optional*):
            A word for each arm, as in `delta:lambda_max=1.5`. Defaults to `none`, the recipe's rule, `side_mean` and
            `shuffled`.
        recipe ([`CreditArguments`]): Its rule has the recipe's options.

    Raises:
        ValueError: If there is no such rule, or nothing to compare.
    """
    words = words or ["none", recipe.token_credit, *CONTROLS]
    rule = rule_of(words)
    options = {recipe.token_credit: recipe.token_credit_kwargs}
    changed = {"rule": rule, "rule_kwargs": options.get(rule, {})}
    options |= dict.fromkeys(CONTROLS, changed)
    arms = {word: options.get(word, {}) for word in words}
    if rule is None or len(arms) < 2:
        raise UsageError(
            f"The arms {', '.join(words)} have nothing to compare. Give a rule such as delta, and another arm such as "
            "none."
        )
    for word, own in arms.items():
        make_rule(word, own)  # raises if there is no such rule
    return arms
