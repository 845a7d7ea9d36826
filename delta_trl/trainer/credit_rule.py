"""The rule of token credit that a trainer has: how it is chosen, recorded and cited."""

import textwrap
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from trl import GRPOConfig, GRPOTrainer

from ..credit import ChangedCredit, TokenCredit, make_rule
from ..credit.rule import check_rule
from .checks import refuse_ignored_credit
from .config import CreditArguments


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


def choose_rule(given: TokenCredit | str | None, options: CreditArguments, args: GRPOConfig) -> TokenCredit:
    """
    The rule to train with: the trainer's argument `token_credit`, or the one that `options` name. If the loss of
    `args` ignores token credit, the rule gives none, with a warning. `DeltaGRPOConfig` refuses such a loss.
    """
    if not isinstance(args, GRPOConfig):
        raise ValueError(f"args is a {type(args).__name__}: expected a DeltaGRPOConfig, or TRL's GRPOConfig.")
    rule = options.make_rule() if given is None else _given_rule(given, options)
    try:
        refuse_ignored_credit(args, rule)
    except ValueError as error:
        logger.warning(f"Trains without token credit, as GRPOTrainer does. {error}")
        return TokenCredit()
    return rule


def _given_rule(given: TokenCredit | str, options: CreditArguments) -> TokenCredit:
    if options.token_credit != "delta" or options.token_credit_kwargs:
        raise ValueError(
            f"token_credit={given!r} is given beside args.token_credit={options.token_credit!r}, "
            f"args.token_credit_kwargs={options.token_credit_kwargs!r}. Give one of them."
        )
    if not isinstance(given, TokenCredit):
        return make_rule(given)
    check_rule(given)
    return given


class RuleOnRecord(GRPOTrainer):
    """
    [`~trl.GRPOTrainer`] whose tags, model card and settings name its rule of token credit.

    Attributes:
        token_credit ([`~credit.TokenCredit`]): The rule.
    """

    token_credit: TokenCredit
    _tag_names = ["trl", "grpo", "delta"]  # noqa: RUF012 (as in TRL)
    _name, _paper = "DelTA", PAPER

    def _use_rule(self, rule: TokenCredit) -> None:
        """Before TRL's constructor, which reads tags."""
        self.token_credit = rule
        if arxiv_of(rule) != PAPER["id"]:
            self._tag_names = [tag for tag in self._tag_names if tag != "delta"]
            if self._paper is PAPER:  # a subclass may have its own
                self._name, self._paper = GRPOTrainer._name, GRPOTrainer._paper

    def create_model_card(self, *args, **kwargs):
        super().create_model_card(*args, **kwargs)
        if self.is_world_process_zero():
            with Path(self.args.output_dir, "README.md").open("a", encoding="utf-8") as card:
                card.write(f"\n\n## Token credit\n\n{card_text(self.token_credit)}, with [delta_trl]({HOME})\n")

    def settings(self) -> dict[str, Any]:
        return {**super().settings(), "token_credit": repr(self.token_credit)}


def arxiv_of(rule: TokenCredit) -> str | None:
    """The arXiv number of the paper that a rule, or the one that it changes, is from."""
    return arxiv_of(rule.rule) if isinstance(rule, ChangedCredit) else rule.arxiv


def card_text(rule: TokenCredit) -> str:
    """A rule and its options as text for the model card."""
    if type(rule) is TokenCredit:
        return "none"
    number = arxiv_of(rule)
    return f"`{rule}`" + (f", see [arXiv {number}](https://arxiv.org/abs/{number})" if number else "")
