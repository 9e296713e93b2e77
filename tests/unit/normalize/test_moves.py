"""Rows that lack columns are followed from key to key."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from normalize.decode.last_changes import UnknownRowError, follow_moves, in_order

NAMES = {b"1": "one", b"2": "two", b"3": "three"}


def follow(*changes: str, sources: list[int] | None = None) -> dict[str, str]:
    """Return each key's last row: values, ``base.column`` for a target's value, ``-`` for a delete.

    A change is ``key=values``, ``key=`` (a delete), or ``key<earlier=values``; ``_`` is a missing
    value.
    """
    parsed = []
    for change in changes:
        left, _, values = change.partition("=")
        key, _, earlier = left.partition("<")
        parsed.append((key.encode(), earlier.encode() or None, list(values)))
    absent = [
        [value == "_" for value in values] if "_" in values else None for _, _, values in parsed
    ]
    rows = follow_moves(
        [key for key, _, _ in parsed],
        [earlier for _, earlier, _ in parsed],
        [not values for _, _, values in parsed],
        absent,
        sources or [0] * len(parsed),
        2,
    )

    def shown(place: int, column: int, base: bytes | None) -> str:
        return parsed[place][2][column] if place >= 0 else f"{(base or b'?').decode()}.{column}"

    return {
        key.decode(): " ".join(
            shown(place, column, row.base) for column, place in enumerate(row.places)
        )
        or "-"
        for key, row in rows.items()
    }


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (["1=", "2<1=a_"], {"1": "-", "2": "a 1.1"}),
        (
            ["2<1=a_", "1="],
            {"1": "-", "2": "a 1.1"},
        ),  # the delete is read later, from another partition
        (["1=xy", "1=", "2<1=a_"], {"1": "-", "2": "a y"}),
        (["1=_y", "1=", "2<1=__"], {"1": "-", "2": "1.0 y"}),
        # Through a chain of keys, and an update of the row on its way.
        (["1=", "2<1=__", "2=b_", "2=", "3<2=__"], {"1": "-", "2": "-", "3": "b 1.1"}),
        (["1=", "2<1=a_", "2=_c"], {"1": "-", "2": "a c"}),
        (["1=", "2<1=a_", "2=bc"], {"1": "-", "2": "b c"}),
        # Another row gets the earlier key.
        (["1=", "2<1=a_", "1=xy"], {"1": "x y", "2": "a 1.1"}),
        (["1=", "1=xy", "2<1=a_"], {"1": "x y", "2": "a 1.1"}),
        # Two rows change places.
        (
            ["1=", "3<1=__", "2=", "1<2=__", "3=", "2<3=__"],
            {"1": "2.0 2.1", "2": "1.0 1.1", "3": "-"},
        ),
        # A delete that comes twice.
        (["1=xy", "1=", "1=", "2<1=a_"], {"1": "-", "2": "a y"}),
    ],
)
def test_rows_end_with_the_values_of_their_earlier_keys(
    changes: list[str], expected: dict[str, str]
) -> None:
    assert follow(*changes) == expected


def test_row_that_lacks_columns_after_a_delete_of_its_own_key_is_unknown() -> None:
    with pytest.raises(UnknownRowError, match="the change of its key before it is a delete"):
        follow("2<1=a_", "2=", "2=b_")


@pytest.mark.parametrize(
    "changes", [["1=xy", "1=", "1=vw", "2<1=a_"], ["1=", "1=xy", "1=", "2<1=a_"]]
)
def test_earlier_key_of_another_partition_that_had_several_rows_is_unknown(
    changes: list[str],
) -> None:
    assert follow(*changes)["2"].startswith("a ")
    with pytest.raises(UnknownRowError, match="in another partition, had several rows meanwhile"):
        follow(*changes, sources=[0, 0, 0, 1])


@given(st.data())
def test_followed_rows_are_those_of_the_source(data: st.DataObject) -> None:
    """Write random inserts, updates, deletes and key changes as a producer of partial rows does."""
    source = {
        key: (f"{key.decode()}.0", f"{key.decode()}.1")
        for key in data.draw(st.sets(st.sampled_from(sorted(NAMES))))
    }
    target, changes = dict(source), list[str]()
    for number in range(data.draw(st.integers(0, 8))):
        key, value = data.draw(st.sampled_from(sorted(NAMES))), str(number)
        free = [other for other in NAMES if other not in source]
        if key not in source:
            source[key] = (value, value)
            changes.append(f"{key.decode()}={value}{value}")
        elif free and data.draw(st.booleans()):
            other = data.draw(st.sampled_from(free))
            row = source.pop(key)
            source[other] = data.draw(st.sampled_from([row, (value, row[1])]))
            after = "__" if source[other] == row else f"{value}_"
            changes += [f"{key.decode()}=", f"{other.decode()}<{key.decode()}={after}"]
        elif data.draw(st.booleans()):
            del source[key]
            changes.append(f"{key.decode()}=")
        else:
            source[key] = (source[key][0], value)
            changes.append(f"{key.decode()}=_{value}")
    rows = (
        {key.encode(): tuple(row.split()) for key, row in follow(*changes).items() if row != "-"}
        if changes
        else {}
    )
    deleted_keys = (
        {key.encode() for key, row in follow(*changes).items() if row == "-"} if changes else set()
    )
    assert {key: row for key, row in (target | rows).items() if key not in deleted_keys} == source


def test_order_of_changes_is_that_of_their_partitions() -> None:
    order = in_order(np.array([1, 0, 1, 0]), np.array([2, 9, 1, 8]), np.array([5, 4, 6, 6]))
    # Partition 0: offset 8 at 6, offset 9 at 6 made monotone. Partition 1: offset 1 at 6, offset 2
    # at 6.
    assert order.tolist() == [3, 1, 2, 0]
