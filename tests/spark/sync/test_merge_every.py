"""`sync_table` into a `MergedDeltaTarget` on bounded micro-batches.

The fresh rows are always those of the source.
"""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from normalize import DeltaTarget
from normalize.sinks.merge_every import (
    ChangesSink,
    MergedDeltaTarget,
    changes_table,
    fresh_rows,
    merge_changes,
)
from normalize.sinks.table_spec import Batch, TableSpec
from normalize.sinks.targets import TargetError
from normalize.sync.table_options import TableOptions
from tests.support.databases import Message, maxwell
from tests.support.sinking import changelog, table_name
from tests.support.syncing import MINIMAL, BoundedSync, Story, fresh_names

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE: dict[str, Any] = {"schema": "id INT, name STRING", "primary_key": "id"}


class Merged:
    """A `sync_table` with a query's micro-batch numbers, and a clock that the test sets."""

    def __init__(self, sync: BoundedSync, patch: pytest.MonkeyPatch) -> None:
        self.sync, self.spark, self.story, self.query, self.now = (
            sync,
            sync.spark,
            Story(Random(3)),
            "q1",
            1_000,
        )
        self.target = DeltaTarget(str(sync.folder / "lake" / "orders"))
        self.changes = ChangesSink(sync.spark, changes_table(self.target))
        patch.setattr("normalize.sinks.merge_every.time", SimpleNamespace(time=lambda: self.now))
        patch.setattr(
            "normalize.sinks.merge_every.running_batch", lambda _: Batch(self.query, sync.number)
        )
        self.start()

    def start(self, **options: Any) -> None:
        """Start the query again."""
        self.job = self.sync.table_job(
            target=MergedDeltaTarget(self.target.name, "10 minutes"), **TABLE | options
        )

    def apply(self, messages: list[Message] | None = None) -> None:
        """Apply a micro-batch.

        Its changes are random, unless there are others or a micro-batch failed.
        """
        if not self.sync.planned:
            self.sync.produce(
                "t",
                self.story.messages_of("orders", 25) if messages is None else messages,
                partitions=2,
            )
        self.sync.apply(self.job)

    def state(self) -> tuple[bool, bool, int]:
        """Whether the fresh rows and the table's are the source's, and how many changes wait."""
        truth, stored = (
            self.story.names("orders"),
            {row["id"]: row["name"] for row in self.sync.rows("orders")},
        )
        return (
            fresh_names(self.spark, self.target) == truth,
            stored == truth,
            self.changes.rows().count(),
        )

    def fresh(self) -> list[dict[str, Any]]:
        """The fresh rows, sorted."""
        return sorted(
            (row.asDict() for row in fresh_rows(self.spark, self.target).collect()), key=repr
        )


@pytest.fixture
def merged(sync: BoundedSync, monkeypatch: pytest.MonkeyPatch) -> Merged:
    """A query into a Delta table that is merged every 10 minutes."""
    return Merged(sync, monkeypatch)


def test_fresh_rows_equal_the_source_after_each_micro_batch_and_the_table_after_each_merge(
    merged: Merged,
) -> None:
    for number in range(1, 7):
        merged.now += 250
        if number == 3:
            merged.start()
        merged.apply()
        # The first change waits for 750 s in the fourth micro-batch.
        fresh, stored, waiting = merged.state()
        assert (fresh, stored, waiting == 0) == (True, number == 4, number == 4)


def test_partial_rows_are_merged_at_once_after_everything_before_them(merged: Merged) -> None:
    merged.start(**MINIMAL)
    merged.apply(
        [
            maxwell("orders", "insert", {"id": 1, "name": "a"}),
            maxwell("orders", "insert", {"id": 2, "name": "b"}),
        ]
    )
    merged.apply([maxwell("orders", "update", {"id": 2, "name": "c"}, {"name": "b"})])
    assert merged.changes.rows().count() == 3
    merged.apply([maxwell("orders", "update", {"id": 3}, {"id": 1})])
    assert (
        merged.fresh()
        == merged.sync.rows("orders")
        == [{"id": 2, "name": "c"}, {"id": 3, "name": "a"}]
    )
    assert merged.changes.rows().isEmpty()


@pytest.mark.parametrize("query", ["q1", "q2"])
def test_changes_of_a_checkpoint_that_was_set_back_or_replaced_are_merged_first(
    merged: Merged, query: str
) -> None:
    merged.apply()
    merged.apply()
    merged.query, merged.sync.number = query, 0
    merged.start()
    merged.apply()
    assert [
        tuple(row) for row in merged.changes.rows().select("query", "batch").distinct().collect()
    ] == [(query, 0)]
    assert merged.state()[0]


def test_columns_that_the_changes_or_only_the_table_have(merged: Merged) -> None:
    mapping = "spark.databricks.delta.properties.defaults.columnMapping.mode"
    merged.spark.conf.set(mapping, "name")
    merged.start()
    merged.spark.conf.unset(mapping)
    merged.apply(
        [
            maxwell("orders", "insert", {"id": 1, "name": "a"}),
            maxwell("orders", "insert", {"id": 2, "name": "b"}),
        ]
    )
    merged.sync.edit("orders", '"name STRING"', '"name STRING", "`x,y` INT"')
    merged.start()
    merged.apply([maxwell("orders", "update", {"id": 1, "name": "a", "x,y": 5}, {"x,y": None})])
    merged.spark.sql(f"ALTER TABLE {merged.target.sql_name} ADD COLUMNS (own STRING)")
    merged.spark.sql(f"UPDATE {merged.target.sql_name} SET own = 'o'")
    fresh = merged.fresh()
    assert fresh == [
        {"id": 1, "name": "a", "x,y": 5, "own": "o"},
        {"id": 2, "name": "b", "x,y": None, "own": "o"},
    ]
    merge_changes(merged.spark, merged.target)
    assert merged.fresh() == fresh


def test_soft_deletes_have_the_time_of_the_delete(merged: Merged) -> None:
    merged.start(table=TableOptions(deletes="soft"))
    for _ in range(2):
        merged.apply()
        fresh = merged.fresh()
        assert {
            row["id"]: row["name"] for row in fresh if row["deleted_at"] is None
        } == merged.story.names("orders")
        merge_changes(merged.spark, merged.target)
        merged.start(table=TableOptions(deletes="soft"))
        assert (merged.fresh(), merged.changes.rows().count()) == (fresh, 0)
    assert any(row["deleted_at"] for row in fresh)


def test_another_target_is_refused_while_changes_wait(merged: Merged) -> None:
    merged.apply()
    with pytest.raises(
        TargetError, match="has changes that are not merged: pass MergedDeltaTarget"
    ):
        merged.sync.table_job(**TABLE)
    merge_changes(merged.spark, merged.target)
    assert merged.state() == (True, True, 0)
    merged.sync.table_job(**TABLE)


def test_a_table_of_somebody_else_is_not_replaced(merged: Merged) -> None:
    merged.spark.sql(f"CREATE TABLE {merged.changes.table.sql_name} (id INT) USING delta")
    with pytest.raises(TargetError, match="which has other columns: rename it"):
        merged.apply()


def test_changes_of_a_table_of_the_catalog(spark: SparkSession) -> None:
    changes = ChangesSink(spark, changes_table(DeltaTarget(table_name())))
    for schema, rows in (("id INT", [("+I", 1), ("+I", 2)]), ("id INT, v INT", [("-D", 1, None)])):
        latest = changelog(spark, schema, rows)
        spec = TableSpec(tuple(latest.schema.fields[1:]), ("id",), create=True, on_new_column="add")
        changes.create(spec)
        for now in (5, 6):
            changes.put(latest, spec, Batch("q", 1), now)
        assert (changes.waiting(), changes.rows().count()) == (
            ({"q": 1}, 6, changes.layout(spec)),
            len(rows),
        )
        changes.remove({"q": 1})
    spark.sql(f"DROP TABLE {changes.table.sql_name}")


def test_variants_wait_for_the_merge(merged: Merged) -> None:
    merged.start(schema="id INT, doc VARIANT")
    merged.apply([maxwell("orders", "insert", {"id": 1, "doc": {"b": [1], "a": "x"}})])
    shown = "id", "to_json(doc)"
    expected = [(1, '{"a":"x","b":[1]}')]
    assert (
        list(map(tuple, fresh_rows(merged.spark, merged.target).selectExpr(*shown).collect()))
        == expected
    )
    merge_changes(merged.spark, merged.target)
    table = merged.spark.table(merged.target.sql_name)
    assert list(map(tuple, table.selectExpr(*shown).collect())) == expected
