"""The changes of a table are the same, decoded on the driver or by Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from cdc_formats import get_format
from cdc_formats.values.schema import columns
from normalize.decode.decode_pass import Source
from normalize.sync.route import RECORD_DDL
from normalize.sync.table_changes import ChangeOptions, changes_here, changes_on_spark, without_absent_column
from normalize.sync.table_sync import ROUTED_COLUMNS
from tests.support.databases import RECORDS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = (
    "k DECIMAL(9,2) NOT NULL, day DATE NOT NULL, at TIMESTAMP, local TIMESTAMP_NTZ, flag BOOLEAN, raw BINARY, list ARRAY<INT>, "
    "map MAP<STRING, INT>, doc STRUCT<a: INT, b: STRING>, took INTERVAL DAY TO SECOND, `row.kind` STRING"
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
    rows = [
        {
            "key": None,
            "value": json.dumps({"op": op, "data": row}).encode(),
            "topic": "t",
            "partition": number % partitions,
            "offset": number,
            "stamp": 1_000 + number,
            "headers": None,
        }
        for number, (op, row) in enumerate(changes)
    ]
    return pa.Table.from_pylist(rows, schema=RECORDS)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_rows_are_the_same_on_the_driver_and_on_spark(spark: SparkSession, zone: str) -> None:
    source = Source(format=get_format("changelog-json"), columns=columns(SCHEMA), unique_key=("day", "k"), record_columns=ROUTED_COLUMNS)
    nothing = {"k": 2, "day": "2026-01-02"}
    given = records(
        ("+I", ROW),
        ("+I", ROW | {"k": 3}),
        ("-U", ROW),
        ("+U", ROW | {"flag": False}),
        ("+I", nothing),
        ("-D", ROW | {"k": 3}),
        ("+I", ROW | {"k": 4}),
        partitions=3,
    )
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        here = changes_here(spark, given, source, ChangeOptions())
        by_spark = changes_on_spark(spark.createDataFrame(given, RECORD_DDL).repartition(3), source, ChangeOptions(), number=given.num_rows)
        rows = [without_absent_column(changes.rows) for changes in (here, by_spark)]
        found = [sorted(map(str, each.orderBy("k").toArrow().to_pylist())) for each in rows]
        instant = here.rows.where("k = 1.5").selectExpr("unix_seconds(at) AS seconds", "CAST(local AS STRING) AS local", "took").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert found[0] == found[1]
    assert rows[0].dtypes == rows[1].dtypes
    assert [row.asDict() for row in instant] == [{"seconds": 1772955000, "local": "2026-03-08 02:30:00", "took": 90_000_000_000}]
    kinds = {(str(row["k"]), row["row_kind"], row["flag"], str(row["day"])) for row in here.rows.collect()}
    day = "2026-01-02"
    assert kinds == {("1.50", "+U", False, day), ("2.00", "+U", None, day), ("3.00", "-D", None, day), ("4.00", "+U", True, day)}
