"""The options of `delta-trl audit`. Imports nothing heavy, for `--help`."""

from dataclasses import dataclass, field

from ..arguments.parser import documented
from ..evaluation.model import ModelArguments


# Rules of an audit. They need a single forward pass. Exact gradients also need backward passes, and must be named
AUDITED_RULES = ("delta", "delta:token_gradient=lm_head", "within_side", "random")


@documented
@dataclass(kw_only=True)
class AuditArguments(ModelArguments):
    """
    An audit of rules of token credit, with the options of [`ModelArguments`].

    Args:
        benchmarks (`list[str]`): Names of labelled benchmarks, `name=source`, or paths of your own files.
        token_credit (`list[str]`, *optional*):
            Rules to audit, with options after a colon: `delta:token_gradient=full`.
        output_dir (`str`): Where the scores and the results go.
        num_prompts (`int`, *optional*, defaults to `96`): Prompts of each benchmark, drawn at random.
        prompts_per_batch (`int`, *optional*, defaults to `16`): Prompts of a rollout batch; a rule sees them together.
        seed (`int`, *optional*, defaults to `0`): Seed of the prompts and of random rules.
        batch_size (`int`, *optional*, defaults to `32`): Completions in a forward pass.
    """

    benchmarks: list[str]
    token_credit: list[str] = field(default_factory=lambda: list(AUDITED_RULES), metadata={"aliases": ["--rules"]})
    output_dir: str
    num_prompts: int = 96
    prompts_per_batch: int = 16
    seed: int = 0
    batch_size: int = 32
