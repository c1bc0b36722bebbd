# Every target makes its own environment in .venv; nothing but Python >= 3.11 (venv, pip) and make is needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet --constraint constraints.txt

.PHONY: demo test test-all test-blas check bench docs notebooks clean

$(VENV)/.core: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "coterie needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing coterie into $(VENV) ..."
	@$(PIP) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core studies/pyproject.toml
	@echo "installing the developers' tools and the studies into $(VENV) ..."
	@$(PIP) --editable '.[dev]' --editable studies
	@touch $@

demo: $(VENV)/.core
	$(BIN)/coterie demo --out coterie-demo

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow"

test-all: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 --dist loadgroup

test-blas: $(VENV)/.dev
	$(BIN)/python -m tests.blas_kernels

check: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html

$(VENV)/.bench: $(VENV)/.dev
	@echo "installing what the benchmarks compare with into $(VENV) ..."
	@$(PIP) --editable '.[bench]'
	@touch $@

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks

docs: $(VENV)/.dev
	$(BIN)/python -m sphinx -q -W --keep-going -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

notebooks: docs
	$(PIP) nbclient ipykernel
	$(BIN)/jupyter-execute $$(grep -L COTERIE_DATA docs/_generated/*.ipynb)

clean:
	rm -rf $(VENV) docs/_build docs/_generated coterie-demo
