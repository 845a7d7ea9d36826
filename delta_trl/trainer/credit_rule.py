"""The rule of token credit that a trainer has: how it is chosen, recorded and cited."""

import textwrap

from accelerate.logging import get_logger
from trl import GRPOConfig

from ..arguments.credit import CreditArguments
from ..credit import ChangedCredit, TokenCredit, make_rule
from ..credit.rule import check_rule
from .checks import refuse_ignored_credit


logger = get_logger(__name__)

HOME = "https://github.com/delta-trl/delta-trl"
# As TRL's `_paper`, which its model card cites
PAPER = {
    "title": "DelTA: Discriminative Token Credit Assignment for Reinforcement Learning from Verifiable Rewards",
    "id": "2605.21467",
    "citation": textwrap.dedent("""\
        @article{zhang2026delta,
            title  = {{DelTA: Discriminative Token Credit Assignment for Reinforcement Learning from
                      Verifiable Rewards}},
            author = {Kaiyi Zhang and Wei Wu and Yankai Lin},
            year   = 2026,
            eprint = {arXiv:2605.21467},
        }"""),
}


def choose_rule(chosen: TokenCredit | str | None, options: CreditArguments, args: GRPOConfig) -> TokenCredit:
    """
    The rule to train with: the trainer's argument `token_credit`, or the one that `options` name. If the loss of
    `args` ignores token credit, the rule gives none, with a warning. `DeltaGRPOConfig` refuses such a loss.
    """
    if not isinstance(args, GRPOConfig):
        raise ValueError(f"args is a {type(args).__name__}: expected a DeltaGRPOConfig, or TRL's GRPOConfig.")
    if chosen is None:
        rule = make_rule(options.token_credit, options.token_credit_kwargs)
    else:
        rule = _given_rule(chosen, options)
    try:
        refuse_ignored_credit(args, rule.credits_rollouts or rule.credits_micro_batches)
    except ValueError as error:
        logger.warning(f"Trains without token credit, as GRPOTrainer does. {error}")
        return TokenCredit()
    return rule


def _given_rule(chosen: TokenCredit | str, options: CreditArguments) -> TokenCredit:
    if options.token_credit != "delta" or options.token_credit_kwargs:
        raise ValueError(
            f"token_credit={chosen!r} is given beside args.token_credit={options.token_credit!r}, "
            f"args.token_credit_kwargs={options.token_credit_kwargs!r}. Give one of them."
        )
    if not isinstance(chosen, TokenCredit):
        return make_rule(chosen)
    check_rule(chosen)
    return chosen


def arxiv_of(rule: TokenCredit) -> str | None:
    """The arXiv number of the paper that a rule, or the one that it changes, is from."""
    return arxiv_of(rule.rule) if isinstance(rule, ChangedCredit) else rule.arxiv


def card_text(rule: TokenCredit) -> str:
    """A rule and its options as text for the model card."""
    if type(rule) is TokenCredit:
        return "none"
    number = arxiv_of(rule)
    return f"`{rule}`" + (f", see [arXiv {number}](https://arxiv.org/abs/{number})" if number else "")
