"""Sampling completions: with transformers, or with vLLM where it is installed."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from transformers import GenerationConfig

from ..scoring.prompts import end_tokens
from .arguments import EvalArguments


class Completion(NamedTuple):
    """Token ids, the end token included, and whether the length limit cut it off."""

    ids: list[int]
    truncated: bool


Generate = Callable[[list[list[int]], list[int], bool], list[Completion]]
"""
From token ids of prompts, a seed for each, and whether they are chats, to a completion for each. A chat also ends with
the token with which the chat template ends a turn.
"""


def ends_of(args: EvalArguments, declared: GenerationConfig | None) -> dict[bool, list[int]]:
    """The tokens that end a completion of a text, and of a chat."""
    tokenizer = args.tokenizer()
    return {chats: end_tokens(tokenizer, declared, chats) for chats in (False, True)}


class TransformersGenerator:
    """
    Samples a batch of prompts together, seeded by the first one's seed: equal batches give equal completions on equal
    hardware.

    Args:
        args ([`EvalArguments`]): The model, and how to sample.
    """

    def __init__(self, args: EvalArguments):
        tokenizer = args.tokenizer()
        self.model = args.model()
        self.ends = ends_of(args, self.model.generation_config)
        candidates = [tokenizer.pad_token_id, *self.ends[False], 0]
        self.pad = next(token for token in candidates if token is not None)
        sampling = {}
        if args.temperature > 0:
            sampling = {"temperature": args.temperature, "top_p": args.top_p, "top_k": 0}
        # used instead of the model's generation_config.json, whose settings would change the sampling
        self.model.generation_config = GenerationConfig(
            pad_token_id=self.pad,
            bos_token_id=tokenizer.bos_token_id,
            max_new_tokens=args.max_completion_length,
            do_sample=bool(sampling),
            **sampling,
        )

    @torch.inference_mode()
    def __call__(self, prompts: list[list[int]], seeds: list[int], chats: bool = False) -> list[Completion]:
        torch.manual_seed(seeds[0])
        end = self.ends[chats]
        longest = max(map(len, prompts))
        ids = torch.full((len(prompts), longest), self.pad)
        mask = torch.zeros_like(ids)
        for i, prompt in enumerate(prompts):
            start = longest - len(prompt)
            ids[i, start:] = torch.tensor(prompt)
            mask[i, start:] = 1
        device = self.model.device
        sequences = self.model.generate(
            input_ids=ids.to(device), attention_mask=mask.to(device), eos_token_id=end or None
        )
        return [_until(end, row) for row in sequences[:, longest:].tolist()]


def _until(end: list[int], ids: list[int]) -> Completion:
    for i, token in enumerate(ids, start=1):
        if token in end:
            return Completion(ids[:i], truncated=False)
    return Completion(ids, truncated=True)


class VLLMGenerator:
    """Samples with vLLM, every completion with its own seed. Arguments as those of [`TransformersGenerator`]."""

    def __init__(self, args: EvalArguments):
        from vllm import LLM, SamplingParams

        assert isinstance(args.vllm_kwargs, dict)  # since `EvalArguments` has read it
        self.llm = LLM(
            model=args.model_name_or_path,
            revision=args.model_revision,
            dtype=args.dtype,
            trust_remote_code=args.trust_remote_code,
            **args.vllm_kwargs,
        )
        self.ends = ends_of(args, args.generation_config())
        self.sampling_params = partial(
            SamplingParams,
            temperature=args.temperature,
            top_p=args.top_p,
            max_tokens=args.max_completion_length,
        )

    def __call__(self, prompts: list[list[int]], seeds: list[int], chats: bool = False) -> list[Completion]:
        params = [self.sampling_params(seed=seed, stop_token_ids=self.ends[chats]) for seed in seeds]
        inputs = [{"prompt_token_ids": ids} for ids in prompts]
        completions = []
        for output in self.llm.generate(inputs, params, use_tqdm=False):
            (one,) = output.outputs
            completions.append(Completion(list(one.token_ids), one.finish_reason == "length"))
        return completions
