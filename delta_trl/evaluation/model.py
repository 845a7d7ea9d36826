"""
The model of a command: where it comes from, and loading it with all checks.

For `--help`, the module imports nothing heavy: the methods do.
"""

import copy
import logging
import textwrap
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from ..arguments.lookup import refuse_file, refuse_missing_path
from ..arguments.parser import documented


if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import (
        AutoModelForCausalLM,
        AutoModelForImageTextToText,
        GenerationConfig,
        PretrainedConfig,
        PreTrainedModel,
        PreTrainedTokenizerBase,
    )

    from ..scoring.checks import Reader


logger = logging.getLogger(__name__)


@documented
@dataclass(kw_only=True)
class ModelArguments:
    """
    Which model a command loads, and how. Each method raises `ValueError`, `OSError` or `ImportError` if the model
    cannot be loaded or is not what is expected.

    Args:
        model_name_or_path (`str`): Hub id or path of a model, or of a PEFT adapter, whose base is loaded with it.
        adapter_name_or_path (`str`, *optional*): Hub id or path of a PEFT adapter to load on the model.
        model_revision, attn_implementation, trust_remote_code (*optional*): As in recipes.
        dtype (`str`, *optional*, defaults to `"auto"`): Type of the weights; `auto` is the checkpoint's.
        use_cpu (`bool`, *optional*, defaults to `False`): Stay on the CPU, though there is a GPU.
    """

    model_name_or_path: str
    adapter_name_or_path: str | None = None
    model_revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    use_cpu: bool = False
    local_files_only: bool = field(default=False, init=False)  # no option: a dry run sets it

    def __post_init__(self):
        """Raises `ValueError` for a path where nothing is, or a file."""
        for option in ("model_name_or_path", "adapter_name_or_path"):
            if name := getattr(self, option):
                refuse_missing_path(option, name)
                refuse_file(option, name)

    @property
    def name(self) -> str:
        """What messages call it: the adapter that is named, or else the model."""
        return self.adapter_name_or_path or self.model_name_or_path

    @property
    def hub_options(self) -> dict:
        return {
            "revision": self.model_revision,
            "trust_remote_code": self.trust_remote_code,
            "local_files_only": self.local_files_only,
        }

    def adapter(self) -> str | None:
        """`adapter_name_or_path`, or the model's name if that is an adapter's; `None` without an adapter."""
        if self.adapter_name_or_path:
            return self.adapter_name_or_path
        from transformers.utils import find_adapter_config_file

        is_adapter = find_adapter_config_file(
            self.model_name_or_path,
            revision=self.model_revision,
            local_files_only=self.local_files_only,
        )
        return self.model_name_or_path if is_adapter else None

    def adapter_config(self) -> Any:
        """PEFT's config of the adapter; `None` without one."""
        if not (adapter := self.adapter()):
            return None
        from peft import PeftConfig

        return PeftConfig.from_pretrained(adapter, **self.adapter_options)

    @property
    def adapter_options(self) -> dict:
        """`model_revision` is the adapter's where the model's name is."""
        revision = None if self.adapter_name_or_path else self.model_revision
        return {"revision": revision, "local_files_only": self.local_files_only}

    def base(self) -> "ModelArguments":
        """The model without its adapter."""
        base = copy.copy(self)
        base.adapter_name_or_path = None
        if not self.adapter_name_or_path and (config := self.adapter_config()):
            base.model_name_or_path = config.base_model_name_or_path
            base.model_revision = None
        return base

    def config(self) -> "PretrainedConfig":
        from transformers import AutoConfig

        base = self.base()
        return AutoConfig.from_pretrained(base.model_name_or_path, **base.hub_options)

    def reader(self) -> "Reader":
        """The model without its weights, for checks of what it reads."""
        from ..scoring.checks import Reader

        return Reader(self.name, self.processor(), self.config())

    def tokenizer(self) -> "PreTrainedTokenizerBase":
        processor = self.processor()
        return getattr(processor, "tokenizer", processor)

    def processor(self) -> Any:
        """The processor of a multimodal model, otherwise the tokenizer, as TRL loads them."""
        from transformers import AutoProcessor

        from ..scoring.checks import check_tokenizer

        adapter = self.adapter()
        name = adapter or self.model_name_or_path
        options = self.hub_options | (self.adapter_options if adapter else {})
        try:
            processor = AutoProcessor.from_pretrained(name, padding_side="left", truncation_side="left", **options)
        except (OSError, ValueError):
            if not adapter:
                raise
            return self.base().processor()  # an adapter saved without its tokenizer
        check_tokenizer(processor, name)
        return processor

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

        base = self.base()
        name = base.model_name_or_path
        options = {"dtype": self.dtype, "attn_implementation": self.attn_implementation, **base.hub_options}
        architecture = architecture_of(base.config())
        model, loading_info = architecture.from_pretrained(name, output_loading_info=True, **options)
        if missing := sorted(loading_info["missing_keys"]):
            raise ValueError(
                f"{name!r}: these weights are missing: {textwrap.shorten(', '.join(missing), 200)}. Expected a "
                "causal language model with its LM head."
            )
        if self.adapter():
            model = self.with_adapter(model)
        accelerator = None if self.use_cpu else torch.accelerator.current_accelerator(check_available=True)
        return model.to(accelerator or "cpu").eval()

    def with_adapter(self, model: "PreTrainedModel", **options: Any) -> "PeftModel":
        """
        The adapter on its base model, which gets rows of embeddings for tokens that only the adapter's tokenizer has,
        as by PEFT's `AutoPeftModel`. Raises `ValueError` for an adapter without weights for all its layers, which PEFT
        would initialise at random.

        Args:
            model (`PreTrainedModel`): That of `base`, which becomes part of the result.
            **options: Of `PeftModel.from_pretrained`, such as `is_trainable`.
        """
        from peft import PeftModel

        vocabulary = len(self.tokenizer())
        if vocabulary > model.get_input_embeddings().num_embeddings:
            model.resize_token_embeddings(vocabulary)
        with warnings.catch_warnings():
            warnings.filterwarnings("error", "Found missing adapter keys")
            try:
                adapted = PeftModel.from_pretrained(model, self.adapter(), **self.adapter_options, **options)
            except UserWarning as problem:
                raise ValueError(
                    f"{self.adapter()!r} does not fit {type(model).__name__}: {textwrap.shorten(str(problem), 200)} "
                    "Name the model that it was trained on."
                ) from problem
        config = adapted.peft_config["default"]
        for warning in self.warnings_of(config):
            logger.warning(warning)
        config.base_model_name_or_path = self.base().model_name_or_path  # with which it is saved
        return adapted

    def warnings_of(self, config: Any) -> list[str]:
        """A warning if the adapter, of which this is PEFT's config, was trained on a model of another name."""
        base = self.base().model_name_or_path
        if config.base_model_name_or_path == base:
            return []
        return [
            f"{self.adapter()!r} was trained on {config.base_model_name_or_path!r}, and is loaded on {base!r}. If "
            "that is another model, its outputs mean little."
        ]


def architecture_of(config: "PretrainedConfig") -> "type[AutoModelForCausalLM | AutoModelForImageTextToText]":
    """
    The auto class of a model, as TRL trains it: a multimodal model with all its parts. Without them, the weights of
    an adapter have other names.
    """
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    multimodal = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES.values()
    is_multimodal = any(name in multimodal for name in config.architectures or ())
    return AutoModelForImageTextToText if is_multimodal else AutoModelForCausalLM
