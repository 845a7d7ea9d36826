"""`delta-trl audit` as a user calls it: scores against independent ones, numbers, mistakes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import decoders
from transformers import AutoModelForCausalLM

from delta_trl.cli import main
from delta_trl.credit import RULES
from delta_trl.report import read_run

from ..corpus import tiny


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
EVERY_RULE = [*(name for name in RULES if name not in ("none", "given", "fipo")), LABELS, "own_audited.Early"]


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
    rows = []
    for prompt in range(12):
        for wrong_by in range(4):
            text = f"it makes {prompt + 20 + wrong_by}"
            row = {"prompt": f"{prompt}+20=", "completion": text, "reward": float(wrong_by < 2)}
            rows.append(row | {"marks": [[9, 11]] if wrong_by == 3 else []})
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


def test_scores_are_those_of_explain(audited, model, sums, tmp_path):
    """Of a rollout batch: `tests/commands/test_explain.py` compares these with float64."""
    second = lines(audited)[20:40]
    of_batch = {line["prompt"] for line in second}
    rows = [row for row in sums.read_text().splitlines() if json.loads(row)["prompt"] in of_batch]
    data = tmp_path / "batch.jsonl"
    data.write_text("\n".join(rows))
    options = {"model_name_or_path": model, "data": data, "output_dir": tmp_path, "use_cpu": True}
    assert main(["explain", *(f"--{name}={value}" for name, value in options.items())]) == 0
    second.sort(key=lambda line: int(line["prompt"].split("+")[0]))  # as in the file
    for line, c in zip(second, read_run(tmp_path).completions, strict=True):
        assert (line["tokens"], line["reward"]) == (list(c.tokens), c.reward)
        assert line["advantage"] == pytest.approx(c.advantage, abs=1e-5)
        np.testing.assert_allclose(line["scores"]["delta"], c.coefficients, atol=1e-4)
        assert np.ptp(c.coefficients) > 0.01
        assert list(line["scores"]) == [*EVERY_RULE, "position, earlier first"]


def test_an_audit_ranks_the_rule_of_labels_first_and_the_earliest_last(audited):
    one = results(audited)["benchmarks"]["sums"]
    assert (one["prompts"], one["completions"], one["mean_reward"]) == (12, 48, 0.5)
    for sides in one["rules"].values():
        assert sides["losers"]["responses"] == 12
        assert np.isfinite(sides["losers"]["auc"])
    assert (audited / "audit.md").read_text().startswith("## sums\n\n")
    assert one["rules"]["own_audited.Early"]["losers"]["auc"] == 0  # the mark is at the end
    assert one["rules"][LABELS]["losers"]["auc"] == 1
    assert one["rules"]["position, earlier first"] == one["rules"]["own_audited.Early"]


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


def test_public_data_is_audited(model, tmp_path):
    sources = [f"{name}={FIXTURES / name.split('_')[0]}.jsonl" for name in ("humanevalpack", "processbench_gsm8k")]
    assert audit(tmp_path, model, *sources, rules=["delta"]) == 0
    assert {line["benchmark"] for line in lines(tmp_path)} == {"humanevalpack", "processbench_gsm8k"}
    # with one completion of a problem, the rollout batch is the group
    of_problems = [line for line in lines(tmp_path) if line["benchmark"] == "processbench_gsm8k"]
    assert {np.sign(line["advantage"]) for line in of_problems} == {1, -1}
    assert results(tmp_path)["benchmarks"]["processbench_gsm8k"]["rules"]["delta"]["losers"]["responses"] >= 2


def test_what_is_left_out_is_counted(model, tmp_path, capsys):
    rows = []
    for prompt, size, reward, marks in (
        ("ab", 5, 0, [[1, 2]]),
        ("ab", 3, 1, []),
        ("ab", 700, 0, []),
        ("cd", 5, 0, [[1, 2]]),
        ("ef", 5, 0, []),
        ("ef", 6, 1, []),
    ):
        rows.append({"prompt": prompt, "completion": "c" * size, "reward": reward, "marks": marks})
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
