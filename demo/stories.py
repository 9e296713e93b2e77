"""Two small examples: a sum over several formats' changelogs, a changelog's Kafka round trip."""

from __future__ import annotations

import json
import sqlite3
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

from normalize import ChangelogNormalize, aggregate_changes, from_kafka_changelog, signed_sum
from normalize.api import encode_changelog

from .recordings import collect, table_of
from .report import Result, Say, aligned, show_changes

PRODUCT = Path(__file__).parents[1] / "tests" / "vectors" / "product"
FORMATS = ("canal-json", "debezium-json", "maxwell-json", "ogg-json", "upsert-kafka")


def product(spark: Any, kafka: Any, say: Say) -> Result:
    """Sum weights by name in each format's product changelog; compare the sums with SQLite's."""
    from pyspark.sql import DataFrame, functions as F

    say("\n=== A sum over a changelog: SELECT name, SUM(weight) FROM product GROUP BY name")
    story = json.loads((PRODUCT / "schema.json").read_text())
    records = {name: _records(PRODUCT / f"{name}.jsonl") for name in FORMATS}
    say(f"   the same 22 statements as messages of {', '.join(FORMATS)}")
    changes = [
        _product_changes(spark, kafka, name, records[name], story).withColumn("format", F.lit(name))
        for name in FORMATS
    ]
    every = reduce(DataFrame.union, changes).cache()
    sums: dict[str, dict[str, Decimal]] = {name: {} for name in FORMATS}
    for row in aggregate_changes(
        every, ["format", "name"], signed_sum("weight").alias("weight")
    ).collect():
        sums[row.format][row.name] = row.weight
    expected = _database_sums((PRODUCT / "statements.sql").read_text())
    groups = sorted(expected)
    cells = [
        [name, *(sums[identifier].get(name, "missing") for identifier in FORMATS), expected[name]]
        for name in groups
    ]
    for line in aligned([["name", *FORMATS, "SQLite"], *cells]):
        say(f"     {line}")
    equal = all(summed == expected for summed in sums.values())
    say(
        "   sums: "
        f"{'EQUAL to the sums of SQLite, which ran the statements' if equal else 'NOT EQUAL'}"
    )
    return Result(
        "SUM(weight) by name, five formats",
        sum(map(len, records.values())),
        every.count(),
        len(groups),
        equal,
    )


def _product_changes(
    spark: Any,
    kafka: Any,
    name: str,
    records: list[tuple[bytes | None, bytes | None]],
    story: dict[str, Any],
) -> Any:
    topic = f"demo.product.{name}"
    kafka.create_topic(topic)
    kafka.produce(topic, records)
    return from_kafka_changelog(
        spark,
        topic,
        format=name,
        format_options=story["options"].get(name),
        schema=story["columns"],
        primary_key=story["primary_key"],
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
        bounded=True,
    )


def _records(path: Path) -> list[tuple[bytes | None, bytes | None]]:
    def raw(value: Any) -> bytes | None:
        return (
            None
            if value is None
            else (value if isinstance(value, str) else json.dumps(value)).encode()
        )

    return [
        (raw(line.get("key")), raw(line["value"]))
        for line in map(json.loads, path.read_text().splitlines())
    ]


def _database_sums(statements: str) -> dict[str, Decimal]:
    database = sqlite3.connect(":memory:")
    database.executescript(statements)
    rows = database.execute("SELECT name, SUM(weight) FROM product GROUP BY name").fetchall()
    database.close()
    return {name: Decimal(str(weight)).quantize(Decimal("0.001")) for name, weight in rows}


def orders(spark: Any, kafka: Any, say: Say) -> Result:
    """Write eleven orders' changes as changelog-json, read them back, and compare their table."""
    say(
        "\n=== A changelog written to Kafka: read as maxwell-json, written as changelog-json, read "
        "back"
    )
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    table = {"schema": "id INT, item STRING, price DECIMAL(10,2)", "primary_key": ["id"]}
    for topic in ("demo.source-orders", "demo.orders"):
        kafka.create_topic(topic)
    events = _order_events()
    kafka.produce("demo.source-orders", [(None, _order(*event)) for event in events])
    say(f"   {len(events)} messages in the topic demo.source-orders")
    changes = from_kafka_changelog(
        spark, "demo.source-orders", format="maxwell-json", **table, options=servers, bounded=True
    )
    encode_changelog(changes, primary_key=["id"]).write.format("kafka").options(
        **servers, topic="demo.orders"
    ).save()
    stage = ChangelogNormalize(key_groups=1)
    rows = collect(
        from_kafka_changelog(
            spark, "demo.orders", format="changelog-json", **table, options=servers, normalize=stage
        )
    )
    show_changes(rows, changes.columns, say)
    table = table_of(rows, ("id",))
    expected = {
        (number,): (
            number,
            f"item {number}",
            Decimal("9.99") if number == 1005 else Decimal("5.00"),
        )
        for number in range(1001, 1011)
    }
    equal = table == expected
    say(
        f"   table: {len(table)} rows: "
        f"{'EQUAL to the orders that were written' if equal else 'NOT EQUAL'}"
    )
    return Result("written as changelog-json, read back", len(events), len(rows), len(table), equal)


def _order_events() -> list[tuple[str, int, str]]:
    return [
        *(("insert", number, "5.00") for number in range(1000, 1011)),
        ("update", 1005, "9.99"),
        ("delete", 1000, "5.00"),
    ]


def _order(kind: str, number: int, price: str) -> bytes:
    message: dict[str, Any] = {
        "type": kind,
        "data": {"id": number, "item": f"item {number}", "price": price},
    }
    if kind == "update":
        message["old"] = {"price": "5.00"}
    return json.dumps(message).encode()
