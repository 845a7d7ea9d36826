"""
The model of a command: where it comes from, and loading it with all checks.

For `--help`, the module imports nothing heavy: the methods do.
"""

import copy
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..arguments.lookup import refuse_file, refuse_missing_path
from ..arguments.parser import documented


if TYPE_CHECKING:
    from transformers import GenerationConfig, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from ..scoring.checks import Reader


@documented
@dataclass(kw_only=True)
class ModelArguments:
    """
    Which model a command loads, and how. Each method raises `ValueError`, `OSError` or `ImportError` if the model
    cannot be loaded or is not what is expected.

    Args:
        model_name_or_path (`str`): Hub id or path of a model, or of a PEFT adapter, whose base is loaded with it.
        model_revision, attn_implementation, trust_remote_code (*optional*): As in recipes.
        dtype (`str`, *optional*, defaults to `"auto"`): Type of the weights; `auto` is the checkpoint's.
        use_cpu (`bool`, *optional*, defaults to `False`): Stay on the CPU, though there is a GPU.
    """

    model_name_or_path: str
    model_revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    use_cpu: bool = False
    local_files_only: bool = field(default=False, init=False)  # no option: a dry run sets it

    def __post_init__(self):
        """Raises `ValueError` for a path where nothing is, or a file."""
        refuse_missing_path("model_name_or_path", self.model_name_or_path)
        refuse_file("model_name_or_path", self.model_name_or_path)

    @property
    def hub_options(self) -> dict:
        return {
            "revision": self.model_revision,
            "trust_remote_code": self.trust_remote_code,
            "local_files_only": self.local_files_only,
        }

    def is_adapter(self) -> bool:
        from transformers.utils import find_adapter_config_file

        found = find_adapter_config_file(
            self.model_name_or_path,
            revision=self.model_revision,
            local_files_only=self.local_files_only,
        )
        return found is not None

    def base(self) -> "ModelArguments":
        """The model that an adapter belongs to, or the model itself."""
        if not self.is_adapter():
            return self
        from peft import PeftConfig

        config = PeftConfig.from_pretrained(self.model_name_or_path, revision=self.model_revision)
        base = copy.copy(self)
        base.model_name_or_path = config.base_model_name_or_path
        base.model_revision = None
        return base

    def config(self) -> "PretrainedConfig":
        """That of the text model."""
        from transformers import AutoConfig

        base = self.base()
        config = AutoConfig.from_pretrained(base.model_name_or_path, **base.hub_options)
        return config.get_text_config()

    def reader(self) -> "Reader":
        """The model without its weights, for checks of what it reads."""
        from ..scoring.checks import Reader

        return Reader(self.model_name_or_path, self.processor(), self.config())

    def tokenizer(self) -> "PreTrainedTokenizerBase":
        processor = self.processor()
        return getattr(processor, "tokenizer", processor)

    def processor(self) -> Any:
        """The processor of a multimodal model, otherwise the tokenizer, as TRL loads them."""
        from transformers import AutoProcessor

        from ..scoring.checks import check_tokenizer

        name = self.model_name_or_path
        try:
            found = AutoProcessor.from_pretrained(name, padding_side="left", **self.hub_options)
        except (OSError, ValueError):
            if not self.is_adapter():
                raise
            return self.base().processor()  # an adapter saved without its tokenizer
        check_tokenizer(found, name)
        return found

    def generation_config(self) -> "GenerationConfig":
        """What generation_config.json declares, or config.json where there is none, as for transformers' models."""
        from transformers import GenerationConfig

        base = self.base()
        try:
            return GenerationConfig.from_pretrained(base.model_name_or_path, **base.hub_options)
        except OSError:
            return GenerationConfig.from_model_config(base.config())

    def model(self) -> "PreTrainedModel":
        """
        The causal language model with its adapter, if it has one, for evaluation on the accelerator or the CPU. Raises
        `ValueError` if weights are missing: transformers would initialise them at random.
        """
        import torch
        from transformers import AutoModelForCausalLM

        name = self.model_name_or_path
        options = {"dtype": self.dtype, "attn_implementation": self.attn_implementation, **self.hub_options}
        if self.is_adapter():
            from peft import AutoPeftModelForCausalLM

            model = AutoPeftModelForCausalLM.from_pretrained(name, **options)
        else:
            model, found = AutoModelForCausalLM.from_pretrained(name, output_loading_info=True, **options)
            if missing := sorted(found["missing_keys"]):
                raise ValueError(
                    f"{name!r}: these weights are missing: {textwrap.shorten(', '.join(missing), 200)}. Expected a "
                    "causal language model with its LM head."
                )
        accelerator = None if self.use_cpu else torch.accelerator.current_accelerator(check_available=True)
        return model.to(accelerator or "cpu").eval()
