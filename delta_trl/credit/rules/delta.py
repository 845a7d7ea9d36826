"""DelTA as a rule of token credit. The method itself is in `coefficients.py`."""

from dataclasses import dataclass
from typing import Any, ClassVar

from ..coefficients import ASSIGNMENTS, check_credit_options, compare_centroids, contrast_credit
from ..gradients.full import FullGradients
from ..gradients.lm_head import LMHeadGradients
from ..gradients.output_row import OutputRowGradients
from ..gradients.topk_hidden import TopKHiddenGradients
from ..groups import group_credit
from ..options import check_backward, check_choices, check_whole_parameters, refuse_idle
from ..rule import Requirements, TokenCredit
from ..tokens import Credit, Tokens


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
        centroid_scope (`str`, *optional*, defaults to `"batch"`):
            Contrast the winners and losers of the rollout batch, or of each prompt's `"group"`.
        balance_sides (`bool`, *optional*, defaults to `False`):
            Centre each side's margins on their mean, which leaves token-level information only.

    Raises:
        ValueError: If an option is unknown or out of range, or has no effect or no meaning beside another.
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
    centroid_scope: str = "batch"
    balance_sides: bool = False

    _margin: ClassVar[str] = "contrast"

    def __post_init__(self):
        check_choices(
            self,
            token_gradient=("output_row", "topk_hidden", "lm_head", "full"),
            assignment=ASSIGNMENTS,
            temperature_mode=("adaptive", "initial"),
            centroid_scope=("batch", "group"),
        )
        check_credit_options(self.refinement_steps, self.lambda_min, self.lambda_max)
        if not isinstance(self.token_gradient_top_k, int) or self.token_gradient_top_k < 1:
            raise ValueError(f"token_gradient_top_k={self.token_gradient_top_k!r}: expected an integer >= 1.")
        refuse_idle(
            self,
            f"token_gradient={self.token_gradient!r}, assignment={self.assignment!r}",
            token_gradient_top_k=self.token_gradient == "topk_hidden",
            temperature_mode=self.assignment == "soft",
        )
        if self.centroid_scope == "group" and self.token_gradient == "full":
            raise ValueError(
                "centroid_scope='group' would cost token_gradient='full' a backward pass for every prompt. Use "
                "centroid_scope='batch' or another token_gradient."
            )
        if self.centroid_scope == "group" and self.temperature_mode == "initial":
            raise ValueError(
                "temperature_mode='initial' keeps one temperature per side, centroid_scope='group' has one per group "
                "and side. Change one of them."
            )
        # γ₊ and γ₋ of the first rollout batch with a contrast
        self._temperatures: tuple[float, float] | None = None

    def of_rollout(self, tokens: Tokens) -> Credit:
        gradients = self._gradients(tokens)
        metrics: dict[str, float] = {}
        if self.token_gradient in ("output_row", "topk_hidden"):  # the others would need more passes and memory
            metrics |= compare_centroids(gradients, tokens.advantages)
        options: dict[str, Any] = {
            "refinement_steps": self.refinement_steps,
            "lambda_min": self.lambda_min,
            "lambda_max": self.lambda_max,
            "normalize": self.normalize_coefficients,
            "assignment": self.assignment,
            "margin": self._margin,
            "balance_sides": self.balance_sides,
        }
        if self.centroid_scope == "group":
            credit = group_credit(gradients, tokens.advantages, tokens.group, tokens.n_groups, **options)
        else:
            credit = contrast_credit(gradients, tokens.advantages, temperatures=self._temperatures, **options)
        if self.temperature_mode == "initial" and self._temperatures is None and not credit.neutral:
            self._temperatures = (credit.metrics["temperature_positive"], credit.metrics["temperature_negative"])
        if isinstance(gradients, FullGradients):
            metrics["extra_forward_passes"] = float(gradients.forward_passes)
        return Credit(credit.weights, {**metrics, **credit.metrics}, credit.neutral, credit.scores)

    def _gradients(self, tokens: Tokens) -> Any:  # `TokenGradients`
        if self.token_gradient == "full":
            return FullGradients.of(tokens)
        if self.token_gradient == "output_row":
            return OutputRowGradients(tokens.hidden, tokens.log_probs)
        arguments = (tokens.hidden, tokens.ids, tokens.head)
        if self.token_gradient == "lm_head":
            return LMHeadGradients(*arguments, log_probs=tokens.log_probs)
        return TopKHiddenGradients(*arguments, self.token_gradient_top_k, log_probs=tokens.log_probs)

    def requirements(self) -> Requirements:
        return Requirements(self.token_gradient != "full", recomputable=self.centroid_scope == "batch")

    def check(self, trainer: Any) -> None:
        gradient, args = self.token_gradient, trainer.args
        if gradient == "output_row":
            return
        config = trainer.model.config.get_text_config()
        if gradient == "topk_hidden" and self.token_gradient_top_k > config.vocab_size:
            raise ValueError(
                f"token_gradient_top_k={self.token_gradient_top_k}: the model has a vocabulary of {config.vocab_size}."
            )
        what, instead = f"token_gradient={gradient!r}", "token_gradient='output_row'"
        if gradient != "full":
            check_whole_parameters(trainer, what, instead)
            return
        check_backward(trainer, what, instead)
        if any(getattr(one, "use_dora", False) for one in getattr(trainer.model, "peft_config", {}).values()):
            raise ValueError(
                "token_gradient='full' does not work with DoRA, whose backward pass leaves out a part of the "
                "derivative: set use_dora=False, or use another token_gradient."
            )
        if args.deepspeed_plugin is not None and (args.bf16 or args.fp16):
            raise ValueError(
                "token_gradient='full' does not work with DeepSpeed in 16 bits: it holds the parameters in 16 bits, "
                "which swallow the small moves of a difference quotient (errors of up to 0.6). Use DDP or FSDP2, "
                "which keep them in float32, or bf16: false, or another token_gradient."
            )

    def state_dict(self) -> dict[str, Any]:
        return {} if self._temperatures is None else {"temperatures": self._temperatures}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        keeps = self.temperature_mode == "initial" and state
        self._temperatures = tuple(state["temperatures"]) if keeps else None
