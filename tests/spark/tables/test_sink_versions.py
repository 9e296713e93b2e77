"""SCD type 2 histories: equal to a Python reference however changes arrive; what they refuse."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from normalize.dataframe import ChangeOrderError
from normalize.tables.apply import apply_batch
from tests.support.examples import examples
from tests.support.sinking import NewSink, changelog

LATE = [0, 5, 100]
"""How much later than their places changes may arrive."""


class Event(NamedTuple):
    """A change of a key: an upsert with a value, or a delete."""

    example: int
    key: int
    value: int | None
    """None for a delete."""
    note: int
    """A column that is tracked only by default."""
    at: int

    def rows(self) -> list[tuple[Any, ...]]:
        """The event as rows of a changelog; an update has both."""
        columns = (self.example, self.key)
        if self.value is None:
            return [("-D", *columns, 0, 0, self.at)]
        return (
            [("-U", *columns, 0, 0, self.at), ("+U", *columns, self.value, self.note, self.at)]
            if self.at % 2
            else [("+I", *columns, self.value, self.note, self.at)]
        )


def random_events(random: Random, example: int, notes: int) -> list[Event]:
    """Return changes of three keys at different places.

    The values are few, so that some changes change nothing, and some deletes are of rows that do
    not exist.
    """
    return [
        Event(
            example,
            random.randrange(3),
            None if random.random() < 0.3 else random.randrange(2),
            random.randrange(notes),
            at,
        )
        for at in sorted(random.sample(range(100), 12))
    ]


def batches_of(random: Random, events: list[Event], count: int) -> list[list[Event]]:
    """The events in micro-batches, in which many are late."""
    late = random.choice(LATE)
    arrived = sorted(events, key=lambda event: event.at + random.randint(0, late))
    cuts = sorted(random.randrange(len(events) + 1) for _ in range(count - 1))
    return [arrived[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(events)], strict=True)]


def versions(events: Iterable[Event], track_history: list[str]) -> list[tuple[Any, ...]]:
    """The history that these events must have: example, key, value, note, start and end."""
    rows: list[list[Any]] = []
    current: dict[tuple[int, int], list[Any]] = {}
    for example, key, value, note, at in sorted(events, key=lambda event: event.at):
        before = current.get((example, key))
        if value is None and before is None:
            rows.append([example, key, None, None, None, at])
        elif before is not None and before[2] == value and (track_history or before[3] == note):
            # The row of the update has the values before it, and the version those of its last
            # update.
            rows.append([example, key, value, before[3], at, at])
            before[3] = note
        else:
            if before is not None:
                before[5] = at
                del current[example, key]
            if value is not None:
                current[example, key] = [example, key, value, note, at, None]
                rows.append(current[example, key])
    return sorted(map(tuple, rows), key=repr)


@pytest.mark.parametrize(
    ("kind", "track_history", "count"),
    [
        ("delta", [], 3),
        ("iceberg", [], 3),
        ("delta", ["value"], 2),
        *(
            pytest.param(*case, 8, marks=pytest.mark.soak)
            for case in [("delta", []), ("iceberg", []), ("delta", ["value"])]
        ),
    ],
)
def test_a_history_does_not_depend_on_how_changes_arrive(
    spark: SparkSession, new_sink: NewSink, kind: str, track_history: list[str], count: int
) -> None:
    random, sink = Random(kind), new_sink(kind)
    # Unique notes with track_history, so that each value is at its place.
    stories = [
        random_events(random, example, 1000 if track_history else 2)
        for example in range(examples(200))
    ]
    batches = list(zip(*(batches_of(random, events, count) for events in stories), strict=True))
    applied = list[Event]()
    for number, batch in enumerate(batches):
        applied += [event for events in batch for event in events]
        # Behind the first: the micro-batch again, as after a kill, or an older one, as when a topic
        # is read again.
        for repeated in [number, *([random.randrange(number + 1)] if number else [])]:
            rows = [row for events in batches[repeated] for event in events for row in event.rows()]
            random.shuffle(rows)
            changes = changelog(spark, "example INT, id INT, value INT, note INT, at INT", rows)
            options: dict[str, Any] = {
                "column_list": ["example", "id", "value", "note"],
                "track_history": track_history,
            }
            apply_batch(
                changes, sink.table, keys=["example", "id"], sequence_by="at", scd_type=2, **options
            )
        assert sink.rows("example", "id", "value", "note", "__START_AT", "__END_AT") == versions(
            applied, track_history
        )


def test_only_tracked_columns_make_versions(spark: SparkSession, new_sink: NewSink) -> None:
    sink = new_sink("delta")

    def apply(*rows: Any, track_history: Any = "name") -> dict[int, list[tuple[Any, ...]]]:
        """Apply the changes, and return the versions of each key."""
        changes = changelog(spark, "id INT, name STRING, weight INT, at INT", rows)
        options: dict[str, Any] = {
            "column_list": ["id", "name", "weight"],
            "track_history": track_history,
        }
        apply_batch(changes, sink.table, keys="id", sequence_by="at", scd_type=2, **options)
        versions_by_key: dict[int, list[tuple[Any, ...]]] = {}
        for row in sink.read().where("__START_AT < __END_AT OR __END_AT IS NULL").collect():
            versions_by_key.setdefault(row.id, []).append(tuple(row)[1:])
        return {key: sorted(versions_by_key[key]) for key in sorted(versions_by_key)}

    updated = [("a", 1, 1), ("a", 2, 5), ("a", 4, 9)]
    first = [("+U", key, *values) for key in (1, 2, 3) for values in updated]
    assert apply(*first) == {key: [("a", 4, 1, None)] for key in (1, 2, 3)}
    late = apply(
        ("+U", 1, "b", 0, 7),
        *(("+U", 2, "b", *values) for values in [(0, 7), (3, 8)]),
        ("-D", 3, "a", 4, 10),
        ("+I", 3, "a", 4, 11),
    )
    # A late change divides the version: each part has the values of its last update.
    assert late[1] == [("a", 2, 1, 7), ("a", 4, 9, None), ("b", 0, 7, 9)]
    assert late[2] == [("a", 2, 1, 7), ("a", 4, 9, None), ("b", 3, 7, 9)]
    # After a delete, equal values are a new version.
    assert late[3] == [("a", 4, 1, 10), ("a", 4, 11, None)]
    # The values of each change are stored, also for another track_history.
    divided = apply(*(("-D", key, "a", 0, 3) for key in (2, 3)), track_history=[])
    assert divided == {
        1: late[1],
        2: [("a", 1, 1, 3), ("a", 2, 5, 7), ("a", 4, 9, None), ("b", 0, 7, 8), ("b", 3, 8, 9)],
        3: [("a", 1, 1, 3), ("a", 2, 5, 9), ("a", 4, 9, 10), ("a", 4, 11, None)],
    }


# --------------------------------------------------------------------------------------------------
# SCD type 2 histories: repeated micro-batches, ignored columns, names and types, equal sequence values
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_repeated_micro_batch_makes_no_commit(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    changes = changelog(
        spark,
        "id INT, v INT, at INT",
        [("+I", 1, 1, 5), ("+U", 1, 2, 6), ("+U", 1, 2, 7), ("-D", 1, 2, 8), ("-D", 2, 0, 9)],
    )
    commits = (
        f"DESCRIBE HISTORY {sink.sql_name}"
        if kind == "delta"
        else f"SELECT * FROM {sink.sql_name}.snapshots"
    )
    counts = set()
    for _ in range(2):
        apply_batch(
            changes, sink.table, keys="id", sequence_by="at", scd_type=2, column_list=["id", "v"]
        )
        counts.add(spark.sql(commits).count())
    assert len(counts) == 1
    assert sink.rows() == [(1, 1, 5, 6), (1, 2, 6, 8), (1, 2, 7, 7), (2, None, None, 9)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_history_ignores_a_column_in_its_comparison_too(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink = new_sink(kind)
    arguments: dict[str, Any] = {"keys": "id", "sequence_by": "at", "scd_type": 2}
    apply_batch(
        changelog(spark, "id INT, name STRING, at INT", [("+I", 1, "a", 1)]),
        sink.table,
        column_list=["id", "name"],
        **arguments,
    )
    changes = changelog(
        spark,
        "id INT, name STRING, weight INT, at INT",
        [("+U", 1, "a", 7, 2), ("+U", 1, "b", 7, 3)],
    )
    apply_batch(
        changes,
        sink.table,
        column_list=["id", "name", "weight"],
        on_new_column="ignore",
        **arguments,
    )
    # The update of the ignored column alone is no version.
    assert sink.rows() == [(1, "a", 1, 3), (1, "a", 2, 2), (1, "b", 3, None)]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_columns_of_any_type_and_name(spark: SparkSession, new_sink: NewSink, kind: str) -> None:
    sink, start = new_sink(kind), datetime(2024, 1, 1)
    hours = [start + timedelta(hours=hour) for hour in range(3)]
    schema = (
        "`a.b` STRING, k0 MAP<STRING, INT>, row ARRAY<STRUCT<c0: DOUBLE>>, at TIMESTAMP_NTZ, `no` "
        "BIGINT"
    )
    rows = [
        ("+I", "x", {"m": 1}, [(float("nan"),)], hours[0], 1),
        ("+U", "x", {"m": 1}, [(float("nan"),)], hours[0], 2),
        ("+U", "x", {"m": None}, [(float("nan"),)], hours[1], 1),
        ("+U", "x", {"m": None}, None, hours[2], 1),
    ]
    for some in ([*rows[:1], *rows[2:]], rows[1:2]):  # the second at its place, between the others
        columns: dict[str, Any] = {"keys": "a.b", "column_list": ["a.b", "k0", "row"]}
        apply_batch(
            changelog(spark, schema, some),
            sink.table,
            sequence_by=["at", "no"],
            scd_type=2,
            **columns,
        )
    history = sink.read().selectExpr("k0", "size(row)", "__START_AT", "__END_AT").collect()
    assert sorted(map(tuple, history), key=lambda row: row[2]) == [
        ({"m": 1}, 1, (hours[0], 1), (hours[1], 1)),
        ({"m": 1}, 1, (hours[0], 2), (hours[0], 2)),
        ({"m": None}, 1, (hours[1], 1), (hours[2], 1)),
        ({"m": None}, None, (hours[2], 1), None),
    ]


def test_equal_sequence_values(spark: SparkSession, new_sink: NewSink) -> None:
    sink = new_sink("delta")

    def apply(*rows: Any) -> list[tuple[Any, ...]]:
        apply_batch(
            changelog(spark, "id INT, v INT, at INT", rows),
            sink.table,
            keys="id",
            sequence_by="at",
            scd_type=2,
            column_list=["id", "v"],
        )
        return sink.rows()

    with pytest.raises(
        ChangeOrderError,
        match=r"two rows of one key have the same values in \['at'\], which order its changes",
    ):
        apply(("+I", 1, 1, 5), ("+U", 1, 2, 5), ("+U", 1, 3, 6))
    ended = [("+I", 1, 5), ("-D", 1, 5), ("-D", 1, 9)]
    changes = [(kind, key, value, at) for key in (1, 2) for kind, value, at in ended]
    assert apply(*changes, ("-D", 3, 0, 4)) == [(1, 1, 5, 9), (2, 1, 5, 9), (3, None, None, 4)]
    # An upsert at the place of a delete, and, of key 1, a delete at the place of a version, of key
    # 2 another row.
    changed = [("+I", 1, 3, 9), ("-D", 1, 1, 5), ("+I", 2, 2, 5), ("+I", 2, 3, 9), ("+I", 3, 0, 4)]
    assert apply(*changed) == [
        (1, 1, 5, 9),
        (1, 3, 9, None),
        (2, 2, 5, 9),
        (2, 3, 9, None),
        (3, 0, 4, None),
    ]
