"""`delta-trl explain` on the quickstart's model, against the method in plain float64."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config

from delta_trl.cli import main
from delta_trl.report import read_run

from ..corpus import tiny
from ..credit import oracle


ROOT = Path(__file__).parents[2]
MODEL = ROOT / "recipes/quickstart/model"
WORKED = "ones {a}+{b}={c} write {c} carry 0\n\\boxed{{{answer}}}"


PAIR = [{"prompt": "1+1=", "completion": text, "reward": reward} for text, reward in (("2", 1), ("3", 0))]


def completions():
    """Three prompts, interleaved, with right and wrong completions of different lengths."""
    for extra in range(3):
        for a, b in ((2, 3), (4, 4), (1, 6)):
            text = extra * "tens 2+2+0=4 write 4 carry 0\n" + WORKED.format(a=a, b=b, c=a + b, answer=a + b + extra)
            yield {"prompt": f"{a}+{b}=", "completion": text, "reward": float(extra == 0)}
    yield {"prompt": "1+6=", "completion": "ones 1+6=7 carry 0", "reward": None}


def write(folder: Path, rows) -> Path:
    path = folder / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def explain(**options) -> int:
    return main(["explain", *(f"--{name}={value}" for name, value in options.items())])


def test_explain_records_the_coefficients_of_the_oracle(tmp_path, capsys):
    rows = list(completions())
    options = {"token_credit": "delta:token_gradient=output_row", "batch_size": 3, "dtype": "float32"}
    assert explain(model_name_or_path=MODEL, data=write(tmp_path, rows), output_dir=tmp_path, **options) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    groups = read_run(tmp_path).groups
    assert [group.prompt for group in groups] == ["2+3=", "4+4=", "1+6="]

    # one sequence at a time, without padding
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64)
    vectors, advantages, ours = [], [], []
    for group in groups:
        lines = [row for row in rows if row["prompt"] == group.prompt]
        rewards = np.array([row["reward"] for row in lines if row["reward"] is not None])
        prompt = tokenizer(group.prompt).input_ids
        for c, row in zip(group.completions, lines, strict=True):
            assert ("".join(c.tokens), c.reward) == (row["completion"], row["reward"])
            ids = torch.tensor(prompt + tokenizer(row["completion"], add_special_tokens=False).input_ids)
            output = model(input_ids=ids[None], output_hidden_states=True)
            predicted = slice(len(prompt) - 1, -1)
            distribution = output.logits[0, predicted].log_softmax(dim=-1)
            log_probs = distribution.gather(1, ids[len(prompt) :, None])[:, 0]
            np.testing.assert_allclose(c.log_probs, log_probs.detach(), atol=1e-4)
            entropy = torch.distributions.Categorical(logits=distribution).entropy()
            np.testing.assert_allclose(c.entropies, entropy.detach(), atol=1e-4)
            advantage = 0.0
            if c.reward is not None:
                advantage = (c.reward - rewards.mean()) / (rewards.std(ddof=1) + 1e-4)
            assert c.advantage == pytest.approx(advantage, abs=1e-5)
            assert c.side == np.sign(advantage)
            advantages += [advantage] * len(log_probs)
            vectors.append(((1 - log_probs.exp())[:, None] * output.hidden_states[-1][0, predicted]).detach())
            ours.append(c.coefficients)
    expected, _ = oracle.coefficients(torch.cat(vectors), advantages)
    ours = np.concatenate(ours)
    np.testing.assert_allclose(ours, expected, atol=1e-3)
    assert ours.std() > 0.05


def by_turn(turns, **columns):
    return [[(turn.start, turn.end, 1.0 + i) for i, turn in enumerate(row)] for row in turns]


@pytest.mark.parametrize("rule", ["delta", "given:source=tests.commands.test_explain.by_turn"])
def test_a_tool_s_text_gets_no_credit(tmp_path, rule):
    """Lines with the tokens and turns that a run records."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    turns = [1, 1, 0, 0, 2]
    rows = [{**row, "completion": f"1+1={row['completion']}", "turns": turns} for row in PAIR]
    for row in rows:
        row["token_ids"] = tokenizer(row["completion"]).input_ids
    assert explain(model_name_or_path=MODEL, data=write(tmp_path, rows), output_dir=tmp_path, rule=rule) == 0
    [group] = read_run(tmp_path).groups
    for c in group.completions:
        assert c.turns.tolist() == turns
        assert np.isnan(c.coefficients).tolist() == [turn == 0 for turn in turns]
    coefficients = np.concatenate([c.coefficients for c in group.completions])
    if rule == "delta":
        assert np.nanmean(coefficients) == pytest.approx(1, abs=1e-5)
    else:
        np.testing.assert_equal(coefficients, [1, 1, np.nan, np.nan, 2] * 2)


# --- mistakes: one line, before anything slow ---


@pytest.fixture
def refused(tmp_path, capsys):
    """The error of a call that is refused; by default of one that is right but for the given options."""
    tiny.save(tmp_path / "model", max_position_embeddings=16)

    def refused(row=None, **options):
        data = write(tmp_path, [*PAIR, {**PAIR[0], **(row or {})}])
        given = {"model_name_or_path": tmp_path / "model", "data": data, "output_dir": tmp_path / "out"}
        assert explain(**given | options) == 2
        assert not (tmp_path / "out").exists()
        *_, line = capsys.readouterr().err.splitlines()  # after what transformers has to say
        assert line.startswith("delta-trl: error: ")
        return line

    return refused


def test_what_the_model_cannot_read_names_the_line(refused, tmp_path):
    assert "line 3" in refused(model_name_or_path=MODEL, row={"completion": "√"})  # not in its vocabulary
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = "{{ raise_exception('Users only!') }}"
    tokenizer.save_pretrained(tmp_path / "model")
    assert "line 3" in refused(row={"prompt": [{"role": "system", "content": "a"}]})  # an error of jinja's
    config = GPT2Config(vocab_size=tiny.SIZES["vocab_size"], n_positions=16, n_embd=8, n_layer=1, n_head=1)
    tiny.model(config).save_pretrained(tmp_path / "model")
    assert "longer than the model's 16" in refused(row={"completion": "1" * 13})


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("token_credit", "dleta", "rule 'dleta': expected one of"),
        ("rule", "fipo", "rule 'fipo' credits micro-batches"),
    ],
)
def test_a_wrong_value_names_its_option(refused, option, value, message):
    assert message in refused(**{option: value})


def test_records_of_a_run_are_not_mixed(refused, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "training_settings.json").touch()
    assert "output_dir" in refused(output_dir=tmp_path / "run")
    assert len(list((tmp_path / "run").iterdir())) == 1
