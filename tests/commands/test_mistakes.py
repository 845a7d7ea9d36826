"""
Mistakes that new users make: each ends with exit code 2 and one message that names the option or its value, and
nothing is written. `python -m tests.commands.test_mistakes` prints them all.
"""

import contextlib
import io
import json
import math
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
import torch
import yaml
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, GPT2Config, Qwen3Config, Qwen3ForSequenceClassification

from delta_trl.cli import SECONDS_AFTER_FIRST, main

from ..corpus import tiny


ROOT = Path(__file__).parents[2]
RECIPE = {
    "model_name_or_path": "model",
    "dataset_name": "data.jsonl",
    "reward_funcs": ["math_reward"],
    "output_dir": "run",
    **tiny.OPTIONS,
    "max_steps": 1,
    "report_to": "none",
}
T = "train --config recipe.yaml "
D = T + "--dry-run "
E = "eval --model_name_or_path model --benchmarks data.jsonl --output_dir evaluated --num_generations 2 "
A = "audit --model_name_or_path model --benchmarks labelled.jsonl --output_dir audited "

# The call, whose last option or its value the message names; or the call and the names in the message.
MISTAKES = [
    # the call
    "trian",
    ("train", "--config"),
    "train --config",
    "train --config none.yaml",
    "train --config=none.yaml",
    ("train --config folder", "recipe"),
    ("train recipe.yaml", "--config recipe.yaml"),
    *(f"train --config {name}" for name in ("broken.yaml", "list.yaml", "empty.jsonl", "braces.yaml")),
    ("train --config twice.yaml", "`learning_rate`"),
    ("train --model_name_or_path model", "`dataset_name`"),
    *(
        (f"train --config no_{name}.yaml", f"`{name}`")
        for name in ("output_dir", "reward_funcs", "model_name_or_path")
    ),
    (T + "--learning_rat 1e-5", "`--learning_rate`"),  # an abbreviation to argparse
    (T + "--max_step 3", "`--max_steps`"),
    ("train --config typo.yaml", "`num_generations`"),
    (D + "--token_credt fipo", "`--token_credit`"),
    (T + "--num-processes 2", "--dry-run"),
    (D + "4", "--num-processes"),
    (T + "--seed 1 2", "`2`"),
    *(D + f"--num-processes {number}" for number in ("0", "-1", "two")),
    # values
    T + "--learning_rate low",
    (D + "--max_completion_length null", "length of the longest completion"),
    (T + "--num_generations 1", "generations"),  # TRL's words
    D + "--num_generations 3",
    T + "--save_strategy sometimes",
    T + "--lr_scheduler_type linnear",
    T + "--warmup_steps -3",
    T + "--report_to wandb",
    T + "--use_vllm true",
    (T + "--use_peft true --lora_r 0", "`r`"),  # PEFT's words
    T + "--use_peft true --lora_target_modules no_such",
    D + "--terminal loud",
    (T + "--reward_weights 1 2", "reward_weights"),
    (D + "--reward_weights 1 2", "reward_weights"),
    (D + "--importance_sampling_level sequence", "importance_sampling_level"),
    # options that do nothing without another
    (T + "--lora_r 4", "lora_r", "use_peft"),
    (D + "--use_dora true --lora-alpha=8", "use_dora", "lora_alpha", "use_peft"),
    (D + "--vllm_mode server", "vllm_mode", "use_vllm"),
    (D + "--eval_steps 3", "eval_steps", "eval_strategy"),
    (D + "--bnb_4bit_quant_type nf4", "bnb_4bit_quant_type", "load_in_4bit"),
    (T + "--use_peft true --lora_target_modules q_proj v_porj", "'v_proj'"),
    (T + "--use_peft true --lora_modules_to_save lm_haed", "'lm_head'"),
    # token credit
    T + "--token_credit dleta",
    (D + "--token_credit_kwargs {lamda_min:\x1f0.5}", "'lambda_min'"),
    (T + "--token_credit_kwargs {lambda_min:\x1f1.5}", "lambda_min=1.5"),
    (T + "--token_credit_kwargs {refinement_steps:\x1f-1}", "refinement_steps=-1"),
    T + "--token_credit_kwargs 3",
    T + "--hidden_state_cache gpu",
    T + "--log_token_credit -1",
    T + "--importance_sampling_level sequence",
    (T + "--token_credit DelTA", "'delta'"),
    (T + "--token_credit delta:lamda_max=1.5", "'lambda_max'"),
    (T + "--token_credit_kwargs {normalize_coefficients:\x1f1}", "normalize_coefficients=1"),
    *((f"train --config credit_{how}.yaml", "token_credit=") for how in ("off", "in_list")),
    # the model
    D + "--model_name_or_path ./none",
    T + "--model_name_or_path data.jsonl",
    T + "--model_name_or_path folder",
    (T + "--conversational true", "chat template"),
    (D + "--conversational true", "chat template"),
    *((T + f"--model_name_or_path {name}", name) for name in ("no_tokenizer", "no_eos", "bert", "classifier")),
    *((D + f"--model_name_or_path {name}", name) for name in ("no_tokenizer", "no_eos", "bert", "classifier")),
    *((one + "--model_name_or_path gpt2", "max_completion_length") for one in (T, D)),
    (D + "--model_name_or_path few_words", "vocabulary"),
    T + "--model_name_or_path adapter",
    (T + "--model_name_or_path templated --conversational true", "'1+1='"),
    # data
    *(T + f"--dataset_name {name}.jsonl" for name in ("none", "empty", "blank")),
    (T + "--dataset_name broken.jsonl", "row 2"),
    (T + "--dataset_name questions.jsonl", "'prompt'", "'question'"),
    (T + "--dataset_name prompts.jsonl", "'math_reward'", "'solution'"),
    (T + "--dataset_name numbers.jsonl", "row 1", "'prompt'"),
    (D + "--dataset_name questions.jsonl", "'prompt'"),
    (D + "--dataset_name prompts.jsonl", "'solution'"),
    T + "--column_mapping {question:\x1fprompt}",
    (T + "--column_mapping {solution:\x1fanswer}", "'solution'"),
    T + "--prompt_template Solve",
    (T + "--system_prompt Add", "system_prompt", "conversational"),
    T + "--dataset_format deepmaths",
    (T + "--dataset_format gsm8k", "'question'", "'answer'"),
    T + "--max_prompt_length 1",
    (T + "--per_device_train_batch_size 20", "4 rows", "5 prompts"),
    (D + "--per_device_train_batch_size 20", "4 rows", "5 prompts"),
    (D + "--num-processes 4", "4 rows", "8 prompts"),
    (T + "--eval_strategy steps --eval_steps 1", "eval_dataset_name"),
    (D + "--eval_strategy steps --eval_steps 2", "eval_dataset_name"),
    T + "--eval_dataset_name none.jsonl",
    *(D + f"--dataset_name {name}" for name in ("folder", "model", "none.jsonl.gz", "none.csv")),
    (T + "--dataset_name ~/none.jsonl", "none.jsonl"),
    *((D + f"--dataset_name {name}.jsonl", "row 2", "'prompt'") for name in ("mixed", "nulls")),
    (D + "--dataset_name completions.jsonl", "'completions'"),
    (D + "--dataset_name latin.jsonl", "latin.jsonl", "UTF-8"),
    (D + "--dataset_name long.jsonl --model_name_or_path gpt2", "row 1", "40,000 tokens"),
    (T + "--conversational true --max_prompt_length 5", "chat template"),
    # rewards
    (T + "--reward_funcs math_rewrd", "'math_reward'"),
    T + "--reward_funcs my_rewards.nothing",
    T + "--reward_funcs no_module.reward",
    (T + "--reward_funcs my_slip.reward", "my_slip.py, line 2"),
    T + "--reward_funcs my_rewards.number",
    T + "--reward_funcs ./my_rewards.number",
    (D + "--reward_funcs my_rewards.bare", "'my_rewards.bare'", "**kwargs"),
    (D + "--reward_funcs math_rewrd", "'math_reward'"),
    (T + "--reward_kwargs {math_reward:\x1f{time:\x1f3}}", "'math_reward'", "'timeout'"),
    T + "--reward_kwargs {code_reward:\x1f{}}",
    T + "--reward_kwargs loud",
    *((f"train --config weighed_{how}.yaml", "reward_funcs") for how in ("in_words", "twice", "in_list")),
    # the output
    T + "--output_dir data.jsonl",
    (T + "--output_dir taken", "'taken'", "step 7"),
    (T + "--output_dir model", "output_dir='model'"),
    (T + "--output_dir . --overwrite_output_dir true", "output_dir='.'", "'model'"),
    T + "--output_dir",
    T + "--output_dir data.jsonl/run",
    T + "--resume_from_checkpoint checkpoint-7",
    T + "--output_dir taken --resume_from_checkpoint true --overwrite_output_dir true",
    # evaluation
    ("eval", "`model_name_or_path`"),
    ("eval --model_name_or_path model --benchmarks data.jsonl", "`output_dir`"),
    (E + "--temperatur 1", "`--temperature`"),
    E + "--temperature -1",
    (E + "--temperature 0", "temperature=0", "num_generations"),
    E + "--top_p 0",
    (E + "--benchmarks math501", "'math_500'"),
    E + "--benchmarks none.jsonl",
    E + "--model_name_or_path folder",
    *(E + f"--model_name_or_path {name}" for name in ("no_tokenizer", "bert", "classifier")),
    (E + "--model_name_or_path gpt2", "max_completion_length"),
    *(E + f"--output_dir {name}" for name in ("/proc/none", "data.jsonl", "model")),
    *(A + f"--output_dir {name}" for name in ("/proc/none", "data.jsonl", "model")),
    "eval --compare evaluated",
    # reports
    ("inspect none", "none"),
    ("inspect folder", "folder"),
    ("inspect", "RUN_DIR"),
]


def furnish(folder: Path) -> None:
    """A folder as somebody has it who has begun."""
    torch.manual_seed(0)
    tiny.save(folder / "model")
    furnish_models(folder)
    (folder / "folder").mkdir()
    chat = [{"role": "user", "content": "1+1="}]
    marked = [{"prompt": "1+1=", "completion": str(i), "reward": i == 2, "marks": [[0, 1]]} for i in (2, 3)]
    rows = {
        "data": [{"prompt": "1+1=", "solution": "2"}] * 4,
        "questions": [{"question": "1+1=", "answer": "2"}],
        "prompts": [{"prompt": "1+1="}],
        "numbers": [{"prompt": 3, "solution": "2"}],
        "mixed": [{"prompt": "1+1=", "solution": "2"}, {"prompt": chat, "solution": "2"}] * 2,
        "nulls": [{"prompt": "1+1=", "solution": "2"}, {"prompt": None, "solution": "2"}] * 2,
        "completions": [{"prompt": "1+1=", "solution": "2", "completions": "2"}] * 4,
        "long": [{"prompt": "1+1=" * 10_000, "solution": "2"}] * 4,
        "labelled": marked,
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "empty.jsonl").touch()
    (folder / "latin.jsonl").write_bytes('{"prompt": "é=", "solution": "2"}\n'.encode("latin-1") * 4)
    (folder / "blank.jsonl").write_text("\n\n")
    (folder / "broken.jsonl").write_text('{"prompt": "1+1=", "solution": "2"}\n{"prompt":')
    (folder / "recipe.yaml").write_text(yaml.safe_dump(RECIPE))
    (folder / "typo.yaml").write_text(yaml.safe_dump({**RECIPE, "num_generatoins": 4}))
    for key in ("output_dir", "reward_funcs", "model_name_or_path"):
        without = {name: value for name, value in RECIPE.items() if name != key}
        (folder / f"no_{key}.yaml").write_text(yaml.safe_dump(without))
    weighed = {"words": {"math_reward": "much"}, "twice": {"math_reward": 2}, "list": [{"math_reward": 0.25}]}
    for name, rewards in weighed.items():
        keys = {"reward_funcs": rewards, **({"reward_weights": [1.0]} if name == "twice" else {})}
        (folder / f"weighed_{'' if name == 'twice' else 'in_'}{name}.yaml").write_text(
            yaml.safe_dump({**RECIPE, **keys})
        )
    for name, credit in (("off", False), ("in_list", ["delta"])):
        (folder / f"credit_{name}.yaml").write_text(yaml.safe_dump({**RECIPE, "token_credit": credit}))
    taken = {"weighed_once": {"reward_weights": 0.5}, "credit_kwargs": {"token_credit_kwargs": {"lambda_max": 1.5}}}
    for name, keys in taken.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump({**RECIPE, **keys}))
    (folder / "broken.yaml").write_text("a: [1")
    (folder / "list.yaml").write_text("- a")
    (folder / "braces.yaml").write_text("prompt_template: {{prompt}}\n")
    (folder / "twice.yaml").write_text("learning_rate: 1.0e-5\nbeta: 0\nlearning_rate: 1.0e-6\n")
    (folder / "my_rewards.py").write_text("number = 7\ndef bare(completions): ...\n")
    (folder / "my_slip.py").write_text("def reward(completions, **kwargs):\n    return [0.0 for _ in completions\n")
    (folder / "taken" / "checkpoint-7").mkdir(parents=True)
    (folder / "taken" / "checkpoint-7" / "trainer_state.json").write_text("{}")


def furnish_models(folder: Path) -> None:
    """Models, each with one thing wrong. `adapter` is LoRA of a model that lacks weights."""
    sizes = {"vocab_size": 40, "num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 2}
    models = {
        "bert": BertForMaskedLM(BertConfig(**sizes, intermediate_size=32)),
        "classifier": Qwen3ForSequenceClassification(Qwen3Config(**tiny.SIZES, head_dim=8)),
        "gpt2": tiny.model(GPT2Config(**sizes, n_positions=11, bos_token_id=1, eos_token_id=1)),
        "few_words": tiny.model(vocab_size=11),
    }
    models |= dict.fromkeys(("no_tokenizer", "no_eos", "templated", "truncated", "nan"), tiny.model())
    for name, model in models.items():
        model.save_pretrained(folder / name)
        tokenizer = tiny.tokenizer()
        tokenizer.unk_token = "<pad>"
        if name == "no_eos":
            tokenizer.eos_token = None
        if name == "templated":
            tokenizer.chat_template = "{question}"
        if name != "no_tokenizer":
            tokenizer.save_pretrained(folder / name)
    weights = load_file(folder / "nan" / "model.safetensors")
    wrong = weights.pop("model.layers.0.mlp.down_proj.weight")
    lora = get_peft_model(tiny.model(), LoraConfig(target_modules=["q_proj"], task_type="CAUSAL_LM"))
    lora.peft_config["default"].base_model_name_or_path = str(folder / "adapter" / "base")
    lora.save_pretrained(folder / "adapter")
    tiny.save(folder / "adapter" / "base")
    save_file(weights, folder / "adapter" / "base" / "model.safetensors", {"format": "pt"})
    weights["model.layers.0.mlp.down_proj.weight"] = wrong * math.nan
    save_file(weights, folder / "nan" / "model.safetensors", {"format": "pt"})
    whole = folder / "truncated" / "model.safetensors"
    whole.write_bytes(whole.read_bytes()[:5000])


def call(line: str) -> tuple[int, str]:
    """Exit code and message of a call; \\x1f is a space inside of an argument."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = main([word.replace("\x1f", " ") for word in line.split(" ") if word])
    return code, error.getvalue()


def modified(folder: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("mistakes")
    furnish(path)
    return path


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake if isinstance(mistake, str) else mistake[0])
def test_mistakes_are_named(folder, monkeypatch, mistake):
    line, *names = [mistake] if isinstance(mistake, str) else mistake
    monkeypatch.chdir(folder)
    before = modified(folder)
    code, error = call(line)
    assert code == 2
    assert error.count("delta-trl: error:") == 1
    if names:
        assert all(name in error for name in names)
    else:
        words = re.split("[ =]", line)
        options = [word for word in words if word.startswith("--")]
        assert words[-1] in error or options[-1].removeprefix("--") in error
    assert "Traceback" not in error
    assert modified(folder) == before


@pytest.mark.parametrize(
    "line",
    [
        D + "--token_credit delta:lambda_max=1.5",
        "train --config credit_kwargs.yaml --dry-run --token_credit none",  # the options were another rule's
        "train --config weighed_once.yaml --dry-run",
        D + "--dataset_name ~/data.jsonl",
    ],
)
def test_what_is_no_mistake(folder, monkeypatch, line):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    assert call(line)[0] == 0


@pytest.mark.parametrize("command", [E, A])
@pytest.mark.parametrize(
    ("name", "wrong"), [("truncated", "safetensors"), ("nan", "down_proj"), ("adapter", "down_proj")]
)
def test_weights_that_are_wrong(folder, monkeypatch, command, name, wrong):
    """Found after the work has been divided: what is written of it stops no evaluation with another model."""
    monkeypatch.chdir(folder)
    code, error = call(f"{command} --model_name_or_path {name}")
    assert code == 2
    assert wrong in error


def test_deepspeed_that_is_missing(folder, monkeypatch):
    """Transformers asks for its version, and says of itself 'No package metadata was found for deepspeed'."""
    monkeypatch.chdir(folder)
    find = metadata.Distribution.from_name

    def without_deepspeed(name):
        if name == "deepspeed":
            raise metadata.PackageNotFoundError(name)
        return find(name)

    monkeypatch.setattr(metadata.Distribution, "from_name", without_deepspeed)
    code, error = call(T + "--deepspeed recipe.yaml")
    assert code == 2
    assert "delta-trl: error: An option needs deepspeed, which is not installed: pip install deepspeed" in error


def test_mistakes_that_need_no_torch_cost_no_imports(folder):
    script = "import sys; from delta_trl.cli import main; print(main(sys.argv[1:]), 'torch' in sys.modules)"
    for line in ("train", "train --config twice.yaml", T + "--output_dir taken", T + "--dataset_name no.json"):
        done = subprocess.run(
            [sys.executable, "-c", script, *line.split()],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        assert done.stdout == "2 False\n", (line, done.stdout, done.stderr)
        assert done.stderr.count("delta-trl: error:") == 1


def test_the_first_process_tells(folder, monkeypatch):
    """The others leave it the time to, and tell what only they have found."""
    monkeypatch.chdir(folder)
    waited = []
    monkeypatch.setattr("time.sleep", waited.append)
    for rank, pauses in (("0", []), ("1", [SECONDS_AFTER_FIRST])):
        monkeypatch.setenv("LOCAL_RANK", rank)
        code, error = call("train")
        assert (code, waited) == (2, pauses)
        assert "train needs a recipe" in error


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        furnish(Path(name))
        os.chdir(name)
        for mistake in MISTAKES:
            line = mistake if isinstance(mistake, str) else mistake[0]
            _, said = call(line)
            said = said[max(said.find("delta-trl: error:"), 0) :]
            print(f"| `{line}` | {said.strip()} |".replace("\n", " "))
