"""Sampling completions: with transformers, or with vLLM where it is installed."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from transformers import GenerationConfig

from ..policy.prompts import end_tokens
from .arguments import EvalArguments


class Completion(NamedTuple):
    """Token ids, the end token included, and whether the length limit cut it off."""

    ids: list[int]
    truncated: bool


Generate = Callable[[list[list[int]], list[int]], list[Completion]]
"""From token ids of prompts and a seed for each, to a completion for each."""


class TransformersGenerator:
    """
    Samples a batch of prompts together, seeded by the first one's seed: equal batches give equal completions on equal
    hardware.

    Args:
        args ([`EvalArguments`]): The model, and how to sample.
        chats (`bool`): Whether the token with which the chat template ends a turn ends a completion, too.
    """

    def __init__(self, args: EvalArguments, chats: bool):
        tokenizer = args.tokenizer()
        self.model = args.model().to(args.device()).eval()
        self.end = end_tokens(tokenizer, self.model.generation_config, chats)
        self.pad = next(token for token in (tokenizer.pad_token_id, *self.end, 0) if token is not None)
        sampling = {"temperature": args.temperature, "top_p": args.top_p, "top_k": 0}
        # used instead of the model's generation_config.json, whose settings would change the sampling
        self.model.generation_config = GenerationConfig(
            eos_token_id=self.end or None,
            pad_token_id=self.pad,
            bos_token_id=tokenizer.bos_token_id,
            max_new_tokens=args.max_completion_length,
            do_sample=args.temperature > 0,
            **(sampling if args.temperature > 0 else {}),
        )

    @torch.inference_mode()
    def __call__(self, prompts: list[list[int]], seeds: list[int]) -> list[Completion]:
        torch.manual_seed(seeds[0])
        longest = max(map(len, prompts))
        padding = [longest - len(prompt) for prompt in prompts]
        ids = torch.tensor([[self.pad] * n + prompt for n, prompt in zip(padding, prompts, strict=True)])
        mask = torch.tensor([[0] * n + [1] * (longest - n) for n in padding])
        device = self.model.device
        sequences = self.model.generate(input_ids=ids.to(device), attention_mask=mask.to(device))
        return [self._completion(row) for row in sequences[:, longest:].tolist()]

    def _completion(self, ids: list[int]) -> Completion:
        length = next((i + 1 for i, token in enumerate(ids) if token in self.end), None)
        return Completion(ids[:length], truncated=length is None)


class VLLMGenerator:
    """Samples with vLLM, every completion with its own seed. Arguments as those of [`TransformersGenerator`]."""

    def __init__(self, args: EvalArguments, chats: bool):
        from vllm import LLM, SamplingParams

        assert isinstance(args.vllm_kwargs, dict)  # since `EvalArguments` has read it
        options = {"revision": args.model_revision, "dtype": args.dtype, "trust_remote_code": args.trust_remote_code}
        self.llm = LLM(model=args.model_name_or_path, **options, **args.vllm_kwargs)
        self.end = end_tokens(args.tokenizer(), args.generation_config(), chats)
        sampling = {"temperature": args.temperature, "top_p": args.top_p, "max_tokens": args.max_completion_length}
        self.sampling_params = lambda seed: SamplingParams(**sampling, stop_token_ids=self.end, seed=seed)

    def __call__(self, prompts: list[list[int]], seeds: list[int]) -> list[Completion]:
        params = list(map(self.sampling_params, seeds))
        outputs = self.llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
        completions = [output.outputs[0] for output in outputs]
        return [Completion(list(one.token_ids), one.finish_reason == "length") for one in completions]
