"""The options of `delta-trl eval`, and those of every command that loads a model."""

import os
from dataclasses import dataclass

import torch

from ..arguments.errors import UsageError
from ..arguments.parser import documented, read_mappings
from .source import ModelSource


@documented
@dataclass(kw_only=True)
class ModelArguments(ModelSource):
    """
    Which model a command loads, and how.

    Args:
        model_name_or_path (`str`): Hub id or path of a model, or of a PEFT adapter, whose base is loaded with it.
        model_revision, attn_implementation, trust_remote_code (*optional*): As in recipes.
        dtype (`str`, *optional*, defaults to `"auto"`): Type of the weights; `auto` is the checkpoint's.
        use_cpu (`bool`, *optional*, defaults to `False`): Stay on the CPU, though there is a GPU.
    """

    use_cpu: bool = False

    def __post_init__(self):
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError(
                "This command runs in one process, and a launcher has started several, of which each would do all."
            )

    def expect_positive(self, *names: str) -> None:
        """Raise `UsageError` for an argument below 1."""
        for name in names:
            if (value := getattr(self, name)) is not None and value < 1:
                raise UsageError(f"{name}={value}: expected a positive number.")

    def device(self) -> torch.device:
        """The accelerator if there is one, else the CPU."""
        found = None if self.use_cpu else torch.accelerator.current_accelerator(check_available=True)
        return found or torch.device("cpu")


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
        max_completion_length (`int`, *optional*, defaults to `30000`): Tokens after which a completion is cut off.
        seed (`int`, *optional*, defaults to `0`): Seed of the sampling.
        batch_size (`int`, *optional*): Completions sampled together. Defaults to 16, and to 128 with vLLM.
        num_problems (`int`, *optional*): Size of a fixed random sample of the problems of each benchmark.
        reward (`str`, *optional*): Score with this reward: a name, or the dotted path of your own.
        dataset_format, prompt_template, chat_template_kwargs (*optional*): As in recipes.
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
    max_completion_length: int = 30000
    seed: int = 0
    batch_size: int | None = None
    num_problems: int | None = None
    reward: str | None = None
    dataset_format: str | None = None
    prompt_template: str | None = None
    conversational: bool | None = None
    chat_template_kwargs: dict | str | None = None
    use_vllm: bool = False
    vllm_kwargs: dict | str | None = None

    def __post_init__(self):
        super().__post_init__()
        read_mappings(self, "chat_template_kwargs", "vllm_kwargs")
        self.expect_positive("num_generations", "batch_size", "num_problems")
        if self.temperature == 0:
            self.num_generations = 1
