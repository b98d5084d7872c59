# Every target does its own set-up: Python >= 3.11, make and a package index are enough.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV_VERSION := 0.13.7
# uv from the PATH when there is one, else a private copy in .uv/.
UV := $(or $(shell command -v uv 2>/dev/null),.uv/bin/uv)
LOCK := requirements/dev.txt
STAMP := $(VENV)/.setup-stamp
# Each worker begins with tests that lie together, so that what they share is started once.
PARALLEL := -n 2 --dist worksteal
# Tests with other people's software wait for it half of their time: twice as many as cores may run.
PARALLEL_WAITING := -n 4 --dist worksteal
# Hundreds of Python processes are started, and each would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup run serve cluster test check lint quick-test explore cluster-kafka soak bench fuzz gen gen-check docs lock clean

help: ## Show this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

setup: $(STAMP) ## Make .venv with all that development needs

.uv/bin/uv:
	$(PYTHON) -m venv .uv
	.uv/bin/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

# setuptools and Cython come from the lock file too, hence --no-build-isolation.
$(STAMP): $(LOCK) pyproject.toml src/odradek/records/_compiled.pyx | $(filter .uv/%,$(UV))
	$(UV) venv --quiet --allow-existing --python $(PYTHON) $(VENV)
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes $(LOCK)
	$(UV) pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@$(BIN)/python -c "from odradek.records import COMPILED; print('compiled record codec:', 'yes' if COMPILED else 'no (no C compiler found: the pure-Python codec does the work, slower)')"
	@$(BIN)/python -c "import odradek.local.formatting, odradek.local.supervised_node"  # their bytecode
	@touch $@

run: setup ## Do the main job: a broker, a stream of orders, a pipeline on Spark
	$(BIN)/python -m examples.orders

serve: setup ## Run a broker on 127.0.0.1:9092 until Ctrl-C
	$(BIN)/odradek serve

cluster: setup ## Run three nodes on 127.0.0.1:9092-9094 until Ctrl-C; CLUSTER='--nodes 5' for other options
	$(BIN)/odradek up $(CLUSTER)

# Spark's tests have workers of their own: py4j cannot listen on a descriptor above 1,023, and the
# brokers that others share keep hundreds of files open.
test: setup gen-check ## Run every test
	$(BIN)/python -m pytest $(PARALLEL_WAITING) --ignore=tests/spark
	$(BIN)/python -m pytest $(PARALLEL_WAITING) tests/spark

check: setup lint quick-test ## Lint, types, layers, quick tests of our own code: some two minutes

lint: setup
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# `make test` runs these too. Whatever needs somebody else's software, or takes longer, is only there.
quick-test: setup
	$(BIN)/python -m pytest $(PARALLEL) -m "not slow" -q --ignore=tests/interop --ignore=tests/spark

explore: setup ## Run the property tests with other examples than last time
	$(BIN)/python -m pytest $(PARALLEL) --hypothesis-profile=exploring tests/property tests/unit

cluster-kafka: setup ## Run the tests of clusters of processes with Kafka's server in the place of ours
	ODRADEK_CLUSTER_MATRIX=whole ODRADEK_CLUSTER_FLAVOURS=kafka $(BIN)/python -m pytest -q tests/cluster

soak: setup ## Fail controllers and leaders in every way, disturb a cluster under load, a hundred kills and more (KILLS=100)
	ODRADEK_CLUSTER_MATRIX=whole $(BIN)/python -m pytest -q tests/cluster
	$(BIN)/python -m tests.cluster.kills $(or $(KILLS),100) --pauses 25 --rolls 10 --cuts 10 --full-disks 10 --busy 10 --transactions
	$(BIN)/python -m tests.cluster.throttled_move --megabytes $(or $(MEGABYTES),2000) --rate $(or $(RATE),20000000)
	$(BIN)/python -m tests.cluster.rolled_from $(or $(FROM),HEAD~100)
	$(BIN)/python -m tests.interop.test_transactions_histories $(or $(KILLS),100)
	ODRADEK_SOAK=1 $(BIN)/python -m pytest -q tests/interop/test_node_kill.py tests/interop/test_groups_scale.py tests/spark/test_spark_sink_kills.py
	ODRADEK_SOAK=1 $(BIN)/python -m pytest -q -m slow tests/simulation

storms: setup ## Run simulated clusters through storms of faults (SEEDS=1000, FIRST=0, LEVEL=data|moves|operations|nodes|quorum|voters)
	$(BIN)/python -m tests.simulation.cluster $(or $(FIRST),0) $(or $(SEEDS),1000) --level $(or $(LEVEL),data) --processes $(or $(PROCESSES),2)

bench: setup ## Print µs per operation, ours beside other libraries
	$(BIN)/python -m bench

fuzz: setup ## Throw mutated bytes at every decoder (RUNS=1000000), and requests at a running node
	$(BIN)/python -m fuzz --runs $(or $(RUNS),1000000)

gen: setup ## Regenerate the message codecs from their definitions, the types of settings, and the blocking clients
	$(BIN)/python -m tools.generate
	$(BIN)/python -m tools.setting_types
	$(BIN)/python -m tools.blocking_twins

gen-check: setup ## Fail if generated codecs or documents are not what their sources give
	$(BIN)/python -m tools.generate --check
	$(BIN)/python -m tools.documents --check

docs: setup ## Write docs/compatibility.md, docs/configs.md and docs/seed-rows.md anew from code and tests
	$(BIN)/python -m tools.documents

lock: | $(filter .uv/%,$(UV)) ## Pin every dependency anew (names no registry host)
	$(UV) pip compile --quiet --universal --upgrade --generate-hashes --no-emit-index-url --no-header \
		--python-version 3.11 --extra arrow --extra spark --extra jre --group dev --output-file $(LOCK) pyproject.toml

clean: ## Remove what the other targets made
	rm -rf $(VENV) .uv build src/odradek/records/_compiled.c src/odradek/records/*.so
