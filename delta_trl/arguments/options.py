"""What the values of options mean that may be words."""


def is_true(value: object) -> bool:
    """Whether an option's value means yes, as in transformers' parser."""
    return str(value).lower() in ("true", "yes", "t", "y", "1")


def is_given(value: object) -> bool:
    """Whether an option's value is set and does not mean no."""
    return value is not None and str(value).lower() not in ("false", "no", "f", "n", "0", "none")
