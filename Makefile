# make demo | make test | make check: each stands alone on a fresh clone.
# Another build of torch: make TORCH=torch==2.13.0 demo   (on Linux that one brings CUDA along)
TORCH ?= torch==2.13.0+cpu
PYTHON ?= python3.11
TORCH_CPU_INDEX = https://download.pytorch.org/whl/cpu

VENV = .venv
BIN = $(VENV)/bin
PIP = $(BIN)/python -m pip --disable-pip-version-check install --quiet

.DEFAULT_GOAL := help
.PHONY: help demo test check format clean FORCE

help:
	@echo "make demo    install into $(VENV) and run the main job on bundled data"
	@echo "make test    install with the dev extra and run the whole test suite"
	@echo "make check   formatting, lint, types and import direction"
	@echo "make format  let ruff format and fix what it can"
	@echo "make clean   remove $(VENV) and what tools left behind"

demo: $(VENV)/.installed
	$(BIN)/ghnfl train --skew 2:100 --out runs/demo --resume

test: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses=auto --dist=worksteal

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest --quiet tests/test_layers.py

format: $(VENV)/.installed-dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache

# --- installing, once ------------------------------------------------------------------------
$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

# Holds the wish of the last install; written only when the wish changed, so that nothing else
# is installed again.
$(VENV)/.torch: FORCE | $(BIN)/python
	@test "$$(cat $@ 2>/dev/null)" = "$(TORCH)" || { \
	  echo "installing $(TORCH)"; \
	  { $(PIP) "$(TORCH)" || $(PIP) --index-url $(TORCH_CPU_INDEX) "$(TORCH)"; } \
	  && echo "$(TORCH)" > $@; }

# torch is named again, or timm's torchvision would replace it by the newest CUDA build.
$(VENV)/.installed: pyproject.toml $(VENV)/.torch
	$(PIP) --editable . "$(TORCH)"
	@touch $@

$(VENV)/.installed-dev: pyproject.toml $(VENV)/.torch
	$(PIP) --editable ".[dev]" "$(TORCH)"
	@touch $@ $(VENV)/.installed
