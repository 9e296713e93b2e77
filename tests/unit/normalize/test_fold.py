"""The fold of one key: its table, row by row, and its properties."""

from itertools import pairwise
from typing import NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import ABSENT, RowKind
from cdc_formats.errors import PartialImageError
from cdc_formats.events import KeyedChange
from cdc_formats.fold import FoldedTable, FoldOptions, fold
from normalize.core.order import RowOrderError
from normalize.decode.last_changes import LastOfKeys, merge_pass
from tests.support.strategies import (
    HISTORIES,
    NAN,
    OTHER_NAN,
    by_key,
    exact,
    fold_history,
    last_rows,
    table_of,
    unified,
)

OLD, NEW = (1, "old"), (1, "new")
RETRACT, UPSERT, WITH_TTL = (
    FoldOptions(),
    FoldOptions(generate_update_before=False),
    FoldOptions(suppress_equal=False),
)


@pytest.mark.parametrize(
    ("stored", "row", "options", "output", "after"),
    [
        pytest.param(None, NEW, RETRACT, ["+I new"], NEW, id="a first row is an insert"),
        pytest.param(
            OLD, NEW, RETRACT, ["-U old", "+U new"], NEW, id="another row retracts the stored one"
        ),
        pytest.param(
            OLD,
            NEW,
            UPSERT,
            ["+U new"],
            NEW,
            id="no update-before if the consumer does not need it",
        ),
        pytest.param(OLD, OLD, RETRACT, [], OLD, id="an equal row is suppressed"),
        pytest.param(
            OLD,
            OLD,
            WITH_TTL,
            ["-U old", "+U old"],
            OLD,
            id="an equal row is not suppressed under a TTL",
        ),
        pytest.param(OLD, None, RETRACT, ["-D old"], None, id="a delete carries the stored row"),
        pytest.param(
            OLD,
            None,
            UPSERT,
            ["-D old"],
            None,
            id="a delete carries the stored row for upserts, too",
        ),
        pytest.param(None, None, RETRACT, [], None, id="a delete of an unknown key returns no row"),
    ],
)
def test_fold_gives_flinks_rows(stored, row, options, output, after):
    rows, kept = fold(stored, row, options)
    assert [f"{kind.short_string} {changed[1]}" for kind, changed in rows] == output
    assert kept == after


@pytest.mark.parametrize(
    ("stored", "row", "equal"),
    [
        pytest.param(NAN, OTHER_NAN, True, id="NaN is NaN"),
        pytest.param(0.0, -0.0, True, id="zero has no sign"),
        pytest.param(
            [1.0, [NAN, 0.0]], [1.0, [OTHER_NAN, -0.0]], True, id="in arrays, structs and maps too"
        ),
        pytest.param([1.0], [1.0, None], False, id="another length"),
        pytest.param(NAN, 0.0, False, id="NaN is not a number"),
        pytest.param(NAN, None, False, id="NaN is not NULL"),
    ],
)
def test_rows_are_equal_as_in_sparks_sql(stored, row, equal):
    rows, kept = fold((1, stored), (1, row), RETRACT)
    assert [kind.short_string for kind, _ in rows] == ([] if equal else ["-U", "+U"])
    assert exact(kept) == exact((1, stored if equal else row)), "what is stored is what was emitted"


@given(HISTORIES)
def test_fold_gives_a_retract_stream_that_ends_in_the_last_rows(history):
    assert table_of(fold_history(history)) == last_rows(history)


@given(HISTORIES)
def test_fold_without_update_before_differs_only_in_those_rows(history):
    upserts = fold_history(history, UPSERT)
    assert exact(upserts) == exact(
        [(kind, row) for kind, row in fold_history(history) if kind is not RowKind.UPDATE_BEFORE]
    )


@given(HISTORIES)
def test_normalising_a_clean_changelog_changes_nothing(history):
    clean = fold_history(history)
    again = [
        (row[0], None if kind is RowKind.DELETE else row)
        for kind, row in clean
        if kind is not RowKind.UPDATE_BEFORE
    ]
    assert exact(fold_history(again)) == exact(clean)


@given(HISTORIES, st.data())
def test_a_redelivery_from_any_earlier_event_ends_in_the_same_table(history, data):
    end = data.draw(st.integers(0, len(history)))
    start = data.draw(st.integers(0, end))
    assert table_of(fold_history(history[:end] + history[start:])) == last_rows(history)


@given(HISTORIES)
def test_an_event_delivered_twice_leaves_no_trace(history):
    twice = [change for change in history for _ in range(2)]
    assert exact(fold_history(twice)) == exact(fold_history(history))


@given(HISTORIES, st.randoms(use_true_random=False))
def test_keys_do_not_depend_on_each_other(history, random):
    order = sorted({unified(key) for key, _ in history}, key=lambda key: random.random())
    one_after_another = [change for key in order for change in history if unified(change[0]) == key]
    assert by_key(fold_history(one_after_another)) == by_key(fold_history(history))


def test_a_table_completes_the_row_whose_key_changed_from_the_row_of_the_old_key() -> None:
    table = FoldedTable()
    table.apply([KeyedChange((1,), (1, "scooter", 3.14))])
    partial = KeyedChange((2,), (2, "bike", ABSENT), partial=True, moved_from=(1,))
    rows = table.apply([KeyedChange((1,), None), partial])
    assert rows == [(RowKind.DELETE, (1, "scooter", 3.14)), (RowKind.INSERT, (2, "bike", 3.14))]
    assert table.stored == {(2,): (2, "bike", 3.14)}


def test_a_record_with_an_incomplete_row_changes_nothing_in_a_table() -> None:
    table = FoldedTable()
    partial = KeyedChange((2,), (2, ABSENT), partial=True)
    with pytest.raises(PartialImageError, match="start at an earlier offset"):
        table.apply([KeyedChange((1,), (1, "scooter")), partial])
    assert table.stored == {}


# --------------------------------------------------------------------------------------------------
# The last change of each key: whole and in parts, of one partition and of several
class Place(NamedTuple):
    key: int
    source: int
    offset: int
    stamp: int


PLACES = st.lists(
    st.builds(Place, *(st.integers(0, most) for most in (3, 2, 9, 5))),
    min_size=1,
    max_size=20,
    unique_by=lambda p: p[1:3],
)


def last_by_definition(places: list[Place]) -> dict[int, Place]:
    """By offset within a partition; then by the greatest timestamp so far, and by the partition."""
    last_places: dict[int, tuple] = {}
    for key, source in {(place.key, place.source) for place in places}:
        of_both = sorted(place for place in places if (place.key, place.source) == (key, source))
        candidate = (max(place.stamp for place in of_both), source, of_both[-1])
        last_places[key] = max(last_places.get(key, candidate), candidate)
    return {key: place for key, (_, _, place) in last_places.items()}


def batch_of(places: list[Place]) -> pa.RecordBatch:
    keys, sources, offsets, stamps = zip(*places, strict=True)
    columns = {
        "key": pa.array([bytes([key]) for key in keys], pa.binary()),
        "stamp": pa.array(stamps),
        "source": pa.array([f"t[{source}]" for source in sources]),
        "offset": pa.array(offsets),
        "fact": pa.nulls(len(places), pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@given(places=PLACES, most=st.integers(1, 20))
def test_the_keys_of_several_partitions_are_counted(places, most):
    held = LastOfKeys(most)
    for part in pairwise([0, *range(1, len(places)), len(places)]):
        held.add(pa.Table.from_batches([batch_of(places[slice(*part)])]))
    list(held.finish("log"))
    pairs = {(place.key, place.source) for place in places}
    assert held.torn == len(pairs) - len({key for key, _ in pairs})


@given(
    places=PLACES,
    most=st.sampled_from([1, 3, 65_536]),
    cuts=st.lists(st.integers(0, 20), max_size=4),
)
def test_changes_that_are_merged_in_parts_have_the_same_last_one(places, most, cuts):
    edges = [0, *sorted(min(cut, len(places)) for cut in cuts), len(places)]
    batches = [batch_of(places[start:end]) for start, end in pairwise(edges) if start < end]
    merged = [
        row
        for batch in merge_pass(batches, row_order="log", most_held=most)
        for row in batch.to_pylist()
    ]
    expected = [
        (bytes([key]), f"t[{place.source}]", place.offset)
        for key, place in last_by_definition(places).items()
    ]
    assert sorted((row["key"], row["source"], row["offset"]) for row in merged) == sorted(expected)


class Row(NamedTuple):
    """A change of three columns: None is absent; `deleted` has no columns."""

    place: Place
    values: tuple[int | None, ...]
    deleted: bool


ROWS = st.lists(
    st.builds(
        Row,
        st.builds(Place, *(st.integers(0, most) for most in (2, 2, 20, 5))),
        st.tuples(*[st.none() | st.integers(0, 99)] * 3),
        st.sampled_from([False, False, False, True]),
    ),
    min_size=1,
    max_size=20,
    unique_by=lambda row: row.place[1:3],
)


def completed_by_definition(rows: list[Row]) -> dict[int, tuple | None]:
    """Return each key's row: each change over the one before, in the order of all partitions.

    None means a partial row after a delete.
    """
    stamped = []
    for row in rows:
        before = [
            other.place.stamp
            for other in rows
            if other.place[:2] == row.place[:2] and other.place.offset <= row.place.offset
        ]
        stamped.append((max(before), row.place.source, row.place.offset, row))
    rows_by_key: dict[int, tuple | None] = {}
    for *_, row in sorted(stamped, key=lambda each: each[:3]):
        key, last = row.place.key, rows_by_key.get(row.place.key, (None,) * 3)
        if row.deleted:
            rows_by_key[key] = ()
        elif None not in row.values:
            rows_by_key[key] = row.values
        elif not last:
            rows_by_key[key] = None
        else:
            rows_by_key[key] = tuple(
                old if new is None else new for new, old in zip(row.values, last, strict=True)
            )
    return rows_by_key


def batch_of_rows(rows: list[Row]) -> pa.RecordBatch:
    places = batch_of([row.place for row in rows]).drop_columns(["fact"])
    columns = {name: places.column(name) for name in places.schema.names}
    columns["row_kind"] = pa.array(["-D" if row.deleted else "+U" for row in rows])
    for index in range(3):
        columns[f"c{index}"] = pa.array(
            [None if row.deleted else row.values[index] for row in rows], pa.int64()
        )
    flags = ["".join("01"[value is None] for value in row.values) for row in rows]
    columns["absent"] = pa.array(
        [
            None if row.deleted or "1" not in flag else flag
            for row, flag in zip(rows, flags, strict=True)
        ],
        pa.string(),
    )
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


@given(rows=ROWS, most=st.sampled_from([1, 3, 65_536]), cut=st.integers(0, 20))
def test_partial_rows_are_completed_from_the_changes_before_them(rows, most, cut):
    batches = [batch_of_rows(part) for part in (rows[:cut], rows[cut:]) if part]
    expected = completed_by_definition(rows)
    if None in expected.values():
        with pytest.raises(PartialImageError, match="the change of its key before it is a delete"):
            list(merge_pass(batches, row_order="log", most_held=most))
        return
    merged = [
        row
        for batch in merge_pass(batches, row_order="log", most_held=most)
        for row in batch.to_pylist()
    ]
    rows_by_key = {
        row["key"][0]: ()
        if row["row_kind"] == "-D"
        else tuple(row[f"c{index}"] for index in range(3))
        for row in merged
    }
    assert rows_by_key == expected
    absent = {row["key"][0]: row["absent"] for row in merged}
    assert absent == {
        key: None if None not in values else "".join("01"[value is None] for value in values)
        for key, values in expected.items()
    }


def test_facts_pass_a_merge_unchanged():
    fact = pa.RecordBatch.from_arrays(
        [
            pa.array([b"table"] * 2),
            pa.nulls(2, pa.int64()),
            pa.nulls(2, pa.string()),
            pa.nulls(2, pa.int64()),
            pa.array(["a", "b"]),
        ],
        names=["key", "stamp", "source", "offset", "fact"],
    )
    assert [batch.column("fact").to_pylist() for batch in merge_pass([fact], row_order="row")] == [
        ["a", "b"]
    ]


@pytest.mark.parametrize(
    ("row_order", "stamp", "text"),
    [
        ("offset", 0, "two Kafka partitions.*add the column timestamp"),
        ("row", 7, "the same timestamp, or none.*partition and offset"),
    ],
)
def test_an_unknown_order_is_an_error(row_order, stamp, text):
    two = batch_of([Place(1, 0, 5, stamp), Place(1, 1, 6, stamp), Place(2, 0, 7, stamp)])
    with pytest.raises(RowOrderError, match=text):
        list(merge_pass([two], row_order=row_order))
    assert len(list(merge_pass([two], row_order="log"))) == 1
    # The order of changes before the last one does not matter.
    assert list(merge_pass([two, batch_of([Place(1, 0, 8, stamp + 1)])], row_order=row_order))
