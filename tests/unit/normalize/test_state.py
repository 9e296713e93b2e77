"""The state's bytes: round trips, other schemas and versions, fixtures of each released version."""

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import columns
from cdc_formats.errors import StateVersionError
from normalize.core.arrow import from_arrow, of_stored, pack, to_stored, unpack
from normalize.core.order import Epoch
from normalize.core.state import KeyGroup, Layout
from tests.support.error_texts import error_test
from tests.support.paths import VECTORS

COLUMNS = columns("id BIGINT, name STRING, weight DECIMAL(10,3)")
LAYOUT = Layout(64, COLUMNS, ("id",))

FIXTURES = VECTORS / "state"
EPOCHS = [Epoch("t[0]", "mysql-1", 1, (-1, 0), (7, 1), (7, 1), 1000, 2000)]


def group_of(rows: dict[int, tuple], layout: Layout = LAYOUT, **extras: list) -> KeyGroup:
    """A key group; `extras` are the other columns, ``deleted_at`` 0 by default."""
    values = list(zip(*rows.values(), strict=True)) or [()] * len(layout.columns)
    arrays = [pa.array([pack((key,)) for key in rows], pa.binary())]
    arrays += [
        to_stored(column.type, of) for column, of in zip(layout.columns, values, strict=True)
    ]
    extras = {"deleted_at": [0] * len(rows), **extras}
    arrays += [
        pa.array(extras[field.name], field.type) for field in list(layout.schema)[len(arrays) :]
    ]
    return KeyGroup(
        pa.RecordBatch.from_arrays(arrays, schema=layout.schema),
        EPOCHS if layout.with_positions else [],
    )


def rows_of(group: KeyGroup, layout: Layout = LAYOUT) -> dict[int, list]:
    arrays = group.rows.columns[1 : 1 + len(layout.columns)]
    values = [
        from_arrow(column.type, of_stored(column.type, array))
        for column, array in zip(layout.columns, arrays, strict=True)
    ]
    return {
        unpack(key)[0]: list(row)
        for key, *row in zip(group.rows.column("key").to_pylist(), *values, strict=True)
    }


@given(
    st.dictionaries(
        st.integers(-(2**63), 2**63 - 1),
        st.tuples(st.text(), st.sampled_from([None, "1.250"])),
        max_size=30,
    )
)
def test_state_round_trips(rows):
    group = group_of({key: (key, *row) for key, row in rows.items()})
    assert LAYOUT.decode(LAYOUT.encode(group), 0).rows == group.rows


def test_state_with_a_ttl_round_trips():
    layout = Layout(64, COLUMNS, ("id",), with_ttl=True)
    group = group_of({1: (1, "a", "0.100")}, layout, written=[1234])
    assert layout.decode(layout.encode(group), 99).rows == group.rows


@pytest.mark.parametrize("with_ttl", [False, True])
def test_positions_and_remembered_deletes_round_trip(with_ttl):
    layout = Layout(64, COLUMNS, ("id",), with_ttl=with_ttl, with_positions=True)
    rows = {1: (1, "a", "0.100"), 2: (None, None, None)}
    extras = {
        "written": [5, 6],
        "epoch": [1, 1],
        "high": [2**64 - 1, 7],
        "low": [0, 1],
        "deleted_at": [0, 1_700_000_000_123],
    }
    group = group_of(rows, layout, **extras)
    again = layout.decode(layout.encode(group), 0)
    assert (again.rows, again.epochs) == (group.rows, EPOCHS)


def test_a_ttl_that_is_switched_on_starts_now():
    data = LAYOUT.encode(group_of({1: (1, "a", "0.100")}))
    assert Layout(64, COLUMNS, ("id",), with_ttl=True).decode(data, 5000).extra(
        "written"
    ).tolist() == [5000]


def test_positions_that_are_switched_on_accept_the_next_change():
    data = LAYOUT.encode(group_of({1: (1, "a", "0.100")}))
    assert Layout(64, COLUMNS, ("id",), with_positions=True).decode(data, 0).extra(
        "epoch"
    ).tolist() == [0]


def test_positions_that_are_switched_off_forget_deletes():
    layout = Layout(64, COLUMNS, ("id",), with_positions=True)
    rows, extras = (
        {1: (1, "a", "0.100"), 2: (None,) * 3},
        {"epoch": [1, 1], "high": [1, 2], "low": [0, 0], "deleted_at": [0, 99]},
    )
    assert rows_of(LAYOUT.decode(layout.encode(group_of(rows, layout, **extras)), 0)) == {
        1: [1, "a", "0.100"]
    }


def test_added_dropped_and_reordered_columns_read_old_state():
    data = LAYOUT.encode(group_of({1: (1, "scooter", "3.140")}))
    layout = Layout(64, columns("weight DECIMAL(10,3), id BIGINT, colour STRING"), ("id",))
    assert rows_of(layout.decode(data, 0), layout) == {1: ["3.140", 1, None]}


def test_columns_of_one_type_that_change_places_are_read_by_name():
    old, new = (
        Layout(64, columns(ddl), ("id",))
        for ddl in ("id BIGINT, a STRING, b STRING", "id BIGINT, b STRING, a STRING")
    )
    assert rows_of(new.decode(old.encode(group_of({1: (1, "of a", "of b")}, old)), 0), new) == {
        1: [1, "of b", "of a"]
    }


@pytest.mark.parametrize(
    ("was", "now", "value", "widened"),
    [
        ("INT", "BIGINT", -(2**31), -(2**31)),
        ("TINYINT", "SMALLINT", 127, 127),
        ("FLOAT", "DOUBLE", 0.5, 0.5),
        ("DECIMAL(10,3)", "DECIMAL(12,3)", "-1.250", "-1.250"),
        ("DECIMAL(10,3)", "DECIMAL(12,5)", "1.250", "1.25000"),
        ("VARCHAR(10)", "STRING", "é", "é"),
        ("TIMESTAMP(3)", "TIMESTAMP(6)", 1_000, 1_000),
    ],
)
def test_a_widened_column_reads_old_state(was, now, value, widened):
    old, new = (Layout(64, columns(f"id BIGINT, x {of}"), ("id",)) for of in (was, now))
    assert rows_of(new.decode(old.encode(group_of({1: (1, value)}, old)), 0), new) == {
        1: [1, widened]
    }


@pytest.mark.parametrize(
    ("was", "now"),
    [
        ("BIGINT", "INT"),
        ("DOUBLE", "FLOAT"),
        ("DECIMAL(10,3)", "DECIMAL(10,4)"),
        ("DECIMAL(10,3)", "DECIMAL(12,2)"),
        ("STRING", "BINARY"),
        ("INT", "STRING"),
        ("TIMESTAMP", "TIMESTAMP_NTZ"),
        ("ARRAY<INT>", "ARRAY<BIGINT>"),
    ],
)
def test_a_column_of_another_type_is_refused(was, now):
    old, new = (Layout(64, columns(f"id BIGINT, x {of}"), ("id",)) for of in (was, now))
    with pytest.raises(StateVersionError, match=r"column x is .* start from a new checkpoint"):
        new.decode(old.encode(group_of({1: (1, None)}, old)), 0)


@pytest.mark.parametrize(
    ("layout", "new_layout", "text"),
    [
        pytest.param(
            LAYOUT,
            Layout(32, COLUMNS, ("id",)),
            "set key_groups=64",
            id="another number of key groups",
        ),
        pytest.param(
            LAYOUT,
            Layout(32, COLUMNS, ("id",)),
            "has 64 key groups, and key_groups is 32.*start from a new checkpoint",
            id="both numbers of key groups",
        ),
        pytest.param(
            LAYOUT, Layout(64, COLUMNS, ("name",)), r"primary key \(id\)", id="another key"
        ),
    ],
)
def test_state_that_cannot_be_read_is_an_error_with_the_reason(layout, new_layout, text):
    with pytest.raises(StateVersionError, match=text):
        new_layout.decode(layout.encode(layout.empty()), 0)


def test_state_is_compressed_ascii_text():
    group = group_of({key: (key, "a name", "1.250") for key in range(1000)})
    data = LAYOUT.encode(group)
    assert data.isascii()
    assert data[:1] == b"3"
    assert len(data) < group.rows.nbytes / 2


# Written by the release that introduced the version and never again: the checkpoint of an old
# query.
ROWS = {1: [1, "scooter", "3.140"], 2: [2, None, None], -(2**63): [-(2**63), "ключ 😀", "-0.001"]}
WITH_TTL = Layout(64, COLUMNS, ("id",), with_ttl=True)
POSITIONED = Layout(64, COLUMNS, ("id",), with_ttl=True, with_positions=True)
RELEASED = {
    "v1/rows.bin": (LAYOUT, ROWS),
    "v1/rows-with-ttl.bin": (WITH_TTL, {7: [7, "", "0.000"]}),
    "v2/rows.bin": (LAYOUT, ROWS),
    "v2/rows-with-ttl-and-positions.bin": (
        POSITIONED,
        {1: [1, "scooter", "3.140"], 2: [None, None, None]},
    ),
    "v3/rows.bin": (LAYOUT, ROWS),
    "v3/rows-with-ttl-and-positions.bin": (
        POSITIONED,
        {1: [1, "scooter", "3.140"], 2: [None, None, None]},
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_state_of_every_released_version_is_read(name):
    layout, rows = RELEASED[name]
    assert rows_of(layout.decode((FIXTURES / name).read_bytes(), 0)) == rows


def test_state_of_version_1_has_its_processing_times():
    assert WITH_TTL.decode((FIXTURES / "v1" / "rows-with-ttl.bin").read_bytes(), 0).extra(
        "written"
    ).tolist() == [1_700_000_000_123]


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_state_has_its_positions(version):
    group = POSITIONED.decode(
        (FIXTURES / version / "rows-with-ttl-and-positions.bin").read_bytes(), 0
    )
    assert {
        name: group.extra(name).tolist()
        for name in ("written", "epoch", "high", "low", "deleted_at")
    } == {
        "written": [1_700_000_000_123, 1_700_000_000_124],
        "epoch": [1, 1],
        "high": [2**64 - 1, 7],
        "low": [0, 1],
        "deleted_at": [0, 1_700_000_000_456],
    }
    assert group.epochs == EPOCHS


test_error_texts = error_test(
    __file__,
    {
        **{
            f"an unknown version is refused, {number}": lambda data=data: LAYOUT.decode(data, 0)
            for number, data in enumerate(
                [b"", b"\x97\x03", b"\x97\x63rest", b"1rest", b"2rest", b"4rest"], 1
            )
        },
        **{
            f"a compact state is refused with the remedy, {number}": lambda version=version: (
                POSITIONED.decode((FIXTURES / version / "compact.bin").read_bytes(), 0)
            )
            for number, version in enumerate(["v2", "v3"], 1)
        },
    },
)
