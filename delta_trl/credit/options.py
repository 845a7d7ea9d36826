"""A check of options that rules share."""

from typing import Any

from ..arguments.values import NOT_NEGATIVE, POSITIVE, check_values


def check_range(rule: Any) -> None:
    """Raise `ValueError` unless 0 <= `lambda_min` <= `lambda_max`, and `lambda_max` > 0."""
    check_values(rule, lambda_min=NOT_NEGATIVE, lambda_max=POSITIVE)
    if rule.lambda_min > rule.lambda_max:
        raise ValueError(
            f"lambda_min={rule.lambda_min!r}, lambda_max={rule.lambda_max!r}: expected lambda_min <= lambda_max "
            "(the paper uses 0.8 and 1.2)."
        )
