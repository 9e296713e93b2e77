"""What the blocks of the documentation's pages need: a broker with topics, names, and a folder."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import pytest

from normalize import LocalKafka, from_kafka_changelog
from tests.support.masks import KEY, KEY_ENV
from tests.support.pages import PRINTED, RUN
from tests.support.paths import RECORDS, REPOSITORY
from tests.support.running_pages import end_queries
from tests.support.streams import debezium, servers

mpl.use("agg")

PLACED = {"connector": "mysql", "file": "binlog.000001", "pos": 4, "row": 0, "ts_ms": 1}
TOPICS = {
    "orders": [
        json.dumps(
            {
                "op": "c",
                "before": None,
                "after": {"id": 1, "status": "new", "price": None},
                "source": PLACED,
            }
        ).encode()
    ],
    "shop.public.orders": [debezium("c", None, {"id": 1, "status": "new"})],
    "orders.dead": [],
    "products": [debezium("c", None, {"id": 101, "name": "scooter", "weight": 3})],
    "prices": [b'{"what": "put", "row": {"id": 1, "price": "9.5"}}'],
    "users": [debezium("c", None, {"id": 7, "email": "ann", "card": 4111, "name": "Ann"})],
    "weights": [],
}


@pytest.fixture(scope="session")
def broker(kafka: Any) -> Any:
    """A broker with the topics that blocks need."""
    for topic, values in TOPICS.items():
        kafka.create_topic(topic)
        kafka.produce(topic, [(None, value) for value in values])
    kafka.load_recording(
        RECORDS / "dbz34-mariadb-json.inventory.customers.jsonl.gz", "dbserver1.shop.customers"
    )
    return kafka


def provided(spark: Any, broker: Any, needs: set[str]) -> dict[str, Any]:
    """Return the values of the names that blocks need."""
    kafka = servers(broker)
    reading = {
        "format": "debezium-json",
        "schema": "id INT, name STRING, weight INT",
        "primary_key": "id",
        "options": kafka,
        "metadata": {"offset": "offset", "event_time": "source.timestamp"},
    }
    made: dict[str, Callable[[], Any]] = {
        "spark": lambda: spark,
        "kafka": lambda: kafka,
        "options": lambda: kafka,
        "columns": lambda: "id BIGINT, status STRING",
        "bronze": lambda: (
            spark.readStream.format("kafka").options(**kafka, subscribe="orders").load()
        ),
        "any_changelog": lambda: spark.createDataFrame([("+I", 1)], "row_kind STRING, id BIGINT"),
        "arguments": lambda: {name: each for name, each in reading.items() if name != "schema"},
        "changes": lambda: from_kafka_changelog(spark, "products", **reading),
        "bounded_changes": lambda: from_kafka_changelog(spark, "products", **reading, bounded=True),
        "write": lambda: lambda batch, number: batch.collect(),
    }
    return {name: make() for name, make in made.items() if name in needs}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which a page runs; it has the repository's recordings."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "demo").symlink_to(REPOSITORY / "demo")
    (tmp_path / "data").mkdir()
    return tmp_path


@pytest.fixture
def namespace(
    spark: Any, broker: Any, page: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, Any]]:
    """The names that a page's blocks share, in a module.

    The module is there so that the page's classes can be pickled. What blocks start ends with the
    test.
    """
    module = ModuleType("pasted")
    monkeypatch.setitem(sys.modules, "pasted", module)
    monkeypatch.setenv(KEY_ENV, KEY)
    names = vars(module)
    names.update(provided(spark, broker, {name for block in RUN[page] for name in block.needs}))
    yield names
    end_queries(spark)
    for value in names.values():
        if isinstance(value, LocalKafka):
            value.stop()


@pytest.fixture
def run_blocks(
    spark: Any,
    broker: Any,
    page: str,
    folder: Path,
    namespace: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
) -> Callable[[], None]:
    """Run each block of a page, and each function of a test that they define; check what is printed."""

    def run() -> None:
        for number, block in enumerate(RUN[page]):
            text = block.source.replace("localhost:9092", broker.bootstrap_servers)
            # Spark's folder is not the page's.
            text = re.sub(
                r'"/?(tmp/lake|lake|tmp|data|bronze)/', lambda at: f'"{folder}/{at[1]}/', text
            )
            exec(compile(text, f"{page}, block {number}", "exec"), namespace)
            for query in spark.streams.active:
                query.processAllAvailable()
            end_queries(spark)
        for name, value in [*namespace.items()]:
            if name.startswith("test_"):
                value()
        if page in PRINTED:
            assert PRINTED[page] in capsys.readouterr().out

    return run
