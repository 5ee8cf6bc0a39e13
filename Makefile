# Every target does its own set-up. `make help` lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
RUNTIME := $(VENV)/.runtime
DEV := $(VENV)/.dev
PYTEST := $(BIN)/pytest -q
# Without compiled files, each worker compiles every test again: 12 s of a run of the unit tests.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo quick test peer soak check fmt bench mutate coverage architecture screenshots cluster-up cluster-down lock clean

help: ## list the targets
	@awk 'BEGIN { FS = ":.*## " } /^##@ / { printf "\n%s\n", substr($$0, 5) } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The stamps make a second run quick: nothing is reinstalled while the locked requirements stay as they are.
$(RUNTIME): requirements/runtime.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Dovetail needs Python 3.11 or newer; set PYTHON=/path/to/python3.11" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "could not make $(VENV): install the venv module (on Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "installing into $(VENV) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/runtime.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(DEV): requirements/dev.txt $(RUNTIME)
	@echo "installing the development tools ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@touch $@

##@ Try it

setup: $(RUNTIME) ## create .venv with the program at .venv/bin/dovetail

demo: $(RUNTIME) ## watch a week of a simulated cluster, in the terminal and on the dashboard
	$(BIN)/dovetail demo

##@ Every change

quick: $(DEV) ## run the unit tests and laws, in about a minute: no cluster, no browser
	HYPOTHESIS_PROFILE=quick $(PYTEST) -n 2 tests/unit tests/property tests/seeds

fmt: $(DEV) ## format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

check: $(DEV) ## check formatting, lint, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

test: $(DEV) ## run the tests; builds a control plane for them once, in about 6 minutes
	@$(BIN)/python -m tests.cluster build > /dev/null
	$(PYTEST) -n 4 --no-loadscope-reorder --durations=25

##@ More tests

peer: $(DEV) ## run the tests beside the real Karpenter; builds it once, in about 5 minutes
	@$(BIN)/python -m tests.cluster build > /dev/null
	@$(BIN)/python -m tests.peer build > /dev/null
	$(PYTEST) -n 6 --peer --durations=10 tests/peer

coverage: $(DEV) ## measure branch coverage of values, rules, state and planning
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q tests/unit tests/property
	$(BIN)/coverage report --include 'src/dovetail/values/*,src/dovetail/rules/*,src/dovetail/state/*,src/dovetail/planning/*' --fail-under 95

mutate: $(DEV) ## break the rules one at a time; every break must be caught
	$(BIN)/python -m tests.mutation

soak: $(DEV) ## run the long random campaigns
	HYPOTHESIS_PROFILE=soak $(PYTEST) -n 2 tests/property tests/sim tests/attack
	$(BIN)/python -m tests.scheduling --from 250 --to 21000 --jobs 0

bench: $(DEV) ## measure times, memory and growth
	$(BIN)/python -m bench

##@ Drawings and pictures

architecture: $(DEV) ## redraw docs/architecture.svg from the imports
	$(BIN)/python -m tests.architecture

screenshots: $(DEV) ## take the pictures of the dashboard in docs again
	$(BIN)/python -m tests.browser.screenshots

##@ A real control plane

cluster-up: $(RUNTIME) ## start a real control plane to try things on, and print its kubeconfig
	@$(BIN)/python -m tests.cluster up

cluster-down: $(RUNTIME) ## stop that control plane
	@$(BIN)/python -m tests.cluster down

##@ Housekeeping

lock: $(DEV) ## update and lock the requirements (needs uv on the PATH)
	cd requirements && for set in runtime dev; do uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-header --no-annotate $$set.in -o $$set.txt; done

clean: ## remove what the other targets created
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage dist
