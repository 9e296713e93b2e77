"""`ChangelogNormalize(engine="native")` on Spark 4.2: the rows of the fold.

The fold gets the last change of each key in a micro-batch.
"""

import json
import os
from datetime import timedelta
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession, functions as F

from cdc_formats import columns
from cdc_formats.errors import ArgumentError
from normalize import (
    ChangelogNormalize,
    aggregate_changes,
    decode_changelog,
)
from normalize.checkpoint.read_state import find_state, read_state
from normalize.core.arrow import spark_ddl, to_arrow
from normalize.core.guard import PartitionSummary
from normalize.core.last import is_late, partition_facts
from normalize.core.output import Output
from normalize.engines.native import late_record, newest_two
from normalize.monitoring.explain_error import explain_error
from normalize.spark_versions import installed_version
from normalize.stage_options import NativeEngine
from tests.support.canonical_values import TYPES, values_of
from tests.support.examples import examples
from tests.support.histories import TABLE, rows_by_key
from tests.support.strategies import (
    DDL,
    KeyChange,
    by_key,
    fold_history,
    key_changes,
    unified,
)
from tests.support.streams import run_stream, settings as conf

pytestmark = pytest.mark.skipif(
    installed_version() < "4.2", reason="Spark 4.1 and older have no max_by with a number of rows"
)
BEGIN = 1_700_000_000
NATIVE = ChangelogNormalize(engine="native")


def last_of_each_key(batch: list[KeyChange]) -> list[KeyChange]:
    """The changes that remain of a micro-batch."""
    return list({unified(key): (key, row) for key, row in batch}.values())


def folded(batches: list[list[KeyChange]]) -> dict:
    """The changelog by key, with `unified` rows."""
    return by_key(
        fold_history([change for batch in batches for change in last_of_each_key(batch)]), unified
    )


class Changelog:
    """A stream of typed changes, each a row kind and a row, with one file for each micro-batch."""

    def __init__(self, spark: Any, folder: Path, ddl: str, stage: ChangelogNormalize) -> None:
        self.spark, self.folder, self.columns, self.stage = (
            spark,
            folder / uuid4().hex,
            columns(ddl),
            stage,
        )
        self.mode = "append" if stage.native is None else "update"
        self.files = self.folder / "files"
        self.files.mkdir(parents=True)

    def write(self, changes: list[tuple[str, tuple]]) -> None:
        kinds = pa.array([kind for kind, _ in changes], pa.string())
        values = [
            to_arrow(column.type, [row[index] for _, row in changes])
            for index, column in enumerate(self.columns)
        ]
        names = ["row_kind", *(column.name for column in self.columns)]
        number = len(list(self.files.iterdir()))
        file = self.files / f"{number}.parquet"
        pq.write_table(pa.table([kinds, *values], names=names), file)
        os.utime(file, (BEGIN + number, BEGIN + number))  # Spark reads the oldest file first

    def run(self) -> list:
        schema = f"row_kind STRING, {spark_ddl(self.columns)}"
        stream = (
            self.spark.readStream.schema(schema)
            .option("maxFilesPerTrigger", 1)
            .parquet(str(self.files))
        )
        return run_stream(stream.transform(self.stage), self.folder / "checkpoint", self.mode).rows


BATCHES = st.lists(st.lists(key_changes(), min_size=1, max_size=8), min_size=1, max_size=5)
STORIES = f"story INT, {DDL}"
"""The columns of many tables in one query; the key is the first two."""


def typed(story: int, change: KeyChange) -> tuple[str, tuple]:
    key, row = change
    return ("-D", (story, key, *(None,) * 4)) if row is None else ("+U", (story, *row))


def rows_of_stories(
    spark: Any, folder: Path, repartition: bool, stories: list, restarts: Any
) -> dict[int, dict]:
    """Return each story's changelog from one query, whose n-th micro-batch has all n-th batches.

    A restart changes `repartition`.
    """
    stages = cycle(
        ChangelogNormalize(["story", "id"], engine=NativeEngine(value))
        for value in (repartition, not repartition)
    )
    changelog = Changelog(spark, folder, STORIES, next(stages))
    rows: list = []
    for number in range(max(map(len, stories))):
        if number in restarts:
            rows += changelog.run()
            changelog.stage = next(stages)
        of_batch = [
            (story, change)
            for story, batches in enumerate(stories)
            for change in (batches[number:] or [[]])[0]
        ]
        changelog.write([typed(story, change) for story, change in of_batch])
    rows += changelog.run()
    grouped: dict[int, dict] = {}
    for row in rows:
        grouped.setdefault(row.story, {}).setdefault(unified(row.id), []).append(
            (row.row_kind, unified(canonical_row(row)))
        )
    return grouped


def canonical_row(row: Any) -> tuple:
    *plain, marks = tuple(row)[2:]
    return (*plain, None if marks is None else [[key, value] for key, value in marks.items()])


def test_any_cut_into_micro_batches_gives_the_rows_of_the_fold(spark, tmp_path):
    stories: list = []

    @settings(max_examples=examples(60), database=None)
    @given(batches=BATCHES, again=st.booleans())
    def collect(batches, again):
        # Perhaps a redelivery of the whole history.
        stories.append(
            [*batches, [change for batch in batches for change in batch]] if again else batches
        )

    collect()
    rows = rows_of_stories(spark, tmp_path, True, stories, {2, 5})
    assert {story: rows.get(story, {}) for story in range(len(stories))} == dict(
        enumerate(map(folded, stories))
    )


@pytest.mark.soak
@settings(
    max_examples=examples(40),
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    phases=[
        Phase.explicit,
        Phase.reuse,
        Phase.generate,
    ],  # an example takes seconds: a failure is not shrunk
)
@given(batches=BATCHES, restarts=st.sets(st.integers(1, 4)), repartition=st.booleans())
def test_any_cut_and_any_restarts_give_the_rows_of_the_fold(
    spark, tmp_path, batches, restarts, repartition
):
    assert rows_of_stories(spark, tmp_path, repartition, [batches], restarts).get(0, {}) == folded(
        batches
    )


def test_a_later_micro_batch_is_newer_although_the_clock_went_back(spark: SparkSession) -> None:
    changes = spark.sql(
        "SELECT batch, 'k' AS key, struct(batch) AS row, '' AS fact FROM VALUES (1L), (2L) AS of(batch)"
    )
    (key,) = newest_two(changes, 9 - F.col("batch"), Output(columns("id INT"))).collect()
    assert [each.row.batch for each in key.newest] == [2, 1]


# --------------------------------------------------------------------------------------------------
# types of columns

ALL_TYPES = ", ".join(
    [
        "id INT",
        *(
            f"c{number} {name}"
            for number, name in enumerate([*TYPES, "MAP<STRING, ARRAY<MAP<STRING, INT>>>"])
        ),
    ]
)
_VALUES = st.tuples(*(values_of(column.type) for column in columns(ALL_TYPES)[1:]))


def test_rows_of_every_type_are_compared_and_kept(spark, tmp_path):
    """Each key has a row, and then the same row, another row or a delete."""
    pairs: list[tuple[tuple, tuple]] = []

    @settings(
        max_examples=examples(30), database=None, suppress_health_check=[HealthCheck.too_slow]
    )
    @given(first=_VALUES, second=_VALUES)
    def collect(first, second):
        number = len(pairs)
        again = {0: first, 1: second, 2: (None,) * len(first)}[number % 3]
        pairs.append(((number, *first), (number, *again)))

    collect()
    rows: dict[str, dict[int, list]] = {}
    for stage in (
        ChangelogNormalize("id", engine="native"),
        ChangelogNormalize("id", key_groups=1),
    ):
        changelog = Changelog(spark, tmp_path, ALL_TYPES, stage)
        changelog.write([("+U", row) for row, _ in pairs])
        changelog.write([("-D" if row[0] % 3 == 2 else "+U", row) for _, row in pairs])
        of_stage = rows.setdefault(changelog.mode, {})
        for row in changelog.run():
            of_stage.setdefault(row.id, []).append(tuple(row))
    assert rows["update"] == rows["append"]
    for number, (one, other) in enumerate(pairs):
        again = (
            ["-D"] if number % 3 == 2 else ["-U", "+U"] if unified(one) != unified(other) else []
        )
        assert [row[0] for row in rows["update"][number]] == ["+I", *again]
    assert any(len(of_key) == 3 for of_key in rows["update"].values())


# --------------------------------------------------------------------------------------------------
# records of a reader


class Messages:
    """A stream of Debezium messages for `decode_changelog`, with one file for each micro-batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.folder, self.files = spark, folder, folder / "messages"
        self.files.mkdir()

    def write(self, *values: bytes) -> None:
        number = len(list(self.files.iterdir()))
        file = self.files / f"{number}.json"
        file.write_bytes(b"\n".join(values))
        os.utime(file, (BEGIN + number, BEGIN + number))

    def stream(self, files: int = 1, **arguments: Any) -> Any:
        reader = self.spark.readStream.format("text").option("maxFilesPerTrigger", files)
        return decode_changelog(
            reader.load(str(self.files)), **{**TABLE, "normalize": NATIVE, **arguments}
        )

    def run(self, **arguments: Any) -> Any:
        return run_stream(self.stream(**arguments), self.folder / "checkpoint", "update")


@pytest.fixture
def messages(spark, tmp_path) -> Messages:
    return Messages(spark, tmp_path)


def change(op: str, key: int, name: str | None = None, qty: int = 0, table: str = "t") -> bytes:
    row = {"id": key, "name": name, "qty": qty}
    images = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return json.dumps({**images, "op": op, "source": {"table": table}}).encode()


def test_rows_with_the_metadata_of_their_change_counts_and_state(spark, messages):
    moved = {
        "before": {"id": 5, "name": "e", "qty": 0},
        "after": {"id": 6, "name": "e", "qty": 0},
        "op": "u",
        "source": {"table": "x"},
    }
    first = [change("c", key, name) for key, name in ((1, "a"), (2, "b"), (3, "c"), (5, "e"))]
    messages.write(*first, change("d", 9, "b"))
    last_equal = [change("u", 1, "b", table="u"), change("u", 1, "a", table="u")]
    messages.write(
        *last_equal,
        change("u", 2, "c", table="v"),
        change("d", 3, table="w"),
        json.dumps(moved).encode(),
        change("c", 4, "d", table="v"),
    )
    run = messages.run(metadata={"of": "source.table"}, format_options={"table_include": "."})
    assert [(row.row_kind, row.id, row.name, row.of) for row in sorted(run.rows[:4], key=lambda row: row.id)] == [
        ("+I", 1, "a", "t"), ("+I", 2, "b", "t"), ("+I", 3, "c", "t"), ("+I", 5, "e", "t"),
    ]  # fmt: skip
    assert sorted((row.id, row.row_kind, row.name, row.of) for row in run.rows[4:]) == [
        (2, "+U", "c", "v"), (2, "-U", "b", "v"), (3, "-D", "c", "w"), (4, "+I", "d", "v"), (5, "-D", "e", "x"), (6, "+I", "e", "x"),
    ]  # fmt: skip
    counts = {
        name: run.metric("changelog_normalize", name)
        for name in ("CHANGES", "SUPPRESSED_EQUAL", "DELETES_OF_UNKNOWN_KEYS")
    }
    assert counts == {"CHANGES": 11, "SUPPRESSED_EQUAL": 1, "DELETES_OF_UNKNOWN_KEYS": 1}
    assert run.metric("changelog_decode", "RECORDS") == 11
    state = read_state(spark, str(messages.folder / "checkpoint"))
    assert state.columns == ["id", "name", "qty"]
    assert sorted(map(tuple, state.collect())) == [
        (1, "a", 0),
        (2, "c", 0),
        (4, "d", 0),
        (6, "e", 0),
    ]
    with pytest.raises(ArgumentError, match="none of them is a ChangelogNormalize"):
        find_state(spark, str(messages.folder / "checkpoint"))


def test_options_that_both_engines_have(messages):
    """Without one of them, there would be a -U of key 2, a -D of key 3, or no -D of key 1."""
    stage = {"changelog_mode": "upsert", "ignore_deletes": True, "where": "name <> 'b'"}
    messages.write(change("c", 1, "a"), change("c", 2, "a"), change("c", 3, "a"))
    messages.write(change("u", 1, "b", 1), change("u", 2, "c", 1), change("d", 3))
    messages.write(change("c", 1, "c", 2), change("c", 3, "c", 2))
    rows = messages.run(normalize=ChangelogNormalize(engine="native", **stage)).rows
    assert rows_by_key(rows) == {
        1: [("+I", (1, "a", 0)), ("-D", (1, "a", 0)), ("+I", (1, "c", 2))],
        2: [("+I", (2, "a", 0)), ("+U", (2, "c", 1))],
        3: [("+I", (3, "a", 0)), ("+U", (3, "c", 2))],
    }


# --------------------------------------------------------------------------------------- a key that
# comes from several tasks


@pytest.fixture
def task_per_file(spark):
    with conf(spark, {"spark.sql.files.openCostInBytes": 1 << 30}):
        yield


def failure(run: Any, *arguments: Any, **named: Any) -> str:
    with pytest.raises(StreamingQueryException) as failed:
        run(*arguments, **named)
    return explain_error(failed.value)


@pytest.mark.usefixtures("task_per_file")
def test_a_key_of_two_tasks_is_an_error_and_never_a_wrong_row(messages):
    messages.write(change("c", 1, "a"))
    messages.write(change("u", 1, "b"))
    alone = ChangelogNormalize(engine=NativeEngine(repartition=False))
    text = failure(messages.run, files=2, normalize=alone)
    assert "[ROW_ORDER] two tasks of one micro-batch have changes of one key" in text
    assert "set engine=NativeEngine(repartition=True)" in text
    # Repartitioned, their order is known only with timestamps or offsets.
    assert "add the columns partition and offset" in failure(messages.run, files=2)


# -----------------------------------------------------------------------------------------------
# what the engine cannot do


def test_a_row_without_all_columns_is_an_error(messages):
    source = {"connector": "postgresql", "table": "t"}
    toast = {
        "before": None,
        "after": {"id": 1, "name": "__debezium_unavailable_value", "qty": 2},
        "op": "u",
        "source": source,
    }
    messages.write(change("c", 1, "a"), json.dumps(toast).encode())
    text = failure(messages.run, mode="DROPMALFORMED")
    assert text.startswith("[PARTIAL_IMAGE]")
    assert (
        "use engine='key_groups', or let the producer write all columns (PostgreSQL: REPLICA "
        "IDENTITY FULL"
    ) in text


def test_facts_about_the_query_must_not_change(spark, messages):
    messages.write(change("c", 1, "a"))
    messages.run()
    messages.write(change("u", 1, "b"), change("c", 2, "a"))
    text = failure(messages.run, primary_key="qty")
    assert text.startswith(
        "[STATE_VERSION] the primary key columns of this query and those of its checkpoint differ: "
        "(id) and (qty)."
    )
    # Spark itself accepts columns of the same types.
    text = failure(messages.run, schema="qty INT, name STRING, id INT")
    assert text.startswith(
        "[STATE_VERSION] the columns of this query and those of its checkpoint differ: (`id` INT, "
        "`name` STRING, `qty`"
    )
    text = failure(messages.run, normalize=ChangelogNormalize(engine="native", where="id > 0"))
    assert text.startswith(
        "[STATE_VERSION] the conditions (where=) of this query and those of its checkpoint differ: "
        "() and ((id > 0))."
    )
    # An added column needs a new checkpoint.
    assert "[STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE]" in failure(
        messages.run, schema="id INT, name STRING, qty INT, more STRING"
    )
    # After all these failures the query goes on, and the checkpoint fixes the number of shuffle
    # partitions.
    before = spark.conf.get("spark.sql.shuffle.partitions")
    with conf(spark, {"spark.sql.shuffle.partitions": 5}):
        run = messages.run()
    assert sorted(run.changelog) == ["+I(2,a,0)", "+U(1,b,0)", "-U(1,a,0)"]
    assert run.progress[-1]["stateOperators"][0]["numShufflePartitions"] == int(before)
    messages.write(change("c", 3, "a", table="other"))
    text = failure(messages.run)
    assert text.startswith(
        "[SEVERAL_TABLES] the records belong to two tables, other and t: rows with equal keys "
        "would be merged"
    )
    assert (
        "make the table part of the key: metadata=['source.database', 'source.schema', "
        "'source.table']"
    ) in text


def test_another_output_mode_is_an_error(messages, tmp_path):
    messages.write(change("c", 1, "a"))
    messages.write(change("c", 2, "a"))
    with pytest.raises(Exception, match="STREAMING_OUTPUT_MODE"):
        run_stream(messages.stream(), tmp_path / "append", "append")
    assert "write the query with outputMode('update')" in failure(
        run_stream, messages.stream(), tmp_path / "complete", "complete"
    )


@pytest.mark.parametrize(
    ("stage", "text"),
    [
        ({"order": "source"}, "order='source': its state has no positions"),
        ({"state_ttl": timedelta(days=1)}, "state_ttl=.*: Spark's aggregation keeps every key"),
        (
            {"ignore_columns": ["qty"]},
            "ignore_columns=.*: it compares the newest row with the row before it",
        ),
        ({"mini_batch": True}, "mini_batch=True: it always keeps only the last change"),
        ({"key_groups": 8}, "key_groups=8: its state has a row for each key"),
    ],
)
def test_options_that_it_refuses(spark, stage, text):
    with pytest.raises(
        ArgumentError, match=f"engine='native' cannot be combined with {text}.*Remove one of them"
    ):
        ChangelogNormalize(engine="native", **stage)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"mode": "PERMISSIVE"}, "mode='PERMISSIVE' cannot be combined.*use DeadLetter"),
        ({"control_events": "all"}, "control_events cannot be combined.*in a second query"),
        (
            {"normalize": ChangelogNormalize(engine="native", source_duplicates=False)},
            "engine='native' requires ChangelogNormalize, which",
        ),
        (
            {"normalize": ChangelogNormalize(engine="native", where="nowhere > 1")},
            "where is not a condition on the table's columns",
        ),
        (
            {"normalize": ChangelogNormalize(engine="native", where="max(id) > 1")},
            r"where is not a condition on the table's columns: \[NESTED_AGGREGATE",
        ),
        ({"normalize": ChangelogNormalize(where="rand() > 0.5")}, "where is not deterministic"),
    ],
)
def test_arguments_of_a_reader_that_it_refuses(messages, arguments, text):
    with pytest.raises(ArgumentError, match=text):
        messages.stream(**arguments)


def test_other_arguments_that_it_refuses(spark, messages):
    with pytest.raises(ArgumentError, match="engine is 'flink': use 'key_groups' or 'native'"):
        ChangelogNormalize(engine="flink")
    rows = spark.createDataFrame(
        [("+I", 1, None)], "row_kind STRING, id INT, _corrupt_record STRING"
    )
    with pytest.raises(ArgumentError, match="requires a stream: a bounded read has no state"):
        rows.transform(ChangelogNormalize("id", engine="native"))
    with pytest.raises(
        ArgumentError,
        match=r"no aggregation behind engine='native' in one query.*in a second query",
    ):
        aggregate_changes(messages.stream(), "id")


# --------------------------------------------------------------------------------------------------
# The native engine finds late records of added partitions in SQL as the pure function does
def test_sql_finds_late_records_as_python_does(spark: SparkSession) -> None:
    random = Random(5)
    values = [
        fact
        for batch in (0, 1, 2)
        for partition in (0, 1, 2)
        for stamp in (0, 7, 8, 1_800_000_000_000)
        for _, fact in partition_facts(
            PartitionSummary("t", partition, stamp, first_offset=random.randrange(2)),
            {"t": 2},
            batch,
        )
    ]
    rows = [sorted(random.choices(values, k=2)) for _ in range(2_000)]
    late = (
        spark.createDataFrame(rows, "least STRING, greatest STRING")
        .select(late_record(F.col("least"), F.col("greatest")))
        .collect()
    )
    assert [bool(value) for (value,) in late] == [is_late(*row) for row in rows]
    assert 0 < sum(is_late(*row) for row in rows) < len(rows)
