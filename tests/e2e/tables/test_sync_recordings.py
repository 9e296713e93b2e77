"""Recorded topics of real producers, each synced as one database, give the source tables."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats import get_format
from normalize import DeltaDatabase, LocalKafka, sync_database
from normalize.core.arrow import spark_type
from normalize.dataframe import table_columns
from normalize.tables.table_options import TableOptions
from tests.support.replay.comparing import assert_truth
from tests.support.replay.replaying import (
    Replay,
    Row,
    normalized,
    read_recording,
    spelled,
    table_of,
)
from tests.support.replay.topics import FOLDER, SMALL, Topic, registry_options, topics

pytestmark = [
    pytest.mark.spark,
    pytest.mark.kafka,
    *([pytest.mark.slow] if FOLDER != SMALL else []),
]

TOAST_OF_OLD_KEYS = ("toasted", "indexed")
"""The tables in which rows with unchanged TOAST values change their key: the target has the values
in the old key's row."""
MOVING_KEYS = "maxwell-mariadb-full"
"""The recording whose keys move between partitions, so that their order is known in one micro-batch
only."""


def options_of(topic: Topic) -> dict[str, Any]:
    """Return the options of a topic's format without the choice of a table."""
    return {name: value for name, value in topic.options.items() if name != "table_include"}


def databases() -> list[list[Topic]]:
    """Return the recorded tables with a key, by producer and options."""

    def of(topic: Topic) -> tuple[str, ...]:
        return (
            topic.recording.partition(".inventory.")[0].partition(".")[0],
            topic.format,
            topic.mode,
            repr(sorted(options_of(topic).items())),
        )

    return [list(group) for _, group in groupby(sorted(topics(), key=of), of)]


def name_of(database: list[Topic]) -> str:
    """Return the name of a test."""
    return f"{database[0].recording.partition('.')[0]}-{database[0].format}-{len(database)}"


def overrides(topic: Topic) -> Mapping[str, TableOptions]:
    """Return the declared types of a table, by each of the names that producers give it."""
    options = TableOptions(name=topic.table, schema=topic.schema, primary_key=topic.primary_key)
    names = (
        f"inventory.{topic.table}",
        f"inventory.inventory.{topic.table}",
        topic.table,
        topic.recording,
    )
    return dict.fromkeys(names, options)


def final_places(topic: Topic, registry: str) -> dict[Any, tuple[int, int]]:
    """Return the last record of each row, from a replay without Spark."""
    decoder = get_format(topic.format, **topic.options_at(registry)).decoder(
        topic.schema, unique_key=topic.primary_key
    )
    replay = normalized(decoder, read_recording(topic.path))
    changelog = spelled(
        replay.changelog, {name: column.back for name, column in topic.columns.items()}
    )
    return {key: final.place for key, final in table_of(changelog, topic.primary_key).items()}


def cast(name: str, kind: str) -> str:
    """Return SQL that gives a target's column its declared type; intervals are in microseconds."""
    value = (
        f"make_dt_interval(0, 0, 0, CAST(`{name}` AS DECIMAL(18,0)) / 1000000)"
        if kind.startswith("INTERVAL")
        else f"`{name}`"
    )
    return f"CAST({value} AS {kind}) AS `{name}`"


def assert_is_the_truth(spark: SparkSession, topic: Topic, path: Path, registry: str) -> None:
    """Require that a target has the truth's rows."""
    typed = {column.name: spark_type(column.type) for column in table_columns(topic.schema)}
    table = (
        spark.read.format("delta")
        .load(str(path))
        .selectExpr(*(cast(name, kind) for name, kind in typed.items()))
    )
    rows = [
        Row("+I", tuple(row.values()), (0, 0))
        for row in table.toArrow().to_pylist(maps_as_pydicts="strict")
    ]
    backs = {name: column.back for name, column in topic.columns.items()}
    if topic.table in TOAST_OF_OLD_KEYS:
        # A replay without a target lacks these rows, and so their places.
        assert_truth(
            replace(topic, differences=()), Replay(changelog=rows), read_recording(topic.path)
        )
        return
    places = final_places(topic, registry)
    placed = []
    for row, (_, final) in zip(rows, spelled(rows, backs), strict=True):
        key = tuple(final.row[name] for name in topic.primary_key)
        assert key in places, f"{topic.name} has a row that no record wrote: {key}"
        placed.append(row._replace(place=places[key]))
    assert_truth(topic, Replay(changelog=placed), read_recording(topic.path))


@pytest.mark.parametrize("database", databases(), ids=name_of)
def test_recorded_database_ends_in_the_truth(
    spark: SparkSession,
    kafka: LocalKafka,
    recorded_registry: str,
    database: list[Topic],
    tmp_path: Path,
) -> None:
    keyed = [topic for topic in database if topic.primary_key and not topic.key]
    if not keyed:
        pytest.skip("no table has a key")
    prefix = f"sync.{tmp_path.name}"
    recordings = {topic.recording: topic for topic in database}
    for recording, topic in recordings.items():
        kafka.load_recording(topic.path, topic=f"{prefix}.{recording}")
    tables = {name: options for topic in keyed for name, options in overrides(topic).items()}
    tables |= {f"{prefix}.{topic.recording}": tables[topic.recording] for topic in keyed}
    limit = {} if MOVING_KEYS in recordings else {"maxOffsetsPerTrigger": 15_000}
    writer = sync_database(
        spark,
        [f"{prefix}.{recording}" for recording in recordings],
        format=database[0].format,
        format_options={
            **options_of(database[0]),
            **registry_options(database[0].format, recorded_registry),
        },
        target=DeltaDatabase(str(tmp_path / "lake"), only_writer=True, on_question="guess"),
        schema_location=str(tmp_path / "schemas"),
        options={"kafka.bootstrap.servers": kafka.bootstrap_servers, **limit},
        tables=tables,
        exclude=[".*no_pk", ".*dbz_signal"],
        on_truncate="ignore",
    )
    query = (
        writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for topic in keyed:
        assert_is_the_truth(spark, topic, tmp_path / "lake" / topic.table, recorded_registry)
