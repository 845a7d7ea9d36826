"""The rules of token credit, by the names that recipes give them. Each is in the file of its name."""

from ..rule import TokenCredit
from .delta import DelTA
from .fipo import FIPO
from .given import Given
from .random import RandomCredit
from .selected import Selected
from .shuffled import Shuffled
from .side_mean import SideMean
from .side_weights import SideWeights
from .within_side import WithinSide


RULES: dict[str, type[TokenCredit]] = {
    "delta": DelTA,
    "within_side": WithinSide,
    "side_weights": SideWeights,
    "side_mean": SideMean,
    "shuffled": Shuffled,
    "random": RandomCredit,
    "selected": Selected,
    "fipo": FIPO,
    "given": Given,
    "none": TokenCredit,
}
