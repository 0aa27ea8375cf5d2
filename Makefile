# `make demo` and `make test` need nothing but Python 3.11+ and make; the rest is for developers.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
OLDEST_TESTS := $(addprefix tests/, explorer/test_server.py $(addprefix test_, data.py missing.py target.py cache.py io.py \
	train.py weights.py estimator.py posterior.py))
# Of the estimator what scikit-learn checks; all else of it is slow to compile.
OLDEST_PARTS := (not test_estimator or scikit_learn_checks) and not ctrl_c and not no_move_waits

.PHONY: demo test test-oldest lint type docs check clean benchmark-exact benchmark-glasso \
	reproduce-toy reproduce-edges reproduce-blanket reproduce-runtime

demo: $(VENV)/.installed
	$(BIN)/ggmflow demo

# A file goes to one process, so that what its tests share is made once.
test: $(VENV)/.installed-test
	$(BIN)/python -m pytest -n 2 --dist loadfile

# The rooms that lean most on JAX, NumPy, pandas and scikit-learn, with the oldest versions of them that we allow.
test-oldest: $(OLDEST)/.installed
	XLA_FLAGS= $(OLDEST)/bin/python -m pytest -n 2 $(OLDEST_TESTS) -k '$(OLDEST_PARTS)'

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

# The paper's experiments, into a directory of their own: `make reproduce-toy REPRODUCED=elsewhere` chooses another one.
# Finished jobs are kept, so the same command continues an interrupted run.
REPRODUCED ?= results/paper

reproduce-toy: $(VENV)/.installed-experiments  ## toy problem: intervals, modes, choice of λ, both architectures (80 min)
	$(BIN)/python -m experiments.paper toy -o $(REPRODUCED)

reproduce-edges: $(VENV)/.installed-experiments  ## edges found by flows, exact posteriors and penalized likelihoods (2 h)
	$(BIN)/python -m experiments.paper edges -o $(REPRODUCED)

reproduce-blanket: $(VENV)/.installed-experiments  ## clinical variables among genes in three real tables (35 min)
	$(BIN)/python -m experiments.paper blanket -o $(REPRODUCED)

reproduce-runtime: $(VENV)/.installed-experiments $(VENV)/.installed-benchmark  ## cost compared with samplers (45 min)
	$(BIN)/python -m experiments.paper runtime -o $(REPRODUCED)

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

$(OLDEST)/.installed: pyproject.toml
	$(PYTHON) -m venv $(OLDEST) || { rm -rf $(OLDEST); exit 1; }
	$(PYTHON) -m tests.support.oldest > $(OLDEST)/constraints.txt
	$(OLDEST)/bin/python -m pip install --quiet --disable-pip-version-check --constraint $(OLDEST)/constraints.txt --editable . 'pytest==8.3.*' 'pytest-xdist>=3.6' polars
	@touch $@

.SECONDARY:

clean:
	rm -rf $(VENV) $(OLDEST) .venv-audit demo site .pytest_cache .ruff_cache
