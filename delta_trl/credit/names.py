"""Rules of token credit from the names and options of recipes and command lines."""

import inspect
from typing import Any

import yaml

from ..arguments.lookup import check_options, import_dotted, nearest
from .rule import TokenCredit, check_rule
from .rules import RULES


def make_rule(name: str, options: dict[str, Any] | None = None) -> TokenCredit:
    """
    The rule of a recipe's `token_credit` and `token_credit_kwargs`.

    Args:
        name (`str`):
            One of `RULES`, or the dotted path of a class of your own. Options may follow a colon:
            `delta:token_gradient=lm_head,refinement_steps=0`.
        options (`dict`, *optional*):
            Arguments of the class. If the class wraps another rule, `rule` is that one's name and `rule_kwargs` are
            its options.

    Raises:
        ValueError: If there is no such rule, or it does not take these options or values.
    """
    if not isinstance(name, str):
        hint = " YAML reads `no` and `off` as False: without token credit is `none`." if name is False else ""
        raise ValueError(
            f"token_credit={name!r}: expected the name of one rule, such as 'delta', or in Python an instance, such "
            f"as DelTA(lambda_max=1.5).{hint}"
        )
    name, _, written = name.partition(":")
    options = dict(options or {})
    more = _read_options(written)
    if twice := sorted(options.keys() & more.keys()):
        raise ValueError(f"token_credit={name + ':' + written!r}: also in token_credit_kwargs: {', '.join(twice)}.")
    options |= more
    if name in RULES:
        kind = RULES[name]
    elif "." in name:
        kind = import_dotted("rule of token credit", name, RULES)
        if not (inspect.isclass(kind) and issubclass(kind, TokenCredit)):
            raise ValueError(f"rule {name!r}: expected a subclass of delta_trl.credit.TokenCredit, not {kind}.")
    else:
        raise ValueError(
            f"rule {name!r}: expected one of {', '.join(map(repr, RULES))}, or the dotted path of your own "
            f"class{nearest(name, RULES)}."
        )
    wrapped = options.pop("rule_kwargs", None)
    if wrapped is not None or isinstance(options.get("rule"), str):
        options["rule"] = make_rule(options.get("rule", "delta"), wrapped)
    check_options(f"rule {name!r}", kind, options)
    rule = kind(**options)
    check_rule(rule)
    return rule


def _read_options(text: str) -> dict[str, Any]:
    """Options as `key=value,key=value`, whose values are YAML. Raises `ValueError` if they cannot be read."""
    mapping = text.replace("=", ": ")
    try:
        return yaml.safe_load(f"{{{mapping}}}")
    except yaml.YAMLError as error:
        raise ValueError(f"{text!r}: expected options as NAME:key=value,key=value.") from error
