"""`delta-trl eval` as a user calls it: samples, files, comparison, mistakes."""

import json
import random
import re
import shutil
import sys
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import decoders
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from delta_trl import DeltaGRPOConfig
from delta_trl.audit.audit import AuditArguments
from delta_trl.cli import main
from delta_trl.commands.explain import ExplainArguments
from delta_trl.commands.recipe import RunArguments
from delta_trl.evaluation import results as results_module
from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.evaluation.generation import Completion, TransformersGenerator, VLLMGenerator
from delta_trl.scoring.prompts import prompt_ids

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


@pytest.fixture
def both(data, tmp_path):
    """Options of an evaluation on that file and on another one."""
    tiny.dataset(3).to_json(tmp_path / "few.jsonl")
    return "eval", "--benchmarks", str(data), str(tmp_path / "few.jsonl")


def results(folder: Path, name: str = "problems") -> dict:
    return json.loads((folder / f"{name}.json").read_text())["results"]


def read_samples(folder: Path, name: str = "problems") -> list[dict]:
    return [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]


def test_an_evaluation(call, both, data, tmp_path, capsys):
    assert call(*both, benchmarks=None) == 0
    samples = read_samples(tmp_path / "eval")
    assert [(row["problem"], row["sample"]) for row in samples] == [(p, s) for p in range(1, 11) for s in range(4)]
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    for row in samples:
        assert row["prompt"] == rows[row["problem"] - 1]["prompt"]
        assert row["reward"] == by_letters([row["completion"]])[0]
        assert row["length"] == 12 if row["truncated"] else 1 <= row["length"] <= 12
    numbers = results(tmp_path / "eval")
    rewards = [row["reward"] for row in samples]
    groups = [[r for r in rewards[i : i + 4] if r is not None] for i in range(0, 40, 4)]
    assert numbers["avg_at_k"] == pytest.approx(sum(sum(g) / len(g) for g in groups if g) / sum(map(bool, groups)))
    assert numbers["unscored"] == rewards.count(None) > 0
    assert 0 < numbers["truncated"] == sum(row["truncated"] for row in samples) / 40 < 1
    assert numbers["mean_length"] == sum(row["length"] for row in samples) / 40
    low, high = numbers["interval"]
    assert low < numbers["avg_at_k"] < high
    assert set(numbers["pass_at_k"]) == {"1", "2", "4"}
    printed = capsys.readouterr().out
    assert f"{numbers['avg_at_k']:.3f}" in printed
    few = results(tmp_path / "eval", "few")["avg_at_k"]
    (average,) = [line.split("|")[2:4] for line in printed.splitlines() if line.startswith("| average")]
    assert float(average[0]) == 13  # of all problems
    assert float(average[1]) == pytest.approx((10 * numbers["avg_at_k"] + 3 * few) / 13, abs=5e-4)


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


def generator(folder, kind=TransformersGenerator, **options) -> TransformersGenerator | VLLMGenerator:
    sampling = {"top_p": 1.0, "max_completion_length": 6, "use_cpu": True, **options}
    return kind(EvalArguments(model_name_or_path=str(folder), benchmarks=[], output_dir="", **sampling))


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


def test_the_nucleus_that_is_asked_for_is_sampled_from(model):
    net = AutoModelForCausalLM.from_pretrained(model)
    probabilities, order = (net(torch.tensor([[2, 3]])).logits[0, -1] / 0.5).softmax(-1).sort(descending=True)
    nucleus = order[: int((probabilities.cumsum(0) < 0.3).sum()) + 1]  # the fewest tokens that reach 0.3
    sample = generator(model, temperature=0.5, top_p=0.3, max_completion_length=1)
    assert {one.ids[0] for one in sample([[2, 3]] * 4000, range(4000))} == set(nucleus.tolist())
    assert sample.model.generation_config.top_k == 0  # by default 50, more than this vocabulary has


def test_the_model_s_own_sampling_defaults_do_not_count(model):
    plain = generator(model)([[2, 3]] * 4, [5] * 4)
    GenerationConfig(do_sample=True, temperature=0.1, top_k=1, repetition_penalty=5.0).save_pretrained(model)
    assert generator(model)([[2, 3]] * 4, [5] * 4) == plain


def test_every_declared_end_token_ends(model):
    GenerationConfig(eos_token_id=[7, 8]).save_pretrained(model)
    completions = generator(model, max_completion_length=60)([[2, 3]] * 16, [0] * 16)
    for one in completions:
        ends = [token in (1, 7, 8) for token in one.ids]
        assert one.truncated == (not any(ends))
        assert not any(ends[:-1])
    assert {one.ids[-1] for one in completions if not one.truncated} == {1, 7, 8}


def test_chats(call, data, model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(model)
    # a named benchmark becomes a chat by itself, a file does not
    named = {"benchmarks": "aime_2025=tests/fixtures/aime_2025.jsonl", "num_generations": 1}
    for changes, name in (({"conversational": True, "num_problems": 2}, "problems"), (named, "aime_2025")):
        assert call(name, reward=None, **changes) == 0
        first = read_samples(tmp_path / name, name)[0]
        assert [message["role"] for message in first["prompt"]] == ["user"]
        assert isinstance(first["completion"], str)


def test_a_benchmark_does_not_depend_on_its_neighbours(call, model, both, tmp_path, engine):
    """A turn of a chat ends with a token that the model does not declare. A text does not end there."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}z{% endif %}{% endfor %}"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["z"]})
    tokenizer.save_pretrained(model)
    assert call("alone", reward=None, max_completion_length=40) == 0
    chats = "aime_2025=tests/fixtures/aime_2025.jsonl"
    assert call(*both, chats, benchmarks=None, reward=None, max_completion_length=40) == 0
    files = [(tmp_path / folder / "problems.jsonl").read_bytes() for folder in ("alone", "eval")]
    assert files[0] == files[1]
    z = tokenizer.convert_tokens_to_ids("z")
    sampled = generator(model, max_completion_length=60)
    texts, turns = (sampled([[2, 3]] * 16, [0] * 16, chats) for chats in (False, True))
    assert any(z in one.ids[:-1] for one in texts)
    assert not any(z in one.ids[:-1] for one in turns)
    assert {one.ids[-1] for one in turns if not one.truncated} == {1, z}
    sampled = generator(model, VLLMGenerator, vllm_kwargs={})
    for chats, ends in ((False, {1}), (True, {1, z})):
        sampled([[2, 3]], [0], chats)
        assert set(engine.LLM.ends) == ends


def test_a_prompt_that_does_not_fit_the_context(call, model, capsys):
    """The longest prompt has 6 tokens, and completions have up to 12."""
    for positions, code in ((17, 2), (18, 0)):
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": positions}))
        assert call() == code
    assert "max_completion_length=12 is longer than the model's 17 tokens" in capsys.readouterr().err


def test_an_adapter(call, model, tmp_path):
    """Of a folder without its tokenizer."""
    torch.manual_seed(1)
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    net = get_peft_model(AutoModelForCausalLM.from_pretrained(model), config)
    net.save_pretrained(tmp_path / "adapter")
    net.merge_and_unload().save_pretrained(tmp_path / "merged")
    tiny.tokenizer().save_pretrained(tmp_path / "merged")
    for name in ("adapter", "merged", "model"):
        assert call(name + "-eval", model_name_or_path=tmp_path / name, temperature=0) == 0
    found = [[row["completion"] for row in read_samples(tmp_path / f"{name}-eval")] for name in ("adapter", "merged")]
    assert found[0] == found[1] != [row["completion"] for row in read_samples(tmp_path / "model-eval")]
    assert len(found[0]) == 10  # greedy samples of a problem are all equal: one is drawn


# --- what is finished is not done again ---


def test_what_is_finished_is_skipped_and_refused_with_other_settings(call, both, data, tmp_path, monkeypatch, capsys):
    assert call() == 0
    before = {path: path.read_bytes() for path in (tmp_path / "eval").iterdir()}
    assert call(*both, benchmarks=None) == 0
    assert results(tmp_path / "eval", "few")["problems"] == 3
    monkeypatch.setattr("delta_trl.evaluation.evaluate.TransformersGenerator", None)
    assert call() == 0
    assert call(temperature=0.5) == 2
    assert "temperature was 1.0 and is 0.5" in capsys.readouterr().err
    data.write_text(data.read_text().replace("729", "730"))
    assert call() == 2
    assert "problems was" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


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


# --- vLLM ---


class StandIn:
    """What the evaluation asks of vLLM's engine: completions that depend on the prompt and the seed alone."""

    def __init__(self, **options):
        StandIn.options = options

    def generate(self, prompts, sampling_params, use_tqdm):
        outputs, StandIn.ends = [], sampling_params[0].stop_token_ids
        for prompt, params in zip(prompts, sampling_params, strict=True):
            rng = random.Random(f"{prompt['prompt_token_ids']} {params.seed}")
            ids = [*(rng.randrange(2, 40) for _ in range(rng.randrange(1, 15))), params.stop_token_ids[0]]
            reason = "stop" if len(ids) <= params.max_tokens else "length"
            output = SimpleNamespace(token_ids=tuple(ids[: params.max_tokens]), finish_reason=reason)
            outputs.append(SimpleNamespace(outputs=[output]))
        return outputs


@pytest.fixture
def engine(monkeypatch):
    """A package `vllm` with a stand-in for its engine."""
    package = ModuleType("vllm")
    package.LLM, package.SamplingParams = StandIn, SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", package)
    return package


def test_vllm(call, model, tmp_path, engine):
    """Every sample has its own seed, so that not even the size of the batches matters. tests/vllm has the real one."""
    options = {"use_vllm": True, "vllm_kwargs": "{max_model_len: 99}", "dtype": "float32"}
    for folder, changes in (("a", {}), ("b", {"batch_size": 16}), ("c", {"seed": 1})):
        assert call(folder, **options, **changes) == 0
    a, b, c = (read_samples(tmp_path / name) for name in "abc")
    assert a == b
    assert len({row["completion"] for row in a}) > 30
    assert not {row["completion"] for row in a} & {row["completion"] for row in c if row["length"] > 4}
    assert {(row["truncated"], row["length"] == 12) for row in a} >= {(True, True), (False, False)}
    assert {"model": str(model), "max_model_len": 99, "dtype": "float32"}.items() <= StandIn.options.items()


class Reasoner(StandIn):
    """Says the same to every prompt, up to the length limit."""

    said = ""

    def generate(self, prompts, sampling_params, use_tqdm):
        ids = [2 + characters.index(character) for character in self.said]
        output = SimpleNamespace(token_ids=tuple(ids), finish_reason="length")
        return [SimpleNamespace(outputs=[output]) for _ in prompts]


characters = tiny.CHARACTERS + "\\{}<>/()"
ANSWERS = {
    "math_reward": ({"solution": "2"}, r"\boxed{2}"),
    "code_reward": ({"tests": '{"inputs": [""], "outputs": ["2"]}'}, "print(2)"),
}


@pytest.mark.parametrize("reward", ANSWERS)
@pytest.mark.parametrize(("ends", "conversational"), [(False, False), (False, True), (True, True)])
def test_an_answer_counts_once_the_reasoning_ends(
    call, model, data, tmp_path, monkeypatch, engine, caplog, reward, ends, conversational
):
    """The chat template opens the reasoning, which the reward does not see. A text is not begun by it."""
    tokenizer = tiny.tokenizer(characters)
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    tokenizer.chat_template = "{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}"
    tokenizer.save_pretrained(model)
    tiny.model(vocab_size=len(tokenizer)).save_pretrained(model)
    gold, answer = ANSWERS[reward]
    data.write_text(json.dumps({"prompt": "1+1=", **gold}) + "\n")
    engine.LLM = Reasoner
    monkeypatch.setattr(Reasoner, "said", f"so</think>{answer}" if ends else answer)
    assert call(use_vllm=True, reward=reward, conversational=conversational) == 0
    assert results(tmp_path / "eval")["avg_at_k"] == (ends or not conversational)
    assert not options_of_others(caplog.text, EvalArguments)


# --- comparison ---


def write_evaluation(folder: Path, rewards: list[list[float | None]], name: str = "problems", **settings) -> None:
    """A finished benchmark with these rewards, problem by problem."""
    folder.mkdir(exist_ok=True)
    rows = [{"reward": reward, "length": 1, "truncated": False} for row in rewards for reward in row]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    common = {
        "num_problems": len(rewards),
        "num_generations": len(rewards[0]),
        "temperature": 1.0,
        "top_p": 1.0,
        "problems": "h",
    }
    settings = common | {"model_name_or_path": folder.name, "reward": "math_reward"} | settings
    (folder / f"{name}.json").write_text(json.dumps({"settings": settings, "results": {}}))


@pytest.fixture
def compared(tmp_path, capsys):
    """Compare evaluations `a` and `b`: the cells of the printed table by benchmark, and all that is printed."""

    def compare():
        assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 0
        printed = capsys.readouterr().out
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in printed.splitlines() if line[0] == "|"]
        return {name: cells for name, *cells in rows[2:]}, printed

    return compare


def test_a_comparison_is_paired_and_of_what_is_scored_for_both(tmp_path, compared):
    write_evaluation(tmp_path / "a", [[1.0, i % 3 == 0] for i in range(12)] + [[1.0, 1.0]])
    write_evaluation(tmp_path / "b", [[0.0, 1.0]] * 12 + [[None, None]], temperature=0.9)
    for folder, found in (("a", "1.0"), ("b", "2.0")):
        path = tmp_path / folder / "problems.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"versions": {"torch": found}}))
    cells, printed = compared()
    assert cells["problems"][:4] == ["12", "0.667", "0.500", "0.167"]
    low, high = map(float, cells["problems"][4].split(" to "))
    assert low == pytest.approx(0.167 - 1.96 * 0.236 / 12**0.5, abs=0.05)  # of differences 0 and 0.5
    assert high == pytest.approx(0.167 + 1.96 * 0.236 / 12**0.5, abs=0.05)
    assert "temperature was 1.0 and is 0.9" in printed
    assert "versions.torch was '1.0' and is '2.0'" in printed


def test_benchmarks_are_compared_by_name(tmp_path, compared):
    rewards = [[1.0, float(i % 3 == 0)] for i in range(11)]
    for name in ("x", "y", "only_a"):
        write_evaluation(tmp_path / "a", rewards, name)
    for name, temperature in (("y", 0.5), ("x", 0.9)):  # with fewer samples
        write_evaluation(tmp_path / "b", [row[1:] for row in rewards], name, temperature=temperature)
    (tmp_path / "a" / "config.json").write_text("{}")  # no benchmark: it has no samples
    cells, printed = compared()
    assert {name: row[0] for name, row in cells.items()} == {"x": "11", "y": "11", "all problems": "22"}
    assert "finished in one only: only_a" in printed
    for name, temperature in (("y", 0.5), ("x", 0.9)):
        assert re.search(f"^{name}, from A to B: .*temperature was 1.0 and is {temperature}", printed, re.MULTILINE)


def test_versions_tell_graders_apart(tmp_path, monkeypatch):
    rooms = ("rewards", "sandbox")
    for room in rooms:
        shutil.copytree(Path(results_module.__file__).parents[1] / room, tmp_path / room)
    before = results_module.versions()
    assert before["math-verify"] == version("math-verify")
    monkeypatch.setattr(results_module, "__file__", str(tmp_path / "evaluation" / "results.py"))
    assert results_module.versions() == before
    for room in rooms:
        (tmp_path / room / "__init__.py").write_text("# edited\n")
        now = results_module.versions()
        assert [name for name in now if now[name] != before[name]] == [room]
        before = now


def test_mistakes_in_a_comparison(tmp_path, capsys):
    write_evaluation(tmp_path / "a", [[1.0]])
    write_evaluation(tmp_path / "data", [[1.0]], problems="other")
    write_evaluation(tmp_path / "reward", [[1.0]], reward="mine")
    write_evaluation(tmp_path / "other", [[1.0]], "few")
    for second, message in (("other", "No benchmark"), ("data", "problems was"), ("reward", "reward was")):
        assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / second)]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(("damaged", "lines"), [("problems.jsonl", 5), ("problems.jsonl", 4), ("problems.json", 0)])
def test_a_damaged_file_is_named(tmp_path, capsys, damaged, lines):
    """Also one that lacks whole lines, or the samples of a whole problem."""
    for folder in ("a", "b"):
        write_evaluation(tmp_path / folder, [[1.0, 0.0]] * 3)
    path = tmp_path / "b" / damaged
    path.write_text("\n".join(path.read_text().splitlines()[:lines]))
    assert main(["eval", "--compare", str(tmp_path / "a"), str(tmp_path / "b")]) == 2
    assert f"{path} is not a file of an evaluation" in capsys.readouterr().err


# --- mistakes ---


def options_of_others(text: str, kind: type) -> set[str]:
    """Words of a message that are options, but not of the command with these arguments."""
    kinds = (RunArguments, DeltaGRPOConfig, AuditArguments, ExplainArguments, EvalArguments)
    others = {field.name for one in kinds for field in fields(one)} - {field.name for field in fields(kind)}
    return {word for word in re.findall(r"\w+", text) if "_" in word and word in others}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_problems": 0}, "num_problems=0"),
        ({"conversational": True}, "chat template"),
        ({"model_name_or_path": "tests/fixtures"}, "tests/fixtures"),
    ],
    ids=str,
)
def test_mistakes_are_named(call, monkeypatch, capsys, changes, message):
    assert call(**changes) == 2
    assert message in capsys.readouterr().err
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert call() == 2
    assert "launcher" in capsys.readouterr().err


TRAINED = {"prompt": "1+1=", "solution": "2"}
OF_DATA = {
    "no prompts": {"question": "1+1=", "solution": "2"},
    "no answers": {"prompt": "1+1=", "answer": "2"},
    "blank": TRAINED | {"solution": " "},
    "unusable": TRAINED | {"solution": r"\begin{tikzpicture}"},
    "rounded": TRAINED | {"solution": 2.0**60},
    "no text": TRAINED | {"prompt": 3},
}


@pytest.mark.parametrize("options", [*OF_DATA, "--prompt_template no", "--max_completion_length 40000",
                                     "--conversational true", "--dataset_format gsm8k"])  # fmt: skip
def test_every_option_that_a_message_names_is_one_of_this_command(call, data, capsys, options):
    data.write_text(json.dumps(OF_DATA.get(options, TRAINED)) + "\n")
    assert call("eval", *(options.split() if options.startswith("--") else ()), reward="math_reward") == 2
    message = capsys.readouterr().err
    assert message
    assert not options_of_others(message, EvalArguments)


@pytest.mark.parametrize("rule", ["dleta", "delta:lamda_max=1", "given", "tests.corpus.tiny.model"])
@pytest.mark.parametrize("kind", [AuditArguments, ExplainArguments])
def test_an_audit_and_an_explanation_name_their_own_options(model, data, tmp_path, capsys, kind, rule):
    rows = [{"prompt": "1+1=", "completion": str(i), "reward": i % 2, "marks": [[0, 1]]} for i in range(4)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ("audit", "--benchmarks", "--rules") if kind is AuditArguments else ("explain", "--data", "--rule")
    command, of_data, of_rule = options
    call = [command, of_data, str(data), of_rule, rule, "--output_dir", str(tmp_path / "audit")]
    assert main([*call, "--model_name_or_path", str(model)]) == 2
    message = capsys.readouterr().err
    assert message
    assert not options_of_others(message, kind)


def test_weights_that_are_missing(call, model, capsys):
    file = model / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if "mlp" in name)
    del weights[name]
    save_file(weights, file, {"format": "pt"})
    assert call() == 2
    assert name in capsys.readouterr().err
