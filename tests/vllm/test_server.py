"""Training with a vLLM server. TRL sends weights over NCCL, which needs GPUs: here they travel as a file."""

import os
import shutil
import subprocess
import sys

import pytest
from accelerate.utils.other import get_free_port
from safetensors.torch import save_file

from ..trainers import logged


pytest.importorskip("vllm", reason="vLLM is not installed (make test-vllm)")

from trl.generation import vllm_generation
from trl.generation.vllm_client import VLLMClient

from .checked import MODEL, assert_agree, make


pytestmark = [pytest.mark.vllm, pytest.mark.slow]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Its address, and the folder from which it reads weights."""
    folder = shutil.copytree(MODEL, tmp_path_factory.mktemp("server") / "model")
    port = get_free_port()
    command = f"{sys.executable} -m vllm.entrypoints.openai.api_server --host 127.0.0.1 --port {port} --model {folder}"
    command += " --enforce-eager --dtype float32 --seed 0 --logprobs-mode processed_logprobs"
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    process = subprocess.Popen(command.split(), env={**os.environ, **settings, "TORCHDYNAMO_DISABLE": "1"})
    yield f"http://127.0.0.1:{port}", folder
    process.terminate()
    process.wait(timeout=60)


def test_sampling_and_coefficients(tmp_path, server, monkeypatch):
    address, folder = server

    class FileClient(VLLMClient):
        def init_communicator(self, device=None):
            pass

        def update_named_params(self, metadata, params):
            save_file({name: param.contiguous() for name, param in params}, folder / "model.safetensors")
            response = self.session.post(f"{self.base_url}/collective_rpc", json={"method": "reload_weights"})
            assert response.status_code == 200, response.text

    monkeypatch.setattr(vllm_generation, "VLLMClient", FileClient)
    trainer = make(tmp_path, vllm_mode="server", vllm_server_base_url=address)
    trainer.train()
    assert_agree(trainer.checks)
    assert logged(trainer, "credit/extra_forward_passes") == [0.0] * len(trainer.checks)
