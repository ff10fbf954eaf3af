# What CI runs and what you run are the same commands. `make setup` needs Python 3.11 or later and the network, no compiler.

SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:

# The first interpreter that really starts and is new enough; override with `make setup PYTHON=/path/to/python`.
PYTHON ?= $(shell for python in python3.11 python3 python3.12 python3.13 python3.14; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then echo $$python; break; fi; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,redis

# Of the demo; an empty value means its default.
SEED ?=
BROKER ?=
HISTORY ?=
KEEP ?=

# More arguments for pytest and for the bench, such as `make test ARGS="tests/trigger -x"`.
ARGS ?=

.PHONY: help setup demo test check lint docs bench format clean

help:  ## what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 10

setup: $(STAMP)  ## a virtual environment in .venv; AMQP where there is a compiler

$(STAMP): pyproject.toml
	@test -n "$(PYTHON)" || { echo "make setup: no Python 3.11 or later found; install one, or give PYTHON=/path/to/python" >&2; exit 1; }
	@test -x $(BIN)/pip || $(PYTHON) -m venv $(VENV) || \
		{ echo "make setup: $(PYTHON) cannot make a virtual environment; on Debian: apt-get install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --disable-pip-version-check --only-binary ':all:' -e '.[$(EXTRAS)]'
	@# AMQP is built on python-qpid-proton, which has no wheel: with a compiler it is compiled, without one it is left out.
	@if command -v cc >/dev/null; then $(BIN)/pip install --quiet --disable-pip-version-check -e '.[amqp]' || \
		echo "make setup: python-qpid-proton cannot be compiled here, so AMQP is left out" >&2; fi
	@touch $@

demo: $(STAMP)  ## every departure announced exactly once, although the worker is killed three times
	@# Not echoed: a broker's URL may have a password.
	@$(BIN)/jmsclient demo $(if $(SEED),--seed '$(SEED)') $(if $(BROKER),--broker '$(BROKER)') \
		$(if $(HISTORY),--history '$(HISTORY)') $(if $(KEEP),--keep '$(KEEP)')

test: $(STAMP)  ## every test that can run here
	$(BIN)/pytest $(ARGS)

check: lint  ## formatting, lint, types, walls, unit tests
	$(BIN)/pytest -m 'not real and not slow' --ignore tests/acceptance --ignore tests/docs

lint: $(STAMP)  ## formatting, lint, types, walls
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP)  ## the documentation, in docs/_build/html; a warning is an error
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build/html

bench: $(STAMP)  ## a table of ratios, and bench.jsonl
	$(BIN)/python tests/benchmarks/bench.py $(ARGS)

format: $(STAMP)  ## rewrite the code as `make check` wants it
	$(BIN)/ruff check --fix --quiet || true
	$(BIN)/ruff format

clean:  ## what can be made again, without the environment
	rm -rf build dist docs/_build .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache bench.jsonl
