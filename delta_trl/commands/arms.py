"""The arms of a comparison: a rule of token credit, and what it is compared with."""

from collections.abc import Sequence
from typing import Any

from ..arguments.credit import CreditArguments
from ..arguments.errors import UsageError
from ..credit import make_rule
from ..evaluation.seed_statistics import IN_WORDS


CONTROLS = ("side_mean", "shuffled")  # rules that change the weights of the rule


def arms_of(words: Sequence[str] | None, recipe: CreditArguments) -> tuple[str, dict[str, dict[str, Any]]]:
    """
    The rule that all other arms are compared with, and that the controls change; and the arms: for each
    `token_credit`, its `token_credit_kwargs`.

    Args:
        words (`Sequence[str]`, *optional*):
            A word for each arm, as in `delta:lambda_max=1.5`. Defaults to `none`, the recipe's rule, `side_mean` and
            `shuffled`.
        recipe ([`CreditArguments`]): Its rule has the recipe's options.

    Raises:
        ValueError: If there is no such rule, or nothing to compare.
    """
    words = words or ["none", recipe.token_credit, *CONTROLS]
    rules = [word for word in words if word not in IN_WORDS]
    if not rules or len(set(words)) < 2:
        raise UsageError(
            f"The arms {', '.join(words)} have nothing to compare. Give a rule such as delta, and another arm such as "
            "none."
        )
    rule = rules[0]
    options = {recipe.token_credit: recipe.token_credit_kwargs}
    changed = {"rule": rule, "rule_kwargs": options.get(rule, {})}
    options |= dict.fromkeys(CONTROLS, changed)
    arms = {word: options.get(word, {}) for word in words}
    for word, kwargs in arms.items():
        make_rule(word, kwargs)  # raises if there is no such rule
    return rule, arms
