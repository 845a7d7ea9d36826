"""The arguments of `delta-trl audit`, from the command line or a YAML file."""

from dataclasses import dataclass, field

import torch

from ..arguments.errors import UsageError
from ..arguments.parser import CheckedArguments, StrictParser


# Rules that cost no more than a forward pass, and controls. Exact credit needs backward passes and must be named.
DEFAULT_RULES = (
    "delta",
    "delta:token_gradient=lm_head",
    "within_side",
    "group_contrast",
    "sibling_value",
    "surprisal",
    "entropy",
    "advantage_reweighting",
    "taco",
    "side_weights",
    "position",
    "random",
)


@dataclass
class AuditArguments(CheckedArguments):
    """
    An audit of rules of token credit.

    Args:
        model_name_or_path (`str`): Hub id or path of the policy, or of a PEFT adapter of one.
        benchmarks (`list[str]`): Names of labelled benchmarks, paths of your own files, `name=source`, or dotted paths
            of benchmarks of your own.
        rules (`list[str]`, *optional*):
            As `token_credit` in recipes, options after a colon: `delta:token_gradient=full`.
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
        batch_size (`int`, *optional*, defaults to `32`): Completions in a forward pass.
        model_revision, dtype, attn_implementation, trust_remote_code: As in recipes.
        use_cpu (`bool`, *optional*, defaults to `False`): Stay on the CPU.
    """

    model_name_or_path: str | None = field(default=None, metadata={"help": "Model or PEFT adapter: hub id or path."})
    benchmarks: list[str] | None = field(
        default=None, metadata={"help": "Names of labelled benchmarks, paths of your own files, or name=source."}
    )
    rules: list[str] = field(
        default_factory=lambda: list(DEFAULT_RULES),
        metadata={"help": "Rules as in recipes, also your_module.YourRule; options as NAME:key=value,key=value."},
    )
    output_dir: str | None = field(default=None, metadata={"help": "Where scores and results go."})
    num_prompts: int = field(default=96, metadata={"help": "Prompts of each benchmark."})
    num_generations: int = field(default=8, metadata={"help": "Completions sampled for a prompt."})
    prompts_per_batch: int = field(
        default=16, metadata={"help": "Prompts of a rollout batch, which a rule sees together."}
    )
    reference_batches: int = field(
        default=24, metadata={"help": "Rollout batches of the reference gradient; 0: no gradients are audited."}
    )
    temperature: float = field(default=1.0, metadata={"help": "Temperature of sampling and of all probabilities."})
    max_completion_length: int = field(default=2048, metadata={"help": "Tokens of sampled siblings."})
    seed: int = field(default=0, metadata={"help": "Seed of prompts, sampling and random rules."})
    batch_size: int = field(default=32, metadata={"help": "Completions in a forward pass."})
    model_revision: str | None = field(default=None, metadata={"help": "Revision of the hub repository."})
    dtype: str = field(default="auto", metadata={"help": "Type of the weights; auto is the checkpoint's."})
    attn_implementation: str | None = field(
        default=None, metadata={"help": "Attention implementation of transformers."}
    )
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the model repository's own code."})
    use_cpu: bool = field(default=False, metadata={"help": "Stay on the CPU."})

    def __post_init__(self):
        self.require("model_name_or_path", "benchmarks", "output_dir")
        if not self.rules:
            raise UsageError("`rules` is empty: name one, or leave it out for the default ones.")
        self.make_lists("benchmarks", "rules")
        for name in ("num_prompts", "prompts_per_batch", "max_completion_length", "batch_size"):
            self.expect(name, getattr(self, name) >= 1, "a positive number")
        self.expect("num_generations", self.num_generations >= 2, "at least 2, or nothing can be contrasted")
        self.expect("reference_batches", self.reference_batches == 0 or self.reference_batches >= 2, "0, or 2 or more")
        self.expect("temperature", self.temperature > 0, "a number above 0")
        known = self.dtype == "auto" or isinstance(getattr(torch, self.dtype, None), torch.dtype)
        self.expect("dtype", known, "auto, float32, bfloat16 or float16")


class AuditParser(StrictParser):
    """Parser of `delta-trl audit`."""

    command = "delta-trl audit"

    def __init__(self):
        super().__init__([AuditArguments], prog=self.command)
