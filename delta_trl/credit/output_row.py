"""The paper's default proxy."""

import torch

from .distributed import all_reduce


class OutputRowGradients:
    r"""
    The paper's default proxy (arXiv 2605.21467, appendix F): v_j = (1 - p_j) h_j, the gradient of log p_j with respect
    to the row of the LM head that belongs to the sampled token.

    Args:
        hidden (`torch.Tensor` of shape `(N, d)`):
            Final hidden states, those that entered the LM head to predict each token. Any floating dtype; sums are
            accumulated in float32 (float64 for float64 input).
        log_probs (`torch.Tensor` of shape `(N,)`):
            Log-probability of each sampled token, under the sampling temperature.

    Raises:
        ValueError: If the shapes do not fit each other or `hidden` is not floating point.
    """

    # Rows converted to float32 at a time: bounds the temporary of the conversion to 8192 × d, whatever N is.
    _CHUNK = 8192

    def __init__(self, hidden: torch.Tensor, log_probs: torch.Tensor):
        if hidden.ndim != 2 or log_probs.shape != hidden.shape[:1] or not hidden.is_floating_point():
            raise ValueError(
                "OutputRowGradients expects floating-point hidden states of shape (N, d) and log-probabilities of "
                f"shape (N,), got {tuple(hidden.shape)} ({hidden.dtype}) and {tuple(log_probs.shape)}. Flatten to the "
                "valid completion tokens first: hidden[mask], log_probs[mask]."
            )
        self.hidden = hidden  # (N, d)
        self.dtype = torch.float64 if hidden.dtype == torch.float64 else torch.float32
        # expm1 keeps 1 - p accurate for p near 1; rounding may have left a log-probability slightly above 0
        self.scale = -torch.expm1(log_probs.to(hidden.device, self.dtype).clamp(max=0))  # (N,)

    def combine(self, weights: torch.Tensor) -> torch.Tensor:  # (N,) -> (d,)
        if weights.shape != self.scale.shape:
            raise ValueError(
                f"weights: expected one weight per token, shape {tuple(self.scale.shape)}, got {tuple(weights.shape)}."
            )
        direction = self.hidden.new_zeros(self.hidden.shape[1], dtype=self.dtype)
        weights = weights.to(self.dtype) * self.scale
        with torch.autocast(direction.device.type, enabled=False):
            for w, h in zip(weights.split(self._CHUNK), self.hidden.split(self._CHUNK), strict=True):
                direction += w @ h.to(self.dtype)
        return all_reduce(direction)

    def score(self, direction: torch.Tensor) -> torch.Tensor:  # (d,) -> (N,)
        with torch.autocast(direction.device.type, enabled=False):
            scores = [h.to(self.dtype) @ direction for h in self.hidden.split(self._CHUNK)]
        return self.scale * torch.cat(scores)

    def squared_norms(self) -> torch.Tensor:  # (N,)
        """‖v_j‖². Only the within-side ablation needs it."""
        norms = [h.to(self.dtype).square().sum(dim=1) for h in self.hidden.split(self._CHUNK)]
        return self.scale.square() * torch.cat(norms)

    def __getitem__(self, tokens: torch.Tensor) -> "OutputRowGradients":
        """The gradients of some of the tokens."""
        part = object.__new__(OutputRowGradients)
        part.hidden, part.dtype, part.scale = self.hidden[tokens], self.dtype, self.scale[tokens]
        return part
