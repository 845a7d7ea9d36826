"""Sampling completions: with transformers, or with vLLM where it is installed."""

from collections.abc import Callable
from functools import partial

import torch
from transformers import DataCollatorWithPadding, GenerationConfig

from .arguments import EvalArguments


Texts = list[list[int]]  # as token ids
Generate = Callable[[Texts, list[int], list[int], int], Texts]
"""
From token ids of prompts, a seed for each, the tokens that end a completion, and the length that cuts it off, to the
ids of a completion for each. Its last one is one of these tokens, unless it is cut off.
"""


class TransformersGenerator:
    """
    Samples a batch of prompts together, seeded by the first one's seed: equal batches give equal completions on equal
    hardware.

    Args:
        args ([`EvalArguments`]): The model, and how to sample.
    """

    def __init__(self, args: EvalArguments):
        self.model = args.model()
        tokenizer = args.tokenizer()
        tokenizer.pad_token_id = tokenizer.pad_token_id or 0  # any token will do, because it is masked
        self.collate = DataCollatorWithPadding(tokenizer)
        sampling = {}
        if args.temperature > 0:
            sampling = {"temperature": args.temperature, "top_p": args.top_p, "top_k": 0}
        # used instead of the model's generation_config.json, whose settings would change the sampling
        self.model.generation_config = GenerationConfig(
            pad_token_id=tokenizer.pad_token_id,
            do_sample=bool(sampling),
            **sampling,
        )

    @torch.inference_mode()
    def __call__(self, prompts: Texts, seeds: list[int], end: list[int], limit: int) -> Texts:
        torch.manual_seed(seeds[0])
        rows = [{"input_ids": ids} for ids in prompts]
        batch = self.collate(rows).to(self.model.device)
        sequences = self.model.generate(**batch, eos_token_id=end or None, max_new_tokens=limit)
        start = batch["input_ids"].shape[1]
        completions = sequences[:, start:].tolist()
        return [_until(end, completion) for completion in completions]


def _until(end: list[int], ids: list[int]) -> list[int]:
    for length, token in enumerate(ids, start=1):
        if token in end:
            return ids[:length]
    return ids


class VLLMGenerator:
    """Samples with vLLM, every completion with its own seed. Arguments as those of [`TransformersGenerator`]."""

    def __init__(self, args: EvalArguments):
        from vllm import LLM, SamplingParams

        self.llm = LLM(
            model=args.model_name_or_path,
            revision=args.model_revision,
            dtype=args.dtype,
            trust_remote_code=args.trust_remote_code,
            **args.vllm_kwargs,
        )
        self.sampling_params = partial(SamplingParams, temperature=args.temperature, top_p=args.top_p)

    def __call__(self, prompts: Texts, seeds: list[int], end: list[int], limit: int) -> Texts:
        params = [self.sampling_params(seed=seed, stop_token_ids=end, max_tokens=limit) for seed in seeds]
        inputs = [{"prompt_token_ids": ids} for ids in prompts]
        outputs = self.llm.generate(inputs, params, use_tqdm=False)
        return [list(output.outputs[0].token_ids) for output in outputs]
