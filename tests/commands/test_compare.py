"""`delta-trl compare`: its arms, its runs, and mistakes. tests/evaluation has what it says of differences."""

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from peft import LoraConfig

from delta_trl.arguments.credit import CreditArguments
from delta_trl.arguments.errors import UsageError
from delta_trl.arguments.parser import parse
from delta_trl.cli import main
from delta_trl.commands.arms import arms_of
from delta_trl.commands.compare import (
    RecipeConfig,
    SeedRun,
    begin,
    end_family,
    evaluate_before,
    execute,
    finished_seeds,
    read_call,
)
from delta_trl.commands.recipe import parse_recipe
from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.files import finish_checkpoint

from ..corpus import tiny


# Runs the rest of its words. One run is killed once, in its third step; another fails as long as the file is there.
LAUNCHER = """
import os, pathlib, sys

here = pathlib.Path(__file__).parent
words = " ".join(sys.argv)
if "seed-1/none" in words and (here / "broken").exists():
    sys.exit(1)
if "seed-0/delta" in words and "--dry_run" not in words and not (here / "killed").exists():
    (here / "killed").touch()
    os.environ |= {"KILL": "9", "KILL_IN": "rollout", "KILL_STEP": "2"}
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_the_arms_are_the_rule_and_its_controls():
    options = {"lambda_max": 1.5}
    recipe = CreditArguments(token_credit="delta", token_credit_kwargs=options)
    changed = {"rule": "delta", "rule_kwargs": options}
    arms = {
        "none": {},
        "delta": options,
        "side_mean": changed,
        "shuffled": changed,
    }
    assert arms_of(None, recipe) == ("delta", arms)

    word = "delta:lambda_max=1.3"
    arms = {
        "shuffled": {"rule": word, "rule_kwargs": {}},
        word: {},
        "none": {},
    }
    assert arms_of(list(arms), recipe) == (word, arms)

    arms = {
        "within_side": {},  # which the options of the recipe are not for
        "side_mean": {"rule": "within_side", "rule_kwargs": {}},
        "delta": options,
    }
    assert arms_of(list(arms), recipe) == ("within_side", arms)


BY_EVALUATION = {
    "--benchmarks train.jsonl --eval_strategy steps": "accuracy",
    "--eval_strategy steps": "eval_reward",
    "--eval_strategy no": "training_reward",
    "--eval_strategy no --logging_steps 2": "training_reward",  # of two steps
    "--eval_strategy no --logging_steps 2 --max_steps=-1": "training_reward",
}


@pytest.fixture
def recipe(tmp_path, monkeypatch):
    """A recipe in the working directory, with data and a model."""
    monkeypatch.chdir(tmp_path)
    return tiny.recipe(tmp_path)


@pytest.mark.parametrize(("words", "primary"), BY_EVALUATION.items())
def test_the_best_evidence_is_the_primary_outcome(words, primary, recipe):
    _, plan, *_ = read_call(["--config", recipe, *words.split()])
    assert plan["primary"] == primary
    assert plan["outcomes"][-2:] == ["training_reward", "training_reward_at_end"]
    evaluates = "--eval_strategy steps" in words
    assert ("eval_column_mapping" in plan["settings"]) is evaluates  # else it is of benchmarks, which may change


OF_EVERY_RUN = (
    "--seed 7 --seeds 2 --arms delta side_mean --output_dir mine --token_credit_kwargs {lambda_max:\x1f1.5} "
    "--resume_from_checkpoint false --push_to_hub true --hub_token hf_secret --benchmarks train.jsonl other.jsonl "
    "--eval_reward tests.corpus.tiny.reward_letters --eval_dataset_format tests.commands.test_compare.as_it_is "
    "--eval_column_mapping {solution:\x1fanswer} --eval_use_cpu false "
    "--launcher env\x1f'NAME=two\x1fwords' --eval_temperature 0"
)


def as_it_is(row: dict) -> dict:
    return row


@pytest.fixture
def call(recipe):
    """What the command reads from these words and a recipe."""

    def call(words):
        shutil.copy("train.jsonl", "other.jsonl")
        given = [word.replace("\x1f", " ") for word in words.split(" ")]
        return read_call(["--config", recipe, *given])

    return call


def test_a_run_has_its_seed_and_its_arm(call):
    """Whatever else the command line says; and it goes on."""
    folder, plan, runs, _ = call(OF_EVERY_RUN)
    assert (folder, plan["seeds"]) == (Path("mine"), [7, 8])
    assert "hf_secret" not in json.dumps(plan)
    assert not {"output_dir", "benchmarks"} & plan["settings"].keys()  # which may change
    order = [(7, "delta"), (7, "side_mean"), (8, "delta"), (8, "side_mean")]
    assert [(run.seed, run.arm) for run in runs] == order
    options = {"lambda_max": 1.5}
    for run in runs:
        assert run.folder == folder / f"seed-{run.seed}" / run.arm
        *launcher, _, _, _ = run.train[: run.train.index("train") + 1]
        assert launcher == ["env", "NAME=two words"]
        _, config, _ = parse_recipe(run.train[len(launcher) + 3 :], RecipeConfig)
        assert (config.seed, config.token_credit, config.output_dir) == (run.seed, run.arm, str(run.folder))
        kwargs = options if run.arm == "delta" else {"rule": "delta", "rule_kwargs": options}
        assert config.token_credit_kwargs == kwargs
        assert (config.resume_from_checkpoint, config.push_to_hub) == ("true", False)


def test_all_models_are_evaluated_with_the_same_options(call):
    """Results with others are kept apart."""
    folder, plan, runs, before = call(OF_EVERY_RUN)
    part = plan["evaluation"]["folder"]
    _, warmer, *_ = call(f"{OF_EVERY_RUN}.5")
    assert warmer["evaluation"]["folder"] != part
    start = SimpleNamespace(evaluate=before, results=[folder / "before" / part / "any"], folder=Path("model"))
    for run in (start, *runs):
        run.folder.mkdir(parents=True, exist_ok=True)
        [args] = parse([EvalArguments], run.evaluate[4:], "delta-trl eval")
        assert Path(args.model_name_or_path).name == run.folder.name
        assert Path(args.output_dir) == run.results[0].parent
        assert (args.temperature, args.column_mapping) == (0, {"solution": "answer"})
        assert args.dataset_format == "tests.commands.test_compare.as_it_is"
        assert (args.benchmarks, args.use_cpu) == (["train.jsonl", "other.jsonl"], False)
    for run in runs:
        assert run.results == [run.folder / "benchmarks" / part / f"{name}.json" for name in ("train", "other")]


def test_without_a_folder_runs_are_where_training_writes(recipe):
    folder, _, runs, _ = read_call(["--config", tiny.recipe(Path.cwd(), output_dir=None)])
    assert runs[0].folder == folder / "seed-42" / "none"
    assert folder == Path("trainer_output")


@pytest.mark.parametrize(
    "files", [("a.json", "trainer_state.json", "b.json"), ("b.json", "trainer_state.json", "a.json")]
)
def test_a_seed_is_finished_with_all_results_of_all_arms(tmp_path, files):
    runs = []
    for seed, arm in (1, "none"), (1, "delta"), (0, "none"), (0, "delta"):
        folder = tmp_path / f"seed-{seed}" / arm
        results = [folder / "a.json", folder / "b.json"]
        runs.append(SeedRun(seed, arm, folder, train=[], evaluate=[], results=results))
    for run in runs:
        run.folder.mkdir(parents=True)
        (run.folder / "trainer_state.json").write_text("{")  # cut off
        assert not run.is_trained
        for name in files:
            assert not run.is_finished
            assert run.seed not in finished_seeds(runs)
            (run.folder / name).write_text('{"global_step": 2}')
        assert run.is_finished
    assert finished_seeds(runs) == [0, 1]


def test_the_model_before_training_is_evaluated_once(tmp_path):
    plan = {"evaluation": {"benchmarks": ["a", "b"], "folder": "f"}}
    results = tmp_path / "before" / "f"
    results.mkdir(parents=True)
    calls = tmp_path / "calls"
    for name, count in ("a.json", 1), ("b.json", 2), ("a.json", 2):
        command = f"echo >> {calls}; touch {results}/{name}; exit 1"
        evaluate_before(tmp_path, plan, ["sh", "-c", command])
        assert len(calls.read_text().splitlines()) == count
    plan["evaluation"]["benchmarks"] = []
    evaluate_before(tmp_path / "nowhere", plan, ["false"])


def test_a_folder_keeps_its_comparison(tmp_path):
    """What is evaluated may change."""
    plan = {"seeds": [0], "settings": {"beta": 0}, "evaluation": {"benchmarks": ["a"]}, "primary": "accuracy"}
    plan["outcomes"] = ["accuracy"]
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(plan))
    plan |= {"evaluation": {"benchmarks": ["b"]}, "primary": "eval_reward", "outcomes": ["eval_reward"]}
    begin(tmp_path, plan, [])
    assert read(file) == plan
    for changed, named in ({"seeds": [0, 1]}, "seeds was"), ({"settings": {"beta": None}}, "settings.beta was 0"):
        with pytest.raises(UsageError, match=f"holds something else than this comparison: {named}"):
            begin(tmp_path, {**plan, **changed}, [])
        assert read(file) == plan


@pytest.mark.parametrize(
    ("is_whole", "is_trained", "has_benchmarks", "done"),
    [
        (False, False, True, ["train"] * 3),
        (True, False, True, ["train from a checkpoint"] * 3),
        (True, True, True, ["evaluate"]),
        (True, True, False, []),
    ],
)
def test_a_run_is_tried_three_times_from_what_is_whole(tmp_path, is_whole, is_trained, has_benchmarks, done):
    """Its training fails, and then it is not evaluated. What is trained is evaluated only."""
    arm = "delta:lambda_max=1.5"
    folder, result, log = tmp_path / "seed-0" / arm, tmp_path / "a.json", tmp_path / "log"
    log.touch()
    checkpoint = folder / "checkpoint-1"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model").write_text("weights")
    if is_whole:
        finish_checkpoint(checkpoint)
    if is_trained:
        (folder / "trainer_state.json").write_text('{"global_step": 2}')
    train = f"if [ -e {checkpoint} ]; then echo train from a checkpoint; else echo train; fi >> {log}; exit 1"
    evaluate = f"echo evaluate >> {log}; touch {result}"
    run = SeedRun(0, arm, folder, ["sh", "-c", train], ["sh", "-c", evaluate], [result] * has_benchmarks)
    assert execute(run) is is_trained
    assert log.read_text().splitlines() == done
    assert [path.name for path in folder.parent.glob("*.log")] == [f"{arm}.log"]


def test_the_model_before_training_has_its_adapter_and_its_revision(recipe):
    words = "--benchmarks train.jsonl --eval_reward tests.corpus.tiny.reward_letters --adapter_name_or_path adapter"
    words += " --model_revision v2 --eval_use_vllm false"  # with true, adapters are refused
    LoraConfig(base_model_name_or_path="model").save_pretrained("adapter")
    _, plan, runs, before = read_call(["--config", recipe, *words.split()])
    assert before[before.index("--adapter_name_or_path") + 1] == "adapter"
    assert before[before.index("--model_revision") + 1] == "v2"
    assert before[before.index("--use_cpu") + 1] == "True"  # as in the recipe
    assert "adapter" in runs[0].train
    assert "adapter" not in runs[0].evaluate  # what a run leaves is an adapter that knows its base
    assert plan["settings"]["adapter_name_or_path"] == "adapter"


MISTAKES = {
    "--use_peft true --benchmarks train.jsonl --eval_use_vllm": "--eval_use_vllm: vLLM samples from whole models",
    "--adapter_name_or_path away/lora --benchmarks train.jsonl --eval_use_vllm": "--eval_use_vllm: vLLM samples",
    "--seeds 0": "seeds=0: expected a whole number >= 1",
    "--arms none": "nothing to compare",
    "--arms none side_mean": "nothing to compare",
    "--arms delta delta": "nothing to compare",
    "--arms none detla": "'delta'",
    "--launcher acelerate": "no program 'acelerate'",
    "--logging_strategy no": "logging_strategy='no'",
    "--logging_steps 3": "logging_steps=3",
    "--output_dir taken": "mine.txt",
    "--benchmarks mth_500": "mth_500",
    "--benchmarks train.jsonl --eval_batch_size 0": "batch_size=0",
    "--benchmarks nope.jsonl": "nope.jsonl: cannot be read",
    "--benchmarks letters.jsonl": "letters.jsonl has no column 'prompt'",
    "--benchmarks train.jsonl --eval_column_mapping {q:prompt}": "'q:prompt'",
    "--benchmarks train.jsonl --eval_use_cpu --eval_reward lettres": "'lettres'",
    "--sedes 3": "'seed'",
}


@pytest.mark.parametrize(("words", "name"), MISTAKES.items())
def test_mistakes_are_named_before_anything_runs(words, name, recipe, capsys):
    Path("taken").mkdir()
    Path("taken/mine.txt").touch()
    Path("letters.jsonl").write_text('{"a": "b"}\n')
    before = sorted(Path().rglob("*"))
    assert main(["compare", "--config", recipe, *words.split()]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("delta-trl: error: ")
    assert name in line
    assert sorted(Path().rglob("*")) == before


def test_without_a_whole_seed_nothing_can_be_compared(recipe):
    words = ["--config", recipe, "--launcher", "false", "--seeds", "2"]
    folder, plan, *_ = read_call(words)
    folder.mkdir()
    (folder / "plan.json").write_text(json.dumps(plan))
    seeds = [rf"Seed {seed} is left out: none failed 3 times\." for seed in plan["seeds"]]
    with pytest.raises(SystemExit, match=rf"Nothing can be compared\. {' '.join(seeds)}$"):
        main(["compare", *words])


@pytest.mark.processes
def test_the_dry_run_of_the_rule_comes_first(recipe, capfd):
    with pytest.raises(SystemExit, match="2"):
        main(["compare", "--config", recipe, "--arms", "none", "delta", "--importance_sampling_level", "sequence"])
    assert "importance_sampling_level" in capfd.readouterr().err  # which none does not refuse
    assert not Path("run").exists()


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_comparison_goes_on_after_failures(tmp_path, capsys):
    """The command is killed, then a run. A run that fails three times leaves its seed out, until it works."""
    recipe = tiny.recipe(
        tmp_path,
        "compared",
        reward_funcs=["tests.commands.killer.reward"],
        max_steps=3,
        log_completions=True,
        num_completions_to_print=0,
        save_strategy="steps",
        save_steps=1,
        seed=0,
    )
    folder = tmp_path / "compared"
    launcher = tmp_path / "launcher.py"
    launcher.write_text(LAUNCHER)
    broken = tmp_path / "broken"
    broken.touch()
    call = f"compare --config {recipe} --arms none delta --seeds 2 --launcher".split()
    call.append(f"{sys.executable} {launcher}")
    with subprocess.Popen([sys.executable, "-m", "delta_trl", *call], stdout=subprocess.DEVNULL) as killed:
        while not (folder / "seed-0" / "none" / "checkpoint-1").exists():
            assert killed.poll() is None
            time.sleep(0.05)
        killed.kill()  # not the run, which still trains and is waited for

    capsys.readouterr()
    assert main(call) == 0
    printed, bar = capsys.readouterr()
    assert "2 arms * 2 seeds = 4 runs, " in printed
    assert "Primary outcome: training_reward." in printed
    assert f"{folder}/seed-0/delta, attempt 2 of 3" in printed
    assert f"{folder}/seed-0/delta, attempt 3 of 3" not in printed
    assert f"{folder}/seed-1/none, attempt 3 of 3" in printed
    assert re.search(r"1/[34] \[\d\d:", bar)  # and how long the others take; the run that went on may be finished
    assert "Seed 1 is left out: none failed 3 times." in printed
    assert "One seed cannot tell" in printed
    for arm in ("none", "delta"):
        log = (folder / "seed-0" / f"{arm}.log").read_text()
        assert log.count("training from the start") == 1
    assert read(folder / "compare.json")["seeds"] == [0]
    assert not (folder / "seed-1" / "delta").exists()

    broken.unlink()
    finished = folder / "seed-0" / "delta" / "trainer_state.json"
    first = finished.stat().st_mtime_ns
    assert main(call) == 0
    printed = capsys.readouterr().out
    assert "4 runs, 2 to do" in printed
    assert finished.stat().st_mtime_ns == first
    assert "left out" not in (folder / "compare.md").read_text()
    assert "95 % interval" in printed
    reached = read(folder / "compare.json")["reached"]
    for arm in ("none", "delta"):
        means = [mean_reward(folder / f"seed-{seed}" / arm) for seed in (0, 1)]
        assert reached[arm]["training_reward"] == pytest.approx(means)
    page = (folder / "compare.html").read_text()
    assert page.count('<polyline class="line"') == 2
    assert "delta - none" in page
    assert "dataset_name <b>" in page
    for arm in ("none", "delta"):
        assert f'href="seed-0/{arm}/report.html"' in page
        assert (folder / "seed-0" / arm / "report.html").is_file()

    of_seed_0 = prompts(folder / "seed-0" / "none")
    of_seed_1 = prompts(folder / "seed-1" / "none")
    assert of_seed_0 != of_seed_1
    assert prompts(folder / "seed-0" / "delta") == of_seed_0
    assert prompts(folder / "seed-1" / "delta") == of_seed_1

    assert main([*call, "--learning_rate", "0.1"]) == 2
    assert "settings.learning_rate was" in capsys.readouterr().err


def test_a_launcher_ends_with_all_that_it_has_started():
    with subprocess.Popen(["sh", "-c", "sh -c 'sleep 60; true'; true"]) as launcher:
        process = psutil.Process(launcher.pid)
        while len(family := process.children(recursive=True)) < 2:
            time.sleep(0.01)
        end_family(launcher.pid)
        _, alive = psutil.wait_procs(family, timeout=10)
    assert not alive


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_a_comparison_that_is_told_to_end_ends_its_training(tmp_path):
    """accelerate's launcher of a single process ends without it."""
    recipe = tiny.recipe(
        tmp_path,
        "compared",
        max_steps=1000,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
    )
    call = f"{sys.executable} -m delta_trl compare --config {recipe} --arms none delta --launcher".split()
    call.append(f"{sys.executable} -m accelerate.commands.launch --cpu --num_processes 1")
    with subprocess.Popen(call, stdout=subprocess.DEVNULL) as comparison:
        while not list((tmp_path / "compared").glob("seed-*/none/checkpoint-1")):
            assert comparison.poll() is None
            time.sleep(0.05)
        family = psutil.Process(comparison.pid).children(recursive=True)
        assert len(family) >= 2
        comparison.terminate()
        assert comparison.wait(60) == 128 + signal.SIGTERM
    _, alive = psutil.wait_procs(family, timeout=60)
    assert not alive


@pytest.mark.processes
@pytest.mark.timeout(600)
def test_models_are_evaluated_on_benchmarks(tmp_path):
    recipe = tiny.recipe(tmp_path, max_steps=1, seed=0)
    folder = tmp_path / "run"
    call = f"compare --config {recipe} --arms none delta --seeds 1 --benchmarks {tmp_path}/train.jsonl".split()
    call += "--eval_reward tests.corpus.tiny.reward_letters --eval_num_generations 1".split()
    call += "--eval_max_completion_length 8 --eval_batch_size 16".split()
    assert main(call) == 0
    plan = read(folder / "plan.json")
    assert plan["primary"] == "accuracy"

    evaluated = plan["evaluation"]["folder"]
    before = read(folder / "before" / evaluated / "train.json")["results"]["avg_at_k"]
    compared = read(folder / "compare.json")
    assert compared["before"] == {"accuracy": pytest.approx(before)}
    page = (folder / "compare.md").read_text()
    assert re.search(rf"^\| before training +\| +{before:.3f} \|", page, re.MULTILINE)
    for arm in ("none", "delta"):
        samples = folder / "seed-0" / arm / "benchmarks" / evaluated / "train.jsonl"
        rewards = [json.loads(line)["reward"] for line in samples.read_text().splitlines()]
        assert compared["reached"][arm]["accuracy"] == pytest.approx([np.mean(rewards)])

    trained = {path: path.stat().st_mtime_ns for path in folder.glob("seed-0/*/*.safetensors")}
    assert len(trained) == 2
    assert main([*call, "--eval_temperature", "0"]) == 0  # evaluated again, and not trained
    assert {path: path.stat().st_mtime_ns for path in trained} == trained
    other = read(folder / "plan.json")["evaluation"]["folder"]
    assert other != evaluated
    again = read(folder / "seed-0" / "delta" / "benchmarks" / other / "train.json")
    assert again["settings"]["temperature"] == 0


def read(file: Path) -> dict:
    return json.loads(file.read_text())


def mean_reward(run: Path) -> float:
    history = read(run / "trainer_state.json")["log_history"]
    return np.mean([entry["reward"] for entry in history if "reward" in entry])


def prompts(run: Path) -> list[str]:
    """All prompts of a run in their order."""
    files = sorted((run / "completions").glob("*.parquet"))
    assert len(files) == 3
    found = []
    for file in files:
        found += pq.read_table(file)["prompt"].to_pylist()
    return found
