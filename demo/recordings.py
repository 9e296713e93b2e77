"""Replays recorded topics of real producers and compares the results with the tables of their source databases."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from normalize import from_kafka_changelog

TOPICS = Path(__file__).parent / "topics"
_CUSTOMERS = "id INT, name STRING, email STRING, balance DECIMAL(20,4), created TIMESTAMP(3), updated TIMESTAMP_NTZ(6)"
_SHOWN = 6


@dataclass(frozen=True)
class Recording:
    """A recorded topic, how to read it, and the expected table."""

    title: str
    file: str
    format: str
    schema: str
    primary_key: tuple[str, ...]
    truth: str
    options: Mapping[str, Any] = field(default_factory=dict)


RECORDINGS = (
    Recording(
        "Debezium 3.4 on MariaDB: base64 decimals, epoch times, tombstones, a re-snapshot in mid-stream",
        "dbz34-mariadb-json.inventory.customers",
        "debezium-json",
        _CUSTOMERS,
        ("id",),
        "mariadb.customers",
        {"decimal_handling_mode": "precise", "time_precision_mode": "adaptive_time_microseconds"},
    ),
    Recording(
        "Maxwell 1.44 on MariaDB: one topic for several tables, numbers for decimals, bootstraps in mid-stream",
        "maxwell-mariadb",
        "maxwell-json",
        # Without `created`: a bootstrap writes TIMESTAMP in the server's time zone, the stream in UTC.
        "id INT, name STRING, email STRING, balance DECIMAL(20,4), updated TIMESTAMP_NTZ",
        ("id",),
        "mariadb2.customers",
        {"table_include": "customers"},
    ),
    Recording(
        "Canal 1.1.7 on MariaDB: text for everything, several rows in a message, statements and DDL in between",
        "canal-mariadb-flat",
        "canal-json",
        _CUSTOMERS,
        ("id",),
        "mariadb2.customers",
        {"table_include": "customers", "time_zone": "UTC"},
    ),
)


def replay(spark: Any, kafka: Any, recording: Recording, say: Callable[[str], None]) -> bool:
    """Load a recording, read it as a stream, print it, and return whether the final table equals the source's."""
    topic = f"demo.{recording.file}"
    say(f"\n=== {recording.title}")
    loaded = kafka.load_recording(TOPICS / "records" / f"{recording.file}.jsonl.gz", topic)
    say(f"loaded {loaded:,} recorded messages into {topic}")
    changes = from_kafka_changelog(
        spark,
        topic,
        format=recording.format,
        format_options=recording.options,
        schema=recording.schema,
        primary_key=recording.primary_key,
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
        key_groups=4,
    )
    rows = collect(changes)
    show_changelog(rows, say)
    table = table_of(rows, recording.primary_key)
    show_table(table, changes.columns[1:], say)
    truth = spark.read.schema(changes.drop("row_kind").schema).json(str(TOPICS / "truth" / f"{recording.truth}.jsonl.gz"))
    equal = sorted(table.values(), key=str) == sorted(map(tuple, truth.collect()), key=str)
    say(f"{len(table):,} rows; the source database has {truth.count():,}: {'EQUAL, every value' if equal else 'NOT EQUAL'}")
    return equal


def collect(changes: Any) -> list[Any]:
    """Run a stream until it has read all available records, and return its rows."""
    rows: list[Any] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = changes.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return rows


def table_of(rows: list[Any], primary_key: tuple[str, ...]) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """Return the table that results from applying a changelog to an empty one."""
    table: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        key = tuple(row[name] for name in primary_key)
        if row.row_kind in ("+I", "+U"):
            table[key] = tuple(row)[1:]
        else:
            del table[key]
    return table


def show_changelog(rows: list[Any], say: Callable[[str], None], shown: int = _SHOWN) -> None:
    """Print the beginning of a changelog and the first rows of each other kind."""
    kinds = {kind: sum(row.row_kind == kind for row in rows) for kind in ("+I", "-U", "+U", "-D")}
    say("changelog: " + ", ".join(f"{count:,} {kind}" for kind, count in kinds.items()))
    first_update = next((index for index, row in enumerate(rows) if row.row_kind == "-U"), len(rows))
    first_delete = next((index for index, row in enumerate(rows) if row.row_kind == "-D"), len(rows))
    picked = {*range(2), *range(first_update, first_update + 2), first_delete} if len(rows) > shown else set(range(len(rows)))
    last = -1
    for index in sorted(picked & set(range(len(rows)))):
        if index != last + 1:
            say("     ...")
        say(f"  {rows[index].row_kind} ({_values(tuple(rows[index])[1:])})")
        last = index


def show_table(table: dict[Any, tuple[Any, ...]], columns: list[str], say: Callable[[str], None], shown: int = 3) -> None:
    """Print a table's first rows."""
    say(f"table ({', '.join(columns)}):")
    for key in sorted(table, key=str)[:shown]:
        say(f"     {_values(table[key])}")
    if len(table) > shown:
        say("     ...")


def _values(values: tuple[Any, ...]) -> str:
    # ascii(): texts from a database may contain control codes for the terminal.
    return ", ".join("NULL" if value is None else ascii(value) if isinstance(value, str) else str(value) for value in values)
