"""Sampling completions: with transformers, or with vLLM where it is installed."""

import logging
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
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

from ..policy.checks import check_config, check_files, check_tokenizer, check_weights
from ..policy.prompts import end_tokens


logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class ModelSource:
    """
    Where a model comes from.

    Args:
        name (`str`): Hub id or path, of a model or of a PEFT adapter.
        revision (`str`, *optional*): Revision of the hub repository.
        dtype (`str`, *optional*, defaults to `"auto"`): A torch dtype's name, or "auto" for the checkpoint's own.
        attn_implementation (`str`, *optional*): See transformers.
        trust_remote_code (`bool`, *optional*, defaults to `False`): See transformers.
        local_files_only (`bool`, *optional*, defaults to `False`): Do not ask the hub.

    Raises:
        ValueError: By each method, if the model or its tokenizer cannot be loaded or is not what is expected.
    """

    name: str
    revision: str | None = None
    dtype: str = "auto"
    attn_implementation: str | None = None
    trust_remote_code: bool = False
    local_files_only: bool = False

    @property
    def hub_options(self) -> dict:
        names = ("revision", "trust_remote_code", "local_files_only")
        return {name: getattr(self, name) for name in names}

    def is_adapter(self) -> bool:
        options = {"revision": self.revision, "local_files_only": self.local_files_only}
        return find_adapter_config_file(self.name, **options) is not None

    def base(self) -> str:
        """The model that an adapter belongs to. Raises `ImportError` without peft."""
        return _peft().PeftConfig.from_pretrained(self.name, revision=self.revision).base_model_name_or_path

    def _underlying(self) -> "ModelSource":
        """The model that an adapter belongs to, or the model itself."""
        return replace(self, name=self.base(), revision=None) if self.is_adapter() else self

    def config(self) -> PretrainedConfig:
        """That of the text model."""
        source = self._underlying()
        config = AutoConfig.from_pretrained(source.name, **source.hub_options)
        check_config(config, source.name)
        return config.get_text_config()

    def tokenizer(self) -> PreTrainedTokenizerBase:
        try:
            try:
                found = AutoTokenizer.from_pretrained(self.name, padding_side="left", **self.hub_options)
            except (OSError, ValueError):  # perhaps an adapter saved without its tokenizer
                source = self._underlying()
                found = AutoTokenizer.from_pretrained(source.name, padding_side="left", **source.hub_options)
        except (OSError, ValueError) as error:
            raise ValueError(f"The model {self.name!r}: no tokenizer can be loaded: {beginning(error)}") from error
        check_tokenizer(found, self.name)
        return found

    def processor(self) -> Any:
        """As TRL loads it: of a model that reads images, too, its processor, of others the tokenizer."""
        return AutoProcessor.from_pretrained(self.name, padding_side="left", **self.hub_options)

    def model(self) -> PreTrainedModel:
        """The causal language model, with its adapter if it is one."""
        source = self._underlying()
        options = {"dtype": self.dtype, "attn_implementation": self.attn_implementation, **source.hub_options}
        model = load_model(source.name, **options)
        if source is self:
            return model
        if (tokens := len(self.tokenizer())) > model.get_input_embeddings().num_embeddings:
            model.resize_token_embeddings(tokens)  # as PEFT's own AutoPeftModelForCausalLM does
        return _peft().PeftModelForCausalLM.from_pretrained(model, self.name, revision=self.revision)


def beginning(error: Exception) -> str:
    """The beginning of a message, where transformers says what is wrong; lists and advice follow."""
    return textwrap.shorten(str(error) or type(error).__name__, 300, placeholder=" …")


def load_model(name: str, **options: Any) -> PreTrainedModel:
    """
    A causal language model.

    Raises:
        ValueError: If it is of another kind, a file is damaged, or weights are missing, which transformers would draw
            at random, or are not finite.
    """
    check_files(name)
    model, found = AutoModelForCausalLM.from_pretrained(name, output_loading_info=True, **options)
    check_config(model.config, name)
    check_weights(model, name)
    if missing := sorted(found["missing_keys"]):
        raise ValueError(
            f"{name!r}: these weights are missing: {', '.join(missing[:3])}"
            f"{', …' * (len(missing) > 3)}. Expected a causal language model with its LM head."
        )
    return model


def _peft():
    try:
        import peft
    except ImportError as error:
        raise ImportError("The model is a PEFT adapter, which needs peft: pip install peft.") from error
    return peft


@dataclass(frozen=True)
class Sampling:
    """How to sample. A temperature of 0 is greedy decoding."""

    temperature: float
    top_p: float
    max_completion_length: int
    chats: bool = False  # the token with which the chat template ends a turn ends a completion, too


@dataclass(frozen=True)
class Completion:
    """Token ids, the end token included, and whether the length limit cut it off."""

    ids: list[int]
    truncated: bool


Generate = Callable[[list[list[int]], list[int]], list[Completion]]
"""From token ids of prompts and a seed for each, to a completion for each."""


class TransformersGenerator:
    """
    Samples a batch of prompts together.

    The batch is seeded by its first prompt's seed, so that equal batches give equal completions on equal hardware. If
    memory cannot hold the batch, its two halves are sampled one after the other.
    """

    def __init__(self, source: ModelSource, sampling: Sampling, device: torch.device):
        tokenizer = source.tokenizer()
        self.model = source.model().to(device).eval()
        self.end = end_tokens(tokenizer, self.model.generation_config, sampling.chats)
        self.pad = tokenizer.pad_token_id
        if self.pad is None:
            self.pad = self.end[0] if self.end else 0
        greedy = sampling.temperature == 0
        # used instead of the model's generation_config.json, whose settings would change the sampling
        self.config = GenerationConfig(
            eos_token_id=self.end or None,
            pad_token_id=self.pad,
            bos_token_id=tokenizer.bos_token_id,
            max_new_tokens=sampling.max_completion_length,
            do_sample=not greedy,
            **({} if greedy else {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}),
        )

    @torch.inference_mode()
    def __call__(self, prompts: list[list[int]], seeds: list[int]) -> list[Completion]:
        torch.manual_seed(seeds[0])
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        ids = torch.tensor([[self.pad] * n + prompt for n, prompt in zip(padding, prompts, strict=True)])
        mask = torch.tensor([[0] * n + [1] * (longest - n) for n in padding])
        device = self.model.device
        self.model.generation_config = self.config
        try:
            sequences = self.model.generate(input_ids=ids.to(device), attention_mask=mask.to(device))
            return [self._completion(row) for row in sequences[:, longest:].tolist()]
        except torch.OutOfMemoryError:
            half = len(prompts) // 2
            if not half:
                raise
            logger.warning(f"Out of memory: {len(prompts)} completions are sampled in two halves.")
        # outside `except`, so the traceback no longer keeps the batch in memory
        return self(prompts[:half], seeds[:half]) + self(prompts[half:], seeds[half:])

    def _completion(self, ids: list[int]) -> Completion:
        length = next((i + 1 for i, token in enumerate(ids) if token in self.end), None)
        return Completion(ids[:length], truncated=length is None)


class VLLMGenerator:
    """Samples with vLLM, every completion with its own seed. `engine` are arguments of `vllm.LLM`."""

    def __init__(self, source: ModelSource, sampling: Sampling, engine: dict[str, Any]):
        try:
            from vllm import LLM, SamplingParams
            from vllm.lora.request import LoRARequest
        except ImportError as error:
            raise ImportError("use_vllm needs vLLM: pip install 'trl[vllm]'.") from error

        name, options, self.lora = source.name, {}, None
        if source.is_adapter():
            rank = _peft().PeftConfig.from_pretrained(source.name, revision=source.revision).r
            name, options = source.base(), {"enable_lora": True, "max_lora_rank": max(16, rank)}
            # given a hub id, vLLM would load the newest revision
            path = (
                source.name if Path(source.name).is_dir() else snapshot_download(source.name, revision=source.revision)
            )
            self.lora = LoRARequest("adapter", 1, path)
        self.llm = LLM(
            model=name,
            revision=None if self.lora else source.revision,
            dtype=source.dtype,
            trust_remote_code=source.trust_remote_code,
            **options,
            **engine,
        )
        self._sampling_params = SamplingParams
        self.sampling = sampling
        try:
            declared = GenerationConfig.from_pretrained(name, revision=None if self.lora else source.revision)
        except OSError:
            declared = None  # the model has none
        self.end = end_tokens(source.tokenizer(), declared, sampling.chats)

    def __call__(self, prompts: list[list[int]], seeds: list[int]) -> list[Completion]:
        params = [
            self._sampling_params(
                temperature=self.sampling.temperature,
                top_p=self.sampling.top_p,
                max_tokens=self.sampling.max_completion_length,
                stop_token_ids=self.end,
                seed=seed,
            )
            for seed in seeds
        ]
        inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
        outputs = self.llm.generate(inputs, sampling_params=params, lora_request=self.lora, use_tqdm=False)
        completions = [output.outputs[0] for output in outputs]
        return [Completion(list(one.token_ids), one.finish_reason == "length") for one in completions]
