"""`delta-trl eval` as a user calls it: samples, files, comparison, mistakes."""

import json
import random
import re
import sys
from dataclasses import fields
from fractions import Fraction
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import decoders
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    GPT2Config,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
)
from trl.trainer.utils import create_model_from_path

from delta_trl import DeltaGRPOConfig
from delta_trl.audit.arguments import AuditArguments
from delta_trl.cli import main
from delta_trl.commands.arguments import ExplainArguments
from delta_trl.commands.recipe import RunArguments
from delta_trl.credit import make_rule
from delta_trl.evaluation import results as results_module
from delta_trl.evaluation.arguments import EvalArguments
from delta_trl.evaluation.evaluate import call_reward
from delta_trl.evaluation.generation import TransformersGenerator
from delta_trl.evaluation.model import ModelArguments, architecture_of
from delta_trl.scoring.prompts import prompt_ids

from ..corpus import tiny


CHAT = tiny.CHAT + "{% if add_generation_prompt %}={% endif %}"
FIXTURES = Path("tests/fixtures").resolve()
CHATS = f"aime_2025={FIXTURES}/aime_2025.jsonl"


def by_letters(completions, **kwargs):
    """A reward that also cannot score some completions."""
    rewards = tiny.reward_letters(completions)
    scored = zip(completions, rewards, strict=True)
    return [None if len(text) == 3 else reward for text, reward in scored]


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def model():
    """A folder with a tiny model, which ends its completions now and then."""
    tiny.save(Path("model"))
    return Path("model")


@pytest.fixture
def data():
    """A file of ten problems."""
    tiny.dataset(10).to_json("problems.jsonl")
    return Path("problems.jsonl")


@pytest.fixture
def both(data):
    """This file, and another one of three problems."""
    tiny.dataset(3).to_json("few.jsonl")
    return [data, "few.jsonl"]


@pytest.fixture
def call(model, data):
    """Evaluate the tiny model: the output directory and the options that are set."""

    def evaluate(folder="eval", **changes):
        values = {
            "model_name_or_path": model,
            "benchmarks": data,
            "output_dir": folder,
            "reward": "tests.evaluation.test_eval.by_letters",
            "num_generations": 4,
            "max_completion_length": 12,
            "top_p": 1.0,
            "batch_size": 6,
            "use_cpu": True,
            **changes,
        }
        words = ["eval"]
        for name, value in values.items():
            if value is not None:
                given = value if isinstance(value, list) else [value]
                words += [f"--{name}", *map(str, given)]
        return main(words)

    return evaluate


def results(folder="eval", name="problems") -> dict:
    written = json.loads(Path(folder, f"{name}.json").read_text())
    return written["results"]


def read_samples(folder="eval", name="problems") -> pd.DataFrame:
    lines = Path(folder, f"{name}.jsonl").read_text().splitlines()
    return pd.DataFrame(map(json.loads, lines))


async def judged(completions, log_extra, log_metric, **columns):
    """A reward that logs what it sees of each completion."""
    log_extra("said", completions)  # until it is logged again
    log_extra("said", [text.upper() for text in completions])
    log_extra("is_long", [len(text) > 9 for text in completions])
    log_extra("tenths", [Fraction(len(text), 10) for text in completions])
    log_metric("seen", 1.0)
    return [len(text) / 10 for text in completions]


def test_what_a_reward_logs_of_a_sample_stands_beside_it(call):
    assert call("evals/one", reward="tests.evaluation.test_eval.judged") == 0
    for sample in read_samples("evals/one").itertuples():
        said = sample.completion
        tenths = str(Fraction(len(said), 10))
        assert sample.logged == {"said": said.upper(), "is_long": len(said) > 9, "tenths": tenths}
        assert sample.reward == len(said) / 10


def test_every_sample_is_written_and_scored(call, both, capsys):
    assert call(benchmarks=both) == 0
    samples = read_samples()
    assert list(samples["problem"]) == list(np.repeat(range(1, 11), 4))
    assert list(samples["sample"]) == [0, 1, 2, 3] * 10
    prompts = tiny.dataset(10)["prompt"][:]
    assert list(samples["prompt"]) == list(np.repeat(prompts, 4))
    rewards = pd.Series(by_letters(samples["completion"]))
    assert samples["reward"].equals(rewards)
    assert not samples["completion"].str.contains("<eos>").any()
    lengths = samples["length"]
    truncated = samples["truncated"]
    assert lengths.between(1, 12).all()
    assert set(lengths[truncated]) == {12}

    numbers = results()
    low, high = numbers.pop("interval")
    passes = numbers.pop("pass_at_k")
    means = rewards.groupby(samples["problem"]).mean()
    assert numbers == {
        "problems": 10,
        "scored_problems": 10,
        "no_interval": "",
        "avg_at_k": pytest.approx(means.mean()),
        "truncated": truncated.mean(),
        "mean_length": lengths.mean(),
        "unscored": rewards.isna().sum(),
    }
    average = numbers["avg_at_k"]
    assert low < average < high
    assert set(passes) == {"1", "2", "4"}
    assert numbers["unscored"] > 0
    assert 0 < numbers["truncated"] < 1

    printed = capsys.readouterr().out
    assert f"{average:.3f}" in printed
    of_few = results(name="few")["avg_at_k"]
    of_both = (10 * average + 3 * of_few) / 13
    assert re.search(rf"\| average \(by problems\) \| +13 \| {of_both:.3f} \|", printed)
    assert re.search(r"\| few +\| +3 \| 0.\d+ \| fewer than 10 prompts \|", printed)


# --- sampling ---


def test_prompts_are_those_of_training(make_trainer):
    trainer = make_trainer(chat_template_kwargs={"enable_thinking": False})
    tokenizer = trainer.processing_class
    texts = ["1+1=", "abc", "12+12="]
    chats = [[{"role": "user", "content": text}] for text in texts]
    tokenizer.chat_template = CHAT + "{% if enable_thinking is defined %}0{% endif %}"
    for prompts in (texts, chats):
        expected, *_ = trainer._tokenize_prompts(prompts)
        assert prompt_ids(tokenizer, prompts, {"enable_thinking": False}) == expected
    assert len(set(map(tuple, expected))) == 3


def sampled(folder, prompts, seeds, end=(1,), **options) -> list[list[int]]:
    """Completions of a model, of 6 tokens at most."""
    sampling = {"top_p": 1.0, "use_cpu": True, **options}
    args = EvalArguments(model_name_or_path=str(folder), benchmarks=[], output_dir="", **sampling)
    generate = TransformersGenerator(args)
    return generate(prompts, seeds, list(end), 6)


def test_greedy_decoding_of_a_padded_batch_is_that_of_each_prompt_alone(model):
    prompts = [[2, 3, 4], [5], [6, 7, 8, 9, 10, 11, 12]]
    net = AutoModelForCausalLM.from_pretrained(model)
    alone = []
    for ids in prompts:
        sequences = net.generate(torch.tensor([ids]), do_sample=False, max_new_tokens=6)
        alone.append(sequences[0, len(ids) :].tolist())
    assert sampled(model, prompts, [1, 2, 3], temperature=0.0) == alone

    tokenizer = AutoTokenizer.from_pretrained(model, padding_side="right")
    tokenizer.pad_token = None  # as base models' tokenizers: what a batch is padded with means nothing
    tokenizer.save_pretrained(model)
    assert sampled(model, prompts, [1, 2, 3], temperature=0.0) == alone


def test_the_nucleus_that_is_asked_for_is_sampled_from(model):
    """Whatever the model's own defaults are."""
    GenerationConfig(do_sample=True, temperature=0.1, top_k=1, repetition_penalty=5.0).save_pretrained(model)
    net = AutoModelForCausalLM.from_pretrained(model)
    logits = net(torch.tensor([[2, 3]])).logits[0, -1]
    probabilities = (logits / 0.5).softmax(-1)
    probabilities, tokens = probabilities.sort(descending=True)
    too_few = probabilities.cumsum(0) < 0.3
    nucleus = tokens[: too_few.sum() + 1]  # the fewest tokens that reach 0.3

    completions = sampled(model, [[2, 3]] * 4000, range(4000), temperature=0.5, top_p=0.3)
    first = {ids[0] for ids in completions}
    assert first == set(nucleus.tolist())


def test_no_token_is_left_out_of_a_large_vocabulary(model):
    """Not only the 50 likeliest of transformers' default: 200 tokens are nearly as likely as each other here."""
    net = tiny.model(vocab_size=200)
    torch.nn.init.normal_(net.get_output_embeddings().weight, std=1e-3)
    net.save_pretrained(model)
    completions = sampled(model, [[2, 3]] * 1000, range(1000))
    first = {ids[0] for ids in completions}
    assert len(first) > 190


def test_samples_depend_on_the_seed(model):
    one, same, other = (sampled(model, [[2, 3]] * 4, [seed] * 4) for seed in (1, 1, 2))
    assert one == same
    assert one != other


def test_a_completion_ends_with_its_first_end_token(model):
    ends = {1, 7, 8}
    completions = sampled(model, [[2, 3]] * 16, [0] * 16, ends)
    for ids in completions:
        assert not ends.intersection(ids[:-1])
    last = {ids[-1] for ids in completions}
    assert last >= ends
    [without_ends] = sampled(model, [[2, 3]], [0], end=())
    assert len(without_ends) == 6


def test_every_declared_end_token_ends_a_completion(call, model, engine):
    """By generation_config.json, or by config.json where there is none. Those of an adapter are its base's."""
    LoraConfig(base_model_name_or_path="model").save_pretrained("adapter")
    options = {"use_vllm": True, "batch_size": 40}
    GenerationConfig(eos_token_id=[7, 8]).save_pretrained(model)
    assert call("of-model", **options) == 0
    assert engine.LLM.ends == [{1, 7, 8}]
    assert ModelArguments(model_name_or_path="adapter").generation_config().eos_token_id == [7, 8]
    Path("model/generation_config.json").unlink()
    config = Path("model/config.json")
    text = config.read_text()
    config.write_text(text.replace('"eos_token_id": 1', '"eos_token_id": 9'))
    assert call(**options) == 0
    assert engine.LLM.ends == [{1, 9}]


def test_a_benchmark_does_not_depend_on_its_neighbours(call, model, both, engine):
    """
    A named benchmark becomes chats by itself, a file does not. A turn of a chat ends with a token that the model does
    not declare. A text does not end there.
    """
    tokenizer = tiny.tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.content }}{% if m.role == 'assistant' %}z{% endif %}{% endfor %}"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["z"]})
    tokenizer.save_pretrained(model)
    options = {"reward": None, "max_completion_length": 40, "batch_size": 40}
    assert call("alone", **options) == 0
    assert call(benchmarks=[*both, CHATS], **options) == 0
    alone = Path("alone/problems.jsonl").read_bytes()
    assert Path("eval/problems.jsonl").read_bytes() == alone
    (message,) = read_samples(name="aime_2025")["prompt"][0]
    assert message["role"] == "user"
    assert call("vllm", benchmarks=[*both, CHATS], use_vllm=True, **options) == 0
    z = tokenizer.convert_tokens_to_ids("z")
    assert engine.LLM.ends == [{1}, {1}, {1, z}]


def test_completions_fit_into_the_models_context(call, model, capsys):
    """The longest prompt has 6 tokens. A model with a table of positions cannot go on after its last one."""
    vocab_size = tiny.SIZES["vocab_size"]
    config = GPT2Config(vocab_size=vocab_size, n_positions=17, n_embd=8, n_layer=1, n_head=1)
    tiny.model(config).save_pretrained(model)
    assert call(max_completion_length=12) == 2
    assert "max_completion_length=12 is longer than the model's 17 tokens" in capsys.readouterr().err
    assert call(max_completion_length=11) == 0
    assert call("default", max_completion_length=None) == 0
    written = json.loads(Path("default/problems.json").read_text())
    assert written["settings"]["max_completion_length"] == 11
    assert read_samples("default")["length"].max() <= 11


def test_an_adapter_is_evaluated_on_its_base(call, model, capsys):
    """Of a folder without its tokenizer, with its base or on a model. tests/audit has one that changes nothing."""
    torch.manual_seed(1)
    base = AutoModelForCausalLM.from_pretrained(model)
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    get_peft_model(base, config).save_pretrained("adapter")

    def greedy(folder, **options) -> list[str]:
        assert call(folder, temperature=0, **options) == 0
        return read_samples(folder)["completion"].tolist()

    of_model = greedy("model-eval")
    of_adapter = greedy("adapter-eval", model_name_or_path="adapter")
    assert of_adapter != of_model
    assert len(of_model) == 10  # greedy samples of a problem are all equal: one is drawn
    capsys.readouterr()
    assert greedy("named", adapter_name_or_path="adapter") == of_adapter
    assert "adapter, temperature" in capsys.readouterr().out
    for option in ("model_name_or_path", "adapter_name_or_path"):
        assert call("vllm", use_vllm=True, **{option: "adapter"}) == 2
        assert "'adapter' is an adapter: vLLM samples from whole models" in capsys.readouterr().err


def qwen3_5() -> Qwen3_5ForConditionalGeneration:
    """A model for images whose text alone is a model of transformers, too, with other names of its weights."""
    text_config = {**tiny.SIZES, "head_dim": 8, "layer_types": ["full_attention"] * 2}
    vision_config = {"depth": 1, "hidden_size": 32, "intermediate_size": 32, "out_hidden_size": 32, "num_heads": 2}
    config = Qwen3_5Config(text_config=text_config, vision_config=vision_config, image_token_id=tiny.IMAGE)
    return Qwen3_5ForConditionalGeneration(config)


@pytest.mark.parametrize("multimodal", [tiny.multimodal, qwen3_5])
def test_a_multimodal_model_is_loaded_as_trl_trains_it(multimodal):
    """With an adapter of it."""
    multimodal().save_pretrained("multimodal")
    trained = create_model_from_path("multimodal")
    config = LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False)
    adapted = get_peft_model(trained, config).eval()
    adapted.save_pretrained("adapter")
    tiny.tokenizer().save_pretrained("adapter")

    loaded = ModelArguments(model_name_or_path="adapter", use_cpu=True).model()
    ids = torch.arange(2, 9)[None]
    assert torch.equal(loaded(ids).logits, adapted(ids).logits)


def test_an_adapter_without_all_of_its_weights_is_refused(model):
    """PEFT would initialise those that are missing."""
    config = LoraConfig(r=2, target_modules=["q_proj"])
    get_peft_model(AutoModelForCausalLM.from_pretrained(model), config).save_pretrained("adapter")
    weights = load_file("adapter/adapter_model.safetensors")
    del weights["base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight"]
    save_file(weights, "adapter/adapter_model.safetensors")
    with pytest.raises(ValueError, match=r"'adapter' does not fit Qwen3ForCausalLM: .*layers\.1.*lora_B"):
        ModelArguments(model_name_or_path="adapter", use_cpu=True).model()


def test_a_model_is_loaded_as_asked_for(model):
    """For evaluation, without dropout. By default with the checkpoint's type."""
    tiny.model(dtype="float16").half().save_pretrained(model)
    for asked, loaded in (("auto", torch.float16), ("bfloat16", torch.bfloat16)):
        net = ModelArguments(
            model_name_or_path="model", dtype=asked, attn_implementation="eager", use_cpu=True
        ).model()
        assert net.dtype == loaded
        assert net.config._attn_implementation == "eager"
        assert not net.training
    assert architecture_of(GPT2Config()) is AutoModelForCausalLM  # as this config names none


@pytest.mark.parametrize(
    ("names", "of_adapter", "of_base"),
    [
        ({"model_name_or_path": "adapter"}, "r1", None),
        ({"model_name_or_path": "model", "adapter_name_or_path": "adapter"}, None, "r1"),
    ],
)
def test_a_revision_is_that_of_the_models_name(model, names, of_adapter, of_base):
    LoraConfig(base_model_name_or_path="model").save_pretrained("adapter")
    source = ModelArguments(**names, model_revision="r1")
    assert source.adapter() == source.name == "adapter"
    assert source.adapter_options["revision"] == of_adapter
    assert source.base().model_name_or_path == "model"
    assert source.base().model_revision == of_base
    assert source.base().adapter() is None
    assert source.reader().name == "adapter"
    source.local_files_only = True  # of a dry run
    assert source.base().hub_options["local_files_only"] is source.adapter_options["local_files_only"] is True


def test_tokens_that_only_an_adapter_has(model):
    """As with PEFT's AutoPeftModel, which loads the same weights."""
    tokenizer = tiny.tokenizer()
    tokenizer.add_tokens(["<new>"])
    base = AutoModelForCausalLM.from_pretrained(model)
    base.resize_token_embeddings(len(tokenizer))
    config = LoraConfig(target_modules=["q_proj"], modules_to_save=["embed_tokens"], task_type="CAUSAL_LM")
    get_peft_model(base, config).save_pretrained("adapter")
    tokenizer.save_pretrained("adapter")
    loaded = AutoPeftModelForCausalLM.from_pretrained("adapter").state_dict()
    expected = {name: weight for name, weight in loaded.items() if "original_module" not in name}
    for model_name, adapter in (("adapter", None), ("model", "adapter")):
        source = ModelArguments(model_name_or_path=model_name, adapter_name_or_path=adapter, use_cpu=True)
        weights = source.model().state_dict()
        for name, weight in expected.items():
            assert torch.equal(weights[name], weight), name


def test_an_adapter_of_another_model_is_named(model, caplog):
    """By its base's path, which is then corrected: it is saved with the model that it was trained on."""
    tiny.model(vocab_size=64).save_pretrained(model)
    config = LoraConfig(r=2, target_modules=["q_proj"], base_model_name_or_path="elsewhere")
    adapted = get_peft_model(AutoModelForCausalLM.from_pretrained(model), config)
    adapted.peft_config["default"].base_model_name_or_path = "elsewhere"
    adapted.save_pretrained("adapter")
    names = {"model_name_or_path": "model", "adapter_name_or_path": "adapter"}
    loaded = ModelArguments(**names, use_cpu=True).model()
    assert "'adapter' was trained on 'elsewhere', and is loaded on 'model'" in caplog.text
    assert loaded.peft_config["default"].base_model_name_or_path == "model"
    assert loaded.get_input_embeddings().num_embeddings == 64  # more than its tokenizer has tokens, as many models


# --- what is finished is not done again ---


def test_what_is_finished_is_skipped_and_refused_with_other_settings(call, data, both, monkeypatch, capsys):
    assert call() == 0
    before = {path: path.read_bytes() for path in Path("eval").iterdir()}
    assert call(benchmarks=both) == 0
    assert results(name="few")["problems"] == 3

    monkeypatch.setattr("delta_trl.evaluation.evaluate.TransformersGenerator", None)
    capsys.readouterr()
    assert call() == 0
    assert "\n| problems " in capsys.readouterr().out
    assert call(temperature=0.5) == 2
    assert "temperature was 1.0 and is 0.5" in capsys.readouterr().err
    text = data.read_text()
    data.write_text(text.replace("729", "730"))
    assert call() == 2
    assert "problems was" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before
    data.write_text(text)
    Path("eval/problems.jsonl").unlink()
    assert call() == 2
    assert "problems.jsonl is not a file of an evaluation" in capsys.readouterr().err


def test_a_benchmark_that_was_stopped_is_sampled_from_its_beginning(call, monkeypatch):
    """By default, 16 samples are sampled together."""
    assert call("whole", batch_size=None) == 0
    rewards = by_letters
    calls = []

    def dies(completions, **kwargs):
        calls.append(completions)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return rewards(completions)

    with monkeypatch.context() as patch:
        patch.setattr("tests.evaluation.test_eval.by_letters", dies)
        assert call(batch_size=None) == 130
    assert len(read_samples()) == 32
    assert not Path("eval/problems.json").exists()
    assert call(batch_size=None) == 0
    for name in ("problems.jsonl", "problems.json"):
        assert Path("eval", name).read_bytes() == Path("whole", name).read_bytes()


# --- vLLM ---


class StandIn:
    """What the evaluation asks of vLLM's engine: completions that depend on the prompt and the seed alone."""

    def __init__(self, **options):
        StandIn.options = options
        StandIn.ends = []  # of each call

    def completion(self, prompt, params) -> list[int]:
        rng = random.Random(f"{prompt['prompt_token_ids']} {params.seed}")
        length = rng.randrange(1, 15)
        ids = [rng.randrange(2, 40) for _ in range(length)]
        ids.append(params.stop_token_ids[0])
        return ids[: params.max_tokens]

    def generate(self, prompts, sampling_params, use_tqdm):
        first = sampling_params[0]
        self.ends.append(set(first.stop_token_ids))
        StandIn.sampling = (first.temperature, first.top_p)
        outputs = []
        for prompt, params in zip(prompts, sampling_params, strict=True):
            output = SimpleNamespace(token_ids=tuple(self.completion(prompt, params)))
            outputs.append(SimpleNamespace(outputs=[output]))
        return outputs


@pytest.fixture
def engine(monkeypatch):
    """A package `vllm` with a stand-in for its engine."""
    package = ModuleType("vllm")
    package.LLM = StandIn
    package.SamplingParams = SimpleNamespace
    monkeypatch.setitem(sys.modules, "vllm", package)
    return package


def test_samples_of_vllm_depend_on_the_seed_and_not_on_the_batch(call, engine):
    """Every sample has its own seed, so that not even the size of the batches matters. tests/vllm has the real one."""
    asked = {"dtype": "float32", "trust_remote_code": True}
    sampling = {"temperature": 0.5, "top_p": 0.9}
    options = {"use_vllm": True, "vllm_kwargs": "{max_model_len: 99}", "model_revision": "r1", **asked, **sampling}
    assert call("one", **options) == 0
    assert call("in_other_batches", **options, batch_size=16) == 0
    assert call("by_another_seed", **options, seed=1, num_generations=3) == 0
    assert StandIn.options == {"model": "model", "revision": "r1", "max_model_len": 99, **asked}
    assert StandIn.sampling == (0.5, 0.9)

    samples = read_samples("one")
    assert samples["completion"].nunique() > 30
    truncated = samples["truncated"]
    assert set(samples["length"][truncated]) == {12}
    assert not truncated.all()
    assert samples.equals(read_samples("in_other_batches"))
    others = read_samples("by_another_seed")
    longer = others["completion"][others["length"] > 4]
    assert not set(samples["completion"]) & set(longer)


def test_options_of_the_chat_template_are_those_of_the_evaluation(call, model, engine):
    """This template makes no text without. By default, vLLM gets 128 prompts at a time."""
    tokenizer = tiny.tokenizer()
    needs_style = "{% if not style %}{{ raise_exception('style') }}{% endif %}"
    tokenizer.chat_template = needs_style + CHAT
    tokenizer.save_pretrained(model)
    options = {"chat_template_kwargs": "{style: 1}", "conversational": True, "max_completion_length": None}
    assert call(use_vllm=True, batch_size=None, num_generations=13, reward=None, **options) == 0
    assert len(engine.LLM.ends) == 2


def test_of_a_chat_a_reward_sees_messages():
    seen = {}
    chat = [{"role": "user", "content": "1+1="}]
    call_reward(lambda **passed: seen.update(passed) or [0.0], {}, [chat], ["2"], ids=[[3]])
    assert seen["completions"] == [[{"role": "assistant", "content": "2"}]]


def test_a_column_does_not_replace_what_was_sampled():
    columns = {"completions": ["of the file"], "prompts": ["of the file"], "solution": ["2"]}
    seen = {}
    call_reward(lambda **passed: seen.update(passed) or [0.0], columns, ["1+1="], ["2"], ids=[[3]])
    assert seen["completions"] == ["2"]
    assert seen["prompts"] == ["1+1="]
    assert seen["completion_ids"] == [[3]]
    assert seen["solution"] == ["2"]
    assert seen["trainer_state"].global_step == 0


class Full(StandIn):
    """As many tokens as are allowed. Every other seed ends with the last of them."""

    def completion(self, prompt, params) -> list[int]:
        last = params.stop_token_ids[0] if params.seed % 2 else 7
        return [7] * (params.max_tokens - 1) + [last]


def test_a_sample_that_ends_with_the_last_token_allowed_is_whole(call, engine):
    engine.LLM = Full
    assert call(use_vllm=True) == 0
    samples = read_samples()
    assert set(samples["length"]) == {12}
    assert samples["truncated"].tolist() == [True, False] * 20


class Reasoner(StandIn):
    """Says the same to every prompt, up to the length limit."""

    said = ""

    def completion(self, prompt, params):
        return [2 + CHARACTERS.index(character) for character in self.said]


CHARACTERS = tiny.CHARACTERS + "\\{}<>/()"
TESTS = '{"inputs": [""], "outputs": ["2"]}'
ANSWERS = {
    "math_reward": ({"solution": "2"}, r"\boxed{2}"),
    "code_reward": ({"tests": TESTS}, "print(2)"),
}


@pytest.mark.parametrize("reward", ANSWERS)
@pytest.mark.parametrize(
    ("ends", "conversational"),
    [
        (False, False),
        (False, True),
        (True, True),
    ],
)
def test_an_answer_counts_once_the_reasoning_ends(
    call, model, data, monkeypatch, engine, caplog, reward, ends, conversational
):
    """The chat template opens the reasoning, which the reward does not see. A text is not begun by it."""
    tokenizer = tiny.tokenizer(CHARACTERS)
    tokenizer.backend_tokenizer.decoder = decoders.Fuse()
    tokenizer.chat_template = "{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}"
    tokenizer.save_pretrained(model)
    tiny.model(vocab_size=len(tokenizer)).save_pretrained(model)
    gold, answer = ANSWERS[reward]
    data.write_text(json.dumps({"prompt": "1+1=", **gold}) + "\n")
    engine.LLM = Reasoner
    monkeypatch.setattr(Reasoner, "said", f"so</think>{answer}" if ends else answer)
    assert call(use_vllm=True, reward=reward, conversational=conversational) == 0
    counts = ends or not conversational
    assert results()["avg_at_k"] == counts
    settings = json.loads(Path("eval/problems.json").read_text())["settings"]
    assert settings.get("reasoning_opened", False) == conversational
    assert not options_of_others(caplog.text, EvalArguments)


# --- files and tables ---


def write_evaluation(folder: str, rewards: list[list[float | None]], name: str = "problems", **changes) -> dict:
    """A finished benchmark with these rewards, problem by problem; its settings."""
    Path(folder).mkdir(exist_ok=True)
    rows = []
    for number, of_problem in enumerate(rewards):
        for i, reward in enumerate(of_problem):
            rows.append({"prompt": f"problem {number}", "length": 10 * i + 10, "truncated": i == 2, "reward": reward})
    samples = pd.DataFrame(rows)
    samples.to_json(Path(folder, f"{name}.jsonl"), orient="records", lines=True)
    settings = {
        "num_problems": len(rewards),
        "num_generations": len(rewards[0]),
        "problems": "h",
        "reward": "math_reward",
        "temperature": 1.0,
        **changes,
    }
    content = {"settings": settings, "versions": {"torch": folder}, "results": {}}
    Path(folder, f"{name}.json").write_text(json.dumps(content))
    return settings


def cells_of(printed: str) -> dict[str, list[str]]:
    """The cells of a printed table by the first one of their row, titles and all."""
    lines = [line for line in printed.splitlines() if line.startswith("|")]
    rows = [re.split(r" *\| *", line)[1:-1] for line in lines]
    return {name: cells for name, *cells in rows}


@pytest.fixture
def shown(capsys):
    """Finish evaluations of three samples with these rewards, by name: what is printed of them."""

    def shown(**rewards) -> str:
        for name, of_benchmark in rewards.items():
            settings = write_evaluation("eval", of_benchmark, name, model_name_or_path="m", top_p=0.7)
            results_module.write_results(Path("eval"), name, settings)
        results_module.show(Path("eval"), [*rewards])
        return capsys.readouterr().out

    return shown


UNSCORED = [None, None, None]


def test_the_table_of_an_evaluation(shown):
    """Problems that could not be scored are counted, and no number is made of nothing."""
    printed = shown(some=[UNSCORED, *[[1.0, 0.0, 0.0], [0.0, 0.0, 0.0]] * 6], none=[UNSCORED] * 2)
    assert printed.startswith("m, temperature 1, top-p 0.7\n")
    cells = cells_of(printed)
    assert len(set(map(len, printed.splitlines()[1:]))) == 1  # aligned
    titles = ["problems", "avg@3", "95 % interval", "pass@3", "truncated", "mean length", "unscored"]
    assert cells["benchmark"] == titles
    low, high = results(name="some")["interval"]
    interval = f"{low:.3f} to {high:.3f}"
    assert 0 < low < 1 / 6 < high < 1 / 3
    assert cells["some"] == ["12 of 13", "0.167", interval, "0.500", "33.3%", "20", "3"]
    assert cells["none"] == ["0 of 2", "?", "fewer than 10 prompts", "?", "33.3%", "20", "6"]
    assert cells["average (by problems)"] == ["12 of 15", "0.167", interval, "0.500", "33.3%", "20", "9"]
    assert results(name="some")["pass_at_k"] == pytest.approx({"1": 1 / 6, "2": 1 / 3, "3": 1 / 2})
    assert results(name="none")["pass_at_k"] == {"1": None, "2": None, "3": None}
    assert results(name="none")["interval"] == [None, None]  # JSON has no NaN


def test_problems_of_two_benchmarks_with_one_prompt_are_drawn_together(shown):
    rewards = [[float(i % 2), 0.0, 0.0] for i in range(9)]
    cells = cells_of(shown(**{"one": rewards, "one.copy": rewards}))
    assert cells["average (by problems)"][:3] == ["18", "0.148", "fewer than 10 prompts"]
    assert "average" not in shown(one=rewards)


# --- comparison ---


@pytest.fixture
def compared(capsys):
    """Compare evaluation `a` with another: the exit code, the cells of the table by benchmark, all that is printed."""

    def compare(other="b"):
        code = main(["eval", "--compare", "a", other])
        printed = "".join(capsys.readouterr())
        rows = cells_of(printed)
        return code, dict([*rows.items()][2:]), printed

    return compare


def test_a_comparison_is_paired_by_name_and_of_what_is_scored_for_both(compared):
    rewards = [[1.0, float(i % 3 == 0)] for i in range(12)]
    fewer_samples = [row[1:] for row in rewards]
    with_one_unscored = [[0.0, 1.0]] * 12 + [[None, None]]
    write_evaluation("a", [*rewards, [1.0, 1.0]], "x")
    write_evaluation("a", rewards, "y")
    write_evaluation("a", rewards, "z")
    write_evaluation("a", rewards, "only_a")
    write_evaluation("b", fewer_samples, "y", temperature=0.5)
    write_evaluation("b", [[None, None]] * 12, "z")
    write_evaluation("b", with_one_unscored, "x", temperature=0.9)
    Path("a/config.json").write_text("{}")  # no benchmark: it has no samples
    Path("b/only_a.jsonl").touch()  # not finished

    _, cells, printed = compared()
    numbers = {name: row[:4] for name, row in cells.items()}
    assert numbers == {
        "x": ["12", "0.667", "0.500", "0.167"],
        "y": ["12", "0.667", "0.333", "0.333"],
        "z": ["0", "?", "?", "?"],
        "all problems": ["24", "0.667", "0.417", "0.250"],
    }
    low, high = map(float, cells["x"][4].split(" to "))
    assert 0.0 < low < 0.167 < high < 0.333
    assert "finished in one only: only_a" in printed
    versions = "versions.torch was 'a' and is 'b'"
    assert f"x, from A to B: temperature was 1.0 and is 0.9; {versions}\n" in printed
    assert f"y, from A to B: num_generations was 2 and is 1; temperature was 1.0 and is 0.5; {versions}\n" in printed


def test_problems_are_compared_whatever_text_is_around_them(compared):
    write_evaluation("a", [[float(i % 3 == 0)] for i in range(12)])
    write_evaluation("b", [[float(i % 2 == 0)] for i in range(12)], prompt_template="Q: {prompt}")
    path = Path("b/problems.jsonl")
    path.write_text(path.read_text().replace("problem ", "Q:\u2028problem "))
    _, cells, _ = compared()
    *numbers, interval = cells["problems"]
    assert numbers == ["12", "0.333", "0.500", "-0.167"]
    assert " to " in interval


def test_a_prompt_of_two_benchmarks_is_drawn_once_in_a_comparison(compared):
    for name in ("one", "copy"):
        write_evaluation("a", [[float(i % 2)] for i in range(9)], name)
        write_evaluation("b", [[0.0]] * 9, name)
    _, cells, _ = compared()
    assert cells["all problems"] == ["18", "0.444", "0.000", "0.444", "fewer than 10 prompts"]


def test_an_evaluation_does_not_differ_from_itself(compared):
    write_evaluation("a", [[float(i % 3 == 0)] for i in range(12)])
    _, cells, printed = compared("a")
    assert cells == {"problems": ["12", "0.333", "0.333", "0.000", "all are equal"]}
    assert "nothing is different" in printed
    assert "not compared" not in printed


def test_versions_tell_graders_apart(monkeypatch):
    monkeypatch.setattr(results_module, "__file__", str(Path("evaluation/results.py").resolve()))
    before = results_module.versions()
    packages = ("delta-trl", "torch", "transformers", "math-verify", "latex2sympy2_extended", "sympy")
    assert {name: before[name] for name in packages} == {name: version(name) for name in packages}
    for room in ("rewards", "sandbox"):
        part = Path(room, "part")
        part.mkdir(parents=True)
        Path(part, "code.py").write_text("# edited\n")
        now = results_module.versions()
        changed = [name for name in now if now[name] != before[name]]
        assert changed == [room]
        before = now


MISMATCHES = {"other": "only few, problems", "data": "problems was", "reward": "reward was"}


@pytest.mark.parametrize(("second", "message"), MISMATCHES.items())
def test_other_problems_or_rewards_are_not_compared(compared, second, message):
    write_evaluation("a", [[1.0]])
    write_evaluation("data", [[1.0]], problems="other")
    write_evaluation("reward", [[1.0]], reward="mine")
    write_evaluation("other", [[1.0]], "few")
    code, _, printed = compared(second)
    assert code == 2
    assert message in printed


@pytest.mark.parametrize(
    ("damaged", "change"),
    [
        ("problems.jsonl", lambda text: "\n".join(text.splitlines()[:4])),
        ("problems.jsonl", lambda text: text.replace("reward", "score")),
        ("problems.json", lambda text: ""),
        ("problems.json", lambda text: "{}"),
        ("problems.json", lambda text: "[]"),
    ],
)
def test_a_damaged_file_is_named(compared, damaged, change):
    """Also one that lacks the samples of a whole problem."""
    for folder in ("a", "b"):
        write_evaluation(folder, [[1.0, 0.0]] * 3)
    path = Path("b", damaged)
    path.write_text(change(path.read_text()))
    code, _, printed = compared()
    assert code == 2
    assert f"{path} is not a file of an evaluation" in printed


# --- mistakes ---


def options_of_others(text: str, kind: type) -> set[str]:
    """Words of a message that are options, but not of the command with these arguments."""
    others = set()
    for one in (RunArguments, DeltaGRPOConfig, AuditArguments, ExplainArguments, EvalArguments):
        others |= {field.name for field in fields(one)}
    others -= {field.name for field in fields(kind)}
    words = re.findall(r"\w+", text)
    return {word for word in others.intersection(words) if "_" in word}


PROBLEM = {"prompt": "1+1=", "solution": "2"}
MISTAKES = [  # in the data, or in options, and what the message names
    ({"question": "1+1=", "solution": "2"}, {}, "no column 'prompt'"),
    ({"prompt": "1+1=", "answer": "2"}, {}, "'solution'"),
    (PROBLEM | {"solution": " "}, {}, "'solution'"),
    (PROBLEM | {"solution": r"\begin{tikzpicture}"}, {}, "tikzpicture"),
    (PROBLEM | {"prompt": 3}, {}, "row 1, column 'prompt'"),
    (PROBLEM, {"num_problems": 0}, "num_problems=0"),
    (PROBLEM, {"conversational": True}, "chat template"),
    (PROBLEM, {"model_name_or_path": FIXTURES}, "fixtures"),
    (PROBLEM, {"model_name_or_path": "./nowhere"}, "no such file or folder"),
    (PROBLEM, {"prompt_template": "no"}, "prompt_template='no'"),
    (PROBLEM, {"dataset_format": "gsm8k"}, "dataset_format='gsm8k'"),
]


@pytest.mark.parametrize(("row", "options", "named"), MISTAKES, ids=str)
def test_mistakes_are_named_by_options_of_this_command(call, data, capsys, row, options, named):
    data.write_text(json.dumps(row) + "\n")
    assert call(reward="math_reward", **options) == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert named in message
    assert not options_of_others(message, EvalArguments)


def test_several_processes_are_refused(call, monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert call() == 2
    assert "launcher" in capsys.readouterr().err


@pytest.mark.parametrize("rule", ["dleta", "delta:lamda_max=1", "given", "tests.corpus.tiny.model"])
def test_a_rule_that_cannot_be_made_names_no_option_of_another_command(rule):
    with pytest.raises((ValueError, TypeError)) as error:
        make_rule(rule)
    for kind in (AuditArguments, ExplainArguments):
        assert not options_of_others(str(error.value), kind)


def test_weights_that_are_missing(call, model, capsys):
    file = model / "model.safetensors"
    weights = load_file(file)
    name = next(name for name in weights if "mlp" in name)
    del weights[name]
    save_file(weights, file, {"format": "pt"})
    assert call() == 2
    assert name in capsys.readouterr().err


@pytest.mark.parametrize(
    ("folder", "problem"),
    [
        ("absent", "is no folder"),
        ("empty", "has no finished benchmark"),
    ],
)
def test_a_folder_without_an_evaluation_is_named(folder, problem, capsys):
    write_evaluation("a", [[1.0]])
    Path("empty").mkdir()
    assert main(["eval", "--compare", "a", folder]) == 2
    assert f"'{folder}' {problem}" in capsys.readouterr().err


def test_columns_of_a_file_are_renamed(call):
    """Of a part of its problems, each has the number of its row in the file."""
    data = tiny.dataset(10)
    data.rename_columns({"prompt": "question", "solution": "answer"}).to_json("asked.jsonl")
    mapping = "{question: prompt, answer: solution}"
    assert call(benchmarks="asked.jsonl", column_mapping=mapping, num_problems=3, reward="math_reward") == 0
    problems = read_samples(name="asked").drop_duplicates("problem")
    assert problems["prompt"].tolist() == [data["prompt"][number - 1] for number in problems["problem"]]
    assert len(problems) == 3
