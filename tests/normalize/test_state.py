"""The state's bytes: round trips, other schemas, other versions, and the bytes of every version released."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from cdc_formats import columns
from cdc_formats.errors import StateVersionError
from normalize.packing import pack, unpack
from normalize.state import KeyGroup, Layout

COLUMNS = columns("id BIGINT, name STRING, weight DECIMAL(10,3)")
LAYOUT = Layout(64, COLUMNS, ("id",))
FIXTURES = Path(__file__).parents[1] / "vectors" / "state"


def group_of(rows: dict[int, tuple], written: dict[int, int] | None = None) -> KeyGroup:
    packed = {pack((key,)): pack(row) for key, row in rows.items()}
    return KeyGroup(packed, {pack((key,)): at for key, at in (written or {}).items()})


def rows_of(group: KeyGroup) -> dict[int, list]:
    return {unpack(key)[0]: unpack(row) for key, row in group.rows.items()}


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.tuples(st.text(), st.none() | st.binary()), max_size=30))
def test_state_round_trips(rows):
    group = group_of(rows)
    assert LAYOUT.decode(LAYOUT.encode(group), 0).rows == group.rows


def test_state_with_a_ttl_round_trips():
    layout = Layout(64, COLUMNS, ("id",), with_ttl=True)
    group = group_of({1: (1, "a", "0.100")}, {1: 1234})
    again = layout.decode(layout.encode(group), 99)
    assert (again.rows, again.written) == (group.rows, group.written)


def test_a_ttl_that_is_switched_on_begins_now():
    data = LAYOUT.encode(group_of({1: (1, "a", "0.100")}))
    assert list(Layout(64, COLUMNS, ("id",), with_ttl=True).decode(data, 5000).written.values()) == [5000]


def test_added_dropped_and_reordered_columns_read_old_state():
    data = LAYOUT.encode(group_of({1: (1, "scooter", "3.140")}))
    wanted = columns("weight DECIMAL(10,3), id BIGINT, colour STRING")
    assert rows_of(Layout(64, wanted, ("id",)).decode(data, 0)) == {1: ["3.140", 1, None]}


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        pytest.param(Layout(32, COLUMNS, ("id",)), "Set key_groups=64", id="another number of key groups"),
        pytest.param(Layout(64, COLUMNS, ("name",)), r"primary key \(id\)", id="another key"),
        pytest.param(Layout(64, columns("id BIGINT, name STRING, weight DECIMAL(12,3)"), ("id",)), "weight is DECIMAL", id="another type"),
    ],
)
def test_state_that_cannot_be_read_says_why(layout, text):
    with pytest.raises(StateVersionError, match=text):
        layout.decode(LAYOUT.encode(group_of({1: (1, "a", "0.100")})), 0)


@pytest.mark.parametrize("data", [b"", b"\x97\x02", b"\x97\x63rest"])
def test_an_unknown_version_is_refused(data):
    with pytest.raises(StateVersionError, match="this release reads version 1"):
        LAYOUT.decode(data, 0)


# Written by the release that brought the version, never again: what a query of then has in its checkpoint.
V1 = {
    "rows.bin": (LAYOUT, {1: [1, "scooter", "3.140"], 2: [2, None, None], -(2**63): [-(2**63), "ключ 😀", "-0.001"]}),
    "rows-with-ttl.bin": (Layout(64, COLUMNS, ("id",), with_ttl=True), {7: [7, "", "0.000"]}),
}


@pytest.mark.parametrize("name", V1)
def test_state_of_version_1_is_read_for_ever(name):
    layout, rows = V1[name]
    data = (FIXTURES / "v1" / name).read_bytes()
    assert rows_of(layout.decode(data, 0)) == rows


def test_state_of_version_1_has_its_processing_times():
    layout, _ = V1["rows-with-ttl.bin"]
    assert list(layout.decode((FIXTURES / "v1" / "rows-with-ttl.bin").read_bytes(), 0).written.values()) == [1_700_000_000_123]
