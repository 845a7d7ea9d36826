"""The LM head of a policy."""

from typing import Any

import torch

from .hidden_states import matmul_rows


class LMHead:
    """
    The output layer, which turns hidden states into log-probabilities.

    Args:
        weight (`torch.Tensor` of shape `(V, d)`): LM head, tied to the embeddings or not.
        bias (`torch.Tensor` of shape `(V,)`, *optional*): Its bias.
        temperature (`float`, *optional*, defaults to `1.0`): Sampling temperature, which divides the logits.
        scale (`float`, *optional*, defaults to `1.0`): Factor by which some architectures multiply their logits.
        softcap (`float`, *optional*): `final_logit_softcapping` of Gemma.
    """

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        temperature: float = 1.0,
        scale: float = 1.0,
        softcap: float | None = None,
    ):
        self.weight = weight.detach()
        self.bias = None if bias is None else bias.detach()
        self.temperature = temperature
        self.scale = scale
        self.softcap = softcap

    @classmethod
    def of(cls, model: Any, temperature: float) -> "LMHead":
        """The head of a causal language model of transformers, with the scale and softcap of its config."""
        config = model.config.get_text_config()
        layer = model.get_output_embeddings()
        # architectures that multiply their logits (Cohere, Falcon-H1, MuseGlimmer) or divide them (Granite)
        multipliers = ("logit_scale", "lm_head_multiplier", "output_multiplier")
        scale = next((value for name in multipliers if (value := getattr(config, name, None))), 1.0)
        scaling = getattr(config, "logits_scaling", None) or 1.0
        scale *= scaling if config.model_type == "hyperclovax" else 1 / scaling
        weight = layer.weight
        bias = getattr(layer, "bias", None)
        if hasattr(weight, "full_tensor"):  # sharded by FSDP2
            weight = weight.full_tensor()
            bias = None if bias is None else bias.full_tensor()
        softcap = getattr(config, "final_logit_softcapping", None)
        return cls(weight, bias, temperature, scale, softcap)

    def logits(
        self, hidden: torch.Tensor, rows: slice = slice(None), out: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Logits (n, V') of a range of the vocabulary, and their derivative with respect to W h. Computed in float32
        (float64 for float64 `hidden`) from the exact values of states and weights of lower precision. `out` (n, V') is
        overwritten with the logits.
        """
        raw = matmul_rows(hidden, self.weight[rows], out)  # (n, V')
        if self.bias is not None:
            raw += self.bias[rows]
        factor = self.scale / self.temperature
        if self.softcap is None:
            return raw.mul_(factor), raw.new_tensor(factor)
        squashed = raw.mul_(self.scale / self.softcap).tanh_()
        slope = factor * (1 - squashed**2)
        return squashed.mul_(self.softcap / self.temperature), slope

    def check(self, hidden: torch.Tensor, tokens: torch.Tensor, log_probs: torch.Tensor) -> None:
        """Raise `ValueError` if this head does not reproduce the model's `log_probs` (N,) on a few of the tokens."""
        few = slice(0, 16)
        logits, _ = self.logits(hidden[few])
        ours = logits.log_softmax(dim=1).gather(1, tokens[few, None])[:, 0]
        difference = (ours - log_probs[few]).abs()
        if not (difference <= 0.1 + 0.05 * log_probs[few].abs()).all():
            raise ValueError(
                "The LM head does not reproduce the model's log-probabilities (they differ by up to "
                f"{difference.max():.2g}): the architecture transforms its logits in a way that token_gradient "
                "'lm_head' and 'topk_hidden' do not know. Use token_gradient='output_row' or 'full'."
            )
