# The project's commands; `make` without a goal lists them.

PYTHON ?= python3
# The version of PySpark: 4.0, 4.1 or 4.2. Each has an environment of its own.
SPARK ?= 4.2
VENV ?= $(if $(filter 4.2,$(SPARK)),.venv,.venv-$(SPARK))
PORT ?= 9092
# The recording of `make bench-tpcc`.
TPCC ?= --warehouses 1 --minutes 3
# Test processes; each has its own Spark and Kafka (3 GB).
JOBS ?= 2
# How many random examples the tests draw: check (a fifth), dev or ci. `make soak` draws all.
HYPOTHESIS_PROFILE ?= check
export HYPOTHESIS_PROFILE
# A commit: the tests run that the changes since then can break. With 1, the changes that are not committed.
CHANGED ?=
export CHANGED

UNIT := tests/unit capture cdc_cli cdc_formats normalize docs README.md
# The folders whose tests need Spark or servers.
SERVED := tests/servers tests/spark tests/e2e
# A file's tests run in one process, because they share topics and tables.
PARALLEL := --numprocesses $(JOBS) --dist loadfile --no-loadscope-reorder
# The tests that run on a version of Spark that is not the newest.
selected = (cross_section$(if $(filter 4.1,$(1)), or iceberg)) and not soak
# Code that the tests without Spark hardly reach has a floor of its own.
ROOMS := normalize/tables/*,normalize/verify/*
ROOMS_COVERED := 90

BIN := $(VENV)/bin
JAVA_GOALS := package next-spark next-deltalake stranger demo test test-all coverage connect cross-section matrix fetch notebooks notebooks-rendered bench bench-flink bench-capture bench-tpcc soak growth kafka
CHECKS := python $(if $(filter $(JAVA_GOALS),$(MAKECMDGOALS)),java)

# The demo needs 11 of the 140 packages that the tests need. It runs in the active environment if this
# has them, as after the README's installation, or else in that of the tests if there is one.
IN_ACTIVE := $(if $(filter demo,$(MAKECMDGOALS)),$(if $(VIRTUAL_ENV),$(shell $(VIRTUAL_ENV)/bin/python -c 'import confluent_kafka, msgspec, pandas, pyarrow, pyspark; print("yes")' 2>/dev/null)))
DEMO := $(if $(IN_ACTIVE),,$(if $(wildcard $(VENV)/installed),$(VENV)/installed,$(VENV)/installed-demo))
DEMO_PYTHON := $(abspath $(if $(IN_ACTIVE),$(VIRTUAL_ENV)/bin,$(VENV)/bin)/python)

# Spark's Python workers must use this environment's Python, and Spark must be the one inside this PySpark.
export PYSPARK_PYTHON := $(abspath $(BIN)/python)
unexport SPARK_HOME
# Without .pyc files, each Python that Spark starts would compile these packages again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo check test test-all native-check connect cross-section matrix fetch notebooks notebooks-rendered docs lint types unit coverage fuzz fuzz-together bench bench-flink bench-capture bench-tpcc soak growth kafka format package audit next-spark next-deltalake stranger release release-notes clean prerequisites

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "To use another Python than $(PYTHON): make test PYTHON=python3.12 VENV=.venv-3.12"
	@echo "To use another PySpark than $(SPARK): make test SPARK=4.1"

demo: $(DEMO) ## replay recorded topics through a real Kafka and compare the tables
	PYSPARK_PYTHON=$(DEMO_PYTHON) $(DEMO_PYTHON) -m demo

check: $(VENV)/installed ## run lint, types, unit tests and doctests: no Java, no servers
	$(MAKE) --jobs 3 lint types unit

test: $(VENV)/installed ## run lint, types, docs, unit tests, and the tests of the main paths (CHANGED=1: only what uncommitted changes can break)
	$(MAKE) --jobs 2 fetch lint types docs unit
	$(BIN)/python -m pytest $(SERVED) -m 'main_path and not soak' $(PARALLEL) --quiet

test-all: test ## run all tests: after `make test`, those that it leaves out
	$(MAKE) connect
	LONG_FILES=$(LONG) $(BIN)/python -m pytest $(SERVED) -m 'not main_path and not soak' $(PARALLEL)

connect: fetch ## run the tests on Spark Connect, which need a process of their own
	$(BIN)/python -m pytest tests/connect --quiet

cross-section: fetch ## run a selection of the Spark tests, on 4.1 with all of Iceberg's (SPARK=4.1)
	$(BIN)/python -m pytest tests/spark tests/e2e -m '$(call selected,$(SPARK))' $(PARALLEL) --quiet

matrix: ## run the selection, also on Spark Connect, on each other version of PySpark
	$(MAKE) --jobs 2 connect-4.1 connect-4.0
	$(MAKE) cross-section SPARK=4.1
	$(MAKE) cross-section SPARK=4.0

install-%:
	$(MAKE) .venv-$*/installed SPARK=$*

connect-%:
	PYTEST_ADDOPTS="-m '$(call selected,$*)'" $(MAKE) connect SPARK=$*

# Servers and Spark's jars for the tests, and archives of the classes that both load.
fetch: $(VENV)/installed
	$(BIN)/python -m tests.support.fetch

notebooks: $(VENV)/installed ## start JupyterLab with the notebooks
	$(BIN)/python -m pip install --quiet --editable '.[notebooks]'
	$(BIN)/jupyter lab --notebook-dir notebooks

notebooks-rendered: $(VENV)/installed ## run the notebooks, and store their small outputs in them
	$(BIN)/python -m tools.notebooks

docs: $(VENV)/installed ## build the documentation into site/; a broken link is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

lint: $(VENV)/installed ## check rules and format with ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/installed ## check types with mypy, and those of the public functions with pyright
	$(BIN)/mypy
	$(BIN)/pyright --project tests/typing --pythonpath $(BIN)/python

unit: $(VENV)/installed ## run the unit tests and doctests: no Java, no servers
	$(BIN)/python -m pytest $(UNIT) --numprocesses $(JOBS) --quiet

coverage: fetch ## run the tests again, and report what they cover; less than the floors is an error
	$(BIN)/python -m pytest $(PARALLEL) --cov --cov-report=
	$(BIN)/coverage report
	$(BIN)/coverage report --include='$(ROOMS)' --fail-under=$(ROOMS_COVERED)

fuzz: $(VENV)/installed ## feed damaged messages to every format (FUZZ="--format canal-json --messages 50000")
	$(BIN)/python -m tools.fuzz $(FUZZ)

fuzz-together: $(VENV)/installed ## compare messages decoded together and one by one (FUZZ="--format canal-json --messages 1000000")
	$(BIN)/python -m tools.fuzz_together $(FUZZ)

native-check: $(VENV)/installed ## test the native decoder, which must be built: its own tests, and its rows compared with Python's
	$(BIN)/python -c 'import normalize._native'
	cargo test --manifest-path native/Cargo.toml --no-default-features --locked
	$(BIN)/python -m tools.fuzz_together --messages 5000 $(FUZZ)

bench: $(VENV)/installed ## measure throughput
	$(BIN)/python -m bench

bench-flink: $(VENV)/installed ## compare throughput with Apache Flink and code written by hand (BENCH="--messages 1000000 --runs 5")
	$(BIN)/python -m bench --only whole --flink --by-hand --messages 4000000 --state both \
	  --format debezium-json,upsert-kafka,canal-json,maxwell-json $(BENCH)

bench-capture: $(VENV)/installed ## compare the capture of a MySQL table with Flink CDC (CAPTURE="--rows 10000000 --runs 3")
	$(BIN)/python -m bench.capture $(CAPTURE)

bench-tpcc: fetch ## record TPC-C in a database, replay it to each way of copying it, and run all at once with kills; needs Go (TPCC="--warehouses 4 --minutes 10")
	$(BIN)/python -m bench.tpcc record $(TPCC)
	$(BIN)/python -m bench.tpcc --ways delta,hand,postgresql,flink $(TPCC)
	$(BIN)/python -m bench.tpcc live --live-minutes 8 $(TPCC)

soak: fetch ## run the long tests, all random examples, and a long catch-up that is killed repeatedly (SOAK="--messages 200000 --keys 20000 --batch 10000 --kill-every 5")
	$(MAKE) unit HYPOTHESIS_PROFILE=dev
	$(BIN)/python -m pytest -m soak $(PARALLEL)
	$(BIN)/python -m bench.soak $(SOAK)
	$(BIN)/python -m bench.tpcc live --live-minutes 1 --every 25 --kill driver --kills 1

growth: $(VENV)/installed ## measure how cost grows with keys, key groups, events and partitions (GROWTH="--keys 1000000 --store rocksdb")
	$(BIN)/python -m bench.growth $(GROWTH)

kafka: $(VENV)/installed ## run a local Kafka until Ctrl-C (PORT=9092)
	$(BIN)/python -m normalize.local_kafka --port $(PORT)

format: $(VENV)/installed ## reformat the code as `make lint` requires
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

package: prerequisites ## build the wheel and the sdist into dist/, and try them on the oldest and the newest Python of this machine
	$(PYTHON) -m tools.package check

audit: prerequisites ## report known vulnerabilities of what the wheel in dist/ requires, and write build/sbom.json
	$(PYTHON) -m tools.package audit

next-spark: prerequisites ## run the README's example on the newest PySpark, also on one that is not supported yet
	$(PYTHON) -m tools.package next-spark

next-deltalake: ## test the writer delta-rs with the newest deltalake, also one that is not supported yet
	$(MAKE) .venv-next/installed VENV=.venv-next
	.venv-next/bin/python -m pip install --no-compile --upgrade deltalake
	.venv-next/bin/python -m pytest tests/unit/tables/test_delta_rs.py tests/spark/tables/test_delta_rs_*.py tests/spark/tables/test_sink_delta_rs.py

stranger: prerequisites ## clone the last commit into a new home folder, and do what the README and the documentation say, in their order
	$(PYTHON) -m tools.stranger

release: prerequisites ## set the version, and date the changelog (VERSION=0.2.0)
	$(PYTHON) -m tools.release prepare $(VERSION)

release-notes: ## print what the changelog says about a tag, or why the tag is not a release (TAG=v0.2.0)
	@$(PYTHON) -m tools.release check $(TAG)

clean: ## remove the environment and the files that the commands created
	rm -rf .venv .venv-* *.egg-info build dist site .coverage htmlcov .hypothesis .mypy_cache .pytest_cache .ruff_cache
	rm -rf artifacts derby.log metastore_db spark-warehouse native/target native/fuzz/target normalize/_native*
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# The checks run every time (0.2 s); the installation runs only when a dependency changed. Python compiles modules when
# they are first imported: pip would compile all of 140 packages, which takes half of a minute. With cargo, the native
# decoder is built into the folder normalize, for all environments; it takes cargo some 40 seconds, and nothing the next time.
$(VENV)/installed: setup.cfg pyproject.toml $(wildcard native/*.* native/src/*.rs) | prerequisites
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --no-compile --editable '.[dev]' 'pyspark[connect]==$(SPARK).*'
	$(if $(filter 4.1,$(SPARK)),$(BIN)/python -m pip install --no-compile 'pandas>=3')
	touch $@

$(VENV)/installed-demo: setup.cfg pyproject.toml | prerequisites
	$(PYTHON) -m venv $(VENV)
	CDC_NATIVE=0 $(BIN)/python -m pip install --editable '.[kafka,spark]' 'pyspark==$(SPARK).*'
	touch $@

prerequisites:
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.10 to 3.14 is required, but $(PYTHON) was not found:" \
	  "sudo apt-get install python3 python3-venv (Debian, Ubuntu) or brew install python@3.13 (macOS)" >&2; exit 1; }
	@$(PYTHON) tools/check_prerequisites.py $(CHECKS)
