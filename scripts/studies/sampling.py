"""Samples completions at temperature 1, in pieces."""

import torch


@torch.no_grad()
def sample(
    model: torch.nn.Module, tokenizer, prompts: list[list[int]], max_new_tokens: int, at_once: int = 256
) -> list[list[int]]:
    """
    Token ids of a completion of each prompt, with the token that ends it and without padding.

    Args:
        model (`torch.nn.Module`), tokenizer: A causal language model.
        prompts (`list[list[int]]`): Token ids of the prompts.
        max_new_tokens (`int`): Tokens that a completion may have.
        at_once (`int`, *optional*, defaults to `256`): Completions in a forward pass; more are slower on a CPU.
    """
    was_training = model.training
    model.eval()
    found = []
    for start in range(0, len(prompts), at_once):
        some = prompts[start : start + at_once]
        inputs = tokenizer.pad({"input_ids": some}, return_tensors="pt").to(model.device)
        made = model.generate(
            **inputs, max_new_tokens=max_new_tokens, do_sample=True, temperature=1.0, top_k=0, top_p=1.0
        )
        for row in made[:, inputs.input_ids.size(1) :].tolist():
            if tokenizer.eos_token_id in row:
                row = row[: row.index(tokenizer.eos_token_id) + 1]
            found.append(row)
    model.train(was_training)
    return found
