# The only commands to know. Each works on a bare machine that has Python 3.11 or newer and make: .venv is made on the way.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# --no-deps: a lock names every package there is; --only-binary: nothing is compiled or run while it is installed.
LOCKED := $(PIP) install --quiet --no-deps --require-hashes --only-binary :all: -r
# Without build isolation: the build backend is in the lock, with its hash; it looks for its own program on PATH.
SELF := PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --quiet --no-deps --no-build-isolation --editable .
# pip compiles what it copies, and an editable install copies nothing; where PYTHONDONTWRITEBYTECODE is set nobody else would.
COMPILED := $(BIN)/python -m compileall -q src
RUNTIME := .venv/.runtime-installed
DEV := .venv/.dev-installed

# pyright says when a newer one exists, and asks the network for it.
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

.PHONY: help install serve demo test check lint fix test-engines bench lock dev

help: ## Say what there is
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

install: $(RUNTIME) ## Make .venv with exactly the locked packages, and the command .venv/bin/rookery

serve: $(RUNTIME) ## Run the server; options in ARGS
	@exec $(BIN)/rookery serve $(ARGS)

demo: $(DEV) ## Show it at work, on data of its own, and stop
	@exec $(BIN)/python examples/demo.py $(ARGS)

test: $(DEV) ## Run every test; options for pytest in ARGS
	$(BIN)/python -m pytest -n 2 --dist worksteal $(ARGS)

check: lint test ## Everything that decides whether a change is good: format, rules, types, arrows, tests

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

fix: $(DEV) ## Mend what can be mended by machine
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-engines: $(DEV) ## Run the tests of every store again, on a real PostgreSQL
	$(BIN)/python -m pytest -n 2 --dist worksteal --engines $(ARGS)

bench: $(DEV) ## Measure every published figure
	@exec $(BIN)/python -m benchmarks $(ARGS)

# One file for all platforms and Pythons. No address of an index and no path is written; UPGRADE=--upgrade takes newer versions.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	--custom-compile-command 'make lock' $(UPGRADE) pyproject.toml --group home

lock: $(DEV) ## Write the locks anew from pyproject.toml; UPGRADE=--upgrade for newer versions
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock

dev: $(DEV)

$(RUNTIME): requirements.lock pyproject.toml | $(BIN)/python
	@echo "Installing Rookery into .venv, once"
	@$(LOCKED) requirements.lock
	@$(SELF)
	@$(COMPILED)
	@touch $@

$(DEV): requirements-dev.lock pyproject.toml | $(BIN)/python
	@echo "Installing Rookery and its tools into .venv, once"
	@$(LOCKED) requirements-dev.lock
	@$(SELF)
	@$(COMPILED)
	@touch $(RUNTIME) $@

# PYTHON=/some/python overrides the search.
$(BIN)/python:
	@for python in $(PYTHON) python3 python3.13 python3.12 python3.11 python; do \
	    if "$$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	        "$$python" -m venv --clear .venv && exit 0; \
	        echo "$$python cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
	        rm -rf .venv; exit 1; \
	    fi; \
	done; \
	echo "Rookery needs Python 3.11 or newer, and found none on PATH. Name one: make install PYTHON=/path/to/python3.11" >&2; \
	exit 1
