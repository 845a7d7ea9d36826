"""`delta-trl explain` on the quickstart's model, against the method in plain float64."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config

from delta_trl.cli import main
from delta_trl.report import read_run

from ..corpus import tiny
from ..corpus.tiny import PAIR
from ..credit import oracle


ROOT = Path(__file__).parents[2]
MODEL = ROOT / "recipes/quickstart/model"
WORKED = "ones {a}+{b}={c} write {c} carry 0\n\\boxed{{{answer}}}"


def completions():
    """Three prompts, interleaved, with right and wrong completions of different lengths."""
    for extra in range(3):
        for a, b in ((2, 3), (4, 4), (1, 6)):
            c = a + b
            worked = WORKED.format(a=a, b=b, c=c, answer=c + extra)
            yield {
                "prompt": f"{a}+{b}=",
                "completion": extra * "tens 2+2+0=4 write 4 carry 0\n" + worked,
                "reward": float(extra == 0),
            }
    yield {"prompt": "1+6=", "completion": "ones 1+6=7 carry 0", "reward": None}


def write(folder: Path, rows) -> Path:
    path = folder / "data.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def explain(**options) -> int:
    words = [f"--{name}={value}" for name, value in options.items()]
    return main(["explain", *words])


def group_advantages(rewards: list[float | None]) -> list[float]:
    """0 without a reward."""
    given = np.array([reward for reward in rewards if reward is not None])
    mean = given.mean()
    scale = given.std(ddof=1) + 1e-4
    return [0.0 if reward is None else (reward - mean) / scale for reward in rewards]


@torch.no_grad()
def of_tokens(model, tokenizer, prompt: str, completion: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probs, entropies and vectors of a completion's tokens, without padding."""
    prompt_ids = tokenizer(prompt).input_ids
    completion_ids = tokenizer(completion, add_special_tokens=False).input_ids
    output = model(torch.tensor([prompt_ids + completion_ids]), output_hidden_states=True)
    predicted = slice(len(prompt_ids) - 1, -1)
    logits = output.logits[0, predicted]
    hidden = output.hidden_states[-1][0, predicted]
    places = range(len(completion_ids))
    log_probs = logits.log_softmax(dim=-1)[places, completion_ids]
    entropies = torch.distributions.Categorical(logits=logits).entropy()
    surprise = 1 - log_probs.exp()
    return log_probs, entropies, surprise[:, None] * hidden


def test_explain_records_the_coefficients_of_the_oracle(tmp_path, capsys):
    rows = list(completions())
    options = {
        "model_name_or_path": MODEL,
        "dtype": "float32",
        "data": write(tmp_path, rows),
        "batch_size": 3,
        "token_credit": "delta:token_gradient=output_row",
        "output_dir": tmp_path,
    }
    assert explain(**options) == 0
    page = tmp_path / "report.html"
    assert capsys.readouterr().out.strip() == str(page)
    assert page.read_text().startswith("<!doctype html>")
    groups = read_run(tmp_path).groups
    assert [group.prompt for group in groups] == ["2+3=", "4+4=", "1+6="]

    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float64)
    vectors, advantages, ours = [], [], []
    for group in groups:
        lines = [row for row in rows if row["prompt"] == group.prompt]
        expected = group_advantages([row["reward"] for row in lines])
        for c, row, advantage in zip(group.completions, lines, expected, strict=True):
            assert "".join(c.tokens) == row["completion"]
            assert c.reward == row["reward"]
            assert c.advantage == pytest.approx(advantage, abs=1e-5)
            assert c.side == np.sign(advantage)
            log_probs, entropies, its_vectors = of_tokens(model, tokenizer, group.prompt, row["completion"])
            np.testing.assert_allclose(c.log_probs, log_probs, atol=1e-4)
            np.testing.assert_allclose(c.entropies, entropies, atol=1e-4)
            ours.append(c.coefficients)
            vectors.append(its_vectors)
            advantages += [advantage] * len(its_vectors)
    expected, _ = oracle.coefficients(torch.cat(vectors), advantages)
    ours = np.concatenate(ours)
    np.testing.assert_allclose(ours, expected, atol=1e-3)
    assert ours.std() > 0.05


def by_turn(turns, **columns):
    spans = []
    for row in turns:
        spans.append([(turn.start, turn.end, 1.0 + i) for i, turn in enumerate(row)])
    return spans


@pytest.mark.parametrize("rule", ["delta", "given:source=tests.commands.test_explain.by_turn"])
def test_a_tool_s_text_gets_no_credit(tmp_path, rule):
    """Lines with the tokens and turns that a run records."""
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    turns = [1, 1, 0, 0, 2]
    rows = []
    for row in PAIR:
        text = f"1+1={row['completion']}"
        ids = tokenizer(text).input_ids
        rows.append({**row, "completion": text, "turns": turns, "token_ids": ids})
    data = write(tmp_path, rows)
    assert explain(model_name_or_path=MODEL, data=data, output_dir=tmp_path, rule=rule) == 0

    [group] = read_run(tmp_path).groups
    of_tool = [turn == 0 for turn in turns]
    for c in group.completions:
        assert c.turns.tolist() == turns
        without_credit = np.isnan(c.coefficients)
        assert without_credit.tolist() == of_tool
    coefficients = np.concatenate([c.coefficients for c in group.completions])
    if rule == "delta":
        assert np.nanmean(coefficients) == pytest.approx(1, abs=1e-5)
    else:
        np.testing.assert_equal(coefficients, [1, 1, np.nan, np.nan, 2] * 2)


def test_a_chat_is_recorded_as_the_model_reads_it(tmp_path):
    """Special tokens that a tokenizer adds to texts are none of the completion's."""
    tiny.save(tmp_path / "model")
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = tiny.CHAT + "{% if add_generation_prompt %}={% endif %}"
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<eos> $A", special_tokens=[("<eos>", 1)])
    tokenizer.save_pretrained(tmp_path / "model")
    chat = [{"role": "user", "content": "1+1"}]
    data = write(tmp_path, [{**row, "prompt": chat} for row in PAIR])
    assert explain(model_name_or_path=tmp_path / "model", data=data, output_dir=tmp_path) == 0
    [group] = read_run(tmp_path).groups
    assert group.prompt == "1+1="
    found = [(c.tokens.tolist(), c.reward, c.rewards) for c in group.completions]
    assert found == [(["2"], 1.0, [("reward", 1.0)]), (["3"], 0.0, [("reward", 0.0)])]
    page = (tmp_path / "report.html").read_text()
    for said in ("DelTA(", f"{tmp_path}/model, without training"):
        assert said in page


def test_what_does_not_fit_is_named_by_its_line(tmp_path, capsys):
    """Of the file, whatever the order of the prompts."""
    other = {**PAIR[0], "prompt": "2+2="}
    unknown = {**other, "token_ids": [10**6], "turns": [1]}
    data = write(tmp_path, [other, *PAIR, unknown])
    assert explain(model_name_or_path=MODEL, data=data, output_dir=tmp_path) == 2
    assert f"{data}, line 4, does not fit {MODEL}: " in capsys.readouterr().err


def test_a_completion_beyond_the_context_is_warned_of(tmp_path, caplog):
    """With rotary positions the model reads it."""
    tiny.save(tmp_path / "model", max_position_embeddings=16)
    data = write(tmp_path, [*PAIR, {**PAIR[0], "completion": "2" * 16}])
    assert explain(model_name_or_path=tmp_path / "model", data=data, output_dir=tmp_path) == 0
    [said] = [message for message in caplog.messages if str(data) in message]
    assert f"{data}, line 3" in said
    assert "longer than the model's 16" in said


@pytest.fixture
def chats(tmp_path):
    """Explain rows by a model whose template puts ? around a message and ends in =."""
    tiny.save(tmp_path / "model")
    tokenizer = tiny.tokenizer("?" + tiny.CHARACTERS)
    tokenizer.chat_template = (
        "{% for m in messages %}?{{ m.content }}?{% endfor %}{% if add_generation_prompt %}={% endif %}"
    )
    tokenizer.save_pretrained(tmp_path / "model")
    tiny.model(vocab_size=len(tokenizer)).save_pretrained(tmp_path / "model")

    def explained(rows, **options):
        data = write(tmp_path, rows)
        assert explain(model_name_or_path=tmp_path / "model", data=data, output_dir=tmp_path / "out", **options) == 0
        return read_run(tmp_path / "out").groups

    return explained


def test_a_chat_is_what_the_model_reads(chats):
    """Groups are chats. In the same folder, records are replaced."""
    others = [row | {"prompt": "1+2=", "reward": 0.5} for row in PAIR]
    as_chats = [row | {"prompt": [{"role": "user", "content": row["prompt"]}]} for row in [*PAIR, *others]]
    as_texts = [row | {"prompt": f"?{row['prompt']}?="} for row in [*PAIR, *others]]
    found = chats(as_chats)
    assert [(group.prompt, len(group.completions)) for group in found] == [("?1+1=?=", 2), ("?1+2=?=", 2)]
    for of_chat, of_text in zip(found, chats(as_texts), strict=True):
        for one, other in zip(of_chat.completions, of_text.completions, strict=True):
            np.testing.assert_allclose(one.coefficients, other.coefficients, rtol=1e-5)
            np.testing.assert_allclose(one.log_probs, other.log_probs, rtol=1e-5)
    [alone] = chats(PAIR, batch_size=1, rule="none")
    assert [c.coefficients.tolist() for c in alone.completions] == [[1], [1]]
    assert [c.advantages.tolist() for c in alone.completions] == [[c.advantage] for c in alone.completions]
    assert [c.rewards for c in alone.completions] == [[("reward", 1)], [("reward", 0)]]


# --- mistakes: one line, before anything slow ---


@pytest.fixture
def refused(tmp_path, capsys):
    """The error of a call that is refused; by default of one that is right but for the given options."""
    tiny.save(tmp_path / "model", max_position_embeddings=16)

    def refused(row=None, **options):
        data = write(tmp_path, [*PAIR, {**PAIR[0], **(row or {})}])
        given = {
            "model_name_or_path": tmp_path / "model",
            "data": data,
            "output_dir": tmp_path / "out",
            **options,
        }
        assert explain(**given) == 2
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
    chat = [{"role": "system", "content": "a"}]
    assert "line 3" in refused(row={"prompt": chat})  # an error of jinja's

    vocab_size = tiny.SIZES["vocab_size"]
    config = GPT2Config(vocab_size=vocab_size, n_positions=16, n_embd=8, n_layer=1, n_head=1)
    tiny.model(config).save_pretrained(tmp_path / "model")
    assert "longer than the model's 16" in refused(row={"completion": "1" * 13})


def test_a_model_without_its_tokenizer_is_named(refused, tmp_path):
    """For which transformers makes one without tokens."""
    for file in (tmp_path / "model").glob("tokenizer*"):
        file.unlink()
    assert "no tokenizer files (tokenizer.json)" in refused()


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
    run = tmp_path / "run"
    run.mkdir()
    (run / "training_settings.json").touch()
    assert "output_dir" in refused(output_dir=run)
    assert len(list(run.iterdir())) == 1
