"""Token credit assignment: torch only, independent of TRL. See `coefficients.py` for the method."""

from .coefficients import centroid_cosine, token_coefficients
from .full import FullGradients
from .gradients import TokenGradients
from .lm_head import LMHead, LMHeadGradients, TopKHiddenGradients
from .output_row import OutputRowGradients


__all__ = [
    "FullGradients",
    "LMHead",
    "LMHeadGradients",
    "OutputRowGradients",
    "TokenGradients",
    "TopKHiddenGradients",
    "centroid_cosine",
    "token_coefficients",
]
