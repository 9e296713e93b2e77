"""Two small examples: a sum over changelogs in several formats, and a changelog written to Kafka and read back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any

from normalize import aggregate_changes, from_kafka_changelog, to_kafka_changelog

from .recordings import collect, show_changelog, show_table, table_of

PRODUCT = Path(__file__).parents[1] / "tests" / "vectors" / "product"
FORMATS = ("canal-json", "debezium-json", "maxwell-json", "ogg-json", "upsert-kafka")


def product(spark: Any, kafka: Any, say: Callable[[str], None]) -> bool:
    """Sum weights by name over a product table's changelog in each format; return whether all sums equal SQLite's."""
    from pyspark.sql import DataFrame, functions as F

    say("\n=== SELECT name, SUM(weight) FROM product GROUP BY name, over its changelog")
    story = json.loads((PRODUCT / "schema.json").read_text())
    changes = [_product_changes(spark, kafka, name, story).withColumn("format", F.lit(name)) for name in FORMATS]
    query = "SELECT format, name, SUM(weight) AS weight FROM product GROUP BY format, name"
    sums: dict[str, dict[str, Decimal]] = {name: {} for name in FORMATS}
    for row in aggregate_changes(reduce(DataFrame.union, changes), query).collect():
        sums[row.format][row.name] = row.weight
    answer = _database_sums((PRODUCT / "statements.sql").read_text())
    for group, weight in sorted(answer.items()):
        say(f"     {group:<20} {weight:>8}")
    for name, summed in sums.items():
        say(f"{name + ':':<15} {'EQUAL to the database' if summed == answer else f'NOT EQUAL: {summed}'}")
    return all(summed == answer for summed in sums.values())


def _product_changes(spark: Any, kafka: Any, name: str, story: dict[str, Any]) -> Any:
    topic = f"demo.product.{name}"
    kafka.create_topic(topic)
    kafka.produce(topic, _records(PRODUCT / f"{name}.jsonl"))
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
        return None if value is None else (value if isinstance(value, str) else json.dumps(value)).encode()

    return [(raw(line.get("key")), raw(line["value"])) for line in map(json.loads, path.read_text().splitlines())]


def _database_sums(statements: str) -> dict[str, Decimal]:
    database = sqlite3.connect(":memory:")
    database.executescript(statements)
    rows = database.execute("SELECT name, SUM(weight) FROM product GROUP BY name").fetchall()
    database.close()
    return {name: Decimal(str(weight)).quantize(Decimal("0.001")) for name, weight in rows}


def demo_orders(spark: Any, kafka: Any, say: Callable[[str], None]) -> bool:
    """Write eleven orders, an update and a delete as changelog-json, read them back; return whether the table is right."""
    say("\n=== demo_orders: a changelog written to Kafka as changelog-json, and read back")
    servers = {"kafka.bootstrap.servers": kafka.bootstrap_servers}
    table = {"schema": "id INT, item STRING, price DECIMAL(10,2)", "primary_key": ["id"]}
    for topic in ("demo.source-orders", "demo_orders"):
        kafka.create_topic(topic)
    kafka.produce("demo.source-orders", [(None, _order(*event)) for event in _order_events()])
    orders = from_kafka_changelog(spark, "demo.source-orders", format="maxwell-json", **table, options=servers, bounded=True)
    to_kafka_changelog(orders, "demo_orders", primary_key=["id"], options=servers)
    rows = collect(from_kafka_changelog(spark, "demo_orders", format="changelog-json", **table, options=servers, key_groups=1))
    show_changelog(rows, say, shown=20)
    found = table_of(rows, ("id",))
    show_table(found, ["id", "item", "price"], say)
    expected = {
        (number,): (number, f"item {number}", Decimal("9.99") if number == 1005 else Decimal("5.00")) for number in range(1001, 1011)
    }
    say(f"{len(found)} orders: {'EQUAL to the expected orders' if found == expected else 'NOT EQUAL'}")
    return found == expected


def _order_events() -> list[tuple[str, int, str]]:
    return [*(("insert", number, "5.00") for number in range(1000, 1011)), ("update", 1005, "9.99"), ("delete", 1000, "5.00")]


def _order(kind: str, number: int, price: str) -> bytes:
    message: dict[str, Any] = {"type": kind, "data": {"id": number, "item": f"item {number}", "price": price}}
    if kind == "update":
        message["old"] = {"price": "5.00"}
    return json.dumps(message).encode()
