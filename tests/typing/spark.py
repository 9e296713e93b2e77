"""What type checkers say about programs with `normalize`. Nothing here runs.

Each line with ignore comments must be an error: an ignore comment that is not needed is an error,
too. `assert_type` states the type of a result.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from typing_extensions import assert_type

import capture
from normalize import (
    ChangelogNormalize,
    DeadLetter,
    DeltaDatabase,
    DeltaTarget,
    IcebergDatabase,
    IcebergTarget,
    JdbcSource,
    JdbcTarget,
    LocalKafka,
    aggregate_changes,
    apply_changes,
    decode_changelog,
    from_kafka_changelog,
    local_session,
    signed_avg,
    signed_count,
    signed_sum,
    sync_database,
    sync_table,
    to_kafka_changelog,
    verify_table,
)
from normalize.api import encode_changelog, explain_changelog
from normalize.checkpoint.read_state import read_state
from normalize.checkpoint.status import CheckpointStatus, checkpoint_status
from normalize.explore import History, history
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.metrics_listener import MetricsListener
from normalize.monitoring.progress import observe_lag
from normalize.stage_options import NativeEngine
from normalize.tables.apply import apply_batch
from normalize.tables.table_options import TableOptions
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import Sink, TableTarget
from normalize.verify.verification import Difference, Verification


def session() -> SparkSession:
    with LocalKafka(port=9092) as kafka:
        assert_type(kafka.bootstrap_servers, str)
        kafka.produce("products", [(None, '{"op": "c"}'), (b"1", None)])
    spark = local_session(packages=["delta"])
    assert_type(spark, SparkSession)
    capture.register(spark)
    return spark


def read(spark: SparkSession) -> DataFrame:
    changes = from_kafka_changelog(
        spark,
        re.compile("shop[.].*"),
        format="debezium-json",
        format_options={"decimal_handling_mode": "string"},
        schema="id INT, name STRING",
        primary_key=["source.table", "id"],
        options={"kafka.bootstrap.servers": "localhost:9092", "maxOffsetsPerTrigger": 1000},
        normalize=ChangelogNormalize(
            order="source",
            delete_retention=timedelta(days=1),
            engine=NativeEngine(repartition=True),
        ),
        mode=DeadLetter("orders.dead"),
        metadata={"event_time": "source.timestamp"},
        changelog_mode="upsert",
        bounded=True,
    )
    assert_type(changes, DataFrame)
    return changes


def reads_that_are_refused(spark: SparkSession, df: DataFrame) -> None:
    from_kafka_changelog(spark, "a", schema="id INT")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    from_kafka_changelog(spark, "a", "debezium-json")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    from_kafka_changelog(spark, "a", format="ogg-json", mode="SKIP")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    from_kafka_changelog(spark, "a", format="ogg-json", normalize=True)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    from_kafka_changelog(spark, "a", format="ogg-json", primary_keys="id")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    decode_changelog(df, format="ogg-json")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    ChangelogNormalize("id", order="offset")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    ChangelogNormalize("id", state_ttl=5)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def stage(df: DataFrame) -> None:
    assert_type(df.transform(ChangelogNormalize(primary_key="id")), DataFrame)
    assert_type(
        decode_changelog(
            df, format="canal-json", schema="id INT", primary_key="id", normalize=False
        ),
        DataFrame,
    )
    assert_type(explain_changelog("orders", format="canal-json"), str)


def tables(changes: DataFrame) -> StreamingQuery:
    writer = apply_changes(
        changes,
        DeltaTarget("lake.shop.products"),
        keys="id",
        sequence_by="at",
        scd_type=2,
        deletes="soft",
    )
    assert_type(writer, DataStreamWriter)
    apply_changes(
        changes,
        JdbcTarget("jdbc:postgresql://db/shop", "products", user="cdc"),
        keys=["id"],
        on_new_column="add",
    )
    apply_changes(changes, "lake.shop.products", "id")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    apply_changes(changes, JdbcSource("jdbc:postgresql://db/shop", "products"))  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    apply_changes(changes, "products", keys="id", scd_type=3)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    apply_batch(changes, IcebergTarget("lake.shop.products"), keys="id")
    return (
        writer.option("checkpointLocation", "/checkpoints/products")
        .trigger(availableNow=True)
        .start()
    )


def databases(spark: SparkSession) -> None:
    writer = sync_database(
        spark,
        ["shop.orders", "shop.lines"],
        format="debezium-json",
        target=DeltaDatabase("/lake/shop", table="{schema}_{table}", scd_type=2),
        schema_location="/lake/shop/schemas",
        options={"kafka.bootstrap.servers": "localhost:9092"},
        tables={"orders": TableOptions(deletes="soft")},
    )
    assert_type(writer, DataStreamWriter)
    DeltaDatabase("/lake/shop", deletes="keep")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    sync_database(spark, "a", format="ogg-json", target=IcebergDatabase("lake.shop"), options={})  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def table(spark: SparkSession) -> None:
    options = {"kafka.bootstrap.servers": "localhost:9092"}
    target = DeltaTarget("lake.shop.orders")
    where = TableOptions(where="id > 0", deletes="soft")
    writer = sync_table(
        spark,
        "orders",
        format="canal-json",
        target=target,
        schema_location="/lake/schemas",
        options=options,
        table=where,
    )
    assert_type(writer, DataStreamWriter)
    sync_table(spark, "orders", format="canal-json", target=target, options=options)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def aggregates(changes: DataFrame) -> None:
    assert_type(signed_sum("weight"), Column)
    sums = aggregate_changes(
        changes,
        ["name"],
        signed_sum("weight"),
        signed_count("*"),
        signed_avg("weight"),
        changelog_mode="all",
    )
    assert_type(sums, DataFrame)
    aggregate_changes(changes, "name", "sum(weight)")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]


def writing(changes: DataFrame) -> None:
    assert_type(
        to_kafka_changelog(changes, "out", options={"kafka.bootstrap.servers": "localhost:9092"}),
        DataStreamWriter,
    )
    assert_type(encode_changelog(changes, format="maxwell-json"), DataFrame)
    to_kafka_changelog(changes, options={})  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]


def operation(spark: SparkSession, query: StreamingQuery, changes: DataFrame) -> None:
    verification = verify_table(
        spark,
        JdbcSource("jdbc:mysql://db/shop", "products"),
        DeltaTarget("lake.shop.products"),
        keys="id",
    )
    assert_type(verification, Verification)
    assert_type(verification.equal, bool | None)
    for difference in verification.differences:
        assert_type(difference, Difference)
    assert_type(read_state(spark, "/checkpoints/products"), DataFrame)
    assert_type(checkpoint_status("/checkpoints/products"), CheckpointStatus)
    assert_type(explain_error(query), str)
    assert_type(history(changes, {"id": 101}), History)
    assert_type(observe_lag(changes, "event_time"), DataFrame)
    spark.streams.addListener(MetricsListener(port=8000))


@dataclass(frozen=True)
class FileTarget(TableTarget):
    """A kind of table of another package."""

    path: str

    def sink(self, spark: SparkSession) -> Sink:
        return FileSink()


class FileSink(Sink):
    """Writes the table."""

    def needed(self, spec: TableSpec) -> list[str]:
        return []

    def prepare(self, spec: TableSpec) -> TableSpec:
        return spec

    def merge(self, latest: DataFrame, spec: TableSpec) -> None:
        latest.write.save()


class Unfinished(Sink):
    """A sink without its methods."""


Unfinished()  # type: ignore[abstract] # pyright: ignore[reportAbstractUsage]
