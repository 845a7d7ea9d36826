"""The paper's ablation without contrast."""

from dataclasses import dataclass
from typing import ClassVar

from .delta import DelTA


@dataclass
class WithinSide(DelTA):
    """
    The paper's ablation without contrast: a token counts by its distance to its own side's centroid alone. Takes the
    options of [`DelTA`]; `token_gradient` must be `"output_row"`.
    """

    _margin: ClassVar[str] = "within_side"

    def __post_init__(self):
        super().__post_init__()
        if self.token_gradient != "output_row":
            raise ValueError(
                "WithinSide needs the length of every token's gradient, which only token_gradient='output_row' "
                f"computes, got {self.token_gradient!r}."
            )
