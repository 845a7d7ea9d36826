"""What `delta-trl explain` says to a mistake: one line, with the file and its line, before anything slow."""

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tokenizers.normalizers import Strip
from transformers import T5Config, T5ForConditionalGeneration

from delta_trl.cli import main

from ..corpus import tiny


QUICKSTART = Path(__file__).parents[2] / "recipes/quickstart/model"
PAIR = [{"prompt": "1+1=", "completion": text, "reward": reward} for text, reward in (("2", 1), ("3", 0))]


def lines(*rows):
    return "\n".join(map(json.dumps, rows or PAIR))


def with_row(**changes):
    return lines(*PAIR, {**PAIR[0], **changes})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model in `model`, and what is wrong with others."""
    folder = tmp_path_factory.mktemp("models")
    model, tokenizer = tiny.model(max_position_embeddings=16), tiny.tokenizer()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    for name, other in (
        ("headless", model.model),
        ("small", tiny.model(vocab_size=20)),
        (
            "t5",
            T5ForConditionalGeneration(T5Config(vocab_size=41, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2)),
        ),
    ):
        other.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    shutil.copytree(folder / "model", folder / "half")
    weights = folder / "half" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    strips = tiny.tokenizer()
    strips.backend_tokenizer.normalizer = Strip()
    shutil.copytree(folder / "model", folder / "strips")
    strips.save_pretrained(folder / "strips")
    chats = tiny.tokenizer()
    chats.chat_template = "{{ messages[0].content if messages[0].role == 'user' else raise_exception('Users only!') }}"
    shutil.copytree(folder / "model", folder / "chats")
    chats.save_pretrained(folder / "chats")
    (folder / "empty").mkdir()
    return folder


@pytest.fixture
def refused(folder, tmp_path, capsys):
    """The one line that `delta-trl explain` says to a text as data, and options, which it refuses."""

    def refused(text=None, *flags, **options):
        text = lines() if text is None else text
        (tmp_path / "data.jsonl").write_bytes(text if isinstance(text, bytes) else text.encode())
        given = {"model": folder / "model", "data": tmp_path / "data.jsonl", "output": tmp_path / "out", **options}
        args = [word for name, value in given.items() for word in (f"--{name}", str(value))]
        assert main(["explain", *args, *flags]) == 2
        out, error = capsys.readouterr()
        *_, line = error.splitlines()  # after what transformers has to say
        assert line.startswith("delta-trl: error: ")
        assert "Traceback" not in error
        assert out == ""
        return line.removeprefix("delta-trl: error: ")

    return refused


DATA = [
    ("", "data.jsonl has no lines"),
    ("[\n1]", "line 1: not JSON in UTF-8 (Expecting value"),
    ("[" * 100_000, "line 1: not JSON in UTF-8 ("),
    (b'{"prompt": "\xff"}', "line 1: not JSON in UTF-8 ('utf-8' codec"),
    ("[1]", "line 1: expected an object with prompt, completion and reward, got [1]"),
    ('{"prompt": "a"}', "line 1: expected an object with prompt, completion and reward (null where it is not known), "
     "'completion' is missing"),
    (with_row(prompt=3), "line 3: the prompt must be a string or a list of messages with a role, got 3"),
    (with_row(prompt=[]), "line 3: the prompt must be"),
    (with_row(prompt=[{"content": "a"}]), "line 3: the prompt must be"),
    (with_row(completion=["b"]), "line 3: the completion must be a string, got ['b']"),
    ("\n\n" + with_row(completion=""), "line 5: the completion is empty"),
    (with_row(completion="a\ud800"), r"line 3: the completion cannot be tokenised: '\ud800' is half of a character"),
    (with_row(prompt="\udc00a"), r"line 3: the prompt cannot be tokenised: '\udc00' is half of a character"),
    (with_row(prompt=[{"role": "user", "content": "\ud800"}]), "line 3: the prompt cannot be tokenised"),
    (with_row(reward="good"), "line 3: the reward must be a finite number (of float32) or null, got 'good'"),
    (with_row(reward=float("nan")), "line 3: the reward must be a finite number (of float32) or null, got nan"),
    (with_row(reward=[1]), "line 3: the reward must be"),
    (with_row(reward=1e39), "line 3: the reward must be"),
    (with_row(reward=10**400), "line 3: the reward must be"),
    (lines(*({**row, "reward": None} for row in PAIR)), "all rewards are null"),
    (lines(*({**row, "reward": 1} for row in PAIR)), "no prompt has completions with different rewards"),
    (lines(*({**row, "prompt": row["completion"]} for row in PAIR)), "nothing to contrast"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "message"), DATA, ids=lambda x: str(x)[:40])
def test_data_names_the_line(refused, text, message):
    assert message in refused(text)


@pytest.mark.parametrize(
    ("model", "text", "message"),
    [
        (
            "model",
            with_row(prompt=[{"role": "user", "content": "a"}]),
            "line 3: the prompt is a chat, but the",
        ),
        (
            "chats",
            with_row(prompt=[{"role": "system", "content": "a"}]),
            "line 3: the prompt cannot be tokenised: User",
        ),
        (QUICKSTART, with_row(completion="√"), "line 3: the completion cannot be tokenised: WordLevel error: Missing"),
        ("model", with_row(prompt=""), "line 3: the prompt has no token"),
        ("strips", with_row(completion="  "), "line 3: the completion has no token"),
        (
            "model",
            with_row(completion=13 * "1"),
            "line 3: prompt and completion have 17 tokens, more than the 16",
        ),
        ("small", with_row(completion="zz"), "line 3: a token is beyond the vocabulary"),
    ],
)
def test_what_the_model_cannot_read_names_the_line(refused, folder, model, text, message):
    assert message in refused(text, model=folder / model)


def test_no_data_file(refused, tmp_path):
    missing = tmp_path / "missing.jsonl"
    assert refused(data=missing) == f"--data {missing}: cannot be read (No such file or directory)."
    assert refused(data=tmp_path) == f"--data {tmp_path}: cannot be read (Is a directory)."


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("nowhere", "no such folder, and not a hub id"),
        ("model/config.json", "no such folder, and not a hub id"),
        ("empty", "no model in this folder, it has no config.json"),
        ("headless", "these weights are missing: lm_head.weight. Expected a causal language model with its LM head."),
        ("t5", "cannot be loaded: Unrecognized configuration class"),
        ("half", "cannot be loaded: Error while deserializing header"),
    ],
)
def test_no_causal_language_model(refused, folder, model, message):
    said = refused(model=folder / model)
    assert said.startswith(f"--model {folder / model}: {message}")
    assert len(said) < 500


def test_a_failed_command_leaves_the_output_as_it_was(refused, tmp_path):
    assert refused(device="nonsense").startswith("--device nonsense: Expected one of cpu, cuda")
    assert not (tmp_path / "out").exists()
    file = tmp_path / "file"
    file.write_text("mine")
    for output in (file, file / "below"):
        assert refused(output=output) == f"--output {output}: {file} is not a folder that can be written to."
    assert file.read_text() == "mine"


@pytest.mark.parametrize(
    "name",
    [
        "trainer_state.json",
        "checkpoint-10/trainer_state.json",
        "completions/completions_00001.parquet",
        "token_credit/token_credit_00010.parquet",
    ],
)
def test_records_of_a_run_are_not_mixed(refused, tmp_path, name):
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("a run's")
    for flags in ([], ["--overwrite"]):
        said = refused(None, *flags, output=tmp_path / "run")
        assert "as of a training run, whose records would be mixed with these" in said
    assert [path for path in (tmp_path / "run").rglob("*") if path.is_file()] == [file]


def test_earlier_records_are_replaced_when_told_so(refused, folder, tmp_path, capsys):
    (tmp_path / "data.jsonl").write_text(lines())
    command = ["explain", "--model", str(folder / "model"), "--data", str(tmp_path / "data.jsonl")]
    command += ["--output", str(tmp_path / "out")]
    assert main(command) == 0
    capsys.readouterr()
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert sorted(path.name for path in files) == ["report.html", "token_credit_00000.parquet", "token_types.parquet"]
    before = {path: path.stat().st_mtime_ns for path in files}
    for path in files:
        alone = tmp_path / path.name / path.relative_to(tmp_path / "out")
        alone.parent.mkdir(parents=True)
        shutil.copy(path, alone)
        holds = (
            f"holds {path.relative_to(tmp_path / 'out')} already. Give another folder, or --overwrite to replace it."
        )
        assert holds in refused(output=tmp_path / path.name)
        assert alone.read_bytes() == path.read_bytes()
    assert main([*command, "--overwrite"]) == 0
    assert all(path.stat().st_mtime_ns > time for path, time in before.items())


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "--model is missing. `delta-trl explain --help` shows an example."),
        (["--model", "m", "--data", "d"], "--output is missing"),
        (["--modle", "m"], "Unknown option: `--modle` (did you mean `--model`?). `delta-trl explain --help` lists"),
        (["--batch_size=2"], "`--batch_size=2` (did you mean `--batch-size`?)"),
        (["data.jsonl"], "Unknown option: `data.jsonl`."),
        (["--model", "m", "--data", "d", "--output", "o", "--batch-size", "0"], "--batch-size 0: expected a positive"),
        (["--model", "m", "--data", "d", "--output", "o", "--min-count", "0"], "--min-count 0: expected a positive"),
        (["--model", "../no/such", "--data", "d", "--output", "o"], "--model ../no/such: no such folder"),
        (["--model", "m", "--data", "d", "--output", "o"], "--data d: cannot be read"),
    ],
)
def test_the_call(capsys, args, message):
    assert main(["explain", *args]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("delta:token_gradient=half", "token_gradient='half': expected one of 'output_row'"),
        ("dleta", "Did you mean 'delta'"),
        ("delta:lm_head", "expected options as NAME:key=value"),
    ],
)
def test_rules_that_cannot_be(tmp_path, capsys, rule, message):
    (tmp_path / "data.jsonl").write_text(lines())
    call = ["explain", "--model", str(QUICKSTART), "--data", str(tmp_path / "data.jsonl"), "--output", str(tmp_path)]
    assert main([*call, "--rule", rule]) == 2
    assert message in capsys.readouterr().err


def test_what_needs_no_torch_is_found_without_it(tmp_path):
    (tmp_path / "data.jsonl").write_text(with_row(reward="good"))
    script = f"""
import sys
from delta_trl.cli import main

for args in (
    ["--help"],
    ["--version"],
    ["inspect", "--help"],
    ["explain", "--help"],
    ["explain", "--modle"],
    ["explain", "--model", "m", "--data", "none", "--output", "o"],
    ["explain", "--model", "m", "--data", {str(tmp_path / "data.jsonl")!r}, "--output", "o"],
):
    try:
        main(args)
    except SystemExit:
        pass
    heavy = {{"torch", "transformers", "trl"}} & set(sys.modules)
    assert not heavy, (args, heavy)
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@pytest.mark.processes
def test_ctrl_c_says_what_there_is(tmp_path):
    rows = [{"prompt": f"{i}+1=", "completion": "ones 1+6=7 carry 0", "reward": i % 2} for i in range(400)]
    (tmp_path / "data.jsonl").write_text(lines(*rows, *PAIR))
    command = [
        sys.executable,
        "-m",
        "delta_trl.cli",
        "explain",
        "--model",
        QUICKSTART,
        "--data",
        tmp_path / "data.jsonl",
    ]
    process = subprocess.Popen(
        [*command, "--output", tmp_path / "out", "--batch-size", "1"],
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    seen = ""
    while "scoring" not in seen:  # its progress bar
        part = process.stderr.read(1)
        assert part, seen
        seen += part
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert rest.endswith("delta-trl: interrupted; no report was written.\n")
    assert process.returncode == 130
    assert not (tmp_path / "out").exists()
