"""Token credit assignment: torch only, independent of TRL. See `coefficients.py` for the method."""

from .coefficients import centroid_cosine, token_coefficients
from .gradients import OutputRowGradients, TokenGradients


__all__ = ["OutputRowGradients", "TokenGradients", "centroid_cosine", "token_coefficients"]
