"""
Coefficients, losses and gradients of every rule, against a record of earlier ones.

`tests/fixtures/coefficients.safetensors` holds a tiny model, eight completions with rewards, and for every name below
the coefficients (B, T), the loss after the parameters were multiplied by 1.1 and its gradient's norms, of two rollout
batches, as computed before rules became classes.
"""

from pathlib import Path

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file

from ..corpus import tiny


FIXTURE = Path(__file__).parents[1] / "fixtures" / "coefficients.safetensors"
RULES = {
    "delta": ("delta", {}),
    "delta, aligned": ("delta", {}),
    "delta, tool tokens": ("delta", {}),
    "delta, truncated": ("delta", {}),
    "delta, temperature": ("delta", {}),
    "delta, initial": ("delta", {"temperature_mode": "initial"}),
    "delta, topk_hidden": ("delta", {"token_gradient": "topk_hidden", "token_gradient_top_k": 5}),
    "delta, lm_head": ("delta", {"token_gradient": "lm_head"}),
    "delta, full": ("delta", {"token_gradient": "full"}),
    "within_side": ("within_side", {}),
    "random": ("random", {}),
    "selected, bottom": ("selected", {"which": "bottom", "fraction": 0.2}),
    "selected, random": ("selected", {"which": "random"}),
    "fipo": ("fipo", {}),
    "none": ("none", {}),
}
OPTIONS = {
    "delta, aligned": {"num_iterations": 1},
    "delta, truncated": {"mask_truncated_completions": True},
    "delta, temperature": {"temperature": 0.6},
    "fipo": {"delta": 10.0},
}


@pytest.fixture(scope="module")
def record() -> dict[str, torch.Tensor]:
    return load_file(FIXTURE)


@pytest.mark.parametrize("name", RULES)
def test_the_same_as_recorded(make_trainer, record, name):
    completions = [[token for token in row if token >= 0] for row in record["completions"].tolist()]

    def rollout_func(prompts, trainer):
        rollouts = {"completion_ids": [list(ids) for ids in completions], "logprobs": None}
        if name == "delta, tool tokens":
            rollouts["env_mask"] = [[int(t % 3 != 2) for t in range(len(ids))] for ids in completions]
        return {"prompt_ids": trainer.processing_class(prompts)["input_ids"], **rollouts}

    model = tiny.model()
    state = {key.removeprefix("model/"): x for key, x in record.items() if key.startswith("model/")}
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected
    assert missing in ([], ["lm_head.weight"])
    rule, kwargs = RULES[name]
    trainer = make_trainer(
        model,
        token_credit=rule,
        token_credit_kwargs=kwargs,
        **{"num_iterations": 2, "shuffle_dataset": False, "max_completion_length": 16, **OPTIONS.get(name, {})},
        reward_funcs=lambda completions, **_: record["rewards"].tolist(),
        train_dataset=Dataset.from_dict({"prompt": ["1+2=", "37+418="]}),
        trainer_options={"rollout_func": rollout_func},
    )
    trainer.model.train()
    trainer.current_gradient_accumulation_steps = 1
    tolerance = 2e-3 if "full" in name else 1e-6  # a difference quotient divides rounding by a small step
    for n in range(2):
        torch.manual_seed(n)
        batch = trainer._generate_and_score_completions(next(iter(trainer.get_train_dataloader())))
        assert ("token_coefficients" in batch) == (f"{name}/{n}" in record)
        if "token_coefficients" in batch:
            torch.testing.assert_close(batch["token_coefficients"], record[f"{name}/{n}"], atol=tolerance, rtol=0)
        with torch.no_grad():
            for parameter in trainer.model.parameters():
                parameter.mul_(1.1)
        trainer.model.zero_grad()
        loss = trainer._compute_loss(trainer.model, batch)
        loss.backward()
        torch.testing.assert_close(loss.detach(), record[f"{name}/{n}/loss"], atol=tolerance, rtol=0)
        norms = torch.stack([parameter.grad.norm() for parameter in trainer.model.parameters()])
        torch.testing.assert_close(norms, record[f"{name}/{n}/gradient"], atol=tolerance, rtol=tolerance)
