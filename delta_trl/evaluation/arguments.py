"""The options of `delta-trl eval`, `explain` and `audit`. Imports nothing heavy, for `--help`."""

from dataclasses import dataclass, field
from typing import ClassVar

from ..arguments.parser import Mapping, documented, read_mappings
from ..arguments.values import NOT_NEGATIVE
from .model import ModelArguments


# Rules of an audit. They need a single forward pass. Exact gradients also need backward passes, and must be named
AUDITED_RULES = ("delta", "delta:token_gradient=lm_head", "within_side", "random")


@documented
@dataclass(kw_only=True)
class EvalArguments(ModelArguments):
    """
    Options of an evaluation, with those of [`ModelArguments`]. The defaults are the paper's.

    Args:
        benchmarks (`list[str]`): Names of benchmarks or groups of them, paths of local files, or `name=source`.
        output_dir (`str`): Where samples and results go. Benchmarks that are finished there are not sampled again.
        num_generations (`int`, *optional*, defaults to `16`): k, samples per problem.
        temperature (`float`, *optional*, defaults to `1.0`): Sampling temperature; 0 is greedy, one sample.
        top_p (`float`, *optional*, defaults to `0.7`): Probability of the nucleus that is sampled from; 1 is all.
        max_completion_length (`int`, *optional*):
            Tokens after which a completion is cut off. Defaults to 30,000, or what the model's context has room for.
        seed (`int`, *optional*, defaults to `0`): Seed of the sampling.
        batch_size (`int`, *optional*): Completions sampled together. Defaults to 16, and to 128 with vLLM.
        num_problems (`int`, *optional*): Size of a fixed random sample of the problems of each benchmark.
        reward (`str`, *optional*): Score with this reward: a name, or the dotted path of your own.
        dataset_format, column_mapping, prompt_template, system_prompt, chat_template_kwargs (*optional*):
            As in recipes.
        conversational (`bool`, *optional*):
            Turn prompts into chats. By default for benchmarks, if the tokenizer has a chat template; not for files.
        use_vllm (`bool`, *optional*, defaults to `False`): Sample with vLLM instead of transformers: much faster.
        vllm_kwargs (`dict`, *optional*): Arguments of `vllm.LLM`, `{tensor_parallel_size: 2, max_model_len: 8192}`.
    """

    benchmarks: list[str]
    output_dir: str
    num_generations: int = 16
    temperature: float = 1.0
    top_p: float = 0.7
    max_completion_length: int | None = None
    seed: int = 0
    batch_size: int | None = None
    num_problems: int | None = None
    reward: str | None = None
    dataset_format: str | None = None
    column_mapping: dict | str | None = None
    prompt_template: str | None = None
    system_prompt: str | None = None
    conversational: bool | None = None
    chat_template_kwargs: Mapping = field(default_factory=dict)
    use_vllm: bool = False
    vllm_kwargs: Mapping = field(default_factory=dict)
    allowed: ClassVar = {"temperature": NOT_NEGATIVE}

    def __post_init__(self):
        super().__post_init__()
        read_mappings(self, "column_mapping", "chat_template_kwargs", "vllm_kwargs")
        if self.temperature == 0:
            self.num_generations = 1


@documented
@dataclass(kw_only=True)
class ExplainArguments(ModelArguments):
    """
    Options of `delta-trl explain`, with those of [`ModelArguments`].

    Args:
        data (`str`):
            JSON lines such as {"prompt": "2+3=", "completion": "5", "reward": 1.0}. A prompt may be a list of chat
            messages, a reward null where it is unknown. Completions of the same prompt are a group: their rewards
            become advantages as in GRPO. With `token_ids` and `turns`, as a run records them, a tool's text gets no
            credit: tokens whose turn is 0.
        output_dir (`str`):
            Where the records and the report go. They replace those that this command wrote there before; the folder
            of a training run is refused.
        token_credit (`str`, *optional*, defaults to `"delta"`):
            One rule, with options after a colon: `delta:token_gradient=lm_head` or `your_module.YourRule`.
        batch_size (`int`, *optional*, defaults to `4`): Completions in a forward pass.
    """

    data: str
    output_dir: str
    token_credit: str = field(default="delta", metadata={"aliases": ["--rule"]})
    batch_size: int = 4


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
