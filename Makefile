# Every target sets itself up in .venv; nothing is assumed but Python 3.11+ and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

# where it is set, every worker of the tests compiles all of their modules anew
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test test-fast test-flower test-postgres test-browser check format torture bench clean
.DEFAULT_GOAL := help

help:  ## Show this list
	@grep -E '^[a-z-]+:.*## ' Makefile | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' | column -t -s '|'

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.train: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[train]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev]'
	@touch $@ $(VENV)/.train

$(VENV)/.flower: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[dev,flower]'
	@touch $@ $(VENV)/.dev $(VENV)/.train

$(VENV)/.browser: pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) --editable '.[browser]'
	@touch $@ $(VENV)/.dev $(VENV)/.train

demo: $(VENV)/.train  ## Train a federation of 20 clients on handwritten digits
	$(BIN)/disavow demo

test: $(VENV)/.dev  ## Run the test suite (about 11 minutes on two cores)
	$(BIN)/python -m pytest -m 'not torture and not flower and not postgres and not browser' --numprocesses 2 --dist worksteal

test-fast: $(VENV)/.dev  ## Run the quick tests of the core: settings, clustering, judge, ledger, proofs (43 seconds on two cores)
	$(BIN)/python -m pytest -m 'not torture and not flower and not kill' --numprocesses 2 --dist worksteal \
		tests/config tests/domain tests/rounds/clustering tests/rounds/test_perturb.py tests/rounds/test_aggregate.py \
		tests/ledger/test_journal.py tests/ledger/test_requests.py tests/ledger/test_odds.py tests/erasure/test_judge.py \
		tests/proof/test_verify.py tests/proof/test_merkle.py tests/proof/test_bounds.py tests/test_docs.py

test-flower: $(VENV)/.flower  ## Run the tests on Flower: simulations and a real network (about eight minutes)
	$(BIN)/python -m pytest -m 'flower and not torture' tests/flower --numprocesses 2 --dist loadfile --no-loadscope-reorder

test-postgres: $(VENV)/.flower  ## Run the tests of ledgers in PostgreSQL, with a server of their own (about five minutes)
	$(BIN)/python -m pytest -m 'postgres and not torture' --numprocesses 2 --dist loadfile tests/postgres tests/server
	$(BIN)/python -m pytest -m 'not torture' --numprocesses 2 --dist worksteal --database postgres \
		tests/ledger/test_ledger.py tests/ledger/test_reader.py tests/ledger/test_journal.py tests/ledger/test_requests.py \
		tests/ledger/test_request_events.py tests/ledger/test_fsck.py tests/ledger/test_fsck_proofs.py \
		tests/ledger/test_copying.py tests/ledger/test_retention.py tests/ledger/test_lock.py \
		tests/erasure/test_erase.py tests/erasure/test_erase_interrupted.py tests/erasure/test_erase_traces.py tests/erasure/test_purge.py \
		tests/erasure/test_record_requests.py tests/kill/test_purge_kills.py tests/kill/test_erasure_kills.py tests/kill/test_training_kills.py tests/flower/test_strategy.py

test-browser: $(VENV)/.browser  ## Run the tests of the pages in Chromium (about four minutes); needs `apt-get install chromium`
	@command -v chromium >/dev/null || { echo "make test-browser needs Chromium: apt-get install chromium" >&2; exit 1; }
	$(BIN)/python -m pytest -m browser tests/browser --numprocesses 0

check: $(VENV)/.dev  ## Lint, format, types, layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.dev  ## Format and fix what can be fixed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

torture: $(VENV)/.dev  ## The long kill and fuzz tests (bounded; about half an hour)
	$(BIN)/python -m pytest -m torture --numprocesses 2 --dist worksteal --timeout 2400

bench: $(VENV)/.dev  ## Our engines beside their peers, then our own parts; never part of the tests
	mkdir -p bench-results
	$(BIN)/python -m benchmarks engines --json bench-results/engines.json
	$(BIN)/python -m benchmarks

clean:  ## Remove everything that was built
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
