"""Rows that lack columns are followed from key to key."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, strategies as st

from cdc_formats.errors import PartialImageError
from normalize.decode.last_changes import LastOfKeys
from normalize.decode.moves import follow_moves, followed, in_order

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
        [(f"t[{source}]", at) for at, source in enumerate(sources or [0] * len(parsed))],
        2,
    )

    def shown(value: int | bytes, column: int) -> str:
        is_of_target = isinstance(value, bytes)
        return f"{value.decode()}.{column}" if is_of_target else parsed[value][2][column]

    return {
        key.decode(): " ".join(shown(value, column) for column, value in enumerate(row or ()))
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
    with pytest.raises(PartialImageError, match="the change of its key before it is a delete"):
        follow("2<1=a_", "2=", "2=b_")


@pytest.mark.parametrize(
    "changes", [["1=xy", "1=", "1=vw", "2<1=a_"], ["1=", "1=xy", "1=", "2<1=a_"]]
)
def test_earlier_key_of_another_partition_that_had_several_rows_is_unknown(
    changes: list[str],
) -> None:
    assert follow(*changes)["2"].startswith("a ")
    with pytest.raises(PartialImageError, match="in another partition, had several rows meanwhile"):
        follow(*changes, sources=[0, 0, 0, 1])


def test_earlier_key_that_another_partition_has_again_is_unknown() -> None:
    """Its task may have dropped the row before the delete, which is in the other partition."""
    changes = ["1=", "2<1=a_", "1=xy"]
    assert follow(*changes) == {"1": "x y", "2": "a 1.1"}
    with pytest.raises(PartialImageError, match=r"had several rows meanwhile.* in t\[0\]@1"):
        follow(*changes, sources=[0, 0, 1])


def changes_of_task(source: str, *changes: tuple[Any, ...], least: int, begin: int = 0) -> pa.Table:
    """Return what a task returns of changes: key, kind, two values, missing columns, earlier key."""
    held = LastOfKeys(least, keeps_deleted=True)
    for offset, (key, kind, first, second, absent, moved) in enumerate(changes, begin):
        row = {
            "key": key,
            "stamp": offset,
            "offset": offset,
            "row_kind": kind,
            "deleted": kind == "-D",
            "c0": first,
            "c1": second,
            "absent": absent,
            "moved": moved,
        }
        types = {"key": pa.binary(), "absent": pa.string(), "moved": pa.binary()}
        table = pa.table(
            {name: pa.array([each], types.get(name)) for name, each in row.items()}
            | {"c0": pa.array([first], pa.string()), "c1": pa.array([second], pa.string())}
        )
        held.add(table.append_column("source", pa.array([source])))
    return pa.Table.from_batches(held.finish(None))


@pytest.mark.parametrize("least", [1, 100])
def test_tasks_keep_the_rows_that_were_deleted(least: int) -> None:
    tasks = [
        changes_of_task(
            "t[0]",
            (b"1", "+U", "old", "old", None, None),
            (b"1", "+U", "x", "y", None, None),
            (b"3", "+U", "m", "n", None, None),
            (b"1", "-D", None, None, None, None),
            (b"1", "+U", "v", "w", None, None),
            least=least,
        ),
        changes_of_task("t[1]", (b"2", "+U", "a", None, "01", b"1"), least=least, begin=9),
    ]
    assert [task.num_rows for task in tasks] == [4, 1]  # not the first row of key 1
    changes = pa.concat_tables(tasks, promote_options="default")
    of_others = LastOfKeys()
    of_others.add(changes)
    assert {
        (row["key"], row["c0"], row["c1"])
        for batch in of_others.finish("log")
        for row in batch.to_pylist()
    } == {(b"1", "v", "w"), (b"3", "m", "n")}
    # Key 1 has another row meanwhile, in the order of time.
    with pytest.raises(PartialImageError, match="had several rows meanwhile"):
        followed(changes)
    before = changes.filter(pc.not_equal(changes.column("c0").fill_null(""), "v"))
    assert followed(before).select(["key", "c0", "c1", "absent", "base"]).to_pylist() == [
        {"key": b"2", "c0": "a", "c1": "y", "absent": None, "base": None}
    ]


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
