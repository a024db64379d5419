# The commands of this project. Each sets up what it needs; a second call finds it there.

SHELL := /bin/sh
.DEFAULT_GOAL := help
.PHONY: help demo test lint claims integrations bench bench-live wheel wheels clib papers-live reproduction validate figures docs python-schema setup setup-release setup-dev setup-test have-python clean

# The first Python that is new enough.
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13 python3.14; do \
    command -v $$p >/dev/null 2>&1 && $$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
    && { echo $$p; break; }; done)
RUN := .venv/bin/python
# rustup's folder is not on the PATH of every shell.
export PATH := $(PATH):$(HOME)/.cargo/bin
# Packages are installed without bytecode; where Python may not keep it, each process compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE
# Without incremental compilation, the module of the tests has other counts of instructions than the recorded ones.
unexport CARGO_INCREMENTAL

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: setup ## run a video beside TCP, and write a report with pictures
	@.venv/bin/steadycast demo

test: setup-test ## run all tests; as root, install the tools that they use
	@$(RUN) scripts/test.py

wheel: setup-dev ## build the wheel, check it, and try it in a bare virtual environment: build/dist
	@$(RUN) scripts/wheel.py

wheels: setup-dev ## the same for Linux with glibc 2.28 or musl, x86-64 and ARM, compiled with Zig
	@$(RUN) -m pip install -q 'ziglang>=0.14'
	@$(RUN) scripts/wheel.py --portable

clib: have-python ## build the C library and pack it with its header and pkg-config file: build/dist
	@$(PYTHON) scripts/clib.py

lint: setup-test ## formatting, lints and types, Rust and Python
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .
	$(RUN) -m mypy

claims: setup-dev ## what takes long: the claims that the tests have no time for
	@$(RUN) scripts/claims.py

integrations: setup-dev ## lint and test what puts our controllers into other projects: they are no part of the workspace
	@$(RUN) scripts/claims.py --integrations

bench: setup-dev ## packet-hops per CPU second, beside ns-2; what a user waits for
	@$(RUN) -m validation.bench
	@$(RUN) -m validation.latency_bench

bench-live: setup-dev ## what sending costs beside a bare loop and FFmpeg, and what emulation adds (as root)
	@$(RUN) -m validation.bench_live
	@$(RUN) -m validation.bench_emulate

papers-live: setup-release ## the papers' testbeds in real time: half an hour, as root; CLIPS="a.mkv b.mkv" adds pictures and ten minutes
	@$(RUN) scripts/reproduction.py --emulated $(CLIPS)

reproduction: setup-release ## the papers' experiments: build/reproduction, and docs/data/reproduction*.csv
	@$(RUN) scripts/reproduction.py $(CLIPS)

validate: setup-dev ## TCP and TFRC beside ns-2 and their equations
	@$(RUN) -m validation.validate

figures: setup-release ## make the figures of docs/, the README's table and the manual page again
	@$(RUN) scripts/docs.py
	@$(RUN) scripts/grids.py
	@$(RUN) scripts/networks.py

docs: setup-test ## build the site of docs/ into build/site; it works offline, search included
	@NO_MKDOCS_2_WARNING=1 $(RUN) -m mkdocs build -q
	@echo build/site/index.html

python-schema: setup-test ## make the classes of steadycast.scenario from the schema again
	@$(RUN) scripts/python_schema.py

setup: have-python
	@$(PYTHON) scripts/setup.py

setup-release: have-python
	@$(PYTHON) scripts/setup.py --release

setup-dev: have-python
	@$(PYTHON) scripts/setup.py --dev

setup-test: have-python
	@$(PYTHON) scripts/setup.py --test

have-python:
	@test -n "$(PYTHON)" || { echo "set-up: Python 3.11 or newer is not installed (Debian: apt-get install python3)" >&2; exit 3; }

clean: ## remove what was built, installed and run; the cache of encoded clips stays
	rm -rf .venv target integrations/*/target runs build python/steadycast/_core*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
