"""`delta-trl eval` as a user calls it: samples, resuming, several processes, comparison, mistakes."""

import json
import linecache
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import psutil
import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from delta_trl.cli import main
from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.evaluation.compare import compare
from delta_trl.evaluation.evaluate import Evaluation, fingerprint, sample_seed
from delta_trl.evaluation.generation import Completion, ModelSource, Sampling, TransformersGenerator, VLLMGenerator
from delta_trl.evaluation.store import Store, read_samples
from delta_trl.policy.prompts import prompt_ids

from ..corpus import tiny


QUICKSTART = ["--model_name_or_path", "recipes/quickstart/model", "--benchmarks", "recipes/quickstart/test.jsonl"]
CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}={% endif %}"


def by_letters(completions, **kwargs):
    """A reward that also cannot score some completions."""
    rewards = tiny.reward_letters(completions)
    return [None if len(text) == 3 else reward for text, reward in zip(completions, rewards, strict=True)]


@pytest.fixture
def model(tmp_path):
    """A folder with a tiny model, which ends its completions now and then."""
    torch.manual_seed(0)
    tiny.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def data(tmp_path):
    tiny.dataset(10).to_json(tmp_path / "problems.jsonl")
    return tmp_path / "problems.jsonl"


@pytest.fixture
def call(model, data, tmp_path):
    """Evaluate the tiny model: the output directory and the options that are set."""

    def evaluate(folder="eval", *options, **changes):
        values = {
            "model_name_or_path": model,
            "benchmarks": data,
            "output_dir": tmp_path / folder,
            "reward": "tests.evaluation.test_eval.by_letters",
            "num_generations": 4,
            "max_completion_length": 12,
            "top_p": 1.0,
            "batch_size": 6,
            "use_cpu": True,
            **changes,
        }
        flags = [part for key, value in values.items() if value is not None for part in (f"--{key}", str(value))]
        return main(["eval", *flags, *options])

    return evaluate


def results(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def test_an_evaluation(call, data, tmp_path, capsys, caplog):
    assert call() == 0
    samples = list(read_samples(tmp_path / "eval"))
    assert [(row["problem"], row["sample"]) for row in samples] == [(p, s) for p in range(1, 11) for s in range(4)]
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for row in samples:
        assert row["prompt"] == rows[row["problem"] - 1]["prompt"]
        assert row["solution"] == rows[row["problem"] - 1]["solution"]
        assert row["reward"] == by_letters([row["completion"]])[0]
        assert row["length"] == 12 if row["truncated"] else 1 <= row["length"] <= 12
    numbers = results(tmp_path / "eval")["benchmarks"]["problems"]
    rewards = [row["reward"] for row in samples]
    groups = [[r for r in rewards[i : i + 4] if r is not None] for i in range(0, 40, 4)]
    assert numbers["avg_at_k"] == pytest.approx(sum(sum(g) / len(g) for g in groups if g) / sum(map(bool, groups)))
    assert numbers["unscored"] == rewards.count(None) > 0
    assert numbers["truncated"] == sum(row["truncated"] for row in samples) / 40
    assert 0 < numbers["truncated"] < 1
    assert numbers["mean_length"] == sum(row["length"] for row in samples) / 40
    assert numbers["problems"] == 10
    assert len(numbers["runs"]) == 4
    low, high = numbers["interval"]
    assert low < numbers["avg_at_k"] < high
    assert set(numbers["pass_at_k"]) == {"1", "2", "4"}
    printed = capsys.readouterr().out
    assert f"{numbers['avg_at_k']:.3f}" in printed
    assert "sampled at temperature 1, top-p 1, k = 4" in " ".join(printed.split())
    assert f"{numbers['unscored']} of 40 samples could not be scored" in caplog.text


def test_a_file_s_columns_may_have_any_name(call, data, tmp_path):
    ours = ("completion", "completions", "completion_ids", "log_extra", "prompts", "reward", "trainer_state")
    names = ("number", "problem", "sample", *ours)
    Dataset.from_list([dict(row) | dict.fromkeys(names, "own") for row in tiny.dataset(3)]).to_json(data)
    assert call() == 0
    rows = list(read_samples(tmp_path / "eval"))
    assert [row["problem"] for row in rows] == [problem for problem in (1, 2, 3) for _ in range(4)]
    assert {row["number"] for row in rows} == {"own"}
    assert [row["reward"] for row in rows] == by_letters([row["completion"] for row in rows])


def test_the_average_is_that_of_the_problems(call, data, tmp_path, capsys):
    tiny.dataset(3).to_json(tmp_path / "few.jsonl")
    few = f"few[red]:+1:={tmp_path / 'few.jsonl'}"
    assert call("eval", "--benchmarks", str(data), few, reward=None, benchmarks=None) == 0
    assert "few[red]:+1:" in capsys.readouterr().out  # as it was written
    both = results(tmp_path / "eval")
    many, few = (both["benchmarks"][name] for name in ("problems", "few[red]:+1:"))
    for key in ("avg_at_k", "truncated", "mean_length"):
        assert both["average"][key] == pytest.approx((10 * many[key] + 3 * few[key]) / 13)
    assert both["average"]["problems"] == 13


# --- sampling ---


def test_prompts_are_those_of_training(make_trainer):
    trainer = make_trainer(chat_template_kwargs={"enable_thinking": False})
    tokenizer = trainer.processing_class
    texts = ["1+1=", "abc", "12+12="]
    chats = [[{"role": "user", "content": text}] for text in texts]
    tokenizer.chat_template = CHAT + "{% if enable_thinking is defined %}0{% endif %}"
    for prompts in (texts, chats):
        expected = trainer._tokenize_prompts(prompts)[0]
        assert prompt_ids(tokenizer, prompts, {"enable_thinking": False}) == expected
    assert len(set(map(tuple, expected))) == 3


def generator(folder, **sampling) -> TransformersGenerator:
    defaults = {"temperature": 1.0, "top_p": 1.0, "max_completion_length": 6}
    return TransformersGenerator(ModelSource(str(folder)), Sampling(**defaults | sampling), torch.device("cpu"))


def test_a_model_with_missing_weights_is_refused(model, call, capsys):
    file = model / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if "mlp" in name)
    del weights[name]
    save_file(weights, file, {"format": "pt"})
    assert call() == 2
    assert name in capsys.readouterr().err


def test_greedy_decoding_of_a_padded_batch_is_that_of_each_prompt_alone(model):
    prompts = [[2, 3, 4], [5], [6, 7, 8, 9, 10, 11, 12]]
    batch = generator(model, temperature=0.0)(prompts, [1, 2, 3])
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.pad_token = None  # as base models' tokenizers: what a batch is padded with means nothing
    tokenizer.save_pretrained(model)
    assert generator(model, temperature=0.0)(prompts, [1, 2, 3]) == batch
    net = AutoModelForCausalLM.from_pretrained(model)
    for prompt, completion in zip(prompts, batch, strict=True):
        ids = list(prompt)
        while len(ids) < len(prompt) + 6 and (len(ids) == len(prompt) or ids[-1] != 1):
            ids.append(net(torch.tensor([ids])).logits[0, -1].argmax().item())
        assert completion == Completion(ids[len(prompt) :], truncated=ids[-1] != 1)


def test_sampling_has_the_asked_distribution(model):
    net = AutoModelForCausalLM.from_pretrained(model)
    probabilities = (net(torch.tensor([[2, 3]])).logits[0, -1] / 0.5).softmax(-1)
    order = probabilities.argsort(descending=True)
    nucleus = int((probabilities[order].cumsum(0) < 0.3).sum()) + 1  # the fewest tokens that reach 0.3
    kept = order[:nucleus].tolist()
    sample = generator(model, temperature=0.5, top_p=0.3, max_completion_length=1)
    counts = Counter(one.ids[0] for one in sample([[2, 3]] * 4000, range(4000)))
    assert set(counts) == set(kept)
    for token in kept:
        expected = (probabilities[token] / probabilities[kept].sum()).item()
        assert counts[token] / 4000 == pytest.approx(expected, abs=5 * (expected / 4000) ** 0.5)


def test_what_memory_cannot_hold_is_sampled_in_parts(model, caplog):
    """An allocation that fails by size, as on a GPU, is simulated."""
    small = generator(model)
    prompts, seeds = [[2, 3], [4], [5, 6, 7], [8], [9]], [1, 2, 3, 4, 5]
    expected = [*small(prompts[:2], seeds[:2]), *small(prompts[2:3], seeds[2:3]), *small(prompts[3:], seeds[3:])]
    generate, room = small.model.generate, 2

    def limited(input_ids, **kwargs):
        if len(input_ids) > room:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        return generate(input_ids=input_ids, **kwargs)

    small.model.generate = limited
    assert small(prompts, seeds) == expected
    assert "5 completions are sampled in two halves" in caplog.text
    room = 0
    with pytest.raises(torch.OutOfMemoryError):
        small(prompts, seeds)


def test_the_model_s_own_sampling_defaults_do_not_count(model):
    plain = generator(model)([[2, 3]] * 4, [5] * 4)
    config = GenerationConfig(do_sample=True, temperature=0.1, top_k=1, top_p=0.1, repetition_penalty=5.0, min_p=0.9)
    config.save_pretrained(model)
    assert generator(model)([[2, 3]] * 4, [5] * 4) == plain
    assert len({tuple(one.ids) for one in plain}) > 1


def test_every_declared_end_token_ends(model):
    GenerationConfig(eos_token_id=[7, 8]).save_pretrained(model)
    completions = generator(model, max_completion_length=60)([[2, 3]] * 16, [0] * 16)
    for one in completions:
        ends = [token in (1, 7, 8) for token in one.ids]
        assert one.truncated == (not any(ends))
        assert not any(ends[:-1])
    assert {one.ids[-1] for one in completions if not one.truncated} == {1, 7, 8}


def test_seeds():
    seeds = {sample_seed(s, b, p, j) for s in (0, 1) for b in ("a", "b") for p in range(20) for j in range(20)}
    assert len(seeds) == 1600
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert sample_seed(0, "aime_2025", 1, 0) == 2289180904206431535  # pinned: another seed, other samples


def test_the_seed_changes_the_samples(call, tmp_path):
    for folder, options in [("a", {}), ("b", {}), ("c", {"seed": 1})]:
        assert call(folder, **options) == 0
    a, b, c = ((tmp_path / folder / "samples.jsonl").read_text() for folder in "abc")
    assert a == b != c


def test_chats(call, data, model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(model)
    assert call(conversational=True, system_prompt="add", reward=None, num_problems=2) == 0
    first = next(read_samples(tmp_path / "eval"))
    assert [message["role"] for message in first["prompt"]] == ["system", "user"]
    assert isinstance(first["completion"], str)
    # a named benchmark becomes a chat by itself, a file does not
    source = "aime_2025=tests/fixtures/aime_2025.jsonl"
    assert call("named", benchmarks=source, reward=None, num_generations=1) == 0
    assert next(read_samples(tmp_path / "named"))["prompt"][0]["role"] == "user"


def test_an_adapter(call, model, tmp_path):
    torch.manual_seed(1)
    net = get_peft_model(AutoModelForCausalLM.from_pretrained(model), LoraConfig(r=2, target_modules=["q_proj"]))
    for name, parameter in net.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    net.save_pretrained(tmp_path / "adapter")
    net.merge_and_unload().save_pretrained(tmp_path / "merged")
    tiny.tokenizer().save_pretrained(tmp_path / "merged")
    for name in ("adapter", "merged"):
        assert call(name + "-eval", model_name_or_path=tmp_path / name, temperature=0, num_generations=1) == 0
    assert call("base-eval", temperature=0, num_generations=1) == 0
    adapter, merged, base = (
        [row["completion"] for row in read_samples(tmp_path / f"{name}-eval")]
        for name in ("adapter", "merged", "base")
    )
    assert adapter == merged != base


def test_an_adapter_without_peft(call, model, monkeypatch, capsys):
    (model / "adapter_config.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "peft", None)
    assert call() == 2
    assert "pip install peft" in capsys.readouterr().err


# --- resuming ---


def interrupt(folder: Path, rng: random.Random) -> None:
    """Leave what an evaluation looks like that was killed at some point: chunks in parts, one of them cut off."""
    lines = (folder / "samples.jsonl").read_bytes().splitlines(keepends=True)
    chunks: dict[int, list[bytes]] = {}
    for line in lines:
        chunks.setdefault(json.loads(line)["chunk"], []).append(line)
    (folder / "results.json").unlink()
    merged, *parts, lost = [], [], [], []
    for group in chunks.values():
        rng.choice([merged, *parts, lost]).append(b"".join(group))
    (folder / "samples.jsonl").write_bytes(b"".join(merged))
    for process, part in enumerate(parts):
        text = b"".join(part)
        (folder / f"samples-{process}.part").write_bytes(text[: rng.randrange(len(text) + 1)])


@pytest.mark.parametrize("seed", range(3))
def test_an_interrupted_evaluation_ends_the_same(call, tmp_path, seed):
    assert call() == 0
    folder = tmp_path / "eval"
    before = {name: (folder / name).read_bytes() for name in ("samples.jsonl", "results.json")}
    interrupt(folder, random.Random(seed))
    assert call() == 0
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert not list(folder.glob("*.part"))


def test_a_chunk_counts_when_all_of_it_is_there(tmp_path):
    store = Store(tmp_path, {("a", 0): 2, ("a", 1): 1})
    store.write(0, [{"benchmark": "a", "chunk": 1, "text": "x\u2028é\r\n"}])
    store.write(1, [{"benchmark": "a", "chunk": 0, "text": str(i)} for i in range(2)])
    part = tmp_path / "samples-1.part"
    whole = part.read_bytes()
    for end in range(len(whole)):
        part.write_bytes(whole[:end])
        assert store.merge() == {("a", 1)}
        assert not part.exists()
    part.write_bytes(whole)
    assert store.merge() == {("a", 0), ("a", 1)}
    # killed after samples.jsonl was replaced and before the part was removed
    part.write_bytes(whole)
    assert store.merge() == {("a", 0), ("a", 1)}
    assert [row["text"] for row in read_samples(tmp_path)] == ["0", "1", "x\u2028é\r\n"]


def test_missing_samples_are_not_summarised(call, tmp_path, monkeypatch, capsys):
    assert call() == 0
    samples = tmp_path / "eval" / "samples.jsonl"
    whole = samples.read_text()
    samples.write_text(whole[: whole.rindex("\n", 0, -1) + 1])
    assert main(["eval", "--compare", str(samples.parent), str(samples.parent)]) == 2
    assert "has 39 of 40 samples of problems" in capsys.readouterr().err
    with monkeypatch.context() as patch:
        write = Store.write
        patch.setattr(Store, "write", lambda *args: (write(*args), write(*args)))  # two processes, the same chunk
        assert call() == 2
    assert "1 of 7 chunks in" in capsys.readouterr().err
    assert call() == 0
    assert samples.read_text() == whole


def test_a_finished_evaluation_does_not_load_the_model_again(call, model, tmp_path, monkeypatch):
    assert call() == 0
    before = (tmp_path / "eval" / "results.json").read_bytes()
    monkeypatch.setattr("delta_trl.evaluation.evaluate.TransformersGenerator", None)
    assert call() == 0
    assert (tmp_path / "eval" / "results.json").read_bytes() == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.5}, "temperature was 1.0 and is 0.5"),
        ({"num_generations": 2}, "num_generations was 4 and is 2"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"num_problems": 3}, "benchmarks.problems.num_problems was 10 and is 3"),
        ({"prompt_template": "{prompt}!"}, "benchmarks.problems.template was None and is '{prompt}!'"),
    ],
)
def test_other_settings_are_refused(call, tmp_path, capsys, change, message):
    assert call() == 0
    samples = (tmp_path / "eval" / "samples.jsonl").read_bytes()
    assert call(**change) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "choose another --output_dir" in error
    assert (tmp_path / "eval" / "samples.jsonl").read_bytes() == samples


def test_another_model_or_other_problems_under_the_same_path_are_refused(call, data, model, capsys):
    assert call() == 0
    text = data.read_text()
    data.write_text(text.replace("729", "730"))
    assert call() == 2
    assert "problems_fingerprint was" in capsys.readouterr().err
    data.write_text(text)
    (model / "chat_template.jinja").write_text(CHAT)
    assert call() == 2
    assert "model_fingerprint was" in capsys.readouterr().err
    (model / "chat_template.jinja").unlink()
    assert call() == 0
    tiny.model().save_pretrained(model)
    assert call() == 2
    assert "model_fingerprint was" in capsys.readouterr().err


def test_a_damaged_line_is_sampled_again(call, tmp_path):
    assert call() == 0
    samples = tmp_path / "eval" / "samples.jsonl"
    before = samples.read_bytes()
    lines = before.splitlines(keepends=True)
    samples.write_bytes(b"".join([lines[0], b"\0" * 80 + b"\n", *lines[2:]]))
    assert call() == 0
    assert samples.read_bytes() == before


def test_fingerprint_of_a_hub_model_is_its_commit(tmp_path, monkeypatch):
    folder = tmp_path / "models--org--name"
    (folder / "snapshots" / ("c" * 40)).mkdir(parents=True)
    (folder / "snapshots" / ("c" * 40) / "config.json").write_text("{}")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("c" * 40)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert fingerprint(ModelSource("org/name")) == "c" * 40


def test_fingerprint_sees_changes_in_the_middle_of_a_file(tmp_path):
    weights = np.zeros(4 << 20, np.uint8)
    found = set()
    for changed in (slice(0), slice(2 << 20, 2 << 20 | 1 << 16), slice(-(1 << 16), None)):
        weights[changed] += 1
        (tmp_path / "model.safetensors").write_bytes(weights.tobytes())
        found.add(fingerprint(ModelSource(str(tmp_path))))
    assert len(found) == 3


def test_a_reward_that_was_edited_is_refused(call, tmp_path, monkeypatch, capsys):
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / "edited_reward.py"
    path.write_text("def mine(completions, **kwargs):\n    return [1.0] * len(completions)\n")
    assert call(reward="edited_reward.mine") == 0
    path.write_text(path.read_text().replace("1.0", "0.0"))
    linecache.checkcache()
    assert call(reward="edited_reward.mine") == 2
    assert "reward_fingerprint was" in capsys.readouterr().err


# --- processes ---

SMALL = ["--num_problems", "8", "--num_generations", "4", "--max_completion_length", "56", "--batch_size", "4"]


def launch(folder, *options, processes=1):
    command = [sys.executable]
    if processes > 1:
        config = ["--config_file", "accelerate_configs/cpu_ddp.yaml", "--num_processes", str(processes)]
        command += ["-m", "accelerate.commands.launch", *config, "--main_process_port", "0"]
    command += ["-m", "delta_trl.cli", "eval", *QUICKSTART, "--output_dir", str(folder)]
    if processes == 1:  # else the config says so
        command += ["--use_cpu", "true"]
    environment = {**os.environ, "PYTHONPATH": os.getcwd()}
    return subprocess.Popen(
        [*command, *options],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process):
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0, output[-3000:]
    return output


def kill_after(folder, process, chunks):
    """kill -9 for all of its processes, once so many chunks are there."""
    deadline = time.time() + 300
    while len({json.loads(line)["chunk"] for line in lines_so_far(folder)}) < chunks:
        assert time.time() < deadline, "too few chunks within five minutes"
        assert process.poll() is None, process.stdout.read()
        time.sleep(0.01)
    # a launcher's workers have sessions of their own
    for one in [*psutil.Process(process.pid).children(recursive=True), process]:
        one.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL


def lines_so_far(folder):
    return [
        line
        for path in [*folder.glob("samples-*.part"), *folder.glob("samples.jsonl")]
        for line in path.read_bytes().splitlines(keepends=True)
        if line.endswith(b"\n")
    ]


def files(folder):
    return {name: (folder / name).read_text() for name in ("samples.jsonl", "results.json", "settings.json")}


@pytest.mark.processes
def test_kill_9_and_two_processes(tmp_path):
    """Killed with one process and gone on with on two processes: the same as one that was left alone."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    process = launch(killed, *SMALL)
    kill_after(killed, process, 2)
    done = len(lines_so_far(killed))
    assert done < 32
    output = finish(launch(killed, *SMALL, processes=2))
    assert "Sampling" in output
    assert main(["eval", *QUICKSTART, *SMALL, "--use_cpu", "true", "--output_dir", str(whole)]) == 0
    assert files(killed) == files(whole)
    assert 0 < results(whole)["average"]["avg_at_k"] < 1


@pytest.mark.slow
def test_kill_9_in_256_problems_of_16_samples(tmp_path):
    """Killed three times, at other chunks and once on two processes."""
    options = ["--num_problems", "256", "--max_completion_length", "56", "--batch_size", "128"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    start = time.time()
    finish(launch(whole, *options))
    print(f"\nuninterrupted: {time.time() - start:.0f} s")
    for chunks, processes in ((3, 1), (11, 2), (23, 1)):
        kill_after(killed, launch(killed, *options, processes=processes), chunks)
        assert chunks * 128 <= len(lines_so_far(killed)) < 4096
        print(f"killed with {len(lines_so_far(killed))} of 4096 samples")
    finish(launch(killed, *options))
    assert files(killed) == files(whole)
    numbers = results(whole)["average"]
    assert len(list(read_samples(whole))) == 4096
    print({key: numbers[key] for key in ("avg_at_k", "interval", "pass_at_k", "truncated", "mean_length")})


# --- vLLM ---


class StandIn:
    """What the evaluation asks of vLLM's engine: completions that depend on the prompt and the seed alone."""

    made: list  # options of the engines

    def __init__(self, **options):
        StandIn.made.append(options)

    def generate(self, prompts, sampling_params, lora_request, use_tqdm):
        self.made[-1]["lora_request"] = lora_request
        outputs = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            rng = random.Random(f"{prompt['prompt_token_ids']} {params.seed} {params.temperature} {params.top_p}")
            ids = [rng.randrange(2, 40) for _ in range(rng.randrange(1, params.max_tokens + 3))]
            ids = [*ids, params.stop_token_ids[0]] if len(ids) < params.max_tokens else ids[: params.max_tokens]
            reason = "stop" if ids[-1] in params.stop_token_ids else "length"
            outputs.append(SimpleNamespace(outputs=[SimpleNamespace(token_ids=tuple(ids), finish_reason=reason)]))
        return outputs


@pytest.fixture
def vllm(monkeypatch):
    StandIn.made = []
    package, lora, request = ModuleType("vllm"), ModuleType("vllm.lora"), ModuleType("vllm.lora.request")
    package.LLM, package.SamplingParams = StandIn, SimpleNamespace
    request.LoRARequest = lambda *args: args
    for module in (package, lora, request):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return StandIn


def test_vllm(call, vllm, model, tmp_path):
    """Every sample has its own seed, so that not even the size of the batches matters."""
    options = {"use_vllm": True, "vllm_max_model_length": 99, "dtype": "float32"}
    assert call("a", **options) == 0
    assert call("b", **options, batch_size=16) == 0
    a, b = (
        [{key: row[key] for key in row if key != "chunk"} for row in read_samples(tmp_path / name)] for name in "ab"
    )
    assert a == b
    assert results(tmp_path / "a")["settings"]["vllm_max_model_length"] == 99
    assert len({row["completion"] for row in a}) > 30
    assert {row["truncated"] for row in a} == {True, False}
    assert all(row["length"] == 12 for row in a if row["truncated"])
    engine = vllm.made[0]
    assert (engine["model"], engine["max_model_len"], engine["dtype"]) == (str(model), 99, "float32")
    assert "distributed_executor_backend" not in engine


def test_vllm_with_an_adapter(call, vllm, model, tmp_path):
    net = get_peft_model(AutoModelForCausalLM.from_pretrained(model), LoraConfig(r=32, target_modules=["q_proj"]))
    net.save_pretrained(tmp_path / "adapter")
    assert call(use_vllm=True, model_name_or_path=tmp_path / "adapter") == 0
    (engine,) = vllm.made
    assert (engine["model"], engine["enable_lora"], engine["max_lora_rank"]) == (str(model), True, 32)
    assert engine["lora_request"][2] == str(tmp_path / "adapter")


def test_vllm_with_a_revision_of_an_adapter(vllm, model, tmp_path, monkeypatch):
    cache = tmp_path / "hub" / "models--org--adapter"
    for commit, rank in (("a" * 40, 4), ("b" * 40, 32)):
        config = LoraConfig(r=rank, target_modules=["q_proj"], base_model_name_or_path=str(model))
        config.save_pretrained(cache / "snapshots" / commit)
        tiny.tokenizer().save_pretrained(cache / "snapshots" / commit)
    (cache / "refs").mkdir()
    for name, commit in (("main", "a" * 40), ("v2", "b" * 40)):
        (cache / "refs" / name).write_text(commit)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("transformers.utils.hub.TRANSFORMERS_CACHE", str(tmp_path / "hub"), raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    generator = VLLMGenerator(ModelSource("org/adapter", revision="v2"), Sampling(1.0, 0.7, 8), num_processes=1)
    assert vllm.made[0]["max_lora_rank"] == 32
    assert generator.lora[2] == str(cache / "snapshots" / ("b" * 40))


def test_vllm_on_several_processes(vllm, model):
    arguments = ModelSource(str(model)), Sampling(1.0, 0.7, 8)
    VLLMGenerator(*arguments, num_processes=2)
    assert vllm.made[0]["distributed_executor_backend"] == "external_launcher"
    with pytest.raises(ValueError, match="start one process"):
        VLLMGenerator(*arguments, num_processes=2, tensor_parallel_size=2)


def test_every_process_starts_its_vllm_engine(vllm, model, data, tmp_path):
    """Also the second of two where one chunk is left: the engines wait for each other."""
    args = EvalArguments(
        model_name_or_path=str(model), benchmarks=[str(data)], output_dir=str(tmp_path / "eval"),
        use_vllm=True, num_generations=1,
    )  # fmt: skip
    processes = {"is_main_process": True, "process_index": 1, "num_processes": 2}
    state = SimpleNamespace(**processes, main_process_first=nullcontext, wait_for_everyone=lambda: None)
    evaluation = Evaluation(args, state)
    with pytest.raises(ValueError, match="1 of 1 chunks"):
        evaluation.run()
    assert len(vllm.made) == 1


def test_without_vllm(call, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert call(use_vllm=True) == 2
    assert "pip install 'trl[vllm]'" in capsys.readouterr().err


# --- comparison ---


def test_compare(call, model, tmp_path, capsys):
    assert call("a") == 0
    torch.manual_seed(3)
    tiny.model().save_pretrained(model)
    assert call("b", temperature=0.9, prompt_template="{prompt} ") == 0
    capsys.readouterr()
    output = tmp_path / "comparison.json"
    command = ["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "b")]
    assert main([*command, "--output_file", str(output)]) == 0
    printed = capsys.readouterr().out
    for temperature in ("1", "0.9"):
        assert f"sampled at temperature {temperature}, top-p 1" in " ".join(printed.split())
    assert "warning: the evaluations differ in temperature: 1.0 and 0.9" in printed
    assert "warning: the evaluations differ in problems.template: None and '{prompt} '" in printed
    assert printed.count("warning") == 2
    comparison = json.loads(output.read_text())
    one = comparison["benchmarks"]["problems"]
    assert comparison["all"] == one  # of one benchmark
    both = [results(tmp_path / name)["benchmarks"]["problems"] for name in "ab"]
    runs = [numbers["runs"] for numbers in both]
    assert [one["first"], one["second"]] == [numbers["avg_at_k"] for numbers in both]
    assert one["paired_bootstrap"]["difference"] == pytest.approx(one["first"] - one["second"])
    assert one["mann_whitney"]["u"] == sum((x > y) + 0.5 * (x == y) for x in runs[0] for y in runs[1])
    assert f"{one['mann_whitney']['p']:.4f}" in printed
    assert f"{one['paired_bootstrap']['p']:.4f}" in printed


def test_compare_pairs_benchmarks_by_name(call, data, tmp_path, capsys):
    tiny.dataset(3).to_json(tmp_path / "few.jsonl")
    for folder, benchmarks in (("a", [data, tmp_path / "few.jsonl"]), ("b", [tmp_path / "few.jsonl", data])):
        assert call(folder, "--benchmarks", *map(str, benchmarks), benchmarks=None) == 0
    compared = compare(tmp_path / "a", tmp_path / "b")
    assert compared["all"]["problems"] == 13
    assert compared["all"]["paired_bootstrap"]["difference"] == 0  # the same samples


def test_compare_single_runs(call, tmp_path, capsys):
    assert call("a", num_generations=1) == 0
    assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 0
    assert "k = 1: no runs" in capsys.readouterr().out


def test_mistakes_in_a_comparison(call, data, tmp_path, capsys):
    assert call("a") == 0
    assert call("fewer", num_problems=3) == 0
    tiny.dataset(3).to_json(tmp_path / "few.jsonl")
    assert call("reward", reward="math_reward") == 0
    assert call("other", benchmarks=tmp_path / "few.jsonl") == 0
    (tmp_path / "half").mkdir()
    for second, message in [
        ("nothing", "is not a finished evaluation: it has no settings.json"),
        ("half", "is not a finished evaluation"),
        ("fewer", "on different problems of problems"),
        ("reward", "different rewards, tests.evaluation.test_eval.by_letters and math_reward"),
        ("other", "on different benchmarks"),
    ]:
        assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / second)]) == 2
        assert message in capsys.readouterr().err


# --- mistakes ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_name_or_path": None}, "`model_name_or_path` is missing"),
        ({"benchmarks": None}, "`benchmarks` is missing"),
        ({"output_dir": None}, "`output_dir` is missing"),
        ({"benchmarks": "aime_24"}, "did you mean 'aime_2024'"),
        ({"benchmarks": "gone.jsonl"}, "gone.jsonl"),
        ({"benchmarks": "gsm8k=tests/fixtures/deepmath.jsonl", "reward": None}, "dataset_format='gsm8k'"),
        ({"benchmarks": "gsm8k=tests/fixtures/gsm8k.jsonl"}, "`reward` is for files"),
        ({"column_mapping": "{solution: answer}", "reward": None}, "'solution'"),
        ({"reward": "math_rewrd"}, "did you mean 'math_reward'"),
        ({"reward_kwargs": "{code_reward: {timeout: 1}}"}, "reward_kwargs names ['code_reward']"),
        ({"num_generations": 0}, "num_generations=0: expected a positive number"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"num_problems": 0}, "num_problems=0"),
        ({"top_p": 0}, "top_p=0"),
        ({"top_p": 1.5}, "top_p=1.5"),
        ({"temperature": -1}, "temperature=-1"),
        ({"temperature": 0}, "set --num_generations 1"),
        ({"temprature": 1}, "did you mean 'temperature'"),
        ({"conversational": True}, "chat template"),
        ({"prompt_template": "Solve it."}, "{prompt}"),
        ({"model_name_or_path": "tests/fixtures"}, "The model 'tests/fixtures': no tokenizer"),
        ({"dataset_format": "gsm8k", "column_mapping": "{a: b}"}, "either `dataset_format` or `column_mapping`"),
    ],
    ids=str,
)
def test_mistakes_are_one_line(call, capsys, changes, message):
    assert call(**changes) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error


def test_a_model_without_weights(call, model, capsys):
    (model / "model.safetensors").unlink()
    assert call() == 2
    assert "model.safetensors" in capsys.readouterr().err


def test_a_folder_is_no_recipe(call, tmp_path, capsys):
    assert call("eval", "--config", str(tmp_path)) == 2
    assert f"Is a directory: '{tmp_path}'" in capsys.readouterr().err


def test_options_from_a_file(call, tmp_path):
    (tmp_path / "eval.yaml").write_text("num_problems: 2\nnum_generations: 2\nreward_kwargs: {}\n")
    assert call("eval", "--config", str(tmp_path / "eval.yaml"), num_generations=3) == 0
    assert len(list(read_samples(tmp_path / "eval"))) == 6


def test_unusable_golds_are_counted(call, data, tmp_path):
    rows = [*tiny.dataset(3), {"prompt": "1+1=", "solution": ""}]
    Dataset.from_list(rows).to_json(data)
    assert call(reward=None) == 0
    numbers = results(tmp_path / "eval")["benchmarks"]["problems"]
    assert (numbers["problems"], numbers["left_out"]) == (3, 1)
