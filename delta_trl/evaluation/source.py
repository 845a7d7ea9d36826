"""Where a model comes from, and loading it with all checks. Every command loads its model so."""

import copy
import textwrap
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoProcessor,
    AutoTokenizer,
    GenerationConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import find_adapter_config_file

from ..policy.checks import check_tokenizer


@dataclass
class ModelSource:
    """
    Hub id or path, of a model or of a PEFT adapter, and options as in recipes. Each method raises `ValueError`,
    `OSError` or `ImportError` if the model cannot be loaded or is not what is expected.
    """

    model_name_or_path: str
    model_revision: str | None = None
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    local_files_only: ClassVar[bool] = False  # no option: a dry run sets it

    @property
    def hub_options(self) -> dict:
        options = {"trust_remote_code": self.trust_remote_code, "local_files_only": self.local_files_only}
        return {"revision": self.model_revision, **options}

    def is_adapter(self) -> bool:
        options = {"revision": self.model_revision, "local_files_only": self.local_files_only}
        return find_adapter_config_file(self.model_name_or_path, **options) is not None

    def base(self) -> "ModelSource":
        """The model that an adapter belongs to, or the model itself."""
        if not self.is_adapter():
            return self
        from peft import PeftConfig

        config = PeftConfig.from_pretrained(self.model_name_or_path, revision=self.model_revision)
        base = copy.copy(self)
        base.model_name_or_path, base.model_revision = config.base_model_name_or_path, None
        return base

    def config(self) -> PretrainedConfig:
        """That of the text model."""
        base = self.base()
        config = AutoConfig.from_pretrained(base.model_name_or_path, **base.hub_options)
        return config.get_text_config()

    def tokenizer(self) -> PreTrainedTokenizerBase:
        try:
            found = AutoTokenizer.from_pretrained(self.model_name_or_path, padding_side="left", **self.hub_options)
        except (OSError, ValueError) as error:  # perhaps an adapter saved without its tokenizer
            if (base := self.base()) is self:
                raise ValueError(f"{self.model_name_or_path!r}: no tokenizer can be loaded: {error}") from error
            found = base.tokenizer()
        check_tokenizer(found, self.model_name_or_path)
        return found

    def generation_config(self) -> GenerationConfig | None:
        """What lies beside the model; `None` if there is none."""
        try:
            return GenerationConfig.from_pretrained(self.model_name_or_path, **self.hub_options)
        except OSError:
            return None

    def processor(self) -> Any:
        """As TRL loads it: of a model that reads images, too, its processor, of others the tokenizer."""
        found = AutoProcessor.from_pretrained(self.model_name_or_path, padding_side="left", **self.hub_options)
        check_tokenizer(found, self.model_name_or_path)
        return found

    def model(self) -> PreTrainedModel:
        """
        The causal language model, with its adapter if it is one. Refused are weights that are missing, which
        transformers would draw at random.
        """
        name = self.model_name_or_path
        options = {"dtype": self.dtype, "attn_implementation": self.attn_implementation, **self.hub_options}
        if self.is_adapter():
            from peft import AutoPeftModelForCausalLM

            return AutoPeftModelForCausalLM.from_pretrained(name, **options)
        model, found = AutoModelForCausalLM.from_pretrained(name, output_loading_info=True, **options)
        if missing := sorted(found["missing_keys"]):
            raise ValueError(
                f"{name!r}: these weights are missing: {textwrap.shorten(', '.join(missing), 200)}. Expected a causal "
                "language model with its LM head."
            )
        return model
