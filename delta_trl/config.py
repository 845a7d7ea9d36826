"""Configuration of [`DeltaGRPOTrainer`]: TRL's `GRPOConfig` plus the credit options, defaults as in the paper."""

from dataclasses import dataclass, field

from trl import GRPOConfig

from .credit.coefficients import check_credit_options


TOKEN_CREDITS = ("delta", "none")
TOKEN_GRADIENTS = ("output_row",)


@dataclass
class CreditArguments:
    """
    The credit options of [`DeltaGRPOConfig`] (arXiv 2605.21467; defaults are the paper's).

    Args:
        token_credit (`str`, *optional*, defaults to `"delta"`):
            `"delta"` reweights every token's loss with its DelTA coefficient; `"none"` is `GRPOTrainer`, bit for bit.
        token_gradient (`str`, *optional*, defaults to `"output_row"`):
            What stands for a token's gradient: `"output_row"` is (1 - p) h, h the final hidden state.
        refinement_steps (`int`, *optional*, defaults to `1`):
            K, how often centroids and temperatures are refined.
        lambda_min (`float`, *optional*, defaults to `0.8`):
            Lower bound of the coefficients before normalisation.
        lambda_max (`float`, *optional*, defaults to `1.2`):
            Upper bound of the coefficients before normalisation.
        normalize_coefficients (`bool`, *optional*, defaults to `True`):
            Divide the coefficients by their mean over the rollout batch.

    Raises:
        ValueError: If an option is unknown or out of range.
    """

    token_credit: str = field(
        default="delta",
        metadata={"help": "Token credit: 'delta', or 'none' for plain GRPO.", "choices": TOKEN_CREDITS},
    )
    token_gradient: str = field(
        default="output_row",
        metadata={"help": "What stands for a token's gradient: 'output_row'.", "choices": TOKEN_GRADIENTS},
    )
    refinement_steps: int = field(default=1, metadata={"help": "K, how often centroids and temperatures are refined."})
    lambda_min: float = field(default=0.8, metadata={"help": "Lower bound of the coefficients before normalisation."})
    lambda_max: float = field(default=1.2, metadata={"help": "Upper bound of the coefficients before normalisation."})
    normalize_coefficients: bool = field(
        default=True, metadata={"help": "Divide the coefficients by their mean over the rollout batch."}
    )

    def __post_init__(self):
        for name, known in (("token_credit", TOKEN_CREDITS), ("token_gradient", TOKEN_GRADIENTS)):
            if getattr(self, name) not in known:
                raise ValueError(f"{name}={getattr(self, name)!r}: expected one of {', '.join(map(repr, known))}.")
        check_credit_options(self.refinement_steps, self.lambda_min, self.lambda_max)


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
