# The project's commands; `make` without a goal lists them.

PYTHON ?= python3
VENV ?= .venv
PORT ?= 9092
# Test processes; each has its own Spark and Kafka (3 GB).
JOBS ?= 2

BIN := $(VENV)/bin
JAVA_GOALS := demo test notebooks bench bench-flink bench-capture soak growth kafka
CHECKS := python $(if $(filter $(JAVA_GOALS),$(MAKECMDGOALS)),java)

# Spark's Python workers must use this environment's Python, and Spark must be the one inside this PySpark.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
unexport SPARK_HOME
# Without .pyc files, each Python that Spark starts would compile these packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test fetch notebooks lint types unit fuzz bench bench-flink bench-capture soak growth kafka format clean prerequisites

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "To use another Python than $(PYTHON): make test PYTHON=python3.12"

demo: $(VENV)/installed ## replay recorded topics through a real Kafka and compare the tables
	$(BIN)/python -m demo

test: $(VENV)/installed ## run lint, types and all tests
	$(MAKE) --jobs 2 lint types fetch
	$(BIN)/python -m pytest --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder

# Servers and Spark's jars for the tests, and archives of the classes that both load.
fetch: $(VENV)/installed
	$(BIN)/python -m normalize.local_kafka --fetch
	$(BIN)/python tests/local_registry.py --fetch
	$(BIN)/python tests/sinks/local_databases.py --fetch
	$(BIN)/python tests/spark_packages.py --fetch

notebooks: $(VENV)/installed ## start JupyterLab with the notebooks
	$(BIN)/python -m pip install --quiet --editable '.[notebooks]'
	$(BIN)/jupyter lab --notebook-dir notebooks

lint: $(VENV)/installed ## check rules and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed ## check types with mypy
	$(BIN)/mypy

unit: $(VENV)/installed ## run the tests that do not require Java
	$(BIN)/python -m pytest -m "not spark and not kafka and not registry"

fuzz: $(VENV)/installed ## feed damaged messages to every format (FUZZ="--format canal-json --messages 50000")
	$(BIN)/python tools/fuzz.py $(FUZZ)

bench: $(VENV)/installed ## measure throughput
	$(BIN)/python -m bench

bench-flink: $(VENV)/installed ## compare throughput with Apache Flink, by format and state store (BENCH="--runs 5")
	$(BIN)/python -m bench --only whole --flink --state both --format debezium-json,upsert-kafka,canal-json,maxwell-json $(BENCH)

bench-capture: $(VENV)/installed ## compare the capture of a MySQL table with Flink CDC (CAPTURE="--rows 10000000 --runs 3")
	$(BIN)/python -m bench.capture $(CAPTURE)

soak: $(VENV)/installed ## run a long catch-up, kill it repeatedly, and check the result (SOAK="--messages 200000 --keys 20000 --batch 10000 --kill-every 5")
	$(BIN)/python -m bench.soak $(SOAK)

growth: $(VENV)/installed ## measure how cost grows with keys, key groups, events and partitions (GROWTH="--keys 1000000 --store rocksdb")
	$(BIN)/python -m bench.growth $(GROWTH)

kafka: $(VENV)/installed ## run a local Kafka until Ctrl-C (PORT=9092)
	$(BIN)/python -m normalize.local_kafka --port $(PORT)

format: $(VENV)/installed ## reformat the code as `make lint` requires
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean: ## remove the environment and the files that the commands created
	rm -rf $(VENV) *.egg-info build dist .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf artifacts derby.log metastore_db spark-warehouse
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The checks run every time (0.2 s); the installation runs only when a dependency changed.
$(VENV)/installed: setup.cfg pyproject.toml | prerequisites
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --editable '.[dev]'
	touch $@

prerequisites:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.10 to 3.13 is required, but $(PYTHON) was not found:" \
	  "sudo apt-get install python3 python3-venv (Debian, Ubuntu) or brew install python@3.13 (macOS)" >&2; exit 1; }
	@$(PYTHON) tools/check_prerequisites.py $(CHECKS)
