"""What `delta-trl train` prints in real trainings: on a terminal, into a file, and what it leaves unchanged."""

import io
import json
import re
import sys
import warnings

import pandas as pd
import pytest
from rich.cells import cell_len
from rich.console import Console
from transformers import TrainerState

from delta_trl.cli import main
from delta_trl.commands.terminal import SAMPLE_CHARACTERS, Lines, harmless, lines

from ..corpus import tiny


ESCAPE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def printed(trainer, width=80, terminal=False) -> str:
    console = Console(file=io.StringIO(), width=width, force_terminal=terminal, markup=False, highlight=False)
    with lines(trainer, console):
        trainer.train()
    return console.file.getvalue()


def of_batches(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.match(r" *\d+/\d+ ", line)]


@pytest.fixture
def train(tmp_path, capsys):
    """`delta-trl train` of a tiny run: what it printed, the logs without timings, and the saved completions."""

    def run(**changes) -> tuple[str, list[dict], list[pd.DataFrame]]:
        folder = tmp_path / f"run-{len(list(tmp_path.glob('run-*.yaml')))}"
        recipe = tiny.recipe(tmp_path, folder.name, **{"max_steps": 3, "log_completions": True, **changes})
        capsys.readouterr()
        assert main(["train", "--config", recipe]) == 0
        output = capsys.readouterr()
        history = json.loads((folder / "trainer_state.json").read_text())["log_history"]
        timed = ("seconds", "step_time", "runtime", "per_second")
        logs = [{k: v for k, v in entry.items() if not k.endswith(timed)} for entry in history]
        tables = [pd.read_parquet(path) for path in sorted((folder / "completions").glob("*.parquet"))]
        return output.out + output.err, logs, tables

    return run


def test_a_line_per_rollout_batch(make_trainer):
    trainer = make_trainer(max_steps=3)
    text = printed(trainer)
    found = of_batches(text)
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    assert len(found) == len(logged) == 3
    for line, entry in zip(found, logged, strict=True):
        step, reward, tokens, entropy, spread, _seconds, *_ = line.split()
        assert step == f"{entry['step']}/3"
        assert float(reward) == pytest.approx(entry["reward"], abs=1e-3)
        assert float(tokens) == pytest.approx(entry["completions/mean_length"], abs=0.1)
        assert float(entropy) == pytest.approx(entry["entropy"], abs=1e-3)
        assert float(spread) == pytest.approx(entry["credit/coefficient_std"], abs=1e-3)
        assert (f"{entry['completions/clipped_ratio']:.1%} truncated" in line) is (
            entry["completions/clipped_ratio"] > 0
        )
    assert "step   reward   tokens  entropy  credit spread  seconds" in text


def test_lines_follow_the_logs_that_hold_a_reward(make_trainer):
    """Four optimiser steps share a rollout batch; the other three log a loss alone."""
    trainer = make_trainer(max_steps=8, steps_per_generation=4, per_device_train_batch_size=4)
    assert len(of_batches(printed(trainer))) == 2
    assert sum("loss" in entry for entry in trainer.state.log_history) == 8


def test_a_rule_that_logs_no_spread_has_no_column_for_it(make_trainer):
    text = printed(make_trainer(token_credit="none"))
    assert "reward   tokens  entropy  seconds" in text
    assert "spread" not in text


def test_a_sample_at_the_first_and_every_tenth_line(make_trainer):
    trainer = make_trainer()
    trainer._logs["prompt"], trainer._logs["completion"] = ["1+1="], ["2"]
    console = Console(file=io.StringIO(), width=80)
    callback = Lines(trainer, console)
    for step in range(1, 21):
        state = TrainerState(global_step=step, max_steps=20)
        callback.on_log(trainer.args, state, None, logs={"reward": 0.5})
    text = console.file.getvalue()
    assert len(of_batches(text)) == 20
    assert re.findall(r"prompt, step (\d+)", text) == ["1", "11"]
    assert len(text.splitlines()) < 50


def test_samples(make_trainer):
    """The whole of prompt and completion, with its rewards; `num_completions_to_print` says how many."""
    trainer = make_trainer(max_steps=1, max_completion_length=100, num_completions_to_print=2)
    text = printed(trainer)
    assert text.count("prompt, step 1 ") == 2
    for row in (-1, -5):
        for kind in ("prompt", "completion"):
            assert harmless(trainer._logs[kind][row]) in text
        assert f"completion, reward_letters {trainer._logs['rewards']['reward_letters'][row]:g} " in text
    assert "prompt" not in printed(make_trainer(num_completions_to_print=0))


def test_chats_and_long_texts():
    chat = [{"role": "user", "content": "1+1="}, {"role": "assistant", "content": "2\x1b[2J"}]
    assert harmless(chat) == "user: 1+1=\nassistant: 2␛[2J"
    text = harmless("a" * SAMPLE_CHARACTERS + "b" * SAMPLE_CHARACTERS)
    assert text.startswith("aaa")
    assert text.endswith("bbb")
    assert f"… {SAMPLE_CHARACTERS:,} characters …" in text


def test_on_a_terminal(make_trainer):
    width = 100
    trainer = make_trainer(max_steps=2, max_completion_length=150, disable_tqdm=False)
    text = printed(trainer, width, terminal=True)
    shown = [part for line in ESCAPE.sub("", text).splitlines() for part in line.split("\r")]
    assert max(map(cell_len, shown)) == width  # a rule
    assert any("2/2 steps," in part and "to go" in part for part in shown)  # the bar
    assert len(of_batches("\n".join(shown))) == 2
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back


def test_wide_values_fit_80_columns(make_trainer):
    trainer = make_trainer()
    console = Console(file=io.StringIO(), width=80, force_terminal=True)
    callback = Lines(trainer, console)
    callback._seconds = 99999.9
    logs = {"reward": -10.0, "entropy": 10.0, "credit/coefficient_std": 10.0, "completions/mean_length": 20_480.0}
    logs["completions/clipped_ratio"] = 1.0
    callback.on_log(trainer.args, TrainerState(global_step=10_000, max_steps=10_000), None, logs=logs)
    text = ESCAPE.sub("", console.file.getvalue())
    assert [len(line) for line in text.splitlines()][1] == 80
    assert len(of_batches(text)) == 1
    assert "100.0% truncated" in text


def test_rewards_that_could_not_be_had(make_trainer):
    trainer = make_trainer(reward_funcs=lambda completions, **kwargs: [None] * len(completions))
    assert of_batches(printed(trainer))[0].split()[1] == "-"


def test_into_a_file_it_is_plain(train):
    text, _, _ = train()
    assert len(of_batches(text)) == 3
    assert "\x1b" not in text
    assert "\r" not in text
    assert "Warning" not in text  # of a setting that TRL makes


def test_a_hostile_completion_cannot_reach_the_terminal(make_trainer, monkeypatch):
    monkeypatch.setattr(tiny, "CHARACTERS", "0123456789+= " + "".join(map(chr, range(2, 28))))
    hostile = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
    trainer = make_trainer(max_steps=1, max_completion_length=100)
    text = printed(trainer)
    assert "\x1b" in "".join(trainer._logs["completion"])
    assert not hostile.search(text)
    for escape in ESCAPE.findall(printed(make_trainer(max_steps=1, max_completion_length=100), terminal=True)):
        assert re.fullmatch(r"\x1b\[[0-9;]*m", escape)  # rich's own


def test_only_what_is_printed_changes(train):
    text, logs, tables = train(terminal="lines")
    trl_text, trl_logs, trl_tables = train(terminal="trl")
    assert logs == trl_logs
    assert len(tables) == len(trl_tables) == 3
    for table, other in zip(tables, trl_tables, strict=True):
        pd.testing.assert_frame_equal(table, other)
    assert "'loss':" in trl_text
    assert "Advantage" in trl_text  # the table
    assert not of_batches(trl_text)
    assert "'loss':" not in text
    assert "Advantage" not in text


def test_evaluations_name_their_sampling(make_trainer):
    options = {"eval_strategy": "steps", "eval_steps": 2, "per_device_eval_batch_size": 4, "top_p": 0.9}
    trainer = make_trainer(**options, trainer_options={"eval_dataset": tiny.dataset(2)})
    text = printed(trainer)
    [entry] = [entry for entry in trainer.state.log_history if "eval_reward" in entry]
    assert re.search(
        rf" 2/2  evaluation: reward {entry['eval_reward']:.3f}, \d s, sampled at temperature 1, top-p 0.9\n", text
    )


def test_equal_warnings_come_once(make_trainer):
    def reward_that_warns(completions, **kwargs):
        with warnings.catch_warnings():  # after which Python forgets what it has shown
            warnings.warn("always the same", stacklevel=1)
        warnings.warn(f"a new one, {len(seen)}", stacklevel=1)
        seen.append(None)
        return tiny.reward_letters(completions)

    seen = []
    show = warnings.showwarning
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        printed(make_trainer(max_steps=3, reward_funcs=reward_that_warns))
    texts = [str(warning.message) for warning in caught]
    assert texts.count("always the same") == 1
    assert [text for text in texts if text.startswith("a new")] == ["a new one, 0", "a new one, 1", "a new one, 2"]
    assert warnings.showwarning is show


def test_an_interrupted_training_gives_the_terminal_back(make_trainer):
    def reward_that_interrupts(completions, **kwargs):
        raise KeyboardInterrupt

    console = Console(file=io.StringIO(), force_terminal=True)
    streams = sys.stdout, sys.stderr
    trainer = make_trainer(reward_funcs=reward_that_interrupts, disable_tqdm=False)
    with pytest.raises(KeyboardInterrupt), lines(trainer, console):
        trainer.train()
    text = console.file.getvalue()
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")  # the cursor is back
    assert (sys.stdout, sys.stderr) == streams


def test_other_processes_print_nothing(make_trainer):
    trainer = make_trainer()
    console = Console(file=io.StringIO(), force_terminal=True)
    callback = Lines(trainer, console)
    state = TrainerState(max_steps=2, is_world_process_zero=False)
    callback.on_train_begin(trainer.args, state, None)
    callback.on_log(trainer.args, state, None, logs={"reward": 1.0})
    assert console.file.getvalue() == ""
