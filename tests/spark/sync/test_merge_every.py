"""`sync_table` with `MergeEvery` on bounded micro-batches: the fresh rows are always those of the source, also after an error."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from normalize import DeltaTarget
from normalize.sinks.apply import apply_batch
from normalize.sinks.lake import LakeSink
from normalize.sinks.merge_every import ChangesSink, IntervalSink, MergeEvery, changes_target, fresh_rows, merge_changes
from normalize.sinks.targets import TargetError
from tests.support.databases import Message, maxwell
from tests.support.sinking import changelog
from tests.support.syncing import MINIMAL, BoundedSync

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE: dict[str, Any] = {"schema": "id INT, name STRING, qty INT", "primary_key": "id"}


class Story:
    """Random changes of a table's rows."""

    def __init__(self) -> None:
        self.random, self.rows = Random(3), dict[int, dict[str, Any]]()

    def messages(self, number: int) -> list[Message]:
        messages = []
        for _ in range(number):
            key = self.random.randrange(15)
            old = self.rows.pop(key, None)
            if old is not None and self.random.random() < 0.4:
                messages.append(maxwell("orders", "delete", old))
                continue
            row = self.rows[key] = {"id": key, "name": f"n{self.random.randrange(99)}", "qty": self.random.randrange(99)}
            messages.append(maxwell("orders", "update" if old else "insert", row, old))
        return messages

    @property
    def truth(self) -> list[dict[str, Any]]:
        return sorted(self.rows.values(), key=repr)


class Merged:
    """A `sync_table` whose micro-batches have the numbers of a query, and whose clock the test sets."""

    def __init__(self, sync: BoundedSync, patch: pytest.MonkeyPatch) -> None:
        self.sync, self.patch, self.story = sync, patch, Story()
        target = sync.tables.database.target("orders")
        assert isinstance(target, DeltaTarget)
        self.target, self.changes = target, ChangesSink(sync.spark, changes_target(target))
        self.query, self.now, self.options = "q1", 1_000.0, TABLE
        patch.setattr("normalize.sinks.merge_every.time.time", lambda: self.now)
        self.start()

    def start(self, **options: Any) -> None:
        """Start the query again."""
        self.options = {**self.options, **options}
        self.job = self.sync.table_job(target=MergeEvery(self.target, "10 minutes"), **self.options)

    def apply(self, messages: list[Message] | None = None) -> None:
        """Apply a micro-batch, of random changes unless there are others or a micro-batch failed."""
        if not self.sync.planned:
            self.sync.produce("t", self.story.messages(25) if messages is None else messages, partitions=2)
        context = self.sync.spark.sparkContext
        context.setLocalProperty("sql.streaming.queryId", self.query)
        context.setLocalProperty("streaming.sql.batchId", str(self.sync.number))
        self.sync.apply(self.job)

    def fresh(self) -> list[dict[str, Any]]:
        """The fresh rows without NULLs, sorted."""
        rows = (row.asDict() for row in fresh_rows(self.sync.spark, self.target).collect())
        return sorted(({name: value for name, value in row.items() if value is not None} for row in rows), key=repr)

    @property
    def waiting(self) -> int:
        """How many changes wait."""
        return self.changes.rows().count()


@pytest.fixture
def merged(spark: SparkSession, sync: BoundedSync, monkeypatch: pytest.MonkeyPatch) -> Iterator[Merged]:
    """A query into a Delta table that is merged every 10 minutes."""
    yield Merged(sync, monkeypatch)
    for name in ("sql.streaming.queryId", "streaming.sql.batchId"):
        spark.sparkContext.setLocalProperty(name, None)  # type: ignore[arg-type]


def test_fresh_rows_equal_the_source_after_each_micro_batch_and_the_table_after_each_merge(merged: Merged) -> None:
    for number in range(1, 7):
        merged.now += 250
        if number == 5:
            merged.start()
        merged.apply()
        assert merged.fresh() == merged.story.truth
        # The first change waits for 750 s then.
        merge = number == 4
        assert (merged.sync.rows("orders") == merged.story.truth, merged.waiting == 0) == (merge, merge), number


def test_micro_batches_are_repeated_before_and_after_a_merge(merged: Merged) -> None:
    merged.apply()
    merged.apply()
    waiting = merged.waiting
    merged.sync.forget_last_commit()
    merged.start()
    merged.apply()
    assert (merged.waiting, merged.fresh()) == (waiting, merged.story.truth)
    merged.now += 600
    merged.apply()
    assert (merged.waiting, merged.sync.rows("orders")) == (0, merged.story.truth)
    merged.sync.forget_last_commit()
    merged.apply()
    assert merged.fresh() == merged.sync.rows("orders") == merged.story.truth
    # A producer repeats all records of the last micro-batch.
    merged.now += 600
    merged.apply()
    assert merged.fresh() == merged.sync.rows("orders") == merged.story.truth


@pytest.mark.parametrize(
    ("owner", "name"), [(ChangesSink, "put"), (LakeSink, "merge"), (ChangesSink, "remove"), (IntervalSink, "merge")], ids=str
)
def test_error_between_the_commits_leaves_the_right_rows(merged: Merged, owner: type, name: str) -> None:
    merged.apply()
    merged.apply()
    merged.now += 600
    commit = getattr(owner, name)

    def killed(*arguments: Any) -> None:
        commit(*arguments)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, killed)
        with pytest.raises(KeyboardInterrupt):
            merged.apply()
    assert merged.fresh() == merged.story.truth
    merged.start()
    merged.apply()
    assert merged.fresh() == merged.story.truth
    merged.now += 600
    merged.apply()
    assert merged.fresh() == merged.sync.rows("orders") == merged.story.truth


def test_partial_rows_are_merged_at_once_after_everything_before_them(merged: Merged) -> None:
    merged.start(**MINIMAL)
    merged.apply(
        [maxwell("orders", "insert", {"id": 1, "name": "a", "qty": 1}), maxwell("orders", "insert", {"id": 2, "name": "b", "qty": 1})]
    )
    merged.apply([maxwell("orders", "insert", {"id": 2, "name": "c", "qty": 2}, {"name": "b", "qty": 1})])
    assert merged.waiting == 3
    merged.apply([maxwell("orders", "update", {"id": 2, "qty": 7}, {"qty": 2}), maxwell("orders", "update", {"id": 3}, {"id": 1})])
    rows = [{"id": 2, "name": "c", "qty": 7}, {"id": 3, "name": "a", "qty": 1}]
    assert (merged.waiting, merged.fresh(), merged.sync.rows("orders")) == (0, rows, rows)


@pytest.mark.parametrize("back", [False, True])
def test_changes_of_another_checkpoint_are_merged_first(merged: Merged, back: bool) -> None:
    merged.apply()
    merged.apply()
    # A new checkpoint, or one that an operator set back: their changes are newer than those with greater numbers.
    merged.query, merged.sync.number = ("q1" if back else "q2"), 0
    merged.start()
    merged.apply()
    assert [row["batch"] for row in merged.changes.rows().select("batch").distinct().collect()] == [0]
    assert merged.fresh() == merged.story.truth


def test_new_columns_of_the_schema_are_in_the_changes(merged: Merged) -> None:
    merged.apply(
        [maxwell("orders", "insert", {"id": 1, "name": "a", "qty": 1}), maxwell("orders", "insert", {"id": 2, "name": "b", "qty": 1})]
    )
    merged.sync.edit("orders", '"qty INT"', '"qty INT", "`x,y` INT"')
    merged.sync.spark.sql(f"ALTER TABLE {merged.target.sql_name} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    merged.start()
    merged.apply([maxwell("orders", "update", {"id": 1, "name": "a", "qty": 1, "x,y": 5}, {"x,y": None})])
    assert merged.fresh() == [{"id": 1, "name": "a", "qty": 1, "x,y": 5}, {"id": 2, "name": "b", "qty": 1}]
    # A column that only the table has keeps its values.
    merged.sync.spark.sql(f"ALTER TABLE {merged.target.sql_name} ADD COLUMNS (own STRING)")
    merged.sync.spark.sql(f"UPDATE {merged.target.sql_name} SET own = 'o'")
    assert merged.fresh() == [{"id": 1, "name": "a", "qty": 1, "x,y": 5, "own": "o"}, {"id": 2, "name": "b", "qty": 1, "own": "o"}]


def test_soft_deletes(merged: Merged) -> None:
    merged.start(deletes="soft")
    for _ in range(2):
        merged.apply()
        # The interval is one micro-batch: a row that came and went in it was never there.
        fresh = merged.fresh()
        assert [row for row in fresh if "deleted_at" not in row] == merged.story.truth
        merge_changes(merged.sync.spark, merged.target)
        assert (merged.waiting, merged.sync.rows("orders")) == (0, fresh)
    assert any("deleted_at" in row for row in fresh)


def test_other_writers_are_refused_while_changes_wait(merged: Merged) -> None:
    merged.apply()
    with pytest.raises(TargetError, match=r"_unmerged.* has changes that are not merged into DeltaTarget.*: pass MergeEvery\("):
        merged.sync.table_job(**TABLE)
    merge_changes(merged.sync.spark, merged.target)
    assert merged.sync.rows("orders") == merged.story.truth
    merged.sync.table_job(**TABLE)


def test_a_table_of_somebody_else_beside_the_target_is_an_error(spark: SparkSession, merged: Merged) -> None:
    merged.sync.spark.sql(f"CREATE TABLE {merged.changes.table.sql_name} (id INT) USING delta")
    with pytest.raises(TargetError, match="which has other columns: rename it"):
        merged.apply()
    assert merged.changes.rows().columns == ["id"]


def test_apply_batch_merges_at_once(spark: SparkSession, sync: BoundedSync) -> None:
    target = sync.tables.database.target("t")
    assert isinstance(target, DeltaTarget)
    apply_batch(changelog(spark, "id INT", [("+I", 1)]), MergeEvery(target, "1 day"), keys="id")
    assert sync.rows("t") == [{"id": 1}]
