"""`delta-trl explain` on the quickstart's model, against the method in plain float64."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from delta_trl.cli import main
from delta_trl.explain.credit import add_advantages
from delta_trl.explain.data import read_rows
from delta_trl.report import read_run

from ..corpus import tiny
from ..credit import oracle


ROOT = Path(__file__).parents[2]
MODEL = ROOT / "recipes/quickstart/model"
WORKED = "ones {a}+{b}={c} write {w} carry 0\n\\boxed{{{answer}}}"


def explain(*args):
    assert main(["explain", *map(str, args)]) == 0


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Three prompts, interleaved, with right and wrong completions of different lengths."""
    rows = []
    for extra in range(3):
        for a, b in ((2, 3), (4, 4), (1, 6)):
            right = extra == 0
            text = WORKED.format(a=a, b=b, c=a + b, w=a + b, answer=a + b + (0 if right else extra))
            rows.append(
                {
                    "prompt": f"{a}+{b}=",
                    "completion": extra * "tens 2+2+0=4 write 4 carry 0\n" + text,
                    "reward": float(right),
                }
            )
    rows.append({"prompt": "1+6=", "completion": "ones 1+6=7 carry 0", "reward": None})
    path = tmp_path_factory.mktemp("explain") / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


@pytest.mark.parametrize(
    ("gradient", "lines"),
    [("output_row", 10), ("full", 5)],  # explicit gradients over all parameters take memory
)
def test_records_and_report(data, tmp_path, capsys, gradient, lines):
    rows = [json.loads(line) for line in data.read_text().splitlines()[:lines]]
    (tmp_path / "some.jsonl").write_text("\n".join(map(json.dumps, rows)))
    explain(
        "--model", MODEL, "--data", tmp_path / "some.jsonl", "--output", tmp_path,
        "--rule", f"delta:token_gradient={gradient}",
        "--batch-size", 3, "--dtype", "float32", "--min-count", 1,
    )  # fmt: skip
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    run = read_run(tmp_path)
    by_prompt = {}
    for row in rows:
        by_prompt.setdefault(row["prompt"], []).append((row["completion"], row["reward"]))
    assert {g.prompt: [("".join(c.tokens()), c.reward) for c in g.completions] for g in run.groups} == by_prompt
    completions = [c for group in run.groups for c in group.completions]
    assert all((c.side == 0) == (c.reward is None or len(group.completions) == 1) for group in run.groups
               for c in group.completions)  # fmt: skip

    # one sequence at a time, without padding
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64)
    vectors, advantages = [], []
    for group in run.groups:
        prompt = tokenizer(group.prompt).input_ids
        rewards = np.array([c.reward for c in group.completions if c.reward is not None])
        spread = rewards.std(ddof=1) + 1e-4 if len(rewards) > 1 else np.inf
        for c in group.completions:
            ids = torch.tensor(prompt + tokenizer("".join(c.tokens()), add_special_tokens=False).input_ids)
            output = model(input_ids=ids[None], output_hidden_states=True)
            predicted = slice(len(prompt) - 1, -1)
            distribution = output.logits[0, predicted].log_softmax(dim=-1)
            log_probs = distribution.gather(1, ids[len(prompt) :, None])[:, 0]
            np.testing.assert_allclose(c.log_probs, log_probs.detach(), atol=1e-4)
            entropy = torch.distributions.Categorical(logits=distribution).entropy()
            np.testing.assert_allclose(c.entropies, entropy.detach(), atol=1e-4)
            advantage = 0.0 if c.reward is None else (c.reward - rewards.mean()) / spread
            advantages += [advantage] * len(log_probs)
            assert c.advantage == pytest.approx(advantage, abs=1e-5)
            if gradient == "output_row":
                hidden = output.hidden_states[-1][0, predicted]
                vectors.append(((1 - log_probs.exp())[:, None] * hidden).detach())
            else:
                parameters = list(model.parameters())
                for log_prob in log_probs:
                    parts = torch.autograd.grad(log_prob, parameters, retain_graph=True)
                    vectors.append(torch.cat([part.flatten() for part in parts])[None])
    expected, _ = oracle.coefficients(torch.cat(vectors), advantages)
    ours = np.concatenate([c.coefficients for c in completions])
    np.testing.assert_allclose(ours, expected, atol=1e-3 if gradient == "output_row" else 0.02)
    assert ours.std() > 0.05
    types = run.token_types
    assert types.counts.sum() == sum(len(c.coefficients) for c in completions if c.side)
    assert types.sums.sum() == pytest.approx(sum(c.coefficients.sum() for c in completions if c.side), rel=1e-5)


@pytest.mark.parametrize("gradient", ["topk_hidden", "lm_head"])
def test_other_token_gradients(data, tmp_path, gradient):
    explain("--model", MODEL, "--data", data, "--output", tmp_path, "--rule", f"delta:token_gradient={gradient}")
    coefficients = np.concatenate([c.coefficients for group in read_run(tmp_path).groups for c in group.completions])
    assert coefficients.mean() == pytest.approx(1, abs=1e-4)
    assert coefficients.std() > 0.05


@pytest.mark.parametrize("rewards", [(1, 0), (True, False), (1, 0.0), (True, 0)])
def test_rewards_of_any_number_type(tmp_path, rewards):
    lines = [json.dumps({"prompt": "a", "completion": "b", "reward": reward}) for reward in rewards]
    (tmp_path / "data.jsonl").write_text("\n".join(lines))
    rows = read_rows(tmp_path / "data.jsonl")
    add_advantages(rows)
    expected = 0.5 / (0.5**0.5 + 1e-4)
    assert [row["advantage"] for row in rows] == pytest.approx([expected, -expected])
    assert [type(row["reward"]) for row in rows] == [float, float]


def test_an_adapter(tmp_path):
    base = tiny.model()
    base.save_pretrained(tmp_path / "base")
    tiny.tokenizer().save_pretrained(tmp_path / "base")
    base.name_or_path = str(tmp_path / "base")
    get_peft_model(base, LoraConfig(r=2, init_lora_weights=False)).save_pretrained(tmp_path / "adapter")
    (tmp_path / "data.jsonl").write_text(
        "\n".join(json.dumps({"prompt": "1+1=", "completion": text, "reward": len(text)}) for text in ("2", "11"))
    )
    log_probs = {}
    for name in ("base", "adapter"):  # the adapter's folder has no tokenizer
        explain("--model", tmp_path / name, "--data", tmp_path / "data.jsonl", "--output", tmp_path / f"of_{name}")
        (group,) = read_run(tmp_path / f"of_{name}").groups
        log_probs[name] = np.concatenate([c.log_probs for c in group.completions])
    assert np.abs(log_probs["adapter"] - log_probs["base"]).min() > 1e-4
