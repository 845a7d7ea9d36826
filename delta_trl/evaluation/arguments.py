"""The options of `delta-trl eval`, from the command line or a YAML file."""

from dataclasses import dataclass, field

from ..arguments.errors import UsageError
from ..arguments.parser import CheckedArguments, StrictParser, read_mappings
from ..data.formats import FORMATS


@dataclass
class EvalArguments(CheckedArguments):
    """
    Options of an evaluation. Names shared with training recipes mean the same; the defaults are the paper's.

    Args:
        model_name_or_path (`str`): Hub id or path of a model, or of a PEFT adapter, whose base is loaded with it.
        benchmarks (`list[str]`):
            Names of benchmarks, groups of them, paths of local files, `label=path`, or `name=source`.
        output_dir (`str`): Where samples and results go; the same command continues a stopped evaluation.
        num_generations (`int`, *optional*, defaults to `16`): k, samples per problem.
        temperature (`float`, *optional*, defaults to `1.0`): Sampling temperature; 0 is greedy.
        top_p (`float`, *optional*, defaults to `0.7`): Nucleus sampling.
        max_completion_length (`int`, *optional*, defaults to `30000`): Tokens after which a completion is cut off.
        seed (`int`, *optional*, defaults to `0`): Seed of the sampling.
        batch_size (`int`, *optional*):
            Completions sampled together, and written together. Defaults to 16, and to 128 with vLLM.
        num_problems (`int`, *optional*): Size of a fixed random sample of the problems of each benchmark.
        reward (`str`, *optional*): Score files with this reward: a name, or the dotted path of your own.
        reward_kwargs (`dict`, *optional*): Options by reward name, `{code_reward: {timeout: 10}}`.
        dataset_format (`str`, *optional*): Schema of the files, see docs/datasets.md.
        column_mapping (`dict`, *optional*): New names of the files' columns.
        prompt_template (`str`, *optional*): Text around each prompt, in place of the benchmark's own.
        system_prompt (`str`, *optional*): System message of chats.
        conversational (`bool`, *optional*):
            Turn prompts into chats. By default for benchmarks, if the tokenizer has a chat template; not for files.
        chat_template_kwargs (`dict`, *optional*): For the chat template, `{enable_thinking: false}`.
        model_revision (`str`, *optional*): As in recipes.
        dtype (`str`, *optional*, defaults to `"auto"`): As in recipes.
        attn_implementation (`str`, *optional*): As in recipes.
        trust_remote_code (`bool`, *optional*, defaults to `False`): As in recipes.
        use_cpu (`bool`, *optional*, defaults to `False`): Stay on the CPU.
        use_vllm (`bool`, *optional*, defaults to `False`): Sample with vLLM instead of transformers.
        vllm_gpu_memory_utilization (`float`, *optional*, defaults to `0.9`): As in recipes.
        vllm_tensor_parallel_size (`int`, *optional*, defaults to `1`): As in recipes.
        vllm_max_model_length (`int`, *optional*): As in recipes.
    """

    model_name_or_path: str | None = field(default=None, metadata={"help": "Model or PEFT adapter: hub id or path."})
    benchmarks: list[str] | None = field(
        default=None, metadata={"help": "Names of benchmarks or groups, files, label=path, or name=source."}
    )
    output_dir: str | None = field(default=None, metadata={"help": "Where samples and results go."})
    num_generations: int = field(default=16, metadata={"help": "k, samples per problem."})
    temperature: float = field(default=1.0, metadata={"help": "Sampling temperature; 0 is greedy."})
    top_p: float = field(default=0.7, metadata={"help": "Nucleus sampling."})
    max_completion_length: int = field(default=30000, metadata={"help": "Tokens after which a completion is cut off."})
    seed: int = field(default=0, metadata={"help": "Seed of the sampling."})
    batch_size: int | None = field(
        default=None, metadata={"help": "Completions sampled and written together: 16, with vLLM 128."}
    )
    num_problems: int | None = field(
        default=None, metadata={"help": "Size of a fixed random sample of each benchmark's problems."}
    )
    reward: str | None = field(default=None, metadata={"help": "Reward that scores files: a name or a dotted path."})
    reward_kwargs: dict | str | None = field(default=None, metadata={"help": "Options by reward name."})
    dataset_format: str | None = field(
        default=None, metadata={"help": "Schema of the files.", "choices": tuple(FORMATS)}
    )
    column_mapping: dict | str | None = field(default=None, metadata={"help": "New names of the files' columns."})
    prompt_template: str | None = field(default=None, metadata={"help": "Text around each prompt, with {prompt}."})
    system_prompt: str | None = field(default=None, metadata={"help": "System message of chats."})
    conversational: bool | None = field(
        default=None, metadata={"help": "Turn prompts into chats. Default: for benchmarks, given a chat template."}
    )
    chat_template_kwargs: dict | str | None = field(default=None, metadata={"help": "For the chat template."})
    model_revision: str | None = field(default=None, metadata={"help": "Revision of the hub repository."})
    dtype: str = field(default="auto", metadata={"help": "Dtype of the weights; auto is the checkpoint's."})
    attn_implementation: str | None = field(default=None, metadata={"help": "Attention of transformers."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the model repository's own code."})
    use_cpu: bool = field(default=False, metadata={"help": "Stay on the CPU."})
    use_vllm: bool = field(default=False, metadata={"help": "Sample with vLLM instead of transformers."})
    vllm_gpu_memory_utilization: float = field(default=0.9, metadata={"help": "Share of the GPU for vLLM."})
    vllm_tensor_parallel_size: int = field(default=1, metadata={"help": "GPUs of one vLLM engine."})
    vllm_max_model_length: int | None = field(default=None, metadata={"help": "Prompt plus completion, for vLLM."})

    def __post_init__(self):
        read_mappings(self, "reward_kwargs", "column_mapping", "chat_template_kwargs")
        self.require("model_name_or_path", "benchmarks", "output_dir")
        self.make_lists("benchmarks")
        if self.batch_size is None:
            self.batch_size = 128 if self.use_vllm else 16
        for name in ("num_generations", "max_completion_length", "batch_size", "vllm_tensor_parallel_size"):
            self.expect(name, getattr(self, name) >= 1, "a positive number")
        self.expect("num_problems", self.num_problems is None or self.num_problems >= 1, "a positive number")
        self.expect("temperature", self.temperature >= 0, "0 or more")
        self.expect("top_p", 0 < self.top_p <= 1, "a number above 0, at most 1")
        if self.temperature == 0 and self.num_generations > 1:
            raise UsageError(
                f"temperature=0 decodes greedily, and num_generations={self.num_generations} samples would be equal: "
                "set --num_generations 1."
            )
        if self.dataset_format and self.column_mapping:
            raise UsageError("Set either `dataset_format` or `column_mapping`: a format names its own columns.")


class EvalParser(StrictParser):
    """Parser of `delta-trl eval`."""

    command = "delta-trl eval"

    def __init__(self):
        super().__init__([EvalArguments], prog=self.command)
