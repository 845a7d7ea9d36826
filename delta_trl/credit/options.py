"""Checks of the options that rules take as dataclass fields."""

from typing import Any


def check_choices(rule: Any, **choices: tuple) -> None:
    """Raise `ValueError` for an option that is not one of its choices."""
    for name, known in choices.items():
        value = getattr(rule, name)
        if value not in known:
            raise ValueError(f"{name}={value!r}: expected one of {', '.join(map(repr, known))}.")


def check_number(rule: Any, name: str, interval: str) -> None:
    """Raise `ValueError` for an option that is not a number in an interval such as `"(0, 1]"`."""
    value = getattr(rule, name)
    low, high = map(float, interval[1:-1].split(","))
    inside = False
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        above = value > low if interval[0] == "(" else value >= low
        below = value < high if interval[-1] == ")" else value <= high
        inside = above and below
    if not inside:
        raise ValueError(f"{name}={value!r}: expected a number in {interval}.")


def check_range(rule: Any) -> None:
    """Raise `ValueError` unless 0 <= `lambda_min` <= `lambda_max`, and `lambda_max` > 0."""
    check_number(rule, "lambda_min", "[0, inf)")
    check_number(rule, "lambda_max", "(0, inf)")
    if rule.lambda_min > rule.lambda_max:
        raise ValueError(
            f"lambda_min={rule.lambda_min!r}, lambda_max={rule.lambda_max!r}: expected lambda_min <= lambda_max "
            "(the paper uses 0.8 and 1.2)."
        )


def check_integer(rule: Any, name: str, least: int) -> None:
    """Raise `ValueError` for an option that is not an integer of at least `least`."""
    value = getattr(rule, name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ValueError(f"{name}={value!r}: expected an integer >= {least}.")
