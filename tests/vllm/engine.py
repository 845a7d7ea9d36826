"""
vLLM's CPU build, changed so that it takes new weights while it runs, as GPU builds do. All changes are here:

- its CPU matrix products pack the weights and drop the originals, so that none can be loaded: torch's are used;
- one engine of a process serves all its trainers, in float32 (TRL has no option for it, and vLLM would take bfloat16)
  and without compilation.
"""

import os
from functools import cache

import torch


os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")  # GiB
os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")
torch._dynamo.config.disable = True  # it would compile samplers for half a minute

from trl.generation import vllm_generation  # noqa: E402
from vllm import LLM  # noqa: E402
from vllm.model_executor.layers import utils  # noqa: E402


def keep_weights(layer: torch.nn.Module, remove_weight: bool) -> None:
    layer.cpu_linear = torch.nn.functional.linear


@cache
def engine(model: str, tensor_parallel_size: int, dtype: str = "float32") -> LLM:
    return LLM(
        model=model,
        tensor_parallel_size=tensor_parallel_size,
        dtype=dtype,
        enforce_eager=True,
        max_num_seqs=256,
        # as TRL sets them
        distributed_executor_backend="external_launcher",
        seed=int(os.environ["RANK"]) // tensor_parallel_size,
        logprobs_mode="processed_logprobs",
    )


def colocated(model: str, tensor_parallel_size: int, logprobs_mode: str, **options) -> LLM:
    """In place of `LLM` in TRL."""
    assert logprobs_mode == "processed_logprobs"
    return engine(model, tensor_parallel_size)


def install() -> None:
    utils.dispatch_cpu_unquantized_gemm = keep_weights
    vllm_generation.LLM = colocated
