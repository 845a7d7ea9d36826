"""Token credit assignment: torch only, independent of TRL. See `coefficients.py` for the method."""

from .coefficients import Contrast, centroid_cosine, coefficient_statistics, token_coefficients
from .controls import random_coefficients, select_tokens, side_mean
from .fipo import fipo_weights
from .full import FullGradients
from .gradients import TokenGradients
from .groups import group_coefficients
from .hidden_states import HiddenStates, RecomputedStates
from .lm_head import LMHead, LMHeadGradients, TopKHiddenGradients, token_log_probs
from .output_row import OutputRowGradients
from .streaming import StreamingCredit


__all__ = [
    "Contrast",
    "FullGradients",
    "HiddenStates",
    "LMHead",
    "LMHeadGradients",
    "OutputRowGradients",
    "RecomputedStates",
    "StreamingCredit",
    "TokenGradients",
    "TopKHiddenGradients",
    "centroid_cosine",
    "coefficient_statistics",
    "fipo_weights",
    "group_coefficients",
    "random_coefficients",
    "select_tokens",
    "side_mean",
    "token_coefficients",
    "token_log_probs",
]
