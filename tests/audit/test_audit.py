"""`delta-trl audit` as a user calls it: scores against independent ones, numbers, mistakes."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import decoders
from transformers import AutoModelForCausalLM, AutoTokenizer

from delta_trl.cli import main
from delta_trl.credit import RULES

from ..corpus import tiny
from ..credit import oracle


FIXTURES = Path(__file__).parents[1] / "fixtures"
OWN = """
import torch
from delta_trl.credit import Credit, TokenCredit

class Early(TokenCredit):
    def of_rollout(self, tokens):
        return Credit(tokens.flat(torch.arange(tokens.mask.size(1), 0, -1.0).expand(tokens.mask.shape)))

def judge(completions, prompts, **columns):
    return [[(9, 11, 3.0)] for text in completions]  # where each sum is

class Broken(TokenCredit):
    def of_rollout(self, tokens):
        return Credit(tokens.advantages[:3])
"""
LABELS = "given:source=own_audited.judge"
EVERY_RULE = [*(name for name in RULES if name not in ("none", "given")), LABELS, "own_audited.Early"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A random model whose tokenizer knows every character of the fixtures."""
    folder = tmp_path_factory.mktemp("model")
    texts = "".join(path.read_text() for path in FIXTURES.glob("*.jsonl"))
    tokenizer = tiny.tokenizer("".join(sorted(set(texts + "\n"))))
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    torch.manual_seed(0)
    tiny.model(vocab_size=len(tokenizer), max_position_embeddings=600).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """A file of one's own: 12 prompts with 4 completions each, whose losers are marked at the wrong digits."""
    rng, rows = random.Random(0), []
    for prompt in range(12):
        for i in range(4):
            text = f"it makes {prompt + 20 + i * rng.randrange(2)}"
            right = text.endswith(str(prompt + 20))
            row = {"prompt": f"{prompt}+20=", "completion": text, "reward": float(right)}
            rows.append(row | {"marks": [[9, 11]] if i < 3 and not right else []})
    path = tmp_path_factory.mktemp("sums") / "sums.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def audit(folder, model, *benchmarks, **changes) -> int:
    given = {"model_name_or_path": model, "benchmarks": benchmarks, "token_credit": EVERY_RULE, "output_dir": folder}
    given |= {"prompts_per_batch": 5, "batch_size": 7, "use_cpu": True, **changes}
    call = []
    for name, value in given.items():
        call += [f"--{name}", *map(str, value if isinstance(value, (list, tuple)) else [value])]
    return main(["audit", *call])


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_audited.py").write_text(OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield


@pytest.fixture(scope="module")
def audited(tmp_path_factory, own, model, sums):
    folder = tmp_path_factory.mktemp("audited") / "audit"
    assert audit(folder, model, sums) == 0
    return folder


def lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "scores.jsonl").read_text().splitlines()]


def results(folder) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_scores_against_independent_ones(audited, model):
    """DelTA's coefficients of each rollout batch, from float64 forward passes of single sequences."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    net, found = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64), lines(audited)
    prompts = list(dict.fromkeys(line["prompt"] for line in found))
    for batch in (prompts[:5], prompts[5:10]):
        of_batch = [line for line in found if line["prompt"] in batch]
        vectors = []
        for line in of_batch:
            prompt = tokenizer(line["prompt"]).input_ids
            ids = torch.tensor(prompt + tokenizer.convert_tokens_to_ids(line["tokens"]))
            with torch.no_grad():
                output = net(input_ids=ids[None], output_hidden_states=True)
            p = output.logits[0, len(prompt) - 1 : -1].softmax(dim=-1).gather(1, ids[len(prompt) :, None])
            vectors.append((1 - p) * output.hidden_states[-1][0, len(prompt) - 1 : -1])
        advantages = np.concatenate([[line["advantage"]] * len(line["tokens"]) for line in of_batch])
        expected, _ = oracle.coefficients(torch.cat(vectors), advantages)
        ours = np.concatenate([line["scores"]["delta"] for line in of_batch])
        np.testing.assert_allclose(ours, expected, atol=2e-3)
        assert np.ptp(expected) > 0.1
    for line in found:
        rewards = np.array([other["reward"] for other in found if other["prompt"] == line["prompt"]])
        expected = (line["reward"] - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        assert line["advantage"] == pytest.approx(expected, abs=1e-5)
        assert set(line["scores"]) == set(EVERY_RULE)
        assert all(np.isfinite(scores).all() for scores in line["scores"].values())
        assert line["scores"]["own_audited.Early"] == sorted(line["scores"]["own_audited.Early"], reverse=True)


def test_numbers(audited):
    one = results(audited)["benchmarks"]["sums"]
    losers = [line for line in lines(audited) if line["advantage"] < 0 and line["marked"]]
    for line in losers:
        assert "".join(line["tokens"][i] for i in line["marked"]) == "".join(line["tokens"])[-2:]
    for sides in one["rules"].values():
        assert sides["losers"]["responses"] == len(losers) > 0
    assert (audited / "audit.md").read_text().startswith("## sums\n\n")
    assert one["rules"]["own_audited.Early"]["losers"]["auc"] == 0  # the mark is at the end
    assert one["rules"][LABELS]["losers"]["auc"] == 1
    assert one["completions"] == 4 * one["prompts"]


def test_an_adapter_that_changes_nothing_is_its_base(model, sums, tmp_path):
    """And the same audit gives the same results."""
    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(model), LoraConfig(r=2, target_modules=["q_proj"])
    )  # B = 0
    adapted.save_pretrained(tmp_path / "adapter")
    rules = ["delta:token_gradient=full", "random", "shuffled"]
    for name, path in (("base", model), ("adapted", tmp_path / "adapter")):
        assert audit(tmp_path / name, path, sums, rules=rules, num_prompts=4) == 0
    assert results(tmp_path / "adapted")["benchmarks"] == results(tmp_path / "base")["benchmarks"]


def test_public_data(model, tmp_path):
    sources = [f"{name}={FIXTURES / name.split('_')[0]}.jsonl" for name in ("humanevalpack", "processbench_gsm8k")]
    assert audit(tmp_path, model, *sources, rules=["delta"]) == 0
    assert {line["benchmark"] for line in lines(tmp_path)} == {"humanevalpack", "processbench_gsm8k"}
    # with one completion of a problem, the rollout batch is the group
    of_problems = [line for line in lines(tmp_path) if line["benchmark"] == "processbench_gsm8k"]
    assert {np.sign(line["advantage"]) for line in of_problems} == {1, -1}
    assert results(tmp_path)["benchmarks"]["processbench_gsm8k"]["rules"]["delta"]["losers"]["responses"] >= 2


def test_what_is_left_out_is_counted(model, tmp_path, capsys):
    rows = [
        {"prompt": prompt, "completion": "c" * n, "reward": reward, "marks": marks}
        for prompt, n, reward, marks in (
            *(("ab", 5, 0.0, [[1, 2]]), ("ab", 3, 1.0, []), ("ab", 700, 0.0, [[0, 1]])),
            *(("cd", 5, 0.0, [[1, 2]]), ("cd", 6, 0.0, []), ("ef", 5, 0.0, []), ("ef", 6, 1.0, [])),
        )
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert audit(tmp_path / "audit", model, path, rules=["delta"]) == 0
    assert "left out: 1 completions: longer than the model's 600 tokens" in capsys.readouterr().out
    assert [*results(tmp_path / "audit")["benchmarks"]["mine"]["left_out"].values()] == [1, 2]
    path.write_text("\n".join(map(json.dumps, rows[2:])))
    assert audit(tmp_path / "other", model, path, rules=["delta"]) == 2
    assert "nothing can be audited" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ["processbench_gms8k"]}, "'processbench_gsm8k'"),
        ({"rules": ["own_audited.Broken"]}, "--token_credit own_audited.Broken"),
        ({"num_prompts": 0}, "num_prompts"),
    ],
)
def test_mistakes_are_named(tmp_path, own, model, sums, capsys, changes, message):
    assert audit(tmp_path / "audit", model, sums, **changes) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "audit" / "results.json").exists()
