"""
Mistakes as somebody new makes them: each is one line that says what was given and what to do, with exit code 2, and
nothing is written. `python -m tests.commands.test_mistakes` prints them all.
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import pytest
import torch
import yaml

from delta_trl.cli import AFTER_THE_FIRST, main

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

# the call, and what its message holds
MISTAKES = [
    # the call
    ("trian", "unknown command 'trian', expected one of"),
    ("train", "train needs a recipe: delta-trl train --config RECIPE.yaml"),
    ("train --config", "--config: expected the path of one recipe"),
    ("train --config none.yaml", "--config: no such file: none.yaml"),
    ("train --config folder", "the recipe cannot be read"),
    ("train --config broken.yaml", "The recipe broken.yaml is not valid YAML"),
    ("train --config list.yaml", "holds list, expected a YAML mapping"),
    ("train --config empty.jsonl", "holds NoneType, expected a YAML mapping"),
    ("train --config=none.yaml", "--config: no such file: none.yaml"),
    ("train --config braces.yaml", "The recipe braces.yaml is not valid YAML"),
    ("train --config twice.yaml", "`learning_rate` is set twice, in lines 1 and 3 of the recipe"),
    ("train --model_name_or_path model", "`dataset_name` is missing: set it in the recipe or as --dataset_name"),
    ("train --config no_output_dir.yaml", "`output_dir` is missing"),
    ("train --config no_reward_funcs.yaml", "`reward_funcs` is missing"),
    ("train --config no_model_name_or_path.yaml", "`model_name_or_path` is missing"),
    (T + "--learning_rat 1e-5", "`--learning_rat` (did you mean `--learning_rate`?)"),  # an abbreviation to argparse
    (T + "--max_step 3", "`--max_step` (did you mean `--max_steps`?)"),
    (T + "--token_credt delta", "did you mean `--token_credit`?"),
    ("train --config typo.yaml", "`num_generatoins` (did you mean `num_generations`?)"),
    (T + "--num-processes 2", "--num-processes goes with --dry-run"),
    (D + "--num-processes 0", "--num-processes 0: expected a positive number"),
    # values
    (T + "--learning_rate low", "invalid float value: 'low'"),
    (T + "--learning_rate -0.1", "learning_rate=-0.1: expected 0 or more"),
    (T + "--loss_type dapoo", "loss_type='dapoo': expected one of dapo, grpo"),
    (T + "--temperature 0", "temperature=0.0: expected a number above 0"),
    (T + "--beta -1", "beta=-1.0: expected 0 or more"),
    (T + "--max_completion_length 0", "max_completion_length=0: expected a number of tokens above 0"),
    (T + "--max_steps 0", "max_steps=0: expected a number of optimiser steps above 0, or -1 for epochs"),
    (D + "--max_steps 0", "max_steps=0: expected a number of optimiser steps"),
    (T + "--num_train_epochs 0", "num_train_epochs=0.0: expected a number above 0"),
    (T + "--num_generations 1", "GRPO requires at least 2 generations"),
    (T + "--num_generations 3", "must be divisible by num_generations (3)"),
    (T + "--save_strategy sometimes", "invalid choice: 'sometimes'"),
    (T + "--lr_scheduler_type linnear", "invalid choice: 'linnear'"),
    (T + "--optim adamm", "invalid choice: 'adamm'"),
    (T + "--dtype float3", "invalid choice: 'float3'"),
    (T + "--warmup_steps -3", "Got warmup_steps = -3.0, Expected value warmup_steps >= 0"),
    (T + "--report_to wandb", "report_to='wandb': the package is not installed: pip install wandb"),
    (T + "--use_vllm true", "use_vllm needs vLLM: pip install 'trl[vllm]'"),
    (T + "--use_peft true --lora_r 0", "`r` should be a positive integer value but the value passed is 0"),
    (T + "--use_peft true --lora_target_modules no_such", "no_such"),
    (T + "--top_p 2", "top_p=2.0: expected a number above 0, at most 1"),
    (D + "--top_p 0", "top_p=0.0: expected a number above 0, at most 1"),
    (T + "--epsilon 5", "epsilon=5.0: expected a number from 0 to 1"),
    (D + '--generation_kwargs {"top_p":2}', "top_p=2: expected a number above 0, at most 1"),
    (D + '--generation_kwargs {"top_kk":5}', "generation_kwargs does not know 'top_kk' (did you mean 'top_k'?)"),
    (D + "--max_grad_norm nan", "max_grad_norm=nan: expected 0 or more"),
    # options that do nothing without another
    (T + "--lora_r 4", "lora_r is without effect unless use_peft is set"),
    (D + "--use_dora true --lora-alpha=8", "use_dora, lora_alpha are without effect unless use_peft is set"),
    (D + "--vllm_mode server", "vllm_mode is without effect unless use_vllm is set"),
    (D + "--eval_steps 3", "eval_steps is without effect unless eval_strategy is set"),
    (D + "--bnb_4bit_quant_type nf4", "bnb_4bit_quant_type is without effect unless load_in_4bit is set"),
    (T + "--use_peft true --lora_target_modules q_proj v_porj", "no module 'v_porj' (did you mean 'v_proj'?)"),
    (T + "--use_peft true --lora_modules_to_save lm_haed", "no module 'lm_haed' (did you mean 'lm_head'?)"),
    # token credit
    (T + "--token_credit dleta", "token_credit='dleta'"),
    (T + "--token_credit_kwargs {lamda_min:\x1f0.5}", "'lamda_min' (did you mean 'lambda_min'?)"),
    (T + "--token_credit_kwargs {lambda_min:\x1f1.5}", "lambda_min=1.5, lambda_max=1.2"),
    (T + "--token_credit_kwargs 3", "token_credit_kwargs=3: expected a mapping"),
    (T + "--hidden_state_cache gpu", "invalid choice: 'gpu'"),
    (T + "--log_token_credit -1", "log_token_credit=-1: expected a number of steps >= 0"),
    (T + "--token_credit none --log_token_credit 1", "log_token_credit"),
    (T + "--importance_sampling_level sequence", "spreads the gradient evenly over the tokens of a response"),
    # the model
    (T + "--model_name_or_path ./none", "model_name_or_path='./none': no such folder (from "),
    (T + "--model_name_or_path data.jsonl", "is a file: name the folder of a saved model, or a hub id"),
    (T + "--model_name_or_path folder", "no config.json in that folder: not a saved model"),
    (T + "--conversational true", "the prompts are chats, but the tokenizer of 'model' has no chat template"),
    # data
    (T + "--dataset_name none.jsonl", "dataset_name='none.jsonl': no such file (from "),
    (T + "--dataset_name empty.jsonl", "dataset_name='empty.jsonl': the file is empty"),
    (T + "--dataset_name blank.jsonl", "dataset_name='blank.jsonl': the file is empty"),
    (T + "--dataset_name broken.jsonl", "row 2 is not JSON"),
    (T + "--dataset_name questions.jsonl", "no column 'prompt', only 'question', 'answer'. Say which one holds the"),
    (T + "--dataset_name prompts.jsonl", "The reward 'math_reward' needs a column 'solution'"),
    (T + "--dataset_name numbers.jsonl", "row 1, column 'prompt': expected"),
    (T + "--column_mapping {question:\x1fprompt}", "no column 'question', the dataset has 'prompt', 'solution'"),
    (T + "--prompt_template Solve", "prompt_template='Solve': expected the text to contain {prompt}"),
    (T + "--system_prompt Add", "system_prompt is for conversational prompts: also set `conversational: true`"),
    (T + "--dataset_format deepmaths", "invalid choice: 'deepmaths'"),
    (T + "--dataset_format gsm8k", "needs the columns 'question', 'answer'"),
    (T + "--max_prompt_length 1", "every prompt has more than max_prompt_length=1 tokens"),
    (T + "--per_device_train_batch_size 20", "4 rows are too few: a rollout batch takes 5 prompts (20 completions"),
    (D + "--per_device_train_batch_size 20", "4 rows are too few: a rollout batch takes 5 prompts (20 completions"),
    (D + "--num-processes 4", "4 rows are too few: a rollout batch takes 8 prompts (32 completions"),
    (T + "--eval_strategy steps --eval_steps 1", "which has no split to evaluate on: give `eval_dataset_name`"),
    (T + "--eval_dataset_name none.jsonl", "eval_dataset_name='none.jsonl': no such file"),
    (D + "--dataset_name none.jsonl", "dataset_name='none.jsonl': no such file"),
    (D + "--dataset_name questions.jsonl", "no column 'prompt'"),
    (D + "--dataset_name prompts.jsonl", "needs a column 'solution'"),
    (D + "--model_name_or_path ./none", "no such folder"),
    # rewards
    (T + "--reward_funcs math_rewrd", "Unknown reward 'math_rewrd': did you mean 'math_reward'?"),
    (T + "--reward_funcs my_rewards.nothing", "module 'my_rewards' has no 'nothing'"),
    (T + "--reward_funcs no_module.reward", "there is no module 'no_module'"),
    (T + "--reward_funcs my_slip.reward", "my_slip.py, line 2"),
    (T + "--reward_funcs my_rewards.number", "Reward 'my_rewards.number' is not callable: 7"),
    (T + "--reward_kwargs {math_reward:\x1f{time:\x1f3}}", "'time'"),
    (T + "--reward_kwargs {code_reward:\x1f{}}", "not among reward_funcs"),
    (T + "--reward_kwargs loud", "reward_kwargs='loud': expected a mapping"),
    ("train --config weighed_in_words.yaml", "reward_funcs: the weight of 'math_reward' is 'much': expected a number"),
    ("train --config weighed_twice.yaml", "Set either the weights in `reward_funcs` or `reward_weights`"),
    ("train --config weighed_in_list.yaml", "reward_funcs=[{'math_reward': 0.25}]: expected names, or a mapping of"),
    # the output
    (T + "--output_dir data.jsonl", "output_dir='data.jsonl' is a file: name a folder"),
    (T + "--output_dir taken", "output_dir='taken' holds a run that has reached step 7, which would be written over"),
    (T + "--output_dir model", "output_dir='model' holds 'model', which is trained from and would be written over"),
    (T + "--output_dir . --overwrite_output_dir true", "output_dir='.' holds 'model', which is trained from"),
    (T + "--output_dir", "`output_dir` is missing"),
    (T + "--resume_from_checkpoint checkpoint-7", "not a complete checkpoint"),
    (T + "--output_dir taken --resume_from_checkpoint true --overwrite_output_dir true", "contradict each other"),
    # evaluation
    ("eval", "`model_name_or_path` is missing"),
    ("eval --model_name_or_path model --benchmarks data.jsonl", "`output_dir` is missing"),
    (E + "--temperatur 1", "`--temperatur` (did you mean `--temperature`?)"),
    (E + "--temperature -1", "temperature=-1.0: expected 0 or more"),
    (E + "--temperature 0", "decodes greedily, and num_generations=2 samples would be equal"),
    (E + "--top_p 0", "top_p=0.0: expected a number above 0, at most 1"),
    (E + "--benchmarks math501", "Unknown benchmark 'math501': did you mean 'math_500'?"),
    (E + "--benchmarks none.jsonl", "dataset_name='none.jsonl': no such file"),
    (E + "--model_name_or_path folder", "model_name_or_path='folder': no tokenizer can be loaded"),
    ("eval --compare evaluated", "argument --compare: expected 2 arguments"),
    # reports
    ("inspect none", "none: no such folder. Expected the `output_dir` of a run"),
    ("inspect folder", "folder: nothing to show. Looked for trainer_state.json"),
    ("inspect", "the following arguments are required: RUN_DIR"),
]


def furnish(folder: Path) -> None:
    """A folder as somebody has it who has begun."""
    torch.manual_seed(0)
    tiny.model().save_pretrained(folder / "model")
    tiny.tokenizer().save_pretrained(folder / "model")
    (folder / "folder").mkdir()
    rows = {
        "data": [{"prompt": "1+1=", "solution": "2"}] * 4,
        "questions": [{"question": "1+1=", "answer": "2"}],
        "prompts": [{"prompt": "1+1="}],
        "numbers": [{"prompt": 3, "solution": "2"}],
    }
    for name, lines in rows.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "empty.jsonl").touch()
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
    (folder / "broken.yaml").write_text("a: [1")
    (folder / "list.yaml").write_text("- a")
    (folder / "braces.yaml").write_text("prompt_template: {{prompt}}\n")
    (folder / "twice.yaml").write_text("learning_rate: 1.0e-5\nbeta: 0\nlearning_rate: 1.0e-6\n")
    (folder / "my_rewards.py").write_text("number = 7\n")
    (folder / "my_slip.py").write_text("def reward(completions, **kwargs):\n    return [0.0 for _ in completions\n")
    (folder / "taken" / "checkpoint-7").mkdir(parents=True)
    (folder / "taken" / "checkpoint-7" / "trainer_state.json").write_text("{}")


def call(line: str) -> tuple[int, str]:
    """Exit code and message of a call; \\x1f is a space inside of an argument."""
    error = io.StringIO()
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        code = main([word.replace("\x1f", " ") for word in line.split(" ") if word])
    return code, error.getvalue()


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("mistakes")
    furnish(path)
    return path


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_mistakes_are_named(folder, monkeypatch, line, message):
    monkeypatch.chdir(folder)
    before = files(folder)
    code, error = call(line)
    assert code == 2
    lines = [text for text in error.splitlines() if text.startswith(("delta-trl: error:", "usage:"))]
    assert lines
    assert message in error
    assert "Traceback" not in error
    assert files(folder) == before


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
    for rank, pauses in (("0", []), ("1", [AFTER_THE_FIRST])):
        monkeypatch.setenv("LOCAL_RANK", rank)
        code, error = call("train")
        assert (code, waited) == (2, pauses)
        assert "train needs a recipe" in error


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        furnish(Path(name))
        os.chdir(name)
        for line, _ in MISTAKES:
            _, said = call(line)
            said = said[max(said.find("delta-trl: error:"), 0) :]
            print(f"| `{line}` | {said.strip()} |".replace("\n", " "))
