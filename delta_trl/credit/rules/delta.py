"""DelTA as a rule of token credit. The method itself is in `coefficients.py`."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ...arguments.values import COUNT, check_values
from ..coefficients import ASSIGNMENTS, compare_centroids, contrast_credit
from ..gradients.full import FullGradients
from ..gradients.lm_head import LMHeadGradients
from ..gradients.output_row import OutputRowGradients
from ..gradients.topk_hidden import TopKHiddenGradients
from ..options import check_range
from ..rule import Credit, TokenCredit, Tokens


@dataclass
class DelTA(TokenCredit):
    """
    Discriminative token credit (arXiv 2605.21467): a token counts by how much closer its gradient lies to the centroid
    of its own side, winners or losers, than to the other one. Defaults are the paper's.

    Args:
        token_gradient (`str`, *optional*, defaults to `"output_row"`):
            What stands for a token's gradient: `"output_row"`, (1 - p) h with h the final hidden state;
            `"topk_hidden"`, the gradient of h over the top K logits; `"lm_head"`, the exact gradient of the LM head;
            `"full"`, the exact gradient of all trainable parameters.
        token_gradient_top_k (`int`, *optional*, defaults to `20`):
            K of `"topk_hidden"`.
        refinement_steps (`int`, *optional*, defaults to `1`):
            K, how often centroids and temperatures are refined.
        lambda_min, lambda_max (`float`, *optional*, defaults to `0.8` and `1.2`):
            Bounds of the coefficients before normalisation.
        normalize_coefficients (`bool`, *optional*, defaults to `True`):
            Divide the coefficients by their mean over the rollout batch.
        assignment (`str`, *optional*, defaults to `"soft"`):
            α = σ(Δ / γ), or `"hard"`: 1 where Δ > 0, else 0.
        temperature_mode (`str`, *optional*, defaults to `"adaptive"`):
            Measure the temperatures γ in every rollout batch, or keep those of the first (`"initial"`).

    Raises:
        ValueError: If an option is unknown or out of range.
    """

    arxiv = "2605.21467"

    token_gradient: str = "output_row"
    token_gradient_top_k: int = 20
    refinement_steps: int = 1
    lambda_min: float = 0.8
    lambda_max: float = 1.2
    normalize_coefficients: bool = True
    assignment: str = "soft"
    temperature_mode: str = "adaptive"

    _margin: ClassVar[str] = "contrast"

    def __post_init__(self):
        check_values(
            self,
            token_gradient=("output_row", "topk_hidden", "lm_head", "full"),
            assignment=ASSIGNMENTS,
            temperature_mode=("adaptive", "initial"),
            refinement_steps="whole [0, inf)",
            token_gradient_top_k=COUNT,
        )
        check_range(self)
        # γ₊ and γ₋ of the first rollout batch with a contrast
        self._temperatures: tuple[float, float] | None = None

    def of_rollout(self, tokens: Tokens) -> Credit:
        gradients = self._gradients(tokens)
        credit = contrast_credit(
            gradients,
            tokens.advantages,
            refinement_steps=self.refinement_steps,
            lambda_min=self.lambda_min,
            lambda_max=self.lambda_max,
            normalize=self.normalize_coefficients,
            assignment=self.assignment,
            margin=self._margin,
            temperatures=self._temperatures,
        )
        if self.temperature_mode == "initial" and self._temperatures is None and not credit.neutral:
            self._temperatures = (credit.metrics["temperature_positive"], credit.metrics["temperature_negative"])
        if self.token_gradient in ("output_row", "topk_hidden"):  # the others would need more passes and memory
            credit.metrics |= compare_centroids(gradients, tokens.advantages)
        if isinstance(gradients, FullGradients):
            credit.metrics["extra_forward_passes"] = float(gradients.forward_passes)
        return credit

    def _gradients(self, tokens: Tokens) -> Any:  # `TokenGradients`
        if self.token_gradient == "full":
            return FullGradients.of(tokens)
        if self.token_gradient == "output_row":
            return OutputRowGradients(tokens.hidden, tokens.log_probs)
        arguments = (tokens.hidden, tokens.ids, tokens.head)
        if self.token_gradient == "lm_head":
            return LMHeadGradients(*arguments, log_probs=tokens.log_probs)
        return TopKHiddenGradients(*arguments, self.token_gradient_top_k, log_probs=tokens.log_probs)

    @property
    def needs_hidden_states(self) -> bool:
        return self.token_gradient != "full"

    @property
    def reads_all_rows(self) -> bool:
        return False  # λ is λ_min without advantage, whatever the states

    def check(self, trainer: Any) -> None:
        """Raise `ValueError` for gradients that the trainer's parameters would give wrongly, or not at all."""
        if self.token_gradient == "output_row":
            return
        args = trainer.args
        deepspeed = args.deepspeed_plugin
        adapters = getattr(trainer.model, "peft_config", {})
        problem = None
        if deepspeed is not None and deepspeed.zero_stage == 3:
            problem = "DeepSpeed ZeRO-3, which holds no whole parameter. Use ZeRO-2"
        elif trainer.is_fsdp_enabled and not trainer.accelerator.is_fsdp2:
            problem = "FSDP1, which hides the parameters. Set fsdp_version: 2 in the accelerate config"
        elif self.token_gradient != "full":
            return
        elif trainer.is_fsdp_enabled and args.gradient_accumulation_steps > 1:
            problem = "gradient accumulation under FSDP, which does not reduce gradients. Use larger micro-batches"
        elif deepspeed is not None and (args.bf16 or args.fp16):
            problem = "DeepSpeed in 16 bits, where parameters swallow small moves. Use DDP, FSDP2 or bf16: false"
        elif any(getattr(adapter, "use_dora", False) for adapter in adapters.values()):
            problem = "DoRA, whose backward pass leaves out a part of the derivative. Set use_dora=False"
        elif hasattr(trainer.processing_class, "tokenizer"):
            problem = "a processor of images: its forward passes are over text. Use a tokenizer"
        if problem:
            raise ValueError(
                f"token_gradient={self.token_gradient!r} does not work with {problem}, or token_gradient='output_row'."
            )

    def state_dict(self) -> dict[str, Any]:
        return {} if self._temperatures is None else {"temperatures": self._temperatures}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        keeps = self.temperature_mode == "initial" and state
        self._temperatures = tuple(state["temperatures"]) if keeps else None
