# `make demo` and `make test` need nothing but Python 3.11+ and make; the rest is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint type docs check clean benchmark-exact benchmark-glasso

demo: $(VENV)/.installed
	$(BIN)/ggmflow demo

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(VENV)/.installed-test
	$(BIN)/pyright

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: test lint type docs

benchmark-%: $(VENV)/.installed-benchmark
	$(BIN)/python -m benchmarks.$*

# One stamp per extra, renewed when pyproject.toml changes, so a second call installs nothing.
$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit("ggmflow needs Python 3.11 or newer; this is " + sys.version.split()[0] + ". Try: make PYTHON=python3.12 $(MAKECMDGOALS)") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); exit 1; }

$(VENV)/.installed: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	@touch $@

$(VENV)/.installed-%: pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[$*]'
	@touch $@

.SECONDARY:

clean:
	rm -rf $(VENV) demo site .pytest_cache .ruff_cache
