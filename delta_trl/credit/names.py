"""Rules of token credit from the names and options of recipes and command lines."""

import inspect
from typing import Any

import yaml

from ..arguments.lookup import check_options, import_dotted, nearest
from .rule import TokenCredit, check_rule
from .rules import RULES


def make_rule(name: str, options: dict[str, Any] | None = None) -> TokenCredit:
    """
    The rule of a recipe's `token_credit` and `token_credit_kwargs`, as in [`find_rule`]. Raises `ValueError` also if
    it does not take the values.
    """
    kind, options = find_rule(name, options)
    if isinstance(options.get("rule"), str):
        options["rule"] = make_rule(options["rule"], options.pop("rule_kwargs"))
    rule = kind(**options)
    check_rule(rule)
    return rule


def find_rule(name: str, options: dict[str, Any] | None = None) -> tuple[type[TokenCredit], dict[str, Any]]:
    """
    The class of a recipe's rule, and the options for it. Nothing is constructed.

    Args:
        name (`str`):
            One of `RULES`, or the dotted path of a class of your own. Options may follow a colon:
            `delta:token_gradient=lm_head,refinement_steps=0`.
        options (`dict`, *optional*):
            Arguments of the class. If the class wraps another rule, `rule` is that one's name and `rule_kwargs` are
            its options.

    Raises:
        ValueError: If there is no such rule, or it does not take these options.
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
    if wrapped is not None:
        options.setdefault("rule", "delta")
    check_options(f"rule {name!r}", kind, options)
    if isinstance(options.get("rule"), str):
        find_rule(options["rule"], wrapped)
        options["rule_kwargs"] = wrapped
    return kind, options


def _read_options(text: str) -> dict[str, Any]:
    """Options as `key=value,key=value`, whose values are YAML. Raises `ValueError` if they cannot be read."""
    mapping = text.replace("=", ": ")
    try:
        return yaml.safe_load(f"{{{mapping}}}")
    except yaml.YAMLError as error:
        raise ValueError(f"{text!r}: expected options as NAME:key=value,key=value.") from error
