# `make demo` and `make test` need nothing but Python 3.11+ and make; the rest is for developers.
# CONTRIBUTING.md says how long each takes.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
OLDEST_TESTS := $(addprefix tests/, explorer/test_server.py data/test_scatter.py data/test_scatter_errors.py \
	data/test_missing.py model/test_target.py storage/test_cache.py storage/test_archive.py storage/test_archive_damage.py \
	train/test_loop.py posterior/test_weights.py posterior/test_posterior.py posterior/test_posterior_arguments.py \
	posterior/test_posterior_edges.py posterior/test_posterior_tables.py estimator/test_graphical_flow.py)
# Of the estimator only scikit-learn's checks: its other tests are slow to compile.
OLDEST_PARTS := (not test_graphical_flow or scikit_learn_checks) and not ctrl_c and not no_move_waits

.PHONY: demo test test-slow test-all test-oldest lint type docs check clean benchmark-exact benchmark-glasso \
	reproduce-toy reproduce-edges reproduce-blanket reproduce-runtime

demo: $(VENV)/.installed
	$(BIN)/ggmflow demo

# A file goes to one process, so that its fixtures are made once. Slow tests carry the marker `slow`.
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadfile

test: $(VENV)/.installed-test
	$(PYTEST) -m 'not slow'

test-slow: $(VENV)/.installed-test
	$(PYTEST) -m slow --durations=25

# In one run: what both need is imported, compiled and fitted once.
test-all: $(VENV)/.installed-test
	$(PYTEST) --durations=25

# The modules most sensitive to dependency versions, with the oldest versions that pyproject.toml allows.
test-oldest: $(OLDEST)/.installed
	XLA_FLAGS= $(OLDEST)/bin/python -m pytest -n 2 -m 'not slow' $(OLDEST_TESTS) -k '$(OLDEST_PARTS)'

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

type: $(VENV)/.installed-test
	$(BIN)/pyright

docs: $(VENV)/.installed-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

check: test-all lint type docs

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
	rm -rf $(VENV) $(OLDEST) .venv-audit .cache demo site .pytest_cache .ruff_cache
