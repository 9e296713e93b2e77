"""The products scenario: a sum by name over micro-batches, in an upsert topic with tombstones."""

import json
import sqlite3
from decimal import Decimal

import pytest

from normalize import (
    ChangelogNormalize,
    aggregate_changes,
    from_kafka_changelog,
    signed_count,
    signed_sum,
    to_kafka_changelog,
)
from tests.support.paths import PRODUCT
from tests.support.streams import new_topic, servers

STORY = json.loads((PRODUCT / "schema.json").read_text())
QUERY = "SELECT name, SUM(weight) AS weight, COUNT(*) AS products FROM product GROUP BY name"


def records(identifier: str) -> list[tuple[bytes | None, bytes | None]]:
    def raw(part):
        return (
            None if part is None else (part if isinstance(part, str) else json.dumps(part)).encode()
        )

    lines = map(json.loads, (PRODUCT / f"{identifier}.jsonl").read_text().splitlines())
    return [(raw(line.get("key")), raw(line["value"])) for line in lines]


def database_answer() -> dict[str, tuple[Decimal, int]]:
    database = sqlite3.connect(":memory:")
    database.executescript((PRODUCT / "statements.sql").read_text())
    rows = database.execute(QUERY).fetchall()
    database.close()
    return {
        name: (Decimal(str(weight)).quantize(Decimal("0.001")), products)
        for name, weight, products in rows
    }


@pytest.mark.cross_section
def test_the_sum_by_name_equals_the_databases_after_every_retraction(spark, kafka, tmp_path):
    identifier = "upsert-kafka"  # every -U comes from the stage
    history = records(identifier)
    source, totals = new_topic(kafka, []), new_topic(kafka, [])
    products = from_kafka_changelog(
        spark,
        source,
        format=identifier,
        format_options=STORY["options"].get(identifier),
        schema=STORY["columns"],
        primary_key=STORY["primary_key"],
        options=servers(kafka),
        normalize=ChangelogNormalize(key_groups=2),
    )
    sums = aggregate_changes(
        products, "name", signed_sum("weight").alias("weight"), signed_count("*").alias("products")
    )
    writer = to_kafka_changelog(
        sums, totals, format="upsert-kafka", primary_key="name", options=servers(kafka)
    )
    query = (
        writer.outputMode("update").option("checkpointLocation", str(tmp_path / "totals")).start()
    )
    for begin in range(0, len(history), 20):
        kafka.produce(source, history[begin : begin + 20])
        query.processAllAvailable()
    query.stop()

    written = from_kafka_changelog(
        spark,
        totals,
        format="upsert-kafka",
        schema="name STRING, weight DECIMAL(20,3), products BIGINT",
        primary_key="name",
        options=servers(kafka),
        bounded=True,
    )
    rows = written.collect()
    table = {}
    for row in rows:
        if row.row_kind in ("+I", "+U"):
            table[row.name] = (row.weight, row.products)
        elif row.row_kind == "-D":
            del table[row.name]
    assert table == database_answer()
    # The last product of a name was renamed or deleted.
    assert {row.name for row in rows if row.row_kind == "-D"}
