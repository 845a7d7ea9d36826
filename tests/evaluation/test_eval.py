"""`delta-trl eval` as a user calls it: samples, files, comparison, mistakes."""

import json
import random
import sys
from collections import Counter
from itertools import product
from math import erf, sqrt
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from delta_trl.cli import main
from delta_trl.evaluation.compare import compare
from delta_trl.evaluation.evaluate import sample_seed
from delta_trl.evaluation.generation import Completion, ModelSource, Sampling, TransformersGenerator, VLLMGenerator
from delta_trl.policy.prompts import prompt_ids

from ..corpus import tiny


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


def results(folder: Path, name: str = "problems") -> dict:
    return json.loads((folder / f"{name}.json").read_text())["results"]


def read_samples(folder: Path, name: str = "problems") -> list[dict]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_an_evaluation(call, data, tmp_path, capsys, caplog):
    assert call() == 0
    samples = read_samples(tmp_path / "eval")
    assert [(row["problem"], row["sample"]) for row in samples] == [(p, s) for p in range(1, 11) for s in range(4)]
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for row in samples:
        assert row["prompt"] == rows[row["problem"] - 1]["prompt"]
        assert row["solution"] == rows[row["problem"] - 1]["solution"]
        assert row["reward"] == by_letters([row["completion"]])[0]
        assert row["length"] == 12 if row["truncated"] else 1 <= row["length"] <= 12
    numbers = results(tmp_path / "eval")
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
    rows = read_samples(tmp_path / "eval")
    assert [row["problem"] for row in rows] == [problem for problem in (1, 2, 3) for _ in range(4)]
    assert {row["number"] for row in rows} == {"own"}
    assert [row["reward"] for row in rows] == by_letters([row["completion"] for row in rows])


def test_the_average_is_that_of_the_problems(call, data, tmp_path, capsys):
    tiny.dataset(3).to_json(tmp_path / "few.jsonl")
    few = f"few[red]:+1:={tmp_path / 'few.jsonl'}"
    assert call("eval", "--benchmarks", str(data), few, reward=None, benchmarks=None) == 0
    printed = capsys.readouterr().out
    many, few = (results(tmp_path / "eval", name) for name in ("problems", "few[red]:+1:"))
    (average,) = [line.split("|")[2:4] for line in printed.splitlines() if line.startswith("| average")]
    assert float(average[0]) == 13
    assert float(average[1]) == pytest.approx((10 * many["avg_at_k"] + 3 * few["avg_at_k"]) / 13, abs=5e-4)


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
    a, b, c = ((tmp_path / folder / "problems.jsonl").read_text() for folder in "abc")
    assert a == b != c


def test_chats(call, data, model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(model)
    assert call(conversational=True, reward=None, num_problems=2) == 0
    first = read_samples(tmp_path / "eval")[0]
    assert [message["role"] for message in first["prompt"]] == ["user"]
    assert isinstance(first["completion"], str)
    # a named benchmark becomes a chat by itself, a file does not
    source = "aime_2025=tests/fixtures/aime_2025.jsonl"
    assert call("named", benchmarks=source, reward=None, num_generations=1) == 0
    assert read_samples(tmp_path / "named", "aime_2025")[0]["prompt"][0]["role"] == "user"


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


# --- what is finished is not done again ---


def test_a_finished_benchmark_is_skipped(call, data, tmp_path, monkeypatch, capsys):
    assert call() == 0
    before = (tmp_path / "eval" / "problems.json").read_bytes()
    tiny.dataset(3).to_json(tmp_path / "few.jsonl")
    assert call("eval", "--benchmarks", str(data), str(tmp_path / "few.jsonl"), benchmarks=None) == 0
    assert results(tmp_path / "eval", "few")["problems"] == 3
    monkeypatch.setattr("delta_trl.evaluation.evaluate.TransformersGenerator", None)
    capsys.readouterr()
    assert call() == 0
    printed = capsys.readouterr().out
    assert "not sampled again: problems" in printed
    assert f"{json.loads(before)['results']['avg_at_k']:.3f}" in printed
    assert (tmp_path / "eval" / "problems.json").read_bytes() == before


def test_a_benchmark_that_was_stopped_is_sampled_from_its_beginning(call, tmp_path, monkeypatch):
    assert call("whole") == 0
    done = []

    def dies(completions, **kwargs):
        done.extend(completions)
        if len(done) > 20:
            raise KeyboardInterrupt
        return by_letters(completions)

    with monkeypatch.context() as patch:
        patch.setattr("tests.evaluation.test_eval.by_letters", dies)
        assert call() == 130
    assert sorted(path.name for path in (tmp_path / "eval").iterdir()) == ["problems.jsonl.part"]
    assert call() == 0
    for name in ("problems.jsonl", "problems.json"):
        assert (tmp_path / "eval" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not list((tmp_path / "eval").glob("*.part"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"temperature": 0.5}, "temperature was 1.0 and is 0.5"),
        ({"num_generations": 2}, "num_generations was 4 and is 2"),
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"num_problems": 3}, "num_problems was 10 and is 3"),
        ({"prompt_template": "{prompt}!"}, "prompt_template was None and is '{prompt}!'"),
    ],
)
def test_other_settings_are_refused(call, tmp_path, capsys, change, message):
    assert call() == 0
    samples = (tmp_path / "eval" / "problems.jsonl").read_bytes()
    assert call(**change) == 2
    assert message in capsys.readouterr().err
    assert (tmp_path / "eval" / "problems.jsonl").read_bytes() == samples


def test_other_problems_under_the_same_path_are_refused(call, data, capsys):
    assert call() == 0
    data.write_text(data.read_text().replace("729", "730"))
    assert call() == 2
    assert "problems was" in capsys.readouterr().err


def test_a_launcher_is_refused(call, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert call() == 2
    assert "launcher" in capsys.readouterr().err


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
    options = {"use_vllm": True, "vllm_kwargs": "{max_model_len: 99}", "dtype": "float32"}
    assert call("a", **options) == 0
    assert call("b", **options, batch_size=16) == 0
    a, b = (read_samples(tmp_path / name) for name in "ab")
    assert a == b
    assert len({row["completion"] for row in a}) > 30
    assert {row["truncated"] for row in a} == {True, False}
    assert all(row["length"] == 12 for row in a if row["truncated"])
    engine = vllm.made[0]
    assert (engine["model"], engine["max_model_len"], engine["dtype"]) == (str(model), 99, "float32")


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
    generator = VLLMGenerator(ModelSource("org/adapter", revision="v2"), Sampling(1.0, 0.7, 8), {})
    assert vllm.made[0]["max_lora_rank"] == 32
    assert generator.lora[2] == str(cache / "snapshots" / ("b" * 40))


def test_without_vllm(call, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "vllm", None)
    assert call(use_vllm=True) == 2
    assert "pip install 'trl[vllm]'" in capsys.readouterr().err


# --- comparison ---


def u_by_hand(a, b):
    """U of the first, and p from the normal approximation with ties and continuity corrected."""
    u = sum((x > y) + 0.5 * (x == y) for x, y in product(a, b))
    n, m = len(a), len(b)
    ties = [[*a, *b].count(value) for value in {*a, *b}]
    variance = n * m / 12 * ((n + m + 1) - sum(t**3 - t for t in ties) / ((n + m) * (n + m - 1)))
    z = (u - n * m / 2 - 0.5) / sqrt(variance)
    return u, 0.5 * (1 - erf(z / sqrt(2)))


def test_compare(call, model, tmp_path, capsys):
    assert call("a", num_generations=16) == 0
    torch.manual_seed(3)
    tiny.model().save_pretrained(model)
    assert call("b", num_generations=16, temperature=0.9, prompt_template="{prompt} ") == 0
    capsys.readouterr()
    assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert "differ in temperature: 1.0 and 0.9" in printed
    assert "differ in prompt_template: None and '{prompt} '" in printed
    assert printed.count("warning") == 2
    compared = compare(tmp_path / "a", tmp_path / "b")
    one = compared["benchmarks"]["problems"]
    assert compared["all"] == one  # of one benchmark
    a, b = (results(tmp_path / name) for name in "ab")
    assert (one["first"], one["second"]) == (a["avg_at_k"], b["avg_at_k"])
    assert one["difference"] == pytest.approx(one["first"] - one["second"])
    u, p = u_by_hand(a["runs"], b["runs"])
    assert (one["u"], one["p_of_u"]) == (u, pytest.approx(p))
    for number in (one["p_of_u"], one["p"]):
        assert f"{number:.4f}" in printed


def write_evaluation(folder: Path, rewards: list[list[float | None]], name: str = "problems", **settings) -> None:
    """A finished benchmark with these rewards, problem by problem."""
    folder.mkdir(exist_ok=True)
    rows = [{"reward": reward, "length": 1, "truncated": False} for row in rewards for reward in row]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = {"num_generations": len(rewards[0]), "temperature": 1.0, "top_p": 1.0, "problems": "h", **settings}
    settings |= {"model_name_or_path": "m", "reward": "math_reward"} | settings
    (folder / f"{name}.json").write_text(json.dumps({"settings": settings, "results": {}}))


def test_all_numbers_are_of_the_problems_that_are_scored_for_both(tmp_path):
    a, b = [[1.0, 0.0]] * 12, [[0.0, 0.0]] * 12
    write_evaluation(tmp_path / "a", [*a, [1.0, 1.0]])
    write_evaluation(tmp_path / "b", [*b, [None, None]])
    one = compare(tmp_path / "a", tmp_path / "b")["all"]
    assert (one["problems"], one["first"], one["second"], one["difference"]) == (12, 0.5, 0.0, 0.5)
    assert one["interval"] == [None, None]  # all problems agree: a width of 0 would promise too much
    assert one["p"] < 0.001


def test_benchmarks_are_paired_by_name(tmp_path, capsys):
    rng = random.Random(0)
    for folder, names in (("a", ("x", "y", "only_a")), ("b", ("y", "x"))):
        for name in names:
            rewards = [[float((i + len(name)) % 3 == 0), float(rng.random() < 0.5)] for i in range(11)]
            write_evaluation(tmp_path / folder, rewards if folder == "a" else [row[:1] for row in rewards], name)
    (tmp_path / "a" / "config.json").write_text("{}")  # no benchmark: it has no samples
    compared = compare(tmp_path / "a", tmp_path / "b")
    assert set(compared["benchmarks"]) == {"x", "y"}
    assert compared["left_out"] == ["only_a"]
    assert compared["all"]["problems"] == 22
    assert compared["all"]["u"] is None  # B has a single run
    assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
    printed = capsys.readouterr().out
    assert "only_a" in printed
    assert "all problems" in printed


def test_mistakes_in_a_comparison(tmp_path, capsys):
    write_evaluation(tmp_path / "a", [[1.0]])
    write_evaluation(tmp_path / "data", [[1.0]], problems="other")
    write_evaluation(tmp_path / "reward", [[1.0]], reward="mine")
    write_evaluation(tmp_path / "other", [[1.0]], "few")
    for second, message in (
        ("nothing", "No benchmark is finished"),
        ("other", "No benchmark is finished"),
        ("data", "problems was 'h' and is 'other'"),
        ("reward", "reward was 'math_reward' and is 'mine'"),
    ):
        assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / second)]) == 2
        assert message in capsys.readouterr().err


def test_without_scipy(tmp_path, monkeypatch, capsys):
    write_evaluation(tmp_path / "a", [[1.0]])
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "a")]) == 2
    assert "pip install scipy" in capsys.readouterr().err


# --- mistakes ---


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_name_or_path": None}, "`model_name_or_path`"),
        ({"benchmarks": None}, "`benchmarks`"),
        ({"output_dir": None}, "`output_dir`"),
        ({"benchmarks": "aime_24"}, "did you mean 'aime_2024'"),
        ({"benchmarks": "gone.jsonl"}, "gone.jsonl"),
        ({"reward": "math_rewrd"}, "did you mean 'math_reward'"),
        ({"reward_kwargs": "{code_reward: {timeout: 1}}"}, "reward_kwargs"),
        ({"num_generations": 0}, "num_generations=0"),
        ({"batch_size": 0}, "batch_size=0"),
        ({"num_problems": 0}, "num_problems=0"),
        ({"temperature": -1}, "temperature=-1"),
        ({"top_p": 0}, "top_p=0"),
        ({"temperature": 0}, "set --num_generations 1"),
        ({"temprature": 1}, "did you mean"),
        ({"conversational": True}, "chat template"),
        ({"prompt_template": "Solve it."}, "{prompt}"),
        ({"model_name_or_path": "tests/fixtures"}, "tests/fixtures"),
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
    assert len(read_samples(tmp_path / "eval")) == 6


def test_unusable_golds_are_counted(call, data, tmp_path):
    rows = [*tiny.dataset(3), {"prompt": "1+1=", "solution": ""}]
    Dataset.from_list(rows).to_json(data)
    assert call(reward=None) == 0
    numbers = results(tmp_path / "eval")
    assert (numbers["problems"], numbers["left_out"]) == (3, 1)
