"""The options of `delta-trl eval`, and those of every command that loads a model."""

import os
from dataclasses import dataclass

import torch

from ..arguments.errors import UsageError
from ..arguments.parser import documented, read_mappings
from .generation import ModelSource


DTYPES = ("auto", "float32", "bfloat16", "float16")


@documented
@dataclass(kw_only=True)
class ModelArguments:
    """
    Which model a command loads, and how.

    Args:
        model_name_or_path (`str`): Hub id or path of a model, or of a PEFT adapter, whose base is loaded with it.
        model_revision (`str`, *optional*): Branch, tag or commit of the model's hub repository.
        dtype (`str`, *optional*, defaults to `"auto"`):
            Type of the weights, `bfloat16`, `float16` or `float32`; `auto` is the checkpoint's.
        attn_implementation (`str`, *optional*): Attention of transformers, such as `sdpa` or `flash_attention_2`.
        trust_remote_code (`bool`, *optional*, defaults to `False`): Run code of the model's own hub repository.
        use_cpu (`bool`, *optional*, defaults to `False`): Stay on the CPU, though there is a GPU.
    """

    model_name_or_path: str | None = None
    model_revision: str | None = None
    dtype: str = "auto"
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    use_cpu: bool = False

    def __post_init__(self):
        self.require("model_name_or_path")
        self.expect("dtype", self.dtype in DTYPES, "auto, float32, bfloat16 or float16")
        if int(os.environ.get("WORLD_SIZE", "1")) > 1:
            raise UsageError(
                "This command runs in one process, and a launcher has started several: each of them would do all of "
                "the work. Start it without a launcher."
            )

    def require(self, *names: str) -> None:
        """Raise `UsageError` for an argument that is not given."""
        for name in names:
            if not getattr(self, name):
                raise UsageError(f"`{name}` is missing: set it as --{name}.")

    def make_lists(self, *names: str) -> None:
        """Convert arguments that are a single string, as a YAML file may have them, to lists of one element."""
        for name in names:
            if isinstance(getattr(self, name), str):
                setattr(self, name, [getattr(self, name)])

    def expect(self, name: str, valid: bool, expected: str) -> None:
        """Raise `UsageError` for an argument that is not valid."""
        if not valid:
            raise UsageError(f"{name}={getattr(self, name)}: expected {expected}.")

    def source(self) -> ModelSource:
        assert self.model_name_or_path
        return ModelSource(
            self.model_name_or_path, self.model_revision, self.dtype, self.attn_implementation, self.trust_remote_code
        )

    def device(self) -> torch.device:
        """The accelerator if there is one, else the CPU."""
        found = None if self.use_cpu else torch.accelerator.current_accelerator(check_available=True)
        return found or torch.device("cpu")


@documented
@dataclass(kw_only=True)
class EvalArguments(ModelArguments):
    """
    Options of an evaluation, with those of [`ModelArguments`]. Names shared with training recipes mean the same; the
    defaults are the paper's.

    Args:
        benchmarks (`list[str]`):
            Names of benchmarks, groups of them, paths of local files, `label=path`, or `name=source`.
        output_dir (`str`): Where samples and results go. Benchmarks that are finished there are not sampled again.
        num_generations (`int`, *optional*, defaults to `16`): k, samples per problem. More narrow the interval.
        temperature (`float`, *optional*, defaults to `1.0`): Sampling temperature; 0 is greedy.
        top_p (`float`, *optional*, defaults to `0.7`):
            Sample among the likeliest tokens that have this share of the probability; 1 is all.
        max_completion_length (`int`, *optional*, defaults to `30000`):
            Tokens after which a completion is cut off. vLLM also stops at the model's context; transformers does not.
        seed (`int`, *optional*, defaults to `0`): Seed of the sampling.
        batch_size (`int`, *optional*): Completions sampled together. Defaults to 16, and to 128 with vLLM.
        num_problems (`int`, *optional*): Size of a fixed random sample of the problems of each benchmark.
        reward (`str`, *optional*): Score with this reward: a name, or the dotted path of your own.
        reward_kwargs (`dict`, *optional*): Options of rewards, by their names, `{code_reward: {timeout: 10}}`.
        dataset_format (`str`, *optional*): Schema of the rows, see docs/datasets.md.
        prompt_template (`str`, *optional*): Text around each prompt, in place of the benchmark's own.
        conversational (`bool`, *optional*):
            Turn prompts into chats. By default for benchmarks, if the tokenizer has a chat template; not for files.
        chat_template_kwargs (`dict`, *optional*): For the chat template, `{enable_thinking: false}`.
        use_vllm (`bool`, *optional*, defaults to `False`): Sample with vLLM instead of transformers: much faster.
        vllm_kwargs (`dict`, *optional*):
            Arguments of `vllm.LLM`, `{tensor_parallel_size: 2, gpu_memory_utilization: 0.8, max_model_len: 8192}`.
    """

    benchmarks: list[str] | None = None
    output_dir: str | None = None
    num_generations: int = 16
    temperature: float = 1.0
    top_p: float = 0.7
    max_completion_length: int = 30000
    seed: int = 0
    batch_size: int | None = None
    num_problems: int | None = None
    reward: str | None = None
    reward_kwargs: dict | str | None = None
    dataset_format: str | None = None
    prompt_template: str | None = None
    conversational: bool | None = None
    chat_template_kwargs: dict | str | None = None
    use_vllm: bool = False
    vllm_kwargs: dict | str | None = None

    def __post_init__(self):
        super().__post_init__()
        read_mappings(self, "reward_kwargs", "chat_template_kwargs", "vllm_kwargs")
        self.require("benchmarks", "output_dir")
        self.make_lists("benchmarks")
        if self.batch_size is None:
            self.batch_size = 128 if self.use_vllm else 16
        for name in ("num_generations", "batch_size", "num_problems"):
            self.expect(name, getattr(self, name) is None or getattr(self, name) >= 1, "a positive number")
        self.expect("temperature", self.temperature >= 0, "0 or more")
        self.expect("top_p", 0 < self.top_p <= 1, "a number above 0, at most 1")
        if self.temperature == 0 and self.num_generations > 1:
            raise UsageError(
                f"temperature=0 decodes greedily, and num_generations={self.num_generations} samples would be equal: "
                "set --num_generations 1."
            )
