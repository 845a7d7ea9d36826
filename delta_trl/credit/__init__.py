"""
A rule of token credit gives each token of a rollout batch a weight or an advantage. This package has the rules, and
needs torch but not TRL.

`coefficients.py` has DelTA's method, `rule.py` the interface of a rule of your own (docs/token_credit.md).
"""

from .coefficients import coefficient_statistics, compare_centroids, token_coefficients
from .gradients import TokenGradients
from .gradients.full import FullGradients
from .gradients.lm_head import LMHeadGradients
from .gradients.output_row import OutputRowGradients
from .gradients.topk_hidden import TopKHiddenGradients
from .head import LMHead
from .hidden_states import HiddenStates
from .names import make_rule
from .policy_outputs import Policy, PolicyOutputs, Responses, Turn
from .ranks import all_gather, all_reduce
from .rule import Credit, TokenCredit, Tokens, checked_credit
from .rules import FIPO, RULES, DelTA, Given, RandomCredit, Selected, Shuffled, SideMean, SideWeights, WithinSide
from .rules.changed import ChangedCredit


__all__ = [
    "FIPO",
    "RULES",
    "ChangedCredit",
    "Credit",
    "DelTA",
    "FullGradients",
    "Given",
    "HiddenStates",
    "LMHead",
    "LMHeadGradients",
    "OutputRowGradients",
    "Policy",
    "PolicyOutputs",
    "RandomCredit",
    "Responses",
    "Selected",
    "Shuffled",
    "SideMean",
    "SideWeights",
    "TokenCredit",
    "TokenGradients",
    "Tokens",
    "TopKHiddenGradients",
    "Turn",
    "WithinSide",
    "all_gather",
    "all_reduce",
    "checked_credit",
    "coefficient_statistics",
    "compare_centroids",
    "make_rule",
    "token_coefficients",
]
