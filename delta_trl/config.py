"""Configuration of [`DeltaGRPOTrainer`]: TRL's `GRPOConfig` plus the credit options, defaults as in the paper."""

from dataclasses import dataclass, field, fields

from trl import GRPOConfig

from .credit.coefficients import ASSIGNMENTS, check_credit_options
from .credit.controls import SELECTIONS
from .credit.full import ESTIMATORS


CHOICES = {
    "token_credit": ("delta", "within_side", "side_mean", "random", "fipo", "none"),
    "token_gradient": ("output_row", "topk_hidden", "lm_head", "full"),
    "assignment": ASSIGNMENTS,
    "temperature_mode": ("adaptive", "initial"),
    "centroid_scope": ("batch", "group"),
    "token_selection": SELECTIONS,
    "full_gradient_estimator": ESTIMATORS,
    "hidden_state_cache": ("auto", "device", "cpu", "recompute"),
    "coefficient_timing": ("exact", "streaming"),
}


def _choice(name: str, default: str, help: str):
    return field(default=default, metadata={"help": help, "choices": CHOICES[name]})


@dataclass
class CreditArguments:
    """
    The credit options of [`DeltaGRPOConfig`] (arXiv 2605.21467; defaults are the paper's).

    Args:
        token_credit (`str`, *optional*, defaults to `"delta"`):
            `"delta"` reweights every token's loss with its DelTA coefficient; `"none"` is `GRPOTrainer`, bit for bit.
            Ablations: `"within_side"` scores a token by its distance to its own side's centroid alone, `"side_mean"`
            gives every token the mean coefficient of its side, `"random"` draws λ uniformly. Baseline: `"fipo"`
            (arXiv 2603.19835), whose weights depend on how the policy has moved since the rollout.
        balance_sides (`bool`, *optional*, defaults to `False`):
            Centre each side's margins on their mean, which leaves token-level information only.
        token_gradient (`str`, *optional*, defaults to `"output_row"`):
            What stands for a token's gradient: `"output_row"`, (1 - p) h with h the final hidden state;
            `"topk_hidden"`, the gradient of h over the top K logits; `"lm_head"`, the exact gradient of the LM head;
            `"full"`, the exact gradient of all trainable parameters.
        token_gradient_top_k (`int`, *optional*, defaults to `20`):
            K of `"topk_hidden"`.
        full_gradient_estimator (`str`, *optional*, defaults to `"auto"`):
            How `"full"` takes directional derivatives: `"one_sided"` or `"central"` differences of log-probabilities,
            or `"forward"`-mode differentiation. `"auto"`: `"one_sided"` in float32, otherwise `"central"`.
        full_scope (`int`, *optional*):
            Restrict `"full"` to the last n transformer blocks.
        refinement_steps (`int`, *optional*, defaults to `1`):
            K, how often centroids and temperatures are refined.
        lambda_min (`float`, *optional*, defaults to `0.8`):
            Lower bound of the coefficients before normalisation.
        lambda_max (`float`, *optional*, defaults to `1.2`):
            Upper bound of the coefficients before normalisation.
        normalize_coefficients (`bool`, *optional*, defaults to `True`):
            Divide the coefficients by their mean over the rollout batch.
        assignment (`str`, *optional*, defaults to `"soft"`):
            α = σ(Δ / γ), or `"hard"`: 1 where Δ > 0, else 0.
        temperature_mode (`str`, *optional*, defaults to `"adaptive"`):
            Measure the temperatures γ in every rollout batch, or keep those of the first (`"initial"`).
        centroid_scope (`str`, *optional*, defaults to `"batch"`):
            Contrast the winners and losers of the rollout batch, or of each prompt's `"group"`.
        token_selection (`str`, *optional*, defaults to `"all"`):
            Plain DAPO on a part of the tokens: `"top"` or `"bottom"` by coefficient, or `"random"`.
        token_selection_fraction (`float`, *optional*, defaults to `0.5`):
            How many of the tokens with A ≠ 0 to select.
        hidden_state_cache (`str`, *optional*, defaults to `"auto"`):
            Where hidden states stay between a scoring pass and the coefficients: in `"device"` memory, in `"cpu"`
            memory (pinned), or nowhere, at the price of forward passes (`"recompute"`). `"auto"` takes device memory,
            then main memory, and leaves a tenth of each free; else it recomputes.
        coefficient_timing (`str`, *optional*, defaults to `"exact"`):
            `"exact"` computes coefficients before a rollout batch is trained on, from its own centroids and
            temperatures; `"streaming"` in the training forward, from those of the previous rollout batch, without any
            pass of its own after the first one. See docs/cost.md for how far apart they are.
        log_token_credit (`int`, *optional*, defaults to `0`):
            Record token credit in `output_dir/token_credit` every n optimiser steps, at the next rollout batch; `0` or
            `False` never, `True` every step. Also sends a table to the trackers in `report_to`.
        log_token_credit_completions (`int`, *optional*, defaults to `16`):
            How many completions to record each time at most: whole groups, those with winners and losers first. Fewer
            than `num_generations` record the best and worst completions of one group.
        log_token_credit_max_mb (`float`, *optional*, defaults to `200`):
            Room for recorded completions, in MB. Later ones that do not fit are left out.

    Raises:
        ValueError: If an option is unknown or out of range, or has no effect or no meaning beside another.
    """

    token_credit: str = _choice("token_credit", "delta", "Token credit: 'delta', an ablation, or 'none' (plain GRPO).")
    balance_sides: bool = field(default=False, metadata={"help": "Centre each side's margins on their mean."})
    token_gradient: str = _choice("token_gradient", "output_row", "What stands for a token's gradient.")
    token_gradient_top_k: int = field(default=20, metadata={"help": "K of `token_gradient: topk_hidden`."})
    full_gradient_estimator: str = _choice(
        "full_gradient_estimator", "auto", "How `token_gradient: full` takes directional derivatives."
    )
    full_scope: int | None = field(
        default=None, metadata={"help": "Restrict `token_gradient: full` to the last n transformer blocks."}
    )
    refinement_steps: int = field(default=1, metadata={"help": "K, how often centroids and temperatures are refined."})
    lambda_min: float = field(default=0.8, metadata={"help": "Lower bound of the coefficients before normalisation."})
    lambda_max: float = field(default=1.2, metadata={"help": "Upper bound of the coefficients before normalisation."})
    normalize_coefficients: bool = field(
        default=True, metadata={"help": "Divide the coefficients by their mean over the rollout batch."}
    )
    assignment: str = _choice("assignment", "soft", "Soft or hard assignment of tokens to sides.")
    temperature_mode: str = _choice(
        "temperature_mode", "adaptive", "Measure the temperatures in every rollout batch, or keep the first batch's."
    )
    centroid_scope: str = _choice("centroid_scope", "batch", "Contrast within the rollout batch or within groups.")
    token_selection: str = _choice("token_selection", "all", "Plain DAPO on a part of the tokens.")
    token_selection_fraction: float = field(default=0.5, metadata={"help": "How many tokens to select."})
    hidden_state_cache: str = _choice(
        "hidden_state_cache", "auto", "Where hidden states stay until the coefficients are computed."
    )
    coefficient_timing: str = _choice(
        "coefficient_timing", "exact", "Coefficients before training, or in its forwards from the previous batch's."
    )
    log_token_credit: int = field(
        default=0, metadata={"help": "Record token credit every n optimiser steps; 0 or false: never."}
    )
    log_token_credit_completions: int = field(
        default=16, metadata={"help": "How many completions to record each time at most, in whole groups."}
    )
    log_token_credit_max_mb: float = field(default=200, metadata={"help": "Room for recorded completions, in MB."})

    @property
    def contrasts(self) -> bool:
        """Whether coefficients come from contrasting winners and losers, and so need token gradients."""
        return self.token_credit in ("delta", "within_side", "side_mean")

    @property
    def weighs_rollouts(self) -> bool:
        """Whether every rollout batch gets coefficients, before it is trained on."""
        return self.contrasts or self.token_credit == "random"

    @property
    def reads_hidden_states(self) -> bool:
        """Whether coefficients are made from the hidden states of a scoring pass."""
        return self.contrasts and self.token_gradient != "full"

    def __post_init__(self):
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(map(repr, known))}.")
        check_credit_options(self.refinement_steps, self.lambda_min, self.lambda_max)
        if not isinstance(self.token_gradient_top_k, int) or self.token_gradient_top_k < 1:
            raise ValueError(f"token_gradient_top_k={self.token_gradient_top_k!r}: expected an integer >= 1.")
        if self.full_scope is not None and self.full_scope < 1:
            raise ValueError(f"full_scope={self.full_scope!r}: expected a number of blocks >= 1.")
        if not 0 < self.token_selection_fraction <= 1:
            raise ValueError(
                f"token_selection_fraction={self.token_selection_fraction!r}: expected a number in (0, 1]."
            )
        if not isinstance(self.log_token_credit, int) or self.log_token_credit < 0:
            raise ValueError(f"log_token_credit={self.log_token_credit!r}: expected a number of steps >= 0.")
        self.log_token_credit = int(self.log_token_credit)  # True is every step
        if not isinstance(self.log_token_credit_completions, int) or self.log_token_credit_completions < 1:
            raise ValueError(
                f"log_token_credit_completions={self.log_token_credit_completions!r}: expected an integer >= 1."
            )
        if not self.log_token_credit_max_mb > 0:
            raise ValueError(f"log_token_credit_max_mb={self.log_token_credit_max_mb!r}: expected a number > 0.")
        self._refuse_what_cannot_work()

    def _refuse_what_cannot_work(self):
        contrast, weights = self.contrasts, self.weighs_rollouts
        used = {
            "balance_sides": contrast,
            "assignment": contrast,
            "temperature_mode": contrast and self.assignment == "soft",
            "centroid_scope": contrast,
            "refinement_steps": contrast,
            "token_gradient": contrast,
            "token_gradient_top_k": contrast and self.token_gradient == "topk_hidden",
            "full_gradient_estimator": contrast and self.token_gradient == "full",
            "full_scope": contrast and self.token_gradient == "full",
            "lambda_min": weights and self.token_selection == "all",
            "lambda_max": weights and self.token_selection == "all",
            "normalize_coefficients": weights,
            "token_selection": weights,
            "token_selection_fraction": weights and self.token_selection != "all",
            "hidden_state_cache": self.reads_hidden_states,
            "coefficient_timing": contrast,
            "log_token_credit": weights,
            "log_token_credit_completions": weights and self.log_token_credit,
            "log_token_credit_max_mb": weights and self.log_token_credit,
        }
        defaults = {field.name: field.default for field in fields(CreditArguments)}
        idle = [name for name, is_used in used.items() if not is_used and getattr(self, name) != defaults[name]]
        if idle:
            raise ValueError(
                f"{', '.join(f'{name}={getattr(self, name)!r}' for name in idle)}: without effect beside "
                f"token_credit={self.token_credit!r}, token_gradient={self.token_gradient!r}, "
                f"assignment={self.assignment!r}, token_selection={self.token_selection!r}, "
                f"log_token_credit={self.log_token_credit!r}. Remove what is not meant."
            )
        if self.coefficient_timing == "streaming":
            self._refuse_what_cannot_stream()
        if self.token_credit == "side_mean" and self.token_selection in ("top", "bottom"):
            raise ValueError(
                f"token_selection={self.token_selection!r} cannot choose among equal coefficients, which "
                "token_credit='side_mean' gives a whole side."
            )
        if self.token_credit == "within_side" and self.token_gradient != "output_row":
            raise ValueError(
                "token_credit='within_side' needs the length of every token's gradient, which only "
                f"token_gradient='output_row' has at hand, got {self.token_gradient!r}."
            )
        if self.centroid_scope == "group" and self.token_gradient == "full":
            raise ValueError(
                "centroid_scope='group' would cost token_gradient='full' a backward pass for every prompt. Use "
                "centroid_scope='batch' or another token_gradient."
            )
        if self.centroid_scope == "group" and self.hidden_state_cache == "recompute":
            raise ValueError(
                "hidden_state_cache='recompute' would cost centroid_scope='group' forward passes for every prompt. "
                "Use 'device', 'cpu' or 'auto'."
            )
        if self.centroid_scope == "group" and self.temperature_mode == "initial":
            raise ValueError(
                "temperature_mode='initial' keeps one temperature per side, centroid_scope='group' has one per group "
                "and side. Change one of them."
            )

    def _refuse_what_cannot_stream(self):
        needed = {
            "token_credit": "delta",
            "token_gradient": "output_row",
            "centroid_scope": "batch",
            "balance_sides": False,
            "token_selection": "all",
            "log_token_credit": 0,
        }
        wrong = [f"{name}={getattr(self, name)!r}" for name, value in needed.items() if getattr(self, name) != value]
        if self.refinement_steps > 1:
            wrong.append(f"refinement_steps={self.refinement_steps!r}")
        if wrong:
            raise ValueError(
                f"coefficient_timing='streaming' sees every token once, in a training forward, and cannot do "
                f"{', '.join(wrong)}. It works with {', '.join(f'{k}={v!r}' for k, v in needed.items())} and "
                "refinement_steps of 0 or 1."
            )


@dataclass
class DeltaGRPOConfig(CreditArguments, GRPOConfig):
    """
    [`~trl.GRPOConfig`] plus the options of [`CreditArguments`]. One default differs from TRL's: `epsilon_high` is 0.28
    as in DAPO and in the paper.
    """

    epsilon_high: float | None = field(
        default=0.28,
        metadata={"help": "Upper clip bound, ε_high. The paper follows DAPO: 0.28 (TRL's default is `epsilon`)."},
    )

    def __post_init__(self):
        CreditArguments.__post_init__(self)
        GRPOConfig.__post_init__(self)
