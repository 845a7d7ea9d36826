"""
Token credit assignment: torch only, independent of TRL. `coefficients.py` has DelTA's method, `rule.py` the interface
of a rule of your own (docs/token_credit.md).
"""

from .coefficients import coefficient_statistics, compare_centroids, token_coefficients
from .distributed import all_gather, all_reduce, alone
from .gradients import TokenGradients
from .gradients.full import FullGradients
from .gradients.lm_head import LMHeadGradients
from .gradients.output_row import OutputRowGradients
from .gradients.topk_hidden import TopKHiddenGradients
from .groups import group_advantages
from .head import LMHead
from .hidden_states import HiddenStates, RecomputedStates
from .names import make_rule
from .rule import Requirements, TokenCredit, credit_at_rollout
from .rules import (
    FIPO,
    RLCSD,
    RULES,
    STARE,
    TACO,
    AdaptiveSides,
    AdvantageReweighting,
    DelTA,
    Entropy,
    GroupContrast,
    OptimalTokenBaseline,
    Position,
    RandomCredit,
    Selected,
    Shuffled,
    SiblingValue,
    SideMean,
    SideWeights,
    Surprisal,
    WithinSide,
)
from .rules.shared import ChangedCredit
from .tokens import Credit, Policy, PolicyOutputs, Tokens


__all__ = [
    "FIPO",
    "RLCSD",
    "RULES",
    "STARE",
    "TACO",
    "AdaptiveSides",
    "AdvantageReweighting",
    "ChangedCredit",
    "Credit",
    "DelTA",
    "Entropy",
    "FullGradients",
    "GroupContrast",
    "HiddenStates",
    "LMHead",
    "LMHeadGradients",
    "OptimalTokenBaseline",
    "OutputRowGradients",
    "Policy",
    "PolicyOutputs",
    "Position",
    "RandomCredit",
    "RecomputedStates",
    "Requirements",
    "Selected",
    "Shuffled",
    "SiblingValue",
    "SideMean",
    "SideWeights",
    "Surprisal",
    "TokenCredit",
    "TokenGradients",
    "Tokens",
    "TopKHiddenGradients",
    "WithinSide",
    "all_gather",
    "all_reduce",
    "alone",
    "coefficient_statistics",
    "compare_centroids",
    "credit_at_rollout",
    "group_advantages",
    "make_rule",
    "token_coefficients",
]
