"""`delta-trl audit` as a user calls it: scores against independent ones, numbers, mistakes."""

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from tokenizers import decoders
from transformers import AutoModelForCausalLM

from delta_trl.audit.arguments import AUDITED_RULES
from delta_trl.audit.audit import summarise
from delta_trl.cli import main
from delta_trl.credit import RULES
from delta_trl.report import read_run

from ..corpus import tiny


FIXTURES = Path(__file__).parents[1] / "fixtures"
QUICKSTART = Path(__file__).parents[2] / "recipes/quickstart/model"
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

class Raises(TokenCredit):
    def of_rollout(self, tokens):
        raise ValueError("no weights")
"""
LABELS = "given:source=own_audited.judge"
EVERY_RULE = [*(name for name in RULES if name not in ("none", "given", "fipo")), LABELS, "own_audited.Early"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A random model whose tokenizer knows every character of the fixtures."""
    folder = tmp_path_factory.mktemp("model")
    characters = {"\n"}
    for path in FIXTURES.glob("*.jsonl"):
        characters |= set(path.read_text())
    tokenizer = tiny.tokenizer("".join(sorted(characters)))
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    model = tiny.model(vocab_size=len(tokenizer), max_position_embeddings=600)
    model.save_pretrained(folder)
    return folder


def write_lines(path, rows: list[dict]):
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def sums(tmp_path_factory):
    """A file of one's own: 12 prompts with 4 completions each, whose losers are marked at the wrong digits."""
    rows = []
    for prompt in range(12):
        for wrong_by in range(4):
            row = {
                "prompt": f"{prompt}+20=",
                "completion": f"it makes {prompt + 20 + wrong_by}",
                "reward": float(wrong_by < 2),
                "marks": [[9, 11]] if wrong_by == 3 else [],
            }
            rows.append(row)
    return write_lines(tmp_path_factory.mktemp("sums") / "sums.jsonl", rows)


def audit(folder, model, *benchmarks, **changes) -> int:
    given = {
        "model_name_or_path": model,
        "benchmarks": benchmarks,
        "token_credit": EVERY_RULE,
        "output_dir": folder,
        "prompts_per_batch": 5,
        "batch_size": 7,
        "use_cpu": True,
        **changes,
    }
    call = ["audit"]
    for name, value in given.items():
        values = value if isinstance(value, (list, tuple)) else [value]
        call += [f"--{name}", *map(str, values)] if values else []
    return main(call)


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
    assert audit(folder, model, sums, seed=3) == 0
    return folder


def lines(folder) -> list[dict]:
    text = (folder / "scores.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


def results(folder) -> dict:
    """Of every benchmark."""
    content = json.loads((folder / "results.json").read_text())
    return content["benchmarks"]


def test_scores_are_those_of_explain(audited, model, sums, tmp_path):
    """Of a rollout batch: `tests/commands/test_explain.py` compares these with float64."""
    second_batch = lines(audited)[20:40]
    prompts = {line["prompt"] for line in second_batch}
    rows = [json.loads(row) for row in sums.read_text().splitlines()]
    of_batch = [row for row in rows if row["prompt"] in prompts]
    options = {
        "model_name_or_path": model,
        "data": write_lines(tmp_path / "batch.jsonl", of_batch),
        "output_dir": tmp_path,
        "use_cpu": True,
    }

    assert main(["explain", *(f"--{name}={value}" for name, value in options.items())]) == 0

    explained = read_run(tmp_path).completions
    second_batch.sort(key=lambda line: int(line["prompt"].split("+")[0]))  # as in the file
    for line, c in zip(second_batch, explained, strict=True):
        assert line["tokens"] == list(c.tokens)
        assert line["reward"] == c.reward
        assert line["advantage"] == pytest.approx(c.advantage, abs=1e-5)
        assert list(line["scores"]) == [*EVERY_RULE, "position, earlier first"]
        np.testing.assert_allclose(line["scores"]["delta"], c.coefficients, atol=1e-4)
        assert np.ptp(c.coefficients) > 0.01


def test_an_audit_ranks_the_rule_of_labels_first_and_the_earliest_last(audited):
    one = results(audited)["sums"]
    assert one["prompts"] == 12
    assert one["completions"] == 48
    assert one["mean_reward"] == 0.5
    assert one["left_out"] == {}
    rules = one["rules"]
    for sides in rules.values():
        assert sides["losers"]["responses"] == 12
        assert np.isfinite(sides["losers"]["auc"])
    assert rules[LABELS]["losers"]["auc"] == 1
    early = rules["own_audited.Early"]
    assert early["losers"]["auc"] == 0  # the mark is at the end
    assert rules["position, earlier first"] == early
    assert (audited / "audit.md").read_text().startswith("## sums\n\n")
    content = json.loads((audited / "results.json").read_text())
    assert "lambda_max=1.2" in content["settings"]["token_credit"]["delta"]
    assert content["versions"]["torch"] == torch.__version__


def test_a_seed_draws_intervals_and_shifts(audited):
    """Which can be drawn again from the scores."""
    scored = lines(audited)
    drawn, others = (summarise(scored, seed)["rules"] for seed in (3, 0))
    assert results(audited)["sums"]["rules"] == drawn
    ours, theirs = (rules["random"]["losers"] for rules in (drawn, others))
    assert ours["auc"] == theirs["auc"]
    assert ours["interval"] != theirs["interval"]


def test_a_seed_draws_prompts_and_random_weights(model, sums, tmp_path):
    """Without credit, all tokens have the weight 1."""
    drawn = {}
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        assert audit(folder, model, sums, rules=["random", "none"], num_prompts=4, prompts_per_batch=2, seed=seed) == 0
        assert results(folder)["sums"]["prompts"] == 4
        of_none = results(folder)["sums"]["rules"]["none"]
        assert [of_none[side]["auc"] for side in of_none] == [0.5]
        scored = lines(folder)
        for line in scored:
            assert set(line["scores"]["none"]) == {1.0}
        drawn[seed] = {line["prompt"] for line in scored}, [line["scores"]["random"] for line in scored]
    (prompts, weights), (other_prompts, other_weights) = drawn.values()
    assert prompts != other_prompts
    assert weights[0] != other_weights[0]
    assert weights[0] != weights[8]  # of the second batch
    numbers = [*chain(*weights)]
    assert len({*numbers}) == len(numbers)  # they have all their digits


def test_an_adapter_that_changes_nothing_is_its_base(model, sums, tmp_path):
    """And the same audit gives the same results."""
    base = AutoModelForCausalLM.from_pretrained(model)
    adapted = get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"]))  # B = 0
    adapter = tmp_path / "adapter"
    adapted.save_pretrained(adapter)
    rules = ["delta:token_gradient=full", "random", "shuffled"]

    assert audit(tmp_path / "base", model, sums, rules=rules, num_prompts=4) == 0
    assert audit(tmp_path / "adapted", adapter, sums, rules=rules, num_prompts=4) == 0

    assert results(tmp_path / "adapted") == results(tmp_path / "base")


def test_public_data_is_audited(model, tmp_path):
    code = f"humanevalpack={FIXTURES}/humanevalpack.jsonl"
    steps = f"processbench_gsm8k={FIXTURES}/processbench.jsonl"

    assert audit(tmp_path, model, code, steps, token_credit=()) == 0

    signs = {"humanevalpack": set(), "processbench_gsm8k": set()}
    prompts = {"humanevalpack": [], "processbench_gsm8k": []}
    for line in lines(tmp_path):
        signs[line["benchmark"]].add(np.sign(line["advantage"]))
        prompts[line["benchmark"]].append(line["prompt"])
    assert not any(prompt in prompts["humanevalpack"] for prompt in prompts["processbench_gsm8k"])
    assert signs["humanevalpack"]
    # with one completion of a problem, the rollout batch is the group
    assert signs["processbench_gsm8k"] == {1, -1}
    rules = results(tmp_path)["processbench_gsm8k"]["rules"]
    assert list(rules) == [*AUDITED_RULES, "position, earlier first"]
    assert rules["delta"]["losers"]["responses"] >= 2


def test_a_side_without_marks_has_no_numbers():
    one = {
        "prompt": "p",
        "reward": 1.0,
        "advantage": 1.0,
        "unit": [0, 1],
        "marked": [1],
        "scores": {"rule": [0.0, 1.0]},
    }
    unknown = {**one, "reward": None, "advantage": 0.0, "marked": []}
    summary = summarise([one, unknown], seed=0)
    found = summary["rules"]["rule"]
    assert list(found) == ["winners"]
    assert found["winners"]["auc"] == 1
    assert summary["completions"] == 2
    assert summary["mean_reward"] == 1  # of those that are known


def labelled(prompt: str, size: int, reward: int | None, marks: list) -> dict:
    return {
        "prompt": prompt,
        "completion": "c" * size,
        "reward": reward,
        "marks": marks,
    }


def test_what_is_left_out_is_counted(model, tmp_path, capsys):
    too_long = labelled("ab", 700, 0, [])
    only_one = labelled("cd", 5, 0, [[1, 2]])
    unmarked = [labelled("ef", 5, 0, []), labelled("ef", 6, 1, [])]
    of_one_reward = [labelled("gh", 5, 0, [[1, 2]]), labelled("gh", 4, 0, []), labelled("gh", 6, None, [])]
    usable = [labelled("ab", 5, 0, [[1, 2]]), labelled("ab", 3, 1, [])]

    path = write_lines(tmp_path / "mine.jsonl", [*usable, too_long, too_long, only_one, *unmarked, *of_one_reward])
    assert audit(tmp_path / "audit", model, path, rules=["delta"]) == 0
    assert "left out: 2 completions: longer than the model's 600 tokens" in capsys.readouterr().out
    left_out = results(tmp_path / "audit")["mine"]["left_out"]
    assert list(left_out.values()) == [2, 3]

    write_lines(path, [too_long, only_one, *unmarked])
    assert audit(tmp_path / "other", model, path, rules=["delta"]) == 2
    assert "nothing can be audited" in capsys.readouterr().err

    steps = (FIXTURES / "processbench.jsonl").read_text().splitlines()
    write_lines(path, [{**json.loads(line), "label": -1} for line in steps])
    assert audit(tmp_path / "other", model, f"processbench_math={path}", rules=["delta"]) == 2
    assert "processbench_math: nothing can be audited: no label is left" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ["processbench_gms8k"]}, "'processbench_gsm8k'"),
        ({"rules": ["own_audited.Broken"]}, "--token_credit own_audited.Broken"),
        ({"rules": ["own_audited.Raises"]}, "own_audited.py, line 18, in of_rollout: raise ValueError"),
        ({"num_prompts": 0}, "num_prompts"),
        ({"benchmarks": ["greek.jsonl"], "model_name_or_path": QUICKSTART}, f"greek, 'πρ', does not fit {QUICKSTART}"),
    ],
)
def test_mistakes_are_named(tmp_path, own, model, sums, capsys, monkeypatch, changes, message):
    monkeypatch.chdir(tmp_path)
    write_lines(tmp_path / "greek.jsonl", [labelled("πρ", 5, 0, [[1, 2]]), labelled("πρ", 6, 1, [])])
    assert audit(tmp_path / "audit", model, sums, **changes) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "audit" / "results.json").exists()
