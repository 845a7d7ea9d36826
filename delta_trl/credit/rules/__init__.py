"""The rules of token credit, by the names that recipes give them. Each is in the file of its name."""

from ..rule import TokenCredit
from .adaptive_sides import AdaptiveSides
from .advantage_reweighting import AdvantageReweighting
from .delta import DelTA
from .entropy import Entropy
from .fipo import FIPO
from .group_contrast import GroupContrast
from .optimal_token_baseline import OptimalTokenBaseline
from .position import Position
from .random import RandomCredit
from .rlcsd import RLCSD
from .selected import Selected
from .shuffled import Shuffled
from .sibling_value import SiblingValue
from .side_mean import SideMean
from .side_weights import SideWeights
from .stare import STARE
from .surprisal import Surprisal
from .taco import TACO
from .within_side import WithinSide


RULES: dict[str, type[TokenCredit]] = {
    "delta": DelTA,
    "within_side": WithinSide,
    "group_contrast": GroupContrast,
    "sibling_value": SiblingValue,
    "rlcsd": RLCSD,
    "side_weights": SideWeights,
    "adaptive_sides": AdaptiveSides,
    "surprisal": Surprisal,
    "entropy": Entropy,
    "advantage_reweighting": AdvantageReweighting,
    "stare": STARE,
    "taco": TACO,
    "optimal_token_baseline": OptimalTokenBaseline,
    "side_mean": SideMean,
    "shuffled": Shuffled,
    "random": RandomCredit,
    "position": Position,
    "selected": Selected,
    "fipo": FIPO,
    "none": TokenCredit,
}
