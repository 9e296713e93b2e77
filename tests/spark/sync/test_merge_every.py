"""`sync_table` into a `MergedDeltaTarget` on bounded micro-batches.

The fresh rows are always those of the source.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from normalize import DeltaDatabase, DeltaTarget
from normalize.tables.batches import Batch, BatchOrderError
from normalize.tables.interval import (
    ChangesSink,
    MergedDeltaTarget,
    changes_table,
    fresh_rows,
    merge_changes,
)
from normalize.tables.maintenance import maintain
from normalize.tables.policy import Maintenance
from normalize.tables.table_options import TableOptions
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import TargetError
from normalize.tables.writers.lake import LakeSink
from tests.support.databases import Message, maxwell
from tests.support.sinking import changelog, table_name
from tests.support.syncing import MINIMAL, BoundedSync, Story

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RETENTION = "delta.deletedFileRetentionDuration"
TABLE: dict[str, Any] = {"schema": "id INT, name STRING", "primary_key": "id"}

QUERY = "0b8d3a0e-6f0f-4a53-9f6d-1d1f4f3f9a51"
"""The id of a query that does not run."""


class Merged:
    """A `sync_table` with a query's micro-batch numbers, and a clock that the test sets."""

    def __init__(self, sync: BoundedSync, patch: pytest.MonkeyPatch) -> None:
        self.sync, self.spark, self.story, self.now = sync, sync.spark, Story(Random(3)), 1_000
        self.target = DeltaTarget(str(sync.folder / "lake" / "orders"))
        self.changes = ChangesSink(sync.spark, changes_table(self.target))
        patch.setattr("normalize.tables.interval.time", SimpleNamespace(time=lambda: self.now))
        self.options = TABLE
        self.start()

    def start(self, **options: Any) -> None:
        """Start the query again, with other options for the rest of the test."""
        self.options = {**self.options, **options}
        self.job = self.sync.table_job(
            target=MergedDeltaTarget(self.target.name, "10 minutes"), **self.options
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

    def is_fresh(self) -> bool:
        """Whether the fresh rows that are not deleted are the source's."""
        return self._names(self.fresh()) == self.story.names("orders")

    def is_merged(self) -> bool:
        """Whether the table's rows that are not deleted are the source's."""
        return self._names(self.sync.rows("orders")) == self.story.names("orders")

    def _names(self, rows: list[dict[str, Any]]) -> dict[int, str]:
        return {row["id"]: row["name"] for row in rows if row.get("deleted_at") is None}

    def fresh(self) -> list[dict[str, Any]]:
        """The fresh rows, sorted."""
        return self._sorted(fresh_rows(self.spark, self.target))

    def stored(self) -> list[dict[str, Any]]:
        """The rows of the table, sorted."""
        return self._sorted(self.spark.table(self.target.sql_name))

    def _sorted(self, rows: DataFrame) -> list[dict[str, Any]]:
        return sorted((row.asDict() for row in rows.collect()), key=repr)


@pytest.fixture
def merged(sync: BoundedSync, monkeypatch: pytest.MonkeyPatch) -> Merged:
    """A query into a Delta table that is merged every 10 minutes."""
    return Merged(sync, monkeypatch)


def ends_after(commit: Callable[..., None]) -> Callable[..., None]:
    """Return a function that commits and then fails."""

    def failing(*arguments: Any) -> None:
        commit(*arguments)
        raise OSError("the driver ends here")

    return failing


def test_fresh_rows_equal_the_source_after_each_micro_batch_and_the_table_after_each_merge(
    merged: Merged, monkeypatch: pytest.MonkeyPatch
) -> None:
    merged.start(table=TableOptions(deletes="soft"))
    for number in range(1, 5):
        merged.now += 400
        if number == 2:
            merged.start()
        merged.apply()
        # The first change waits for 800 s in the third micro-batch.
        assert merged.is_merged() == merged.changes.rows().isEmpty() == (number == 3)
        assert number % 2 or merged.is_fresh()
    # The driver ends after one of three commits, and the micro-batch is repeated.
    merged.now += 700
    for owner, name in ((ChangesSink, "put"), (LakeSink, "execute_merge"), (ChangesSink, "remove")):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, ends_after(getattr(owner, name)))
            with pytest.raises(OSError, match="the driver ends here"):
                merged.apply()
        assert merged.is_fresh()
        merged.start()
    merged.apply()
    assert merged.is_merged()
    # The repeated micro-batch was not appended again.
    assert merged.changes.rows().isEmpty()
    assert merged.fresh() == merged.stored()
    # A checkpoint that was set back, or another driver: nothing is written.
    before, merged.sync.number = merged.fresh(), 0
    merged.start()
    with pytest.raises(BatchOrderError, match="has the later micro-batch"):
        merged.apply()
    assert merged.fresh() == before
    # The changes of another checkpoint are merged before the new ones.
    merged.sync.query = str(uuid4())
    merged.apply()
    waiting = merged.changes.rows().select("query", "batch").distinct().collect()
    assert list(map(tuple, waiting)) == [(merged.sync.query, 0)]
    assert merged.is_fresh()
    # Another target is refused while changes wait.
    with pytest.raises(
        TargetError, match="has changes that are not merged: pass MergedDeltaTarget"
    ):
        merged.sync.table_job(**merged.options)
    merged.sync.produce("t", [maxwell("orders", "insert", {"id": 99, "name": "z"})])
    of_database = {
        "target": DeltaDatabase(str(merged.sync.folder / "lake"), on_question="guess"),
        "schema_location": str(merged.sync.folder / "of_database"),
    }
    assert "has changes that are not merged" in merged.sync.error(**of_database)
    merge_changes(merged.spark, merged.target)
    assert merged.is_merged()
    assert merged.changes.rows().isEmpty()
    merged.sync.table_job(**merged.options)


def test_partial_rows_are_merged_at_once_after_everything_before_them(merged: Merged) -> None:
    merged.start(**MINIMAL)
    merged.apply(
        [
            maxwell("orders", "insert", {"id": 1, "name": "a"}),
            maxwell("orders", "insert", {"id": 2, "name": "b"}),
        ]
    )
    assert merged.changes.rows().count() == 2
    merged.apply(
        [
            maxwell("orders", "update", {"id": 2, "name": "c"}, {"name": "b"}),
            maxwell("orders", "update", {"id": 3}, {"id": 1}),
        ]
    )
    assert (
        merged.fresh()
        == merged.sync.rows("orders")
        == [{"id": 2, "name": "c"}, {"id": 3, "name": "a"}]
    )
    assert merged.changes.rows().isEmpty()


def test_columns_that_the_changes_or_only_the_table_have(merged: Merged) -> None:
    mapping = "spark.databricks.delta.properties.defaults.columnMapping.mode"
    declared = {"schema": "id INT, name STRING, doc VARIANT"}
    merged.spark.conf.set(mapping, "name")
    merged.start(**declared)
    merged.spark.conf.unset(mapping)
    doc = {"b": [1], "a": "x"}
    merged.apply(
        [
            maxwell("orders", "insert", {"id": 1, "name": "a", "doc": None}),
            maxwell("orders", "insert", {"id": 2, "name": "b", "doc": doc}),
            maxwell("orders", "insert", {"id": 3, "name": "c", "doc": None}),
        ]
    )
    merged.sync.edit("orders", '"name STRING"', '"name STRING", "`x,y` INT"')
    merged.start(**declared)
    row = {"id": 1, "name": "a", "doc": "y"}
    merged.apply(
        [
            maxwell("orders", "update", row | {"x,y": 5}, {"x,y": None}),
            maxwell("orders", "delete", {"id": 3, "name": "c", "doc": None}),
        ]
    )
    assert merged.changes.rows().count() == 2
    merged.spark.sql(f"ALTER TABLE {merged.target.sql_name} ADD COLUMNS (own STRING)")
    merged.spark.sql(f"UPDATE {merged.target.sql_name} SET own = 'o'")

    def fresh() -> list[tuple[Any, ...]]:
        shown = fresh_rows(merged.spark, merged.target).selectExpr(
            "id", "name", "`x,y`", "own", "to_json(doc)"
        )
        return sorted(map(tuple, shown.collect()))

    rows = [(1, "a", 5, "o", '"y"'), (2, "b", None, "o", '{"a":"x","b":[1]}')]
    assert fresh() == rows
    merge_changes(merged.spark, merged.target)
    assert fresh() == rows
    assert merged.changes.rows().isEmpty()


def test_a_table_of_somebody_else_is_not_replaced(merged: Merged) -> None:
    merged.spark.sql(f"CREATE TABLE {merged.changes.table.sql_name} (id INT) USING delta")
    with pytest.raises(TargetError, match="which has other columns: rename it"):
        merged.apply()


def test_changes_of_a_table_of_the_catalog(spark: SparkSession) -> None:
    changes = ChangesSink(spark, changes_table(DeltaTarget(table_name())))
    cases = (
        # The second attempt writes nothing.
        ("id INT", [("+I", 1), ("+I", 2)], (5, 6)),
        ("id INT, v INT", [("-D", 1, None)], (5,)),
    )
    for number, (schema, rows, times) in enumerate(cases):
        latest = changelog(spark, schema, rows)
        spec = TableSpec(tuple(latest.schema.fields[1:]), ("id",), create=True, on_new_column="add")
        changes.create(spec)
        for now in times:
            changes.put(latest, spec, Batch(QUERY, number), now)
        assert (changes.waiting(), changes.rows().count()) == (
            ({QUERY: number}, 5, changes.layout(spec)),
            len(rows),
        )
        changes.remove({QUERY: number})
    assert changes.rows().isEmpty()
    spark.sql(f"DROP TABLE {changes.table.sql_name}")


def test_maintenance_removes_the_files_of_merged_changes(merged: Merged) -> None:
    merged.start(table=TableOptions(properties={RETENTION: "interval 0 hours"}))
    merged.apply()
    changes, folder = merged.changes.table, Path(merged.changes.table.name)
    merged.spark.sql(
        f"ALTER TABLE {changes.sql_name} SET TBLPROPERTIES ('{RETENTION}' = 'interval 0 hours')"
    )
    merged.now += 1_000
    merged.apply()
    merged.apply()
    assert len(merged.spark.table(changes.sql_name).inputFiles()) < len(files(folder))
    target = MergedDeltaTarget(merged.target.name, "10 minutes")
    done = [*maintain(merged.spark, target, Maintenance(), "")]
    assert done[1:] == ["old files removed", "of its changes, old files removed"]
    assert len(merged.spark.table(changes.sql_name).inputFiles()) == len(files(folder)) > 0
    assert merged.is_fresh()


def files(folder: Path) -> list[Path]:
    """The data files in a table's folder."""
    return [*folder.rglob("*.parquet")]
