"""The arguments of `delta-trl audit`, from the command line or a YAML file."""

from dataclasses import dataclass, field

from ..arguments.errors import UsageError
from ..arguments.parser import documented
from ..evaluation.arguments import ModelArguments


# Rules that cost no more than a forward pass, and controls. Exact credit needs backward passes and must be named.
DEFAULT_RULES = (
    "delta",
    "delta:token_gradient=lm_head",
    "within_side",
    "side_weights",
    "random",
)


@documented
@dataclass(kw_only=True)
class AuditArguments(ModelArguments):
    """
    An audit of rules of token credit, with the options of [`ModelArguments`].

    Args:
        benchmarks (`list[str]`): Names of labelled benchmarks, paths of your own files, `name=source`, or dotted paths
            of benchmarks of your own.
        rules (`list[str]`, *optional*):
            Rules to audit, as `token_credit` in recipes, options after a colon: `delta:token_gradient=full`.
        output_dir (`str`): Where scores and results go; the same command resumes an audit that was stopped.
        num_prompts (`int`, *optional*, defaults to `96`): Prompts of each benchmark.
        num_generations (`int`, *optional*, defaults to `8`): Completions sampled for a prompt.
        prompts_per_batch (`int`, *optional*, defaults to `16`): Prompts of a rollout batch; a rule sees them together.
        reference_batches (`int`, *optional*, defaults to `24`):
            Rollout batches of the reference, their mean gradient under uniform credit, with which the rules' gradients
            are compared; 0: no gradients are audited.
        temperature (`float`, *optional*, defaults to `1.0`): Temperature of sampling and of all probabilities.
        max_completion_length (`int`, *optional*, defaults to `2048`): Tokens of sampled siblings.
        seed (`int`, *optional*, defaults to `0`): Seed of prompts, sampling and random rules.
        batch_size (`int`, *optional*, defaults to `32`):
            Completions in a forward pass. Lower it if memory runs out.
    """

    benchmarks: list[str] | None = None
    rules: list[str] = field(default_factory=lambda: list(DEFAULT_RULES))
    output_dir: str | None = None
    num_prompts: int = 96
    num_generations: int = 8
    prompts_per_batch: int = 16
    reference_batches: int = 24
    temperature: float = 1.0
    max_completion_length: int = 2048
    seed: int = 0
    batch_size: int = 32

    def __post_init__(self):
        super().__post_init__()
        self.require("benchmarks", "output_dir")
        if not self.rules:
            raise UsageError("`rules` is empty: name one, or leave it out for the default ones.")
        self.make_lists("benchmarks", "rules")
        for name in ("num_prompts", "prompts_per_batch", "max_completion_length", "batch_size"):
            self.expect(name, getattr(self, name) >= 1, "a positive number")
        self.expect("num_generations", self.num_generations >= 2, "at least 2, or nothing can be contrasted")
        self.expect("reference_batches", self.reference_batches == 0 or self.reference_batches >= 2, "0, or 2 or more")
        self.expect("temperature", self.temperature > 0, "a number above 0")
