"""Maxwell's own rules: `old` at its own level, bootstraps, seconds."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import Ignored, get_format
from cdc_formats.values.schema import complete
from tests.support.examples import examples

# --------------------------------------------------------------------------------------------------
# partial images


BLOBS = {"s"}


def written(
    kind: str,
    row: dict[str, Any],
    before: dict[str, Any] | None,
    assigned: set[str],
    image: str,
    nulls: bool,
) -> bytes:
    """Return Maxwell's message for a row event, following its BinlogConnectorEvent and RowMap.

    Parameters
    ----------
    kind : {"insert", "update", "delete"}
    row : dict
        The row after an insert or update, the deleted row.
    before : dict or None
        The row before an update.
    assigned : set of str
        The columns that an update's statement sets.
    image : {"FULL", "MINIMAL", "NOBLOB"}
        The server's binlog_row_image.
    nulls : bool
        Maxwell's output_nulls.
    """
    searched = {"FULL": set(row), "MINIMAL": {"id"}, "NOBLOB": set(row) - BLOBS}[image]
    data, old = row, {}
    if kind == "delete":
        data = {name: row[name] for name in searched}
    if before is not None:
        logged = {"FULL": set(row), "MINIMAL": assigned, "NOBLOB": set(row) - BLOBS | assigned}[
            image
        ]
        data = {name: row[name] for name in logged} | {
            name: before[name] for name in searched - logged
        }
        old = {name: before[name] for name in searched & logged if before[name] != row[name]}
    images = {"data": data, "old": old} if old else {"data": data}
    return json.dumps(
        {"type": kind, **{name: _output(of, nulls) for name, of in images.items()}}
    ).encode()


def _output(image: Mapping[str, Any], nulls: bool) -> dict[str, Any]:
    return {name: value for name, value in image.items() if nulls or value is not None}


VALUES = {"n": st.none() | st.integers(0, 2), "s": st.none() | st.sampled_from("ab")}
STATEMENT = st.tuples(
    st.integers(1, 3),
    st.integers(1, 3),
    st.fixed_dictionaries({}, optional=VALUES),
    st.sampled_from(["move", "set", "delete"]),
)
PRODUCERS = [
    ("FULL", True, None),
    ("FULL", False, None),
    ("FULL", False, "FULL"),
    ("MINIMAL", True, None),
    ("MINIMAL", True, "MINIMAL"),
    ("NOBLOB", True, "NOBLOB"),
]


@pytest.mark.parametrize(("image", "nulls", "declared"), PRODUCERS)
@settings(max_examples=examples(100), deadline=None)
@given(statements=st.lists(STATEMENT, max_size=30))
def test_every_row_image_ends_in_the_databases_table(
    image: str, nulls: bool, declared: str | None, statements: list[Any]
) -> None:
    decoder = get_format("maxwell-json", binlog_row_image=declared).decoder(
        "id INT, n INT, s STRING", unique_key=["id"]
    )
    table: dict[int, dict[str, Any]] = {}
    folded: dict[int, tuple[Any, ...] | None] = {}
    for key, target, values, what in statements:
        if key not in table:
            table[key] = {"id": key, "n": None, "s": None, **values}
            message = written("insert", table[key], None, set(), image, nulls)
        elif what == "delete":
            message = written("delete", table.pop(key), None, set(), image, nulls)
        else:
            before, changed = table[key], {**table[key], **values}
            assigned = set(values)
            # A row that lacks columns cannot be completed if its key changed: such statements set
            # all columns.
            if (
                what == "move"
                and target not in table
                and (nulls or declared == "FULL" or None not in changed.values())
            ):
                changed, assigned = {**changed, "id": target}, set(changed)
            if changed == before:
                continue  # the server logs nothing
            del table[key]
            table[changed["id"]] = changed
            message = written("update", changed, before, assigned, image, nulls)
        changes = decoder.upserts(None, message)
        assert not isinstance(changes, Ignored)
        for change in changes:
            row = change.row
            if change.partial:
                assert row is not None
                row = complete(row, folded[change.key[0]] or ())
            folded[change.key[0]] = row
        assert {key: row for key, row in folded.items() if row} == {
            key: tuple(row.values()) for key, row in table.items()
        }
