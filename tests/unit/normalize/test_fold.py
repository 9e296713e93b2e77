"""The fold of one key: its table, row by row, and its properties."""

import pytest
from hypothesis import given, strategies as st

from cdc_formats import ABSENT, RowKind
from cdc_formats.errors import PartialImageError
from cdc_formats.events import KeyedChange
from cdc_formats.fold import FoldedTable, FoldOptions, fold
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
