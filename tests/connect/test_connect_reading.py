"""Reading, aggregates and the capture on Spark Connect: as in a classic session.

Rows, counts, errors and restarts are the same.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.sql import DataFrame, Observation, SparkSession, functions as F
from pyspark.sql.connect.session import SparkSession as RemoteSession

import capture
from cdc_formats.errors import ArgumentError
from normalize import (
    ChangelogNormalize,
    DeadLetter,
    aggregate_changes,
    decode_changelog,
    from_kafka_changelog,
    signed_count,
    signed_sum,
    to_kafka_changelog,
)
from normalize.api import encode_changelog
from normalize.checkpoint.read_state import read_state
from normalize.explore import history
from normalize.monitoring.explain_error import explain_error
from normalize.spark_versions import spark_packages
from tests.support.events import CLEAN, HISTORY, event, row
from tests.support.servers.connect_server import ConnectServer
from tests.support.servers.local_source import SMALL, LocalSource
from tests.support.streams import letters, new_topic, servers, spell

TABLE = {
    "format": "debezium-json",
    "schema": "id BIGINT NOT NULL, name STRING, qty INT",
    "primary_key": "id",
}
BAD = (b"1", b"no json")


@pytest.fixture(scope="module")
def topic(kafka) -> str:
    return new_topic(kafka, HISTORY)


def run(df: DataFrame, checkpoint: Path) -> tuple[list[str], Any]:
    """Run a stream until it has read all records; return the rows of all its runs, and the query.

    A ``foreachBatch`` function runs in the server, and so cannot collect.
    """
    folder = checkpoint.with_name(f"{checkpoint.name}-rows")
    query = (
        df.writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start(str(folder))
    )
    query.awaitTermination()
    rows = df.sparkSession.read.schema(df.schema).parquet(str(folder))
    return by_key(rows.orderBy("_metadata.file_modification_time", "_metadata.row_index")), query


def by_key(df: DataFrame) -> list[str]:
    """All rows as text, the rows of a key in their order."""
    return list(map(spell, sorted(df.collect(), key=lambda each: each["id"])))


EXPECTED = sorted(CLEAN, key=lambda text: text.partition("(")[2][0])


@pytest.mark.cross_section
def test_the_session_is_remote(connect: SparkSession) -> None:
    assert isinstance(connect, RemoteSession)
    assert SparkContext._gateway is None


@pytest.mark.cross_section
def test_a_bounded_read_has_the_rows_and_the_counts(
    connect: SparkSession, kafka, topic: str
) -> None:
    observation = Observation("counts")
    df = from_kafka_changelog(
        connect, topic, **TABLE, options=servers(kafka), bounded=True, observation=observation
    )
    assert by_key(df) == EXPECTED
    assert observation.get["RECORDS"] == len(HISTORY)
    assert [each.strip() for each in str(history(df, {"id": 2})).splitlines()][1:] == [
        "+I id=2, name=b, qty=0",
        "-D id=2, name=b, qty=0",
    ]


def test_the_schema_is_inferred(connect: SparkSession, kafka, topic: str) -> None:
    df = from_kafka_changelog(
        connect, topic, format="debezium-json", options=servers(kafka), bounded=True
    )
    assert by_key(df) == EXPECTED


@pytest.mark.cross_section
def test_a_stream_continues_from_its_checkpoint(
    connect: SparkSession, kafka, tmp_path: Path
) -> None:
    topic = new_topic(kafka, HISTORY)
    df = from_kafka_changelog(
        connect, topic, **TABLE, options=servers(kafka, maxOffsetsPerTrigger=3)
    )
    rows, query = run(df, tmp_path / "checkpoint")
    assert rows == EXPECTED
    observed = [batch.observedMetrics["changelog_decode"] for batch in query.recentProgress]
    assert len(observed) > 1
    assert sum(
        each["values"][[field["name"] for field in each["schema"]["fields"]].index("RECORDS")]
        for each in observed
    ) == len(HISTORY)
    kafka.produce(topic, [event("u", 60, row(1, "a", 2), row(1, "a", 3)), HISTORY[-1]])
    more = ["-U(1,a,2)", "+U(1,a,3)", "-U(1,a,3)", "+U(1,a,2)"]
    assert run(df, tmp_path / "checkpoint")[0] == [*EXPECTED[:5], *more, *EXPECTED[5:]]
    stored = read_state(connect, str(tmp_path / "checkpoint")).drop("_key_group")
    assert [tuple(each) for each in stored.collect()] == [(1, "a", 2)]


def test_bad_records_become_rows_or_dead_letters_or_one_sentence(
    connect: SparkSession, kafka, tmp_path: Path
) -> None:
    topic, dead = new_topic(kafka, [*HISTORY, BAD]), new_topic(kafka, [])
    with pytest.raises(Exception, match="MALFORMED_MESSAGE"):
        from_kafka_changelog(connect, topic, **TABLE, options=servers(kafka), bounded=True)
    arguments = {**TABLE, "options": servers(kafka), "check": False}
    rows = from_kafka_changelog(connect, topic, **arguments, mode="PERMISSIVE", bounded=True)
    assert [
        each._corrupt_record.value for each in rows.where("_corrupt_record IS NOT NULL").collect()
    ] == [BAD[1]]
    good, _ = run(
        from_kafka_changelog(connect, topic, **arguments, mode=DeadLetter(dead)), tmp_path / "dead"
    )
    assert good == EXPECTED
    assert [letter.value() for letter in letters(kafka, dead)] == [BAD[1]]
    query = (
        from_kafka_changelog(connect, topic, **arguments)
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "c"))
    )
    failed = query.start()
    with pytest.raises(Exception, match="STREAM_FAILED"):
        failed.awaitTermination()
    place = f"at the value in {topic}[0]@5; it begins b'no json'"
    for error in (failed, failed.exception()):
        assert explain_error(error).startswith("[MALFORMED_MESSAGE] not JSON")
        assert explain_error(error).endswith(place)


def test_decode_changelog_reads_any_records(
    connect: SparkSession, kafka, topic: str, tmp_path: Path
) -> None:
    options = servers(kafka, subscribe=topic, startingOffsets="earliest")
    assert (
        by_key(decode_changelog(connect.read.format("kafka").options(**options).load(), **TABLE))
        == EXPECTED
    )
    stream = connect.readStream.format("kafka").options(**options).load()
    by_position = ChangelogNormalize(order="source")
    assert (
        run(decode_changelog(stream, **TABLE, normalize=by_position), tmp_path / "checkpoint")[0]
        == EXPECTED
    )


def test_a_condition_is_checked_at_the_call_and_reads_stored_values(
    connect: SparkSession, kafka, capfd
) -> None:
    """The server analyzes later than a classic session does, which must not hide an error."""
    source = {"table": "t", "connector": "postgresql", "ts_ms": 1}
    schema = "id BIGINT, name STRING, note STRING"
    message = '{"before":null,"after":{"id":1,"name":"a","note":"%s"},"op":"u","source":%s}'
    values = [
        message % (note, str(source).replace("'", '"'))
        for note in ("x", "__debezium_unavailable_value")
    ]
    topic = new_topic(kafka, [(b'{"id":1}', value.encode()) for value in values])
    arguments = {
        **TABLE,
        "schema": schema,
        "options": servers(kafka),
        "bounded": True,
        "check": False,
    }
    by_name = from_kafka_changelog(
        connect, topic, **arguments, normalize=ChangelogNormalize(where="name = 'b' AND id > 0")
    )
    assert by_name.count() == 0
    by_note = from_kafka_changelog(
        connect, topic, **arguments, normalize=ChangelogNormalize(where=F.col("note") == "x")
    )
    assert by_key(by_note) == ["+I(1,a,x)"]
    assert "UNRESOLVED_COLUMN" not in capfd.readouterr().err
    with pytest.raises(
        ArgumentError, match=r"where is not a condition on the table's columns: \[UNRESOLVED_COLUMN"
    ):
        from_kafka_changelog(
            connect, topic, **arguments, normalize=ChangelogNormalize(where="nope > 0")
        )


def test_a_changelog_is_written_to_kafka(
    connect: SparkSession, kafka, topic: str, tmp_path: Path
) -> None:
    arguments, written = {**TABLE, "options": servers(kafka)}, new_topic(kafka, [])
    writer = to_kafka_changelog(
        from_kafka_changelog(connect, topic, **arguments),
        written,
        options=servers(kafka),
        format="debezium-json",
        primary_key="id",
    )
    writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert by_key(from_kafka_changelog(connect, written, **arguments, bounded=True)) == EXPECTED
    bounded = from_kafka_changelog(connect, written, **arguments, bounded=True)
    records = encode_changelog(bounded, format="upsert-kafka", primary_key="id").collect()
    assert {bytes(each.key): each.value for each in records}[b'{"id":2}'] is None


@pytest.mark.cross_section
def test_what_needs_the_jvm_says_so(connect: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(
        ArgumentError, match="is not a checkpoint: pass the query's checkpointLocation"
    ):
        read_state(connect, str(tmp_path))


CLIENT_OF_ANOTHER_SERVER = """
import sys

from pyspark.sql.connect.session import SparkSession

from normalize import from_kafka_changelog

spark = SparkSession.builder.remote(sys.argv[1]).create()
table = {"format": "debezium-json", "schema": "id BIGINT", "primary_key": "id"}
from_kafka_changelog(spark, "t", **table, options={"kafka.bootstrap.servers": "127.0.0.1:1"}, bounded=True, check=False)
"""


@pytest.mark.connect
def test_a_server_without_the_kafka_source_is_one_sentence() -> None:
    # In a process of its own: PySpark 4.0 and 4.1 can deadlock when the garbage collector frees a
    # second session.
    with ConnectServer({"spark.master": "local[1]", "spark.ui.enabled": False}) as server:
        command = [sys.executable, "-c", CLIENT_OF_ANOTHER_SERVER, server.url]
        client = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert client.stderr.splitlines()[-1] == (
        "cdc_formats.errors.MissingDependencyError: [MISSING_DEPENDENCY] Spark has no Kafka "
        f"source: start the session with spark.jars.packages={spark_packages()}, or with "
        "normalize.local_session()"
    )


def test_the_native_engine_is_refused(connect: SparkSession) -> None:
    stream = connect.readStream.format("rate").load().selectExpr("cast(value AS string) AS value")
    with pytest.raises(
        ArgumentError,
        match="engine='native' is not supported on Spark Connect: use engine='key_groups'",
    ):
        decode_changelog(stream, **TABLE, normalize=ChangelogNormalize(engine="native"))


# --------------------------------------------------------------------------------------------------
# aggregates


def test_aggregates_find_the_row_kind_and_the_caller_declares_the_changelog_mode(
    connect: SparkSession,
) -> None:
    rows = [("+I", 1, 2), ("-U", 1, 2), ("+U", 1, 3)]
    raw = connect.createDataFrame(rows, "row_kind STRING, id INT, n INT").coalesce(1)
    changes, upserts = (
        raw.transform(ChangelogNormalize("id", changelog_mode=mode)) for mode in ("all", "upsert")
    )
    total = signed_sum("n").alias("n")
    declared = aggregate_changes(changes.where("n > 0"), [], total, changelog_mode="all")
    assert declared.collect() == [("+U", 3)]
    with pytest.raises(
        ArgumentError,
        match="if it has, pass changelog_mode='all'; if not, apply ChangelogNormalize",
    ):
        aggregate_changes(changes, [], total)
    assert tuple(changes.agg(signed_sum("n"), signed_count("*")).collect()[0]) == (3, 1)
    with pytest.raises(Exception, match="UNRESOLVED_COLUMN"):
        upserts.agg(signed_sum("n")).collect()


# --------------------------------------------------------------------------------------------------
# capture


def test_a_tables_changelog_is_read(
    connect: SparkSession, source: LocalSource, tmp_path: Path
) -> None:
    source.run("CREATE TABLE connected (id INT PRIMARY KEY, at TIMESTAMP(3) NOT NULL)")
    rows = "INSERT INTO connected SELECT seq, '2020-01-01 00:00:00.5' FROM seq_1_to_60"
    source.run("SET time_zone = '+00:00'", rows, "ANALYZE TABLE connected")
    options = source.options("connected", **SMALL | {"scan.snapshot.chunks-per-batch": "20"})
    capture.register(connect)
    writer = (
        connect.readStream.format("mysql-changelog")
        .options(**options)
        .load()
        .writeStream.format("parquet")
    )
    writer = writer.option("path", str(tmp_path / "rows")).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    read = (
        connect.read.parquet(str(tmp_path / "rows"))
        .selectExpr("row_kind", "id", "CAST(at AS STRING)")
        .orderBy("id")
    )
    assert [tuple(row) for row in read.collect()] == [
        ("+I", number, "2020-01-01 00:00:00.5") for number in range(1, 61)
    ]
