"""`delta-trl audit` as a user calls it: scores against independent ones, resuming, several processes, mistakes."""

import json
import linecache
import re
import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from markupsafe import escape
from peft import LoraConfig, get_peft_model
from scipy import stats
from tokenizers import decoders
from transformers import AutoModelForCausalLM, AutoTokenizer

from delta_trl.audit import labelled, loading
from delta_trl.audit.arguments import AuditArguments
from delta_trl.audit.page import verdict
from delta_trl.cli import main
from delta_trl.credit.names import make_rule
from delta_trl.evaluation.evaluate import code_of
from delta_trl.evaluation.store import read_samples

from ..corpus import tiny
from ..credit import oracle
from ..distributed.launch import accelerate_launch
from ..documented import defaults


ROOT = Path(__file__).parents[2]
MODEL = ROOT / "scripts" / "studies" / "models" / "arithmetic"
STUDY = "scripts.studies.audit_benchmarks.study_arithmetic"  # as somebody names a benchmark of their own
RULES = ["delta", "delta:token_gradient=lm_head", "side_mean", "shuffled", "random", "own_audited.Early"]
OWN = """
import torch
from delta_trl.credit import Credit, TokenCredit

class Early(TokenCredit):
    def of_rollout(self, tokens):
        return Credit(tokens.flat(torch.arange(tokens.mask.size(1), 0, -1.0).expand(tokens.mask.shape)))
"""


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "own_audited.py").write_text(OWN)
    return folder


def arguments(folder, **changes) -> list[str]:
    given = {
        "model_name_or_path": str(MODEL),
        "benchmarks": [STUDY],
        "rules": RULES,
        "output_dir": str(folder),
        "num_prompts": 8,
        "prompts_per_batch": 4,
        "num_generations": 4,
        "reference_batches": 3,
        "batch_size": 7,
        "use_cpu": True,
        **changes,
    }
    call = []
    for name, value in given.items():
        call += [f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    return call


@pytest.fixture(scope="module")
def audited(tmp_path_factory, own):
    """A finished audit of the arithmetic task's start model."""
    folder = tmp_path_factory.mktemp("audited") / "audit"
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(own))
        assert main(["audit", *arguments(folder)]) == 0
    return folder


def lines(folder) -> list[dict]:
    return [line for line in read_samples(folder) if not line.get("reference")]


@pytest.fixture(scope="module")
def forward(audited):
    """Of every line in order: final hidden states and log-probabilities of its tokens, one sequence at a time."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64)
    found = []
    for line in lines(audited):
        prompt = tokenizer(line["prompt"]).input_ids
        ids = torch.tensor(prompt + tokenizer.convert_tokens_to_ids(line["tokens"]))
        with torch.no_grad():
            output = model(input_ids=ids[None], output_hidden_states=True)
        predicted = slice(len(prompt) - 1, -1)
        distribution = output.logits[0, predicted].log_softmax(dim=-1)
        log_probs = distribution.gather(1, ids[len(prompt) :, None])[:, 0]
        found.append((output.hidden_states[-1][0, predicted], log_probs))
    return found


def test_batches_and_advantages(audited):
    found = lines(audited)
    assert Counter((line["chunk"], line["group"]) for line in found) == {
        **{(0, group): 4 for group in range(4)},
        **{(1, group): 4 for group in range(4)},
    }
    for start in range(0, len(found), 4):
        siblings = found[start : start + 4]
        assert len({line["prompt"] for line in siblings}) == 1
        rewards = np.array([line["reward"] for line in siblings])
        expected = (rewards - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
        assert [line["advantage"] for line in siblings] == pytest.approx(expected, abs=1e-5)


def test_marks_are_the_first_wrong_tokens(audited):
    """By hand: where the text first differs from the sum written out."""
    found, seen = lines(audited), Counter()
    for start in range(0, len(found), 4):
        siblings, firsts = found[start : start + 4], {}
        a, b = map(int, siblings[0]["prompt"].rstrip("=").split("+"))
        ones = a % 10 + b % 10
        tens = a // 10 + b // 10 + ones // 10
        answer = f"{a + b}"
        expected = [
            rf"ones {a % 10}\+{b % 10}={ones} write {ones % 10} carry {ones // 10}\n",
            rf"tens {a // 10}\+{b // 10}\+{ones // 10}={tens} write {tens % 10} carry {tens // 10}\n",
            rf"\\boxed\{{{answer}\}}",
        ]
        for i, line in enumerate(siblings):
            text = "".join(line["tokens"])
            filler = r"(?:[a-z]+ ){12}"
            right = re.fullmatch(f"{filler}{expected[0]}{filler}{expected[1]}{expected[2]}<eos>", text)
            assert line["reward"] == float(bool(re.search(expected[2], text)))
            if line["reward"] == 0:
                (firsts[i],) = line["marked"]
                before = "".join(line["tokens"][: firsts[i]])
                rest = "".join(siblings[j]["tokens"][firsts[i]] for j in range(4) if siblings[j]["reward"] == 1)
                assert not right
                if rest:  # a winner goes on differently from there
                    assert line["tokens"][firsts[i]] not in rest
                assert before.count("carry 0") + before.count("carry 1") <= 2
                seen["losers"] += 1
        for line in siblings:
            if line["reward"] == 1 and line["unlabelled"] is None:
                assert line["marked"] == sorted(set(firsts.values()))
                seen["winners"] += 1
    assert min(seen["losers"], seen["winners"]) >= 3


def test_scores_against_independent_ones(audited, forward):
    found = lines(audited)
    for chunk in (0, 1):
        numbers = [i for i, line in enumerate(found) if line["chunk"] == chunk]
        advantages = np.concatenate([[found[i]["advantage"]] * len(found[i]["tokens"]) for i in numbers])
        vectors = torch.cat([(1 - forward[i][1].exp())[:, None] * forward[i][0] for i in numbers])
        expected, _ = oracle.coefficients(vectors, advantages)
        ours = np.concatenate([found[i]["scores"]["delta"] for i in numbers])
        for side in (advantages > 0, advantages < 0):
            assert np.diff(expected[side][ours[side].argsort()]).min() > -2e-3
            assert expected[side].std() > 0.01
    for line in found:
        assert line["scores"]["own_audited.Early"] == sorted(line["scores"]["own_audited.Early"], reverse=True)
        if line["advantage"]:
            assert np.ptp(line["scores"]["side_mean"]) == 0 < np.ptp(line["scores"]["random"])


def test_numbers_against_scipy(audited):
    results = json.loads((audited / "results.json").read_text())
    (one,) = results["benchmarks"].values()
    for rule in RULES:
        for side, sign in (("losers", -1), ("winners", 1)):
            aucs = []
            for line in lines(audited):
                marks = np.isin(np.arange(len(line["tokens"])), line["marked"])
                if np.sign(line["advantage"]) == sign and marks.any():
                    scores = np.array(line["scores"][rule])
                    u = stats.mannwhitneyu(scores[marks], scores[~marks]).statistic
                    aucs.append(u / (marks.sum() * (~marks).sum()))
            assert one["rules"][rule][side]["auc"] == pytest.approx(np.mean(aucs))
            assert one["rules"][rule][side]["responses"] == len(aucs)
    assert one["counts"]["prompts"] == 8
    assert one["counts"]["completions"] == 32
    assert set(one["rules"]["uniform"]) == {"gradient"}
    assert one["rules"]["delta"]["gradient"]["batches"] == 2
    assert one["metrics"]["delta"]["centroid_norm_ratio"] > 0


def test_the_page_has_the_numbers(audited):
    (one,) = json.loads((audited / "results.json").read_text())["benchmarks"].values()
    html = (audited / "audit.html").read_text()
    for rule in one["rules"].values():
        found = [rule[side]["auc"] for side in ("losers", "winners") if side in rule and not rule[side]["equal"]]
        assert all(f"{number:.3f}" in html for number in [*found, rule["gradient"]["cosine"]])
    assert all(str(escape(sentence)) in html for sentence in verdict(one["rules"]))


def test_it_goes_on_where_it_was_stopped(audited, own, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(own))
    folder = tmp_path / "audit"
    shutil.copytree(audited, folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    whole = before["samples.jsonl"].splitlines(keepends=True)
    (folder / "samples.jsonl").write_bytes(b"".join(whole[:20]) + whole[20][:-9])  # stopped in the second batch
    (folder / "gradients" / "study_arithmetic-3.npz").unlink()
    (folder / "results.json").unlink()
    assert main(["audit", *arguments(folder)]) == 0
    for name in ("samples.jsonl", "results.json", "audit.html"):
        assert (folder / name).read_bytes() == before[name], name
    assert main(["audit", *arguments(folder, seed=1)]) == 2
    assert "holds results of other settings: seed was 0 and is 1" in capsys.readouterr().err


def test_other_data_and_other_code_are_not_gone_on_with(reader, tmp_path, monkeypatch, capsys):
    rows = [{"prompt": "ab", "completion": text, "reward": text == "cc", "marks": [[0, 1]]} for text in ("cc", "dd")]
    path = tmp_path / "mine.jsonl"
    (tmp_path / "edited_rule.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    call = arguments(tmp_path / "audit", model_name_or_path=reader, benchmarks=[path], rules=["edited_rule.Early"])
    path.write_text("\n".join(map(json.dumps, rows)))
    assert main(["audit", *call]) == 0
    assert main(["audit", *call]) == 0
    path.write_text("\n".join(json.dumps({**row, "reward": 1 - row["reward"]}) for row in rows))
    assert main(["audit", *call]) == 2
    assert "data_fingerprints.mine was" in capsys.readouterr().err
    path.write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "edited_rule.py").write_text(OWN.replace("0, -1.0", "0, -1.0  # later"))
    linecache.checkcache()
    assert main(["audit", *call]) == 2
    assert "code_fingerprints.edited_rule.Early was" in capsys.readouterr().err


def test_code_is_hashed_of_users_rules_alone(own, monkeypatch):
    monkeypatch.syspath_prepend(str(own))
    assert code_of(make_rule("delta")) is code_of(make_rule("side_mean")) is None
    assert code_of(make_rule("own_audited.Early")) is not None
    wraps = make_rule("side_mean:rule=own_audited.Early")
    assert code_of(make_rule("own_audited.Early")) == code_of(wraps, wraps.rule)


@pytest.mark.processes
def test_an_adapter_that_changes_nothing_is_its_base(tmp_path):
    model = AutoModelForCausalLM.from_pretrained(MODEL)
    adapted = get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))  # B = 0
    adapted.save_pretrained(tmp_path / "adapter")
    AutoTokenizer.from_pretrained(MODEL).save_pretrained(tmp_path / "adapter")
    rules = ["delta", "delta:token_gradient=lm_head", "within_side"]
    for name, path in (("base", MODEL), ("adapted", tmp_path / "adapter")):
        assert main(["audit", *arguments(tmp_path / name, model_name_or_path=path, rules=rules)]) == 0
    base, adapted = (
        json.loads((tmp_path / x / "results.json").read_text())["benchmarks"] for x in ("base", "adapted")
    )
    assert adapted == base


def test_problems_without_labels_have_gradients_only(reader, tmp_path, monkeypatch, capsys):
    source = ROOT / "tests" / "fixtures" / "gsm8k.jsonl"
    rows = source.read_text().splitlines()
    (tmp_path / "many.jsonl").write_text("\n".join(rows[i % 3] for i in range(24)))
    call = arguments(
        tmp_path / "audit", model_name_or_path=reader, benchmarks=[f"gsm8k={tmp_path / 'many.jsonl'}"],
        rules=["random"], max_completion_length=3,
    )  # fmt: skip
    # a random model solves nothing: no batch has a gradient
    assert main(["audit", *call]) == 2
    assert "gsm8k: nothing could be audited: 8 prompts whose completions all had the same" in capsys.readouterr().err
    shutil.rmtree(tmp_path / "audit")
    graded = lambda reward, rows, texts, ids: ([float(i % 4 == 0) for i in range(len(rows))], {})  # noqa: E731
    monkeypatch.setattr("delta_trl.audit.sampled.call_reward", graded)
    assert main(["audit", *call]) == 0
    (one,) = json.loads((tmp_path / "audit" / "results.json").read_text())["benchmarks"].values()
    assert set(one["rules"]["random"]) == {"gradient"}
    assert one["rules"]["random"]["gradient"]["batches"] == 2


@pytest.mark.processes
def test_two_processes_find_the_same(tmp_path):
    rules = [rule for rule in RULES if "." not in rule]
    assert main(["audit", *arguments(tmp_path / "one", rules=rules)]) == 0
    accelerate_launch("ddp", "-m", "delta_trl.cli", "audit", *arguments(tmp_path / "two", rules=rules))
    for name in ("samples.jsonl", "results.json", "audit.html"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()


def test_exact_credit_when_asked_for(tmp_path):
    rules = ["delta:token_gradient=full", "fipo"]
    call = arguments(tmp_path / "audit", rules=rules, num_prompts=2, reference_batches=0)
    assert main(["audit", *call]) == 0
    (one,) = json.loads((tmp_path / "audit" / "results.json").read_text())["benchmarks"].values()
    assert list(one["rules"]) == ["uniform", *rules]
    assert not (tmp_path / "audit" / "gradients").exists()


def test_every_rule_of_ours_can_be_audited(tmp_path):
    from delta_trl.credit import RULES as OURS

    rules = [name for name in OURS if name != "none"]
    assert main(["audit", *arguments(tmp_path / "audit", rules=rules, num_prompts=2, reference_batches=0)]) == 0
    for line in lines(tmp_path / "audit"):
        assert set(line["scores"]) == set(rules)
        assert all(np.isfinite(scores).all() for scores in line["scores"].values())


# --- labelled completions ---


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    """A random model whose tokenizer knows every character of the fixtures."""
    folder = tmp_path_factory.mktemp("reader")
    texts = "".join(path.read_text() for path in (ROOT / "tests" / "fixtures").glob("*.jsonl"))
    tokenizer = tiny.tokenizer("".join(sorted(set(texts + "\n"))))
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    torch.manual_seed(0)
    tiny.model(vocab_size=len(tokenizer), max_position_embeddings=400).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def audit_labelled(reader, folder, *names, **changes):
    call = arguments(folder, model_name_or_path=reader, benchmarks=list(names), rules=["delta", "random"])
    return main(["audit", *call, *(word for name, value in changes.items() for word in (f"--{name}", str(value)))])


def test_labelled_data_with_its_own_siblings(reader, tmp_path):
    fixtures = ROOT / "tests" / "fixtures"
    names = [f"humanevalpack={fixtures}/humanevalpack.jsonl", f"humanevalpack_lines={fixtures}/humanevalpack.jsonl"]
    assert audit_labelled(reader, tmp_path / "audit", *names, f"prm800k={fixtures}/prm800k.jsonl") == 0
    found = lines(tmp_path / "audit")
    marked = {
        (line["benchmark"], line["reward"]): "".join(
            token for token, unit in zip(line["tokens"], line["unit"], strict=True) if unit in line["marked"]
        )
        for line in found
        if line["prompt"].startswith(("def add", "What is $3")) and line["marked"]
    }
    assert marked == {
        ("humanevalpack", 1.0): "+",
        ("humanevalpack", 0.0): "-",
        ("humanevalpack_lines", 1.0): "    return a + b\n",
        ("humanevalpack_lines", 0.0): "    return a - b\n",
        ("prm800k", 0.0): "Then 12 + 5 = 18.\n",
    }
    results = json.loads((tmp_path / "audit" / "results.json").read_text())["benchmarks"]
    assert results["prm800k"]["rules"]["delta"]["losers"]["responses"] == 1
    assert "winners" not in results["prm800k"]["rules"]["delta"]
    assert "gradient" not in results["humanevalpack"]["rules"]["delta"]  # the completions are not the model's


def test_siblings_are_sampled_where_the_data_has_none(reader, tmp_path, monkeypatch):
    fixtures = ROOT / "tests" / "fixtures"
    answers = ("gsm8k", str(fixtures / "gsm8k.jsonl"), None, "test")
    source = str(fixtures / "processbench.jsonl")
    data = replace(loading.LABELLED["processbench_gsm8k"], source=source, answers=answers)
    monkeypatch.setitem(loading.LABELLED, "processbench_gsm8k", data)
    graded = []

    def grade(completions, solution, **_):
        graded.extend(solution)
        return [float(i == 0) for i in range(len(completions))]

    monkeypatch.setattr(labelled, "math_reward", grade)
    assert audit_labelled(reader, tmp_path / "audit", "processbench_gsm8k", max_completion_length=9) == 0
    groups = {}
    for line in lines(tmp_path / "audit"):
        groups.setdefault(line["prompt"][:5], []).append(line)
    assert sorted(map(len, groups.values())) == [2, 5]
    alone = groups["A pri"]
    assert [line["reward"] for line in alone] == [0, 1, 0, 0, 0]
    assert [bool(line["marked"]) for line in alone] == [True, False, False, False, False]
    assert graded == ["1,200"] * 4
    left_out = json.loads((tmp_path / "audit" / "settings.json").read_text())["left_out"]["processbench_gsm8k"]
    assert left_out == {"prompts without a label": 1, "prompts without completions of both kinds": 1}


def test_completions_that_do_not_fit_are_counted(reader, tmp_path, capsys):
    rows = [
        {"prompt": "ab", "completion": "c" * n, "reward": reward, "marks": marks}
        for n, reward, marks in ((5, 0.0, [[1, 2]]), (3, 1.0, []), (500, 0.0, [[0, 1]]))
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert audit_labelled(reader, tmp_path / "audit", path) == 0
    assert "left out: 1 completions: longer than the model's 400 tokens" in capsys.readouterr().out
    path.write_text("\n".join(map(json.dumps, rows[1:])))
    assert audit_labelled(reader, tmp_path / "other", path) == 2
    assert (
        "mine: nothing is left to audit: 1 completions: longer than the model's 400 tokens" in capsys.readouterr().err
    )
    path.write_text(json.dumps(rows[0]))
    assert audit_labelled(reader, tmp_path / "other", path) == 2
    assert "nothing is left to audit: 1 prompts without completions of both kinds" in capsys.readouterr().err


# --- mistakes ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"benchmarks": ["gms8k"]}, "Unknown benchmark 'gms8k' (did you mean 'gsm8k'?)"),
        ({"benchmarks": ["no_module.mine"]}, "Unknown benchmark 'no_module.mine': there is no module 'no_module'"),
        ({"benchmarks": [STUDY] * 2}, "The benchmark 'study_arithmetic' is named twice."),
        ({"benchmarks": ["none.jsonl"]}, "no such file"),
        ({"rules": ["dleta"]}, "rules: token_credit='dleta': expected one of"),
        ({"rules": ["delta:token_gradient=half"]}, "token_gradient='half': expected one of"),
        ({"rules": ["delta", "delta"]}, "rules: 'delta' is named twice."),
        ({"rules": ["none"]}, "'none' credits nothing; uniform credit is in every audit."),
        ({"rules": ["no_module.Rule"]}, "there is no module 'no_module'"),
        ({"num_generations": 1}, "num_generations=1: expected at least 2"),
        ({"reference_batches": 1}, "reference_batches=1: expected 0, or 2 or more"),
        ({"temperature": 0}, "temperature=0.0: expected a number above 0"),
        ({"num_prompts": 3000}, "are 3,012 prompts, but it has 3,000"),
        ({"num_prompts": 6}, "num_prompts=6 is no multiple of prompts_per_batch=4"),
        ({"dtype": "bloat16"}, "dtype=bloat16: expected auto, float32"),
        ({"rules": ["selected:fraction=[1"]}, "'fraction=[1' has no value that can be read"),
        ({"benchmarks": ["gsm8k"], "reference_batches": 0}, "has no labels, so that only gradients can be audited"),
        ({"model_name_or_path": "no/such/model"}, "model_name_or_path='no/such/model': cannot be loaded"),
        ({"model_name_or_path": ROOT / "recipes/quickstart/model"}, "is for models that were made for its task"),
        ({"rulez": "delta"}, "`--rulez`"),
        ({"output_dir": ""}, "`output_dir` is missing"),
    ],
)
def test_mistakes_are_found_before_the_weights(tmp_path, monkeypatch, capsys, changes, message):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("delta_trl.audit.audit.TransformersGenerator", None)
    call = arguments(tmp_path / "audit", rules=["delta"]) if "rules" not in changes else arguments(tmp_path / "audit")
    for name, value in changes.items():
        if f"--{name}" in call:
            start = call.index(f"--{name}")
            end = next((i for i in range(start + 1, len(call)) if call[i].startswith("--")), len(call))
            del call[start:end]
        if value != "":
            call += [f"--{name}", *(map(str, value) if isinstance(value, list) else [str(value)])]
    assert main(["audit", *call]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "audit" / "settings.json").exists()


def test_a_rule_that_fails_is_named(tmp_path, own, monkeypatch, capsys):
    (own / "broken_rule.py").write_text(
        "from delta_trl.credit import Credit, TokenCredit\n"
        "class Broken(TokenCredit):\n"
        "    def of_rollout(self, tokens):\n"
        "        return Credit(tokens.advantages[:3])\n"
    )
    monkeypatch.syspath_prepend(str(own))
    assert main(["audit", *arguments(tmp_path / "audit", rules=["broken_rule.Broken"])]) == 2
    assert "rules='broken_rule.Broken': Broken.of_rollout returned weights of shape (3,)" in capsys.readouterr().err


def test_defaults_are_those_of_the_docstring():
    said, real = defaults(AuditArguments)
    assert said == real != {}
