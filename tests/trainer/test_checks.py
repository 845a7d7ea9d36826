"""What is refused or corrected at construction because it would fail on GPUs only."""

import math
import os
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace

import pytest
from datasets import Dataset

from delta_trl import DeltaGRPOConfig
from delta_trl.credit import AdaptiveSides, DelTA, WithinSide
from delta_trl.trainer.checks import refuse_what_hides_states

from ..corpus import tiny


def config(**options) -> DeltaGRPOConfig:
    return DeltaGRPOConfig("unused", use_cpu=True, **{"bf16": False, **options})


def test_compiled_shards_show_their_hidden_states_once_only():
    with pytest.raises(ValueError, match="FSDP and torch_compile together"):
        refuse_what_hides_states(config(torch_compile=True), is_fsdp_enabled=True)
    refuse_what_hides_states(config(torch_compile=True), is_fsdp_enabled=False)
    refuse_what_hides_states(config(), is_fsdp_enabled=True)


def trainer(fsdp=0, zero=0, **options) -> SimpleNamespace:
    """As much of a trainer as a rule looks at."""
    args = config(**options)
    plugin = SimpleNamespace(zero_stage=zero) if zero else None
    sizes = SimpleNamespace(vocab_size=32, num_hidden_layers=2)
    return SimpleNamespace(
        args=SimpleNamespace(**{**vars(args), "deepspeed_plugin": plugin}),
        is_fsdp_enabled=fsdp > 0,
        accelerator=SimpleNamespace(is_fsdp2=fsdp == 2),
        model=SimpleNamespace(config=SimpleNamespace(get_text_config=lambda: sizes)),
        processing_class=SimpleNamespace(),
    )


FULL = DelTA(token_gradient="full")


@pytest.mark.parametrize(
    ("rule", "setup", "message"),
    [
        (FULL, {"zero": 1, "bf16": True}, "DeepSpeed in 16 bits"),
        (FULL, {"zero": 2, "bf16": True}, "DeepSpeed in 16 bits.*errors of up to 0.6"),
        (FULL, {"zero": 3}, "ZeRO-3, which holds no whole parameter"),
        (DelTA(token_gradient="lm_head"), {"zero": 3}, "ZeRO-3"),
        (DelTA(token_gradient="topk_hidden"), {"fsdp": 1}, "FSDP1"),
        (FULL, {"fsdp": 1}, "FSDP1"),
        (FULL, {"fsdp": 2, "gradient_accumulation_steps": 2}, "gradient_accumulation_steps=1"),
        (AdaptiveSides(), {"zero": 3}, "ZeRO-3.*or SideWeights"),
        (AdaptiveSides(), {"fsdp": 2, "gradient_accumulation_steps": 2}, "=1 only, got 2.*or SideWeights"),
        (
            AdaptiveSides(),
            {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
            "use_reentrant: false",
        ),
    ],
    ids=str,
)
def test_gradients_that_cannot_be_had_are_refused(rule, setup, message):
    with pytest.raises(ValueError, match=message):
        rule.check(trainer(**setup))


@pytest.mark.parametrize(
    ("rule", "setup"),
    [
        (DelTA(), {"zero": 3, "bf16": True}),
        (WithinSide(), {"fsdp": 1, "bf16": True}),
        (DelTA(token_gradient="lm_head"), {"zero": 2, "bf16": True}),
        (FULL, {"zero": 2}),
        (FULL, {"fsdp": 2, "bf16": True}),
        (FULL, {"bf16": True}),
        (AdaptiveSides(), {"zero": 2, "bf16": True}),
    ],
    ids=str,
)
def test_what_works_is_not(rule, setup):
    rule.check(trainer(**setup))


def test_a_temperature_that_log_probabilities_do_not_know(make_trainer, caplog):
    make_trainer(generation_kwargs={"temperature": 0.5, "top_p": 0.9})
    assert "samples at temperature 0.5, but log-probabilities are computed at temperature=1" in caplog.text
    caplog.clear()
    make_trainer(temperature=0.5, generation_kwargs={"top_p": 0.9})
    assert not caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"reward_funcs": "math_reward"}, "reward_funcs='math_reward'.*get_reward"),
        ({"model": tiny.model().requires_grad_(False)}, "frozen"),
        ({"train_dataset": Dataset.from_dict({"prompt": ["1+1=", None] * 4})}, "row 2, column 'prompt'"),
        ({"trainer_options": {"token_credit": DelTA(normalize_coefficients=1)}}, "normalize_coefficients=1"),
        ({"reward_weights": [math.nan]}, "reward_weights"),
    ],
    ids=["name of a reward", "frozen", "no prompt", "not a bool", "weight"],
)
def test_mistakes_in_python(make_trainer, change, message):
    with pytest.raises(ValueError, match=message):
        make_trainer(**change)


@pytest.mark.skipif(find_spec("vllm") is not None, reason="vLLM is installed")
def test_vllm_that_is_not_there(make_trainer):
    with pytest.raises(ImportError, match=r"pip install 'trl\[vllm\]'"):
        make_trainer("no/such-model", use_vllm=True)


@pytest.mark.processes
def test_vllm_that_trl_cannot_import(tmp_path):
    """TRL imports whatever vLLM there is, and `delta-trl` says in a line what that means."""
    (tmp_path / "vllm").mkdir()
    (tmp_path / "vllm" / "__init__.py").write_text("class LLM: pass")
    (tmp_path / "vllm-0.21.0.dist-info").mkdir()
    (tmp_path / "vllm-0.21.0.dist-info" / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm\nVersion: 0.21.0\n"
    )
    command = [sys.executable, "-m", "delta_trl.cli", "train", "--config", "recipes/quickstart/addition.yaml"]
    command += ["--output_dir", str(tmp_path / "run")]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2
    assert "vLLM 0.21.0 is installed: is it a version that this TRL supports?" in done.stderr
    assert "Traceback" not in done.stderr
