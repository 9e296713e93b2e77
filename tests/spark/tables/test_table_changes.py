"""The changes of a table are the same, decoded on the driver or by Spark."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_formats import get_format
from cdc_formats.values.schema import Column, SqlType, columns
from normalize.decode.plan import DecodePlan
from normalize.tables.changes import (
    PLACE,
    PassSummary,
    TableDecoder,
    table_changes,
)
from normalize.tables.job import ROUTED_COLUMNS
from normalize.tables.merge import ABSENT_COLUMN
from normalize.tables.route import RECORD_DDL
from tests.support.databases import RECORDS, maxwell
from tests.support.streams import settings

SCHEMA = (
    "k DECIMAL(9,2) NOT NULL, day DATE NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ, flag BOOLEAN, "
    "raw BINARY, list ARRAY<INT>, map MAP<STRING, INT>, doc STRUCT<a: INT, b: STRING>, took "
    "INTERVAL DAY TO SECOND, `row.kind` STRING"
)
ROW = {
    "k": 1.5,
    "day": "2026-01-02",
    "at": "2026-03-08 07:30:00Z",
    "local": "2026-03-08 02:30:00",  # a time that New York does not have
    "flag": True,
    "raw": "AAEC",
    "list": [1, None],
    "map": {"a": 1},
    "doc": {"a": 1, "b": None},
    "took": "25:00:00",
    "row.kind": "x",
}


def records(*changes: tuple[str, dict[str, Any]], partitions: int = 1) -> pa.Table:
    """Messages of changelog-json in the order of their offsets and times."""
    return records_of(
        [json.dumps({"op": op, "data": row}).encode() for op, row in changes], partitions=partitions
    )


def records_of(values: Sequence[bytes | None], *, partitions: int = 1) -> pa.Table:
    """Messages without keys in the order of their offsets and times."""
    rows = [
        {
            "key": None,
            "value": value,
            "topic": "t",
            "partition": number % partitions,
            "offset": number,
            "stamp": 1_000 + number,
            "headers": None,
        }
        for number, value in enumerate(values)
    ]
    return pa.Table.from_pylist(rows, schema=RECORDS)


def test_rows_are_the_same_on_the_driver_and_on_spark(spark: SparkSession) -> None:
    plan = DecodePlan(
        format=get_format("changelog-json"),
        columns=columns(SCHEMA),
        unique_key=("day", "k"),
        record_columns=ROUTED_COLUMNS,
    )
    nothing = {"k": 2, "day": "2026-01-02"}
    table = records(
        ("+I", ROW),
        ("+I", ROW | {"k": 3}),
        ("-U", ROW),
        ("+U", ROW | {"flag": False}),
        ("+I", nothing),
        ("-D", ROW | {"k": 3}),
        ("+I", ROW | {"k": 4}),
        partitions=3,
    )
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York"}):
        rows = [rows for rows, _ in each_way(spark, table, TableDecoder(plan))]
        texts = [sorted(map(str, each.orderBy("k").toArrow().to_pylist())) for each in rows]
        instant = (
            rows[0]
            .where("k = 1.5")
            .selectExpr("unix_seconds(at) AS seconds", "CAST(local AS STRING) AS local", "took")
            .collect()
        )
    assert texts[0] == texts[1] == texts[2]
    assert rows[0].dtypes == rows[1].dtypes == rows[2].dtypes
    assert [row.asDict() for row in instant] == [
        {"seconds": 1772955000, "local": "2026-03-08 02:30:00", "took": 90_000_000_000}
    ]
    kinds = {
        (str(row["k"]), row["row_kind"], row["flag"], str(row["day"])) for row in rows[0].collect()
    }
    day = "2026-01-02"
    assert kinds == {
        ("1.50", "+U", False, day),
        ("2.00", "+U", None, day),
        ("3.00", "-D", None, day),
        ("4.00", "+U", True, day),
    }


def test_what_is_found_is_the_same_on_the_driver_and_on_spark(spark: SparkSession) -> None:
    plan = DecodePlan(
        format=get_format("changelog-json"),
        columns=columns("k INT NOT NULL, name STRING"),
        unique_key=("k",),
        mode="DROPMALFORMED",
        record_columns=ROUTED_COLUMNS,
    )
    table = records(
        ("+I", {"k": 1}),
        ("+I", {"k": "x"}),
        ("+I", {"k": 2}),
        ("-D", {"k": 1}),
        ("+I", {"k": "y"}),
        partitions=3,
    )
    outcomes = []
    for rows, result in each_way(spark, table, TableDecoder(plan)):
        assert sorted((row["row_kind"], row["k"]) for row in rows.collect()) == [
            ("+U", 2),
            ("-D", 1),
        ]
        outcomes.append((result.counts["TYPE_CONVERSION"], result.rows, result.stamps))
    assert outcomes == [(2, 2, [1_000, 1_004])] * 3


def each_way(
    spark: SparkSession, table: pa.Table, decoder: TableDecoder
) -> Iterator[tuple[DataFrame, PassSummary]]:
    """Yield the changes that the driver decodes, and that several tasks of Spark decode.

    The tasks' changes are typed rows, and the driver's are columns of Arrow.
    """
    tasks = spark.createDataFrame(table, RECORD_DDL).repartition(3)
    with table_changes(table, decoder, None) as (on_driver, summary):
        yield on_driver.frame(spark), summary
    with table_changes(tasks, decoder, None) as (by_spark, summary):
        yield by_spark.localCheckpoint(), summary
    if not decoder.every:
        with table_changes(tasks, decoder, 1 << 20) as (collected, summary):
            schema = collected.frame(spark).schema
            yield spark.createDataFrame(collected.table(), schema), summary


def all_rows(
    spark: SparkSession, table: pa.Table, decoder: TableDecoder
) -> list[list[dict[str, Any]]]:
    """Return the rows of `each_way`."""
    results = []
    for changes, _ in each_way(spark, table, decoder):
        rows = [row.asDict(recursive=True) for row in changes.collect()]
        results.append(
            sorted(rows, key=lambda row: repr(sorted(row.items(), key=lambda item: item[0])))
        )
    return results


def test_partial_rows_are_completed_in_the_order_of_their_times(spark: SparkSession) -> None:
    changes = [maxwell("t", "insert", {"id": 1, "a": 0, "b": 0, "c": 0})]
    changes += [
        maxwell("t", "update", {"id": 1, name: number}, {name: 0})
        for number, name in enumerate("abacb", 1)
    ]
    changes += [
        maxwell("t", "update", {"id": 2, "b": None}, {"b": 1}),
        maxwell("t", "update", {"id": 2, "c": 5}, {"c": 1}),
    ]
    format = get_format("maxwell-json", binlog_row_image="MINIMAL")
    plan = DecodePlan(
        format=format,
        columns=columns("id INT NOT NULL, a INT, b INT, c INT"),
        unique_key=("id",),
        record_columns=ROUTED_COLUMNS,
    )
    for rows in all_rows(
        spark, records_of([value for _, value in changes], partitions=3), TableDecoder(plan)
    ):
        values = sorted(
            (row["id"], row["a"], row["b"], row["c"], row[ABSENT_COLUMN] is None) for row in rows
        )
        assert values == [(1, 3, 5, 4, True), (2, None, None, 5, False)]


def test_keys_of_shards_are_of_their_source_table(spark: SparkSession) -> None:
    changes = [
        maxwell("t", "insert", {"id": 1, "name": "a"}, database=database)
        for database in ("x", "y", "z")
    ]
    changes += [
        maxwell("t", "update", {"id": 1, "name": "b"}, {"name": "a"}, database="y"),
        maxwell("t", "delete", {"id": 1, "name": "a"}, database="z"),
    ]
    format = get_format("maxwell-json")
    plan = DecodePlan(
        format=format,
        columns=columns("id INT NOT NULL, name STRING"),
        unique_key=("id",),
        metadata={name: name for name in format.traits.table_identity},
        distinguished_by=(*format.traits.table_identity, "topic"),
        record_columns=ROUTED_COLUMNS,
    )
    decoder = TableDecoder(plan, Column("shard", SqlType("STRING"), nullable=False))
    for rows in all_rows(spark, records_of([value for _, value in changes], partitions=2), decoder):
        values = sorted((row["shard"], row["row_kind"], row["id"], row["name"]) for row in rows)
        assert values == [("x.t", "+U", 1, "a"), ("y.t", "+U", 1, "b"), ("z.t", "-D", 1, None)]


def test_every_change_of_a_history_has_its_place(spark: SparkSession) -> None:
    plan = DecodePlan(
        format=get_format("changelog-json"),
        columns=columns("k INT NOT NULL, name STRING"),
        unique_key=("k",),
        record_columns=ROUTED_COLUMNS,
    )
    changes = [
        ("+I", {"k": 1, "name": "a"}),
        ("+I", {"k": 2, "name": "b"}),
        ("+U", {"k": 1, "name": "c"}),
        ("-D", {"k": 1, "name": "c"}),
    ]
    for rows in all_rows(spark, records(*changes, partitions=2), TableDecoder(plan, every=True)):
        places = sorted(
            (row[PLACE]["partition"], row[PLACE]["offset"], row["row_kind"], row["k"], row["name"])
            for row in rows
        )
        assert places == [
            ("t[0]", 0, "+U", 1, "a"),
            ("t[0]", 2, "+U", 1, "c"),
            ("t[1]", 1, "+U", 2, "b"),
            ("t[1]", 3, "-D", 1, None),
        ]
