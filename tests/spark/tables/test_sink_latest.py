"""A key's last change in a micro-batch: by arrival, by columns, or an error if order is unknown."""

import random
import sqlite3
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import pytest
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError, MissingFieldError, SchemaError
from normalize import aggregate_changes, from_kafka_changelog, signed_count
from normalize.dataframe import ChangeOrderError, require_arrival_order
from normalize.tables.apply import apply_batch
from normalize.tables.latest import check, last_changes
from normalize.tables.targets import TargetError
from tests.support.pages import PAGES, blocks
from tests.support.sinking import STORY, NewSink, changelog, random_changelog

EXAMPLES = 100
SCHEMA = "example INT, id INT, value INT, at INT"
COLUMNS, KEY = ["example", "id", "value"], ["example", "id"]


def examples() -> tuple[list[tuple[Any, ...]], dict[tuple[int, int], Any]]:
    """Return many random changelogs, marked by a key column, and each key's final value or None."""
    rows, last = [], {}
    for example in range(EXAMPLES):
        place = 0
        for kind, key, value in random_changelog(random.Random(example), 20, {}):
            # The two rows of an update come from one record and have one position.
            place += kind != "+U"
            rows.append((kind, example, key, value, place))
            last[example, key] = value if kind in ("+I", "+U") else None
    return rows, last


def outcome(latest: DataFrame) -> dict[tuple[int, int], Any]:
    """The final value of each key."""
    return {
        (row.example, row.id): row.value if row.row_kind in ("+I", "+U") else None
        for row in latest.select("row.*").collect()
    }


def test_the_last_change_by_arrival_or_by_columns_agrees_with_a_dict(spark: SparkSession) -> None:
    rows, last = examples()
    assert outcome(last_changes(changelog(spark, SCHEMA, rows), COLUMNS, KEY, [])) == last
    random.Random(0).shuffle(rows)  # columns do not need an order
    shuffled = spark.createDataFrame(rows, f"row_kind STRING, {SCHEMA}")
    latest = last_changes(shuffled, COLUMNS, KEY, ["at"])
    assert (check(latest, KEY, ["at"]), outcome(latest)) == (len(last), last)


@pytest.mark.parametrize(
    ("rows", "order_by", "error", "text"),
    [
        ([(None, 1, 1)], [], ArgumentError, "a row has no row_kind"),
        ([("+I", 1, 1), ("?", 1, 1)], [], ArgumentError, "or one other than"),
        ([("+I", None, 1)], [], MissingFieldError, "`id` is part of the primary key and is null"),
        (
            [("+I", 1, 5), ("+U", 1, 5)],
            ["at"],
            ChangeOrderError,
            "have the same values in \\['at'\\], which order its changes",
        ),
        ([("+I", 1, None)], ["at"], ChangeOrderError, "is NULL in a row"),
    ],
)
def test_an_unknown_order_is_an_error(
    spark: SparkSession, rows: Any, order_by: list[str], error: Any, text: str
) -> None:
    latest = last_changes(changelog(spark, "id INT, at INT", rows), ["id", "at"], ["id"], order_by)
    with pytest.raises(error, match=text):
        check(latest, ["id"], order_by)


def test_a_key_in_several_partitions_is_an_error(spark: SparkSession) -> None:
    df = spark.createDataFrame(
        spark.sparkContext.parallelize([("+I", 1), ("-D", 1)], 2), "row_kind STRING, id INT"
    )
    with pytest.raises(ChangeOrderError, match="in several partitions"):
        check(last_changes(df, ["id"], ["id"], []), ["id"], [])


def test_a_retraction_comes_before_an_addition_at_the_same_position(spark: SparkSession) -> None:
    df = changelog(
        spark,
        "id INT, v STRING, at INT",
        [("+U", 1, "b", 1), ("-U", 1, "a", 1), ("-D", 2, "a", 3), ("-U", 2, "a", 3)],
    )
    latest = last_changes(df, ["id", "v"], ["id"], ["at"])
    assert check(latest, ["id"], ["at"]) == 2
    last = {row.id: row.row_kind for row in latest.select("row.*").collect()}
    assert last[1] == "+U"
    assert last[2] in ("-U", "-D")


# --------------------------------------------------------------------------------------------------
# the plan


def test_narrow_operations_keep_the_order(spark: SparkSession) -> None:
    df = changelog(spark, "id INT, v STRING", [("+I", 1, "a")])
    require_arrival_order(
        df.where("id > 0")
        .withColumn("w", df.v)
        .mapInArrow(lambda batches: batches, "row_kind STRING, id INT"),
        ["id"],
    )
    require_arrival_order(df.union(df).repartition("id").sortWithinPartitions("v"), ["id"])


@pytest.mark.parametrize("bounded", [False, True])
@pytest.mark.parametrize("normalize", [False, None])
def test_kafka_reads_are_in_order(
    spark: SparkSession, bounded: bool, normalize: Literal[False] | None
) -> None:
    df = from_kafka_changelog(
        spark,
        "t",
        format="changelog-json",
        schema="id INT",
        primary_key="id",
        options={"kafka.bootstrap.servers": "unused:1"},
        bounded=bounded,
        normalize=normalize,
        check=False,
    )
    require_arrival_order(df.where("row_kind IS NOT NULL"), ["id"])


SHUFFLED = [
    "join",
    "subquery",
    "repartition",
    "coalesce",
    "distinct",
    "file",
    "table",
    "localCheckpoint",
    "rdd",
]


@pytest.mark.parametrize("shuffled", SHUFFLED)
def test_shuffled_rows_need_order_by(spark: SparkSession, shuffled: str, tmp_path: Any) -> None:
    df = changelog(spark, "id INT, v STRING", [("+I", 1, "a")])
    spark.sql("CREATE TABLE IF NOT EXISTS kafka_rows (row_kind STRING, id INT) USING parquet")
    frames = {
        "join": lambda: df.join(spark.range(2).selectExpr("CAST(id AS INT) AS id"), "id"),
        "subquery": lambda: df.where("id IN (SELECT CAST(id AS INT) FROM range(2))"),
        "repartition": lambda: df.repartition("id"),
        "coalesce": lambda: df.coalesce(1),
        "distinct": df.distinct,
        "file": lambda: spark.read.schema(df.schema).parquet(str(tmp_path)),
        "table": lambda: spark.table("kafka_rows"),
        "localCheckpoint": lambda: df.repartition("id").localCheckpoint(),
        "rdd": lambda: spark.createDataFrame(df.repartition("id").rdd, df.schema),
    }
    with pytest.raises(ChangeOrderError, match=r"order_by=\['offset'\]"):
        require_arrival_order(frames[shuffled](), ["id"])


GROUPED: dict[str, tuple[list[str], list[str]]] = {
    "the group": (["name", "id"], ["id", "name"]),
    "a renamed group": (["upper(name) AS big"], ["big"]),
    "more than the group": (["name"], ["NAME", "n"]),
    "one group": ([], ["n"]),
}


@pytest.mark.parametrize("case", GROUPED)
def test_a_row_for_each_group_needs_no_order(spark: SparkSession, case: str) -> None:
    from pyspark.sql import functions as F

    groups, keys = GROUPED[case]
    changes = spark.createDataFrame([("+I", 1, "bike")], "row_kind STRING, id INT, name STRING")
    totals = aggregate_changes(
        changes, list(map(F.expr, groups)), signed_count("*").alias("n"), changelog_mode="all"
    )
    require_arrival_order(
        totals.where("n > 0").withColumn("row_kind", totals.row_kind.substr(1, 2)), keys
    )


def test_a_group_by_of_signed_columns_needs_no_order(spark: SparkSession) -> None:
    changes = spark.createDataFrame([("+I", 1, "bike")], "row_kind STRING, id INT, name STRING")
    groups = changes.groupBy("name").agg(signed_count("*", row_kind="row_kind").alias("n"))
    require_arrival_order(
        groups.selectExpr("IF(n > 0, '+U', '-D') AS row_kind", "name AS product", "n"), ["product"]
    )


@pytest.mark.parametrize("spoiled", ["another key", "a computed key", "union", "explode"])
def test_several_rows_for_each_key_need_an_order(spark: SparkSession, spoiled: str) -> None:
    changes = spark.createDataFrame([("+I", 1, "bike")], "row_kind STRING, id INT, name STRING")
    totals = aggregate_changes(
        changes, ["name", "id"], signed_count("*").alias("n"), changelog_mode="all"
    )
    frames = {
        "another key": totals.drop("id"),
        "a computed key": totals.selectExpr("row_kind", "upper(name) AS name", "id", "n"),
        "union": totals.union(totals),
        "explode": totals.selectExpr("row_kind", "name", "id", "explode(array(n, n)) AS n"),
    }
    with pytest.raises(
        ChangeOrderError, match=r"the plan contains Aggregate.* pass its columns as keys instead"
    ):
        require_arrival_order(frames[spoiled], ["name", "id"])


# --------------------------------------------------------------------------------------------------
# The sink of docs/tasks/your-own-sink.md is written by `apply_batch` like any other
PAGE = "docs/tasks/your-own-sink.md"


@pytest.fixture
def target(tmp_path: Path) -> Iterator[Any]:
    """A table of the page's sink that does not exist yet."""
    module: Any = ModuleType("sqlite_sink")
    sys.modules["sqlite_sink"] = module
    exec(compile(blocks(PAGES[PAGE])[0].source, PAGE, "exec"), vars(module))
    yield module.SqliteTarget(str(tmp_path / "shop.db"), 'pro"ducts')
    del sys.modules["sqlite_sink"]


def rows(target: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(target.path)) as connection:
        return sorted(connection.execute('SELECT * FROM "pro""ducts"'))


def test_a_table_of_your_own_sink(spark: SparkSession, target: Any) -> None:
    with pytest.raises(TargetError, match="does not exist: create it, or set create=True"):
        apply_batch(changelog(spark, "id INT", [("+I", 1)]), target, keys="id", create=False)
    for _ in range(2):
        apply_batch(changelog(spark, "id INT, name STRING", STORY), target, keys="id")
        assert rows(target) == [(1, "c"), (2, "e")]
    wide = spark.sql("SELECT '+U' AS row_kind, 1 AS id, 'c' AS name, 1.50BD AS `a b`")
    with pytest.raises(
        SchemaError, match='has no column a b: run ALTER TABLE "pro""ducts" ADD COLUMN "a b"'
    ):
        apply_batch(wide, target, keys="id")
    apply_batch(wide, target, keys="id", on_new_column="ignore")
    assert rows(target) == [(1, "c"), (2, "e")]
    apply_batch(wide, target, keys="id", on_new_column="add")
    assert rows(target) == [(1, "c", "1.50"), (2, "e", None)]


def test_what_your_own_sink_does_not_have_is_refused(spark: SparkSession, target: Any) -> None:
    changes = changelog(spark, "id INT, at INT", [("+I", 1, 1)])
    with pytest.raises(ArgumentError, match="scd_type=2 is not supported for SqliteTarget"):
        apply_batch(changes, target, keys="id", sequence_by="at", scd_type=2)
    with pytest.raises(TargetError, match="has no soft deletes"):
        apply_batch(changes, target, keys="id", deletes="soft")


def test_a_soft_delete_has_the_time_of_the_change(spark: SparkSession, new_sink: NewSink) -> None:
    # `test_merge_vectors` has what a MERGE does with the time, in each kind of table.
    sink = new_sink("delta")

    def apply(*rows: Any, order_by: Any = ("no", "at")) -> dict[int, tuple[str, int | None]]:
        """Apply changes with soft deletes, and return the name and the time of each key."""
        changes = changelog(spark, "id INT, name STRING, at TIMESTAMP, no INT", rows)
        columns = ["id", "name"]
        order = {"order_by": order_by, "column_list": columns}
        apply_batch(changes, sink.table, keys="id", deletes="soft", **order)
        read = sink.read().selectExpr(*columns, "unix_seconds(deleted_at) AS deleted_at")
        return {row.id: (row.name, row.deleted_at) for row in read.collect()}

    first, second = (datetime(2024, 3, 31, hour, tzinfo=timezone.utc) for hour in (1, 2))
    apply(("+I", 1, "a", first, 1), ("+I", 2, "b", first, 2))
    # Deleted and inserted again in one micro-batch, a row is not deleted.
    again = [("-D", 2, "b", second, 4), ("+I", 2, "c", second, 5)]
    assert apply(("-D", 1, None, second, 3), *again) == {
        1: ("a", second.timestamp()),
        2: ("c", None),
    }
    # Without a time, it is that of the micro-batch.
    before = int(time.time())
    name, deleted = apply(("-D", 2, "c", None, 6), order_by="no")[2]
    assert name == "c"
    assert before <= (deleted or 0) <= time.time()
