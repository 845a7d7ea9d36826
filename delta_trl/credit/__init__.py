"""
Token credit assignment: torch only, independent of TRL. `coefficients.py` has DelTA's method, `rule.py` the interface
of a rule of your own (docs/token_credit.md).
"""

from .adaptive import AdaptiveSides
from .advantages import group_advantages
from .balance import SideWeights
from .baseline import OptimalTokenBaseline
from .coefficients import coefficient_statistics, compare_centroids, token_coefficients
from .controls import ChangedCredit, Position, RandomCredit, Selected, Shuffled, SideMean
from .delta import DelTA, GroupContrast, WithinSide
from .distributed import all_gather, all_reduce, alone
from .fipo import FIPO
from .full import FullGradients
from .gradients import TokenGradients
from .hidden_states import HiddenStates, RecomputedStates
from .lm_head import LMHead, LMHeadGradients, TopKHiddenGradients
from .names import RULES, make_rule, read_rule
from .output_row import OutputRowGradients
from .rule import Cost, TokenCredit, credit_at_rollout
from .siblings import SiblingValue
from .siblings_in_context import RLCSD
from .surprise import STARE, TACO, AdvantageReweighting, Entropy, Surprisal
from .tokens import Credit, Policy, Scores, Tokens


__all__ = [
    "FIPO",
    "RLCSD",
    "RULES",
    "STARE",
    "TACO",
    "AdaptiveSides",
    "AdvantageReweighting",
    "ChangedCredit",
    "Cost",
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
    "Position",
    "RandomCredit",
    "RecomputedStates",
    "Scores",
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
    "read_rule",
    "token_coefficients",
]
