"""Two writers of one table: the loser reapplies its micro-batch, and fails if it always loses."""

import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from normalize.tables.apply import apply_batch
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import ConflictError, repeat_conflicts
from tests.support.maintenance import Maintained
from tests.support.sinking import NewSink, Sink, changelog, finish_all

# --------------------------------------------------------------------------------------------------
# Delta and Iceberg


def _waiting(df: DataFrame, go: Path, began: Path) -> DataFrame:
    """Return the same rows; their first computation creates `began` and waits for the file `go`."""
    go_path, began_path = str(go), str(began)

    def wait_for_the_other(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # Iceberg computes the rows twice in parallel; if both waited, the other writer would have
        # no core.
        deadline = time.monotonic() + 120
        try:
            Path(began_path).touch(exist_ok=False)
            first = True
        except FileExistsError:
            first = False
        while first and not Path(go_path).exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        yield from batches

    return df.mapInArrow(wait_for_the_other, df.schema)


def merge(spark: SparkSession, sink: Sink) -> None:
    apply_batch(changelog(spark, "id INT, v INT", [("+U", 0, 9)]), sink.table, keys="id")


def optimize(spark: SparkSession, sink: Sink) -> None:
    spark.sql(f"OPTIMIZE {sink.sql_name}").collect()


def rewrite_and_remove(spark: SparkSession, sink: Sink) -> None:
    maintained = Maintained(spark, sink.table)
    maintained.rewrite()
    maintained.remove()


@pytest.mark.parametrize(
    ("kind", "beside", "reason"),
    [
        (
            "delta",
            merge,
            r"another writer changed .* at the same time \(ConcurrentAppendException\)$",
        ),
        ("iceberg", merge, r"another writer changed .* at the same time \(\w+Exception\)$"),
        ("delta", optimize, r"another writer changed .* at the same time"),
        ("delta", rewrite_and_remove, "another job removed a file of .* at the same time: "),
        ("iceberg", rewrite_and_remove, "another .* at the same time"),
    ],
    ids=[
        "delta-merge",
        "iceberg-merge",
        "delta-optimize",
        "delta-rewrite and remove",
        "iceberg-rewrite and remove",
    ],
)
def test_a_merge_is_repeated_after_another_commit_between_its_plan_and_its_own(
    spark: SparkSession,
    new_sink: NewSink,
    tmp_path: Path,
    kind: str,
    beside: Callable[[SparkSession, Sink], None],
    reason: str,
) -> None:
    sink, go, began = new_sink(kind), tmp_path / "go", tmp_path / "began"
    # A file for each row.
    spark.sql(
        f"CREATE TABLE {sink.sql_name} USING {kind} AS "
        "SELECT CAST(id AS INT) AS id, 0 AS v FROM RANGE(0, 3, 1, 3)"
    )
    latest = changelog(spark, "id INT, v INT", [("+U", 0, 1), ("-D", 1, 0), ("+I", 3, 1)])
    slow = _waiting(latest, go, began)
    spec = TableSpec(tuple(latest.schema.fields[1:]), ("id",), True, "fail")
    conflicts: list[str] = []

    def write() -> None:
        try:
            sink.table.sink(spark).merge(slow, spec)
        except ConflictError as error:
            conflicts.append(str(error))
            raise

    with ThreadPoolExecutor(1) as pool:
        merging = pool.submit(repeat_conflicts, write)
        while not began.exists() and not merging.done():
            time.sleep(0.05)
        try:
            beside(spark, sink)
        finally:
            go.touch()
        merging.result()
    (conflict,) = conflicts
    assert re.search(rf"^\[CONFLICT\] {reason}", conflict)
    assert sink.rows() == [(0, 1), (2, 0), (3, 1)]


@pytest.mark.iceberg
def test_a_table_that_the_session_read_before_its_files_were_removed(
    spark: SparkSession, new_sink: NewSink
) -> None:
    # Iceberg keeps the tables that a session has read.
    sink = new_sink("iceberg")
    for value in range(2):
        apply_batch(
            changelog(spark, "id INT, v INT", [("+U", value, value)]), sink.table, keys="id"
        )
    maintained = Maintained(spark, sink.table)
    # A table of the session's catalogs is also known by its name alone.
    apply_batch(changelog(spark, "id INT, v INT", [("+U", 1, 2)]), sink.sql_name, keys="id")
    maintained.rewrite()
    maintained.remove()
    assert maintained.has_only_its_files()
    apply_batch(changelog(spark, "id INT, v INT", [("+U", 0, 3)]), sink.table, keys="id")
    assert sink.rows() == [(0, 3), (1, 2)]


@pytest.mark.iceberg
def test_a_column_that_the_sessions_cached_table_lacks(
    spark: SparkSession, new_sink: NewSink
) -> None:
    # A load of the table that began before another writer's ALTER puts the old table back into the
    # session's cache, also after the session has refreshed it.
    sink = new_sink("iceberg")
    apply_batch(changelog(spark, "id INT", [("+I", 0)]), sink.table, keys="id")
    merging = sink.table.sink(spark)
    spark.newSession().sql(f"ALTER TABLE {sink.sql_name} ADD COLUMNS (a INT)")
    latest = changelog(spark, "id INT, a INT", [("+I", 1, 2)])
    spec = TableSpec(tuple(latest.schema.fields[1:]), ("id",), True, "fail")
    with pytest.raises(ConflictError, match=r"altered .* at the same time \(UNRESOLVED_COLUMN"):
        merging.merge(latest, spec)
    repeat_conflicts(lambda: merging.merge(latest, spec))
    assert sink.rows("id", "a") == [(0, None), (1, 2)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize(
    ("writers", "rounds"), [(2, 1), pytest.param(3, 2, marks=pytest.mark.soak)]
)
def test_concurrent_writers_all_finish(
    spark: SparkSession,
    new_sink: NewSink,
    kind: str,
    writers: int,
    rounds: int,
) -> None:
    # They compete for the table's creation, and then with their MERGEs.
    sink = new_sink(kind)

    def write(writer: int) -> None:
        for number in range(rounds):
            rows = [("+U", key, writer * rounds + number) for key in range(5)]
            apply_batch(changelog(spark, "id INT, v INT", rows), sink.table, keys="id")

    with ThreadPoolExecutor(writers) as pool:
        finish_all(pool.submit(write, writer) for writer in range(writers))
    rows = sink.rows("id", "v")
    assert [key for key, _ in rows] == list(range(5))
    # Each micro-batch is one commit: the last one has all rows and is the last of a writer.
    assert len({v for _, v in rows}) == 1
    assert rows[0][1] % rounds == rounds - 1


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_writers_that_add_columns_side_by_side(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    apply_batch(changelog(spark, "id INT", [("+I", 0)]), sink.table, keys="id")

    def write(writer: int) -> None:
        changes = changelog(spark, "id INT, a INT, b INT", [("+I", writer, 1, 2)])
        apply_batch(changes, sink.table, keys="id", on_new_column="add")

    with ThreadPoolExecutor(2) as pool:
        finish_all(pool.submit(write, writer) for writer in range(2))
    assert sink.rows("id", "a", "b") == [(writer, 1, 2) for writer in range(2)]
