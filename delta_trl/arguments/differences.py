"""Which settings differ between two runs, evaluations or comparisons."""

from typing import Any

from transformers.utils import flatten_dict


NO_OPTIONS: tuple = (({}, None), (None, {}))  # no difference


def differences(before: dict, now: dict) -> dict[str, tuple[Any, Any]]:
    """The settings that differ between two records, by dotted key: (value before, value now)."""
    old = flatten_dict(before)
    new = flatten_dict(now)
    changed = {}
    for key in {**old, **new}:
        values = (old.get(key), new.get(key))
        if values[0] != values[1] and values not in NO_OPTIONS:
            changed[key] = values
    return changed


def in_words(differences: dict[str, tuple[Any, Any]]) -> str:
    return "; ".join(f"{key} was {before!r} and is {now!r}" for key, (before, now) in differences.items())
