"""`apply_changes` and `apply_batch` on Spark Connect: tables, change feeds, conflicts, refusals."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError
from normalize import (
    DeltaDatabase,
    JdbcTarget,
    LocalKafka,
    aggregate_changes,
    from_kafka_changelog,
    signed_count,
    sync_database,
)
from normalize.api import encode_changelog
from normalize.change_feed import CHANGE_TYPES
from normalize.tables.apply import apply_batch
from normalize.tables.latest import ChangeOrderError
from tests.support.sinking import (
    STORY,
    Sink,
    apply_stream,
    finish_all,
    forget_last_commit,
    lake_sink,
)
from tests.support.streams import new_topic, servers

KINDS = ["delta", pytest.param("iceberg", marks=pytest.mark.iceberg)]
SCHEMA = "id INT, name STRING"
FEED = sorted((id, name, CHANGE_TYPES[kind]) for kind, id, name in STORY)


@pytest.fixture
def new_sink(connect: SparkSession, tmp_path: Path) -> Callable[[str], Sink]:
    """A function from a kind to a table that does not exist yet."""
    return lambda kind: lake_sink(connect, kind, tmp_path)


def changelog(connect: SparkSession, rows: list[Any], schema: str = SCHEMA) -> DataFrame:
    """A changelog, whose first column is the row kind."""
    return connect.createDataFrame(rows, f"row_kind STRING, {schema}")


@pytest.fixture(scope="module")
def story(connect: SparkSession, kafka: LocalKafka) -> dict[str, str]:
    """Return the options that read a topic with the story."""
    topic = new_topic(kafka, [])
    encode_changelog(changelog(connect, STORY)).coalesce(1).write.format("kafka").options(
        **servers(kafka, topic=topic)
    ).save()
    return servers(kafka, subscribe=topic)


def streamed(connect: SparkSession, story: dict[str, str], **options: Any) -> DataFrame:
    """The story as a stream of two micro-batches."""
    read = {"kafka.bootstrap.servers": story["kafka.bootstrap.servers"], "maxOffsetsPerTrigger": 5}
    arguments = {
        "format": "changelog-json",
        "schema": SCHEMA,
        "normalize": False,
        "options": read,
        **options,
    }
    return from_kafka_changelog(connect, story["subscribe"], **arguments)


def repeat_last_batch(changes: DataFrame, sink: Sink, checkpoint: Path, **options: Any) -> None:
    """Repeat a query's second micro-batch, as after a kill before Spark's commit."""
    assert forget_last_commit(checkpoint) == 1
    apply_stream(changes, sink.table, checkpoint, **options)
    assert (checkpoint / "commits" / "1").exists()


@pytest.mark.cross_section
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_makes_the_table(
    connect: SparkSession,
    story: dict[str, str],
    new_sink: Callable[[str], Sink],
    kind: str,
    tmp_path: Path,
) -> None:
    sink, changes = new_sink(kind), streamed(connect, story, metadata=["offset"])
    written = {"keys": "id", "order_by": "offset", "column_list": ["id", "name"]}
    apply_stream(changes, sink.table, tmp_path / "c", **written)
    assert sink.rows() == [(1, "c"), (2, "e")]
    repeat_last_batch(changes, sink, tmp_path / "c", **written)
    assert sink.rows() == [(1, "c"), (2, "e")]
    shuffled = connect.createDataFrame(
        [("+U", 1, "new", 3, 8), ("-D", 2, "e", 3, 9), ("+U", 2, "e", 3, 7)],
        "row_kind STRING, id INT, name STRING, size INT, offset INT",
    )
    columns = ["id", "name", "size"]
    apply_batch(
        shuffled.repartition(2),
        sink.sql_name,
        keys="id",
        order_by="offset",
        column_list=columns,
        on_new_column="add",
    )
    assert sink.rows() == [(1, "new", 3)]
    soft = changelog(connect, [("-D", 1, "new")])
    more: dict[str, Any] = {"deletes": "soft", "on_new_column": "add"}
    apply_batch(soft, sink.table, keys="id", order_by="name", **more)
    deleted = sink.read().where("deleted_at IS NOT NULL").select("id", "name").collect()
    assert deleted == [(1, "new")]


@pytest.mark.parametrize("kind", KINDS)
def test_concurrent_writers_all_finish(
    connect: SparkSession, new_sink: Callable[[str], Sink], kind: str
) -> None:
    sink, writers = new_sink(kind), 2

    def write(writer: int) -> None:
        apply_batch(
            changelog(connect, [("+U", key, f"of {writer}") for key in range(3)]),
            sink.table,
            keys="id",
            order_by="name",
        )

    with ThreadPoolExecutor(writers) as pool:
        finish_all(pool.submit(write, writer) for writer in range(writers))
    rows = sink.rows()
    assert [key for key, _ in rows] == [0, 1, 2]
    assert len({name for _, name in rows}) == 1  # each micro-batch is one commit


def test_results_of_a_group_by_are_applied(
    connect: SparkSession, story: dict[str, str], new_sink: Callable[[str], Sink]
) -> None:
    sink, changes = new_sink("delta"), streamed(connect, story, bounded=True)
    names = aggregate_changes(changes, "name", signed_count("*").alias("n"), changelog_mode="all")
    apply_batch(names, sink.table, keys="name", order_by="n")
    assert sink.rows() == [("c", 1), ("e", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_your_own_foreach_batch_makes_a_table_and_a_history(
    connect: SparkSession,
    story: dict[str, str],
    new_sink: Callable[[str], Sink],
    kind: str,
    tmp_path: Path,
) -> None:
    table, history, errors = new_sink(kind), new_sink(kind), tmp_path / "errors"
    target, versions = table.table, history.table
    options: dict[str, Any] = {
        "keys": "id",
        "sequence_by": "offset",
        "scd_type": 2,
        "column_list": ["id", "name"],
    }

    def apply(batch: DataFrame, number: int) -> None:
        try:
            apply_batch(batch, target, keys="id")
        except ValueError as error:
            with errors.open("a") as file:
                file.write(f"{error}\n")
        apply_batch(batch, target, keys="id", order_by="offset")
        apply_batch(batch.where("row_kind <> '-U'"), versions, **options)

    writer = streamed(connect, story, metadata=["offset"]).writeStream.foreachBatch(apply)
    writer.option("checkpointLocation", str(tmp_path / "c")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert table.rows("id", "name") == [(1, "c"), (2, "e")]
    unordered, *_ = errors.read_text().splitlines()
    assert unordered.startswith(
        "[CHANGE_ORDER] Spark Connect requires order_by, since its client does not see whether a "
        "key's rows are in order"
    )
    second = [(2, "b", 1, 4), (2, "d", 5, 7)]
    assert history.rows() == [(1, "a", 0, 3), (1, "c", 3, None), *second, (2, "e", 7, None)]
    late = changelog(
        connect,
        [("+U", 1, "late", 2, None), ("-D", 2, None, 9, None)],
        "id INT, name STRING, offset BIGINT, at TIMESTAMP",
    )
    apply_batch(late, history.table, **options)
    first = [(1, "a", 0, 2), (1, "c", 3, None), (1, "late", 2, 3)]
    assert history.rows() == [*first, *second, (2, "e", 7, 9)]


def test_an_order_is_required(connect: SparkSession, new_sink: Callable[[str], Sink]) -> None:
    with pytest.raises(
        ChangeOrderError,
        match=r"requires order_by, .*: pass order_by=\['offset'\], or another column",
    ):
        apply_batch(changelog(connect, STORY), new_sink("delta").table, keys="id")


def test_what_needs_a_classic_session_is_refused_at_the_call(connect: SparkSession) -> None:
    changes = changelog(connect, STORY)
    with pytest.raises(
        ArgumentError,
        match=r"JdbcTarget needs the JVM of a classic session, and this one is of Spark Connect: run",
    ):
        apply_batch(changes, JdbcTarget("jdbc:postgresql://localhost/shop", "t"), keys="id")
    with pytest.raises(
        ArgumentError,
        match=(
            r"sync_database needs the JVM of a classic session, and this one is of Spark Connect: "
            r"run"
        ),
    ):
        sync_database(
            connect,
            "t",
            format="maxwell-json",
            target=DeltaDatabase("/lake"),
            schema_location="/lake/_schemas",
            options={},
        )
