"""Replay of real producers' recorded topics, and comparison with their source databases' tables."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normalize import ChangelogNormalize, from_kafka_changelog

from .report import Result, Say, show_changes

TOPICS = Path(__file__).parent / "topics"
_CUSTOMERS = (
    "id INT, name STRING, email STRING, balance DECIMAL(20,4), created TIMESTAMP(3), updated "
    "TIMESTAMP_NTZ(6)"
)


@dataclass(frozen=True)
class Recording:
    """A recorded topic, the arguments that read it, and the expected table."""

    title: str
    features: str
    file: str
    format: str
    schema: str
    primary_key: tuple[str, ...]
    truth: str
    options: Mapping[str, Any] = field(default_factory=dict)


RECORDINGS = (
    Recording(
        "Debezium 3.4 on MariaDB",
        "base64 decimals, epoch times, tombstones, a second snapshot between the changes",
        "dbz34-mariadb-json.inventory.customers",
        "debezium-json",
        _CUSTOMERS,
        ("id",),
        "mariadb.customers",
        {"decimal_handling_mode": "precise", "time_precision_mode": "adaptive_time_microseconds"},
    ),
    Recording(
        "Maxwell 1.44 on MariaDB",
        "several tables in one topic, numbers for decimals, bootstraps between the changes",
        "maxwell-mariadb",
        "maxwell-json",
        # Without `created`: a bootstrap writes TIMESTAMP in the server's time zone, the stream in
        # UTC.
        "id INT, name STRING, email STRING, balance DECIMAL(20,4), updated TIMESTAMP_NTZ",
        ("id",),
        "mariadb2.customers",
        {"table_include": "customers"},
    ),
    Recording(
        "Canal 1.1.7 on MariaDB",
        "every value as text, several rows in a message, statements and DDL between the changes",
        "canal-mariadb-flat",
        "canal-json",
        _CUSTOMERS,
        ("id",),
        "mariadb2.customers",
        {"table_include": "customers", "time_zone": "UTC"},
    ),
)


def replay(spark: Any, kafka: Any, recording: Recording, say: Say) -> Result:
    """Load a recording into Kafka, stream it, and compare the resulting table with the source's."""
    topic = f"demo.{recording.file}"
    say(f"\n=== {recording.title}: {recording.features}")
    messages = kafka.load_recording(TOPICS / "records" / f"{recording.file}.jsonl.gz", topic)
    say(
        f"   {messages:,} recorded messages in the topic {topic}, read with "
        f"format={recording.format!r}"
    )
    changes = from_kafka_changelog(
        spark,
        topic,
        format=recording.format,
        format_options=recording.options,
        schema=recording.schema,
        primary_key=recording.primary_key,
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
        normalize=ChangelogNormalize(key_groups=4),
    )
    rows = collect(changes)
    show_changes(rows, changes.columns, say)
    table = table_of(rows, recording.primary_key)
    truth = (
        spark.read.schema(changes.drop("row_kind").schema)
        .json(str(TOPICS / "truth" / f"{recording.truth}.jsonl.gz"))
        .collect()
    )
    equal = sorted(table.values(), key=str) == sorted(map(tuple, truth), key=str)
    say(
        f"   table: {len(table):,} rows; the source database has {len(truth):,}: "
        f"{'EQUAL in every value' if equal else 'NOT EQUAL'}"
    )
    return Result(f"{recording.title}, {recording.format}", messages, len(rows), len(table), equal)


def collect(changes: Any) -> list[Any]:
    """Run a stream until it has read all available records, and return its rows."""
    rows: list[Any] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = changes.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        writer.option("checkpointLocation", checkpoint).trigger(
            availableNow=True
        ).start().awaitTermination()
    return rows


def table_of(
    rows: list[Any], primary_key: tuple[str, ...]
) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the table that results from applying a changelog to an empty one."""
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        key = tuple(row[name] for name in primary_key)
        if row.row_kind in ("+I", "+U"):
            table[key] = tuple(row)[1:]
        else:
            del table[key]
    return table
