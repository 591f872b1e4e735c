# Each of these does all of its own set-up: `make demo`, `make test`, `make bench`, `make bench-convergence`, `make lint`,
# `make gpu-check` (on a machine with a GPU and a CUDA build of torch).
# Needs python3 (3.11 or newer) with venv and headers, g++, make, iproute2; on Debian:
#   apt-get install python3-venv python3-dev g++ make iproute2

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/pip --disable-pip-version-check --quiet
INSTALLED := pyproject.toml constraints.txt
PYTEST_ARGS ?= -n 2 --dist loadfile

.PHONY: demo test runtime set-up bench bench-convergence gpu-check lint clean
.DELETE_ON_ERROR:

demo: $(VENV)/.demo
	$(BIN)/relaxc demo

test: runtime
	$(BIN)/python -m pytest $(PYTEST_ARGS)

runtime: $(VENV)/.dev
	$(BIN)/python -c "from relaxc.build.runtime import build_runtime; build_runtime()"

set-up: $(VENV)/.dev

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

bench-convergence: $(VENV)/.dev
	$(BIN)/python benchmarks/convergence.py
	$(BIN)/python benchmarks/convergence.py --processes

gpu-check: $(VENV)/.dev
	$(BIN)/python benchmarks/gpu_check.py

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

clean:
	rm -rf $(VENV) dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

# --- set-up: a stamp is as new as the files that say what is installed

$(VENV)/.venv:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is older than 3.11: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); echo "no venv: apt-get install python3-venv"; exit 1; }
	@touch $@

$(VENV)/.demo: $(VENV)/.venv $(INSTALLED)
	@echo "installing relaxc and torch into $(VENV), once; takes a minute or two"
	@$(PIP) install --constraint constraints.txt --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.demo
	@echo "installing what development needs into $(VENV), once"
	@$(PIP) install --constraint constraints.txt --editable '.[dev]'
	@touch $@
