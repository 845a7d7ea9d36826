"""The options of `delta-trl eval`. Imports nothing heavy, for `--help`."""

from dataclasses import dataclass, field
from typing import ClassVar

from ..arguments.parser import Mapping, documented, read_mappings
from ..arguments.values import NOT_NEGATIVE
from .model import ModelArguments


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
    column_mapping: Mapping = field(default_factory=dict)
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
