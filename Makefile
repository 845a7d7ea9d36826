# Every target works on a fresh machine with Python >= 3.10: the virtual environment is made from constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: install quickstart test test-slow lint

$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

install: $(VENV)/.installed

quickstart: install
	$(BIN)/python scripts/quickstart.py

# One thread each: two workers with two OpenMP threads each wait for one another on a machine of two cores.
test: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

test-slow: install
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m slow

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
