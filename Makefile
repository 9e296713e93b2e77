# The one place where the project's commands are written down; `make` alone lists them.

PYTHON ?= python3
VENV ?= .venv
PORT ?= 9092
# Test processes, each with a Spark and a Kafka of its own (3 GB).
JOBS ?= 2

BIN := $(VENV)/bin
JAVA_GOALS := demo test notebooks bench bench-flink bench-capture soak growth kafka
CHECKS := python $(if $(filter $(JAVA_GOALS),$(MAKECMDGOALS)),java)

# Spark's Python workers must be this environment's Python, and its Spark the one inside this PySpark.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
unexport SPARK_HOME
# Spark starts many Pythons, each of which would compile these packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test fetch notebooks lint types unit fuzz bench bench-flink bench-capture soak growth kafka format clean prerequisites

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Another Python than $(PYTHON): make test PYTHON=python3.12"

demo: $(VENV)/installed ## see it work: a changelog in a real Kafka becomes a table
	$(BIN)/python -m demo

test: $(VENV)/installed ## everything: lint, types and all tests
	$(MAKE) --jobs 2 lint types fetch
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

# What the tests start: servers, Spark's jars, and the classes of both.
fetch: $(VENV)/installed
	$(BIN)/python -m normalize.local_kafka --fetch
	$(BIN)/python tests/local_registry.py --fetch
	$(BIN)/python tests/sinks/local_databases.py --fetch
	$(BIN)/python tests/spark_packages.py --fetch

notebooks: $(VENV)/installed ## JupyterLab with the notebooks
	$(BIN)/python -m pip install --quiet --editable '.[notebooks]'
	$(BIN)/jupyter lab --notebook-dir notebooks

lint: $(VENV)/installed ## ruff: rules and format
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed ## mypy
	$(BIN)/mypy

unit: $(VENV)/installed ## the tests that need no Java
	$(BIN)/python -m pytest -m "not spark and not kafka and not registry"

fuzz: $(VENV)/installed ## damaged messages for every format (FUZZ="--format canal-json --messages 50000")
	$(BIN)/python tools/fuzz.py $(FUZZ)

bench: $(VENV)/installed ## measure throughput
	$(BIN)/python -m bench

bench-flink: $(VENV)/installed ## measure the whole beside Apache Flink, by format and state store (BENCH="--runs 5")
	$(BIN)/python -m bench --only whole --flink --state both --format debezium-json,upsert-kafka,canal-json,maxwell-json $(BENCH)

bench-capture: $(VENV)/installed ## measure the capture of a MySQL table beside Flink CDC (CAPTURE="--rows 10000000 --runs 3")
	$(BIN)/python -m bench.capture $(CAPTURE)

soak: $(VENV)/installed ## a long catch-up that is killed again and again (SOAK="--messages 200000 --keys 20000 --batch 10000 --kill-every 5")
	$(BIN)/python -m bench.soak $(SOAK)

growth: $(VENV)/installed ## how cost grows with keys, key groups, events and partitions (GROWTH="--keys 1000000 --store rocksdb")
	$(BIN)/python -m bench.growth $(GROWTH)

kafka: $(VENV)/installed ## run a local Kafka until Ctrl-C (PORT=9092)
	$(BIN)/python -m normalize.local_kafka --port $(PORT)

format: $(VENV)/installed ## rewrite the code as `make lint` wants it
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment, and what the commands left here
	rm -rf $(VENV) *.egg-info build dist .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf artifacts derby.log metastore_db spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The checks run every time (they take a fifth of a second), the installation only when a dependency changed.
$(VENV)/installed: setup.cfg pyproject.toml | prerequisites
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

prerequisites:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.10 to 3.13 is needed, and there is no $(PYTHON):" \
	  "sudo apt-get install python3 python3-venv (Debian, Ubuntu) or brew install python@3.13 (macOS)" >&2; exit 1; }
	@$(PYTHON) tools/check_prerequisites.py $(CHECKS)
