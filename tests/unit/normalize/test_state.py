"""The state's bytes: round trips, other schemas and versions, fixtures of each released version."""

from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import columns
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


def of_columns(ddl: str, *key: str, **options: bool) -> Layout:
    return Layout(64, columns(ddl), key or ("id",), **options)


ONE_ROW = {1: (1, "a", "0.100")}
REMEMBERED = {"epoch": [1, 1], "high": [1, 2], "low": [0, 0], "deleted_at": [0, 99]}
TWO_TEXTS = "id BIGINT, a STRING, b STRING"
POSITIONED_ONLY = Layout(64, COLUMNS, ("id",), with_positions=True)


@pytest.mark.parametrize(
    ("old", "rows", "extras", "new", "expected"),
    [
        pytest.param(
            POSITIONED_ONLY,
            {**ONE_ROW, 2: (None,) * 3},
            REMEMBERED,
            LAYOUT,
            {1: [1, "a", "0.100"]},
            id="positions that are switched off forget deletes",
        ),
        pytest.param(
            LAYOUT,
            {1: (1, "scooter", "3.140")},
            {},
            of_columns("weight DECIMAL(10,3), id BIGINT, colour STRING"),
            {1: ["3.140", 1, None]},
            id="added, dropped and reordered columns",
        ),
        pytest.param(
            of_columns(TWO_TEXTS),
            {1: (1, "of a", "of b")},
            {},
            of_columns("id BIGINT, b STRING, a STRING"),
            {1: [1, "of b", "of a"]},
            id="columns of one type that change places",
        ),
        *(
            pytest.param(
                of_columns(f"id BIGINT, x {was}"),
                {1: (1, value)},
                {},
                of_columns(f"id BIGINT, x {now}"),
                {1: [1, widened]},
                id=f"{was} becomes {now}",
            )
            for was, now, value, widened in [
                ("INT", "BIGINT", -(2**31), -(2**31)),
                ("TINYINT", "SMALLINT", 127, 127),
                ("FLOAT", "DOUBLE", 0.5, 0.5),
                ("DECIMAL(10,3)", "DECIMAL(12,3)", "-1.250", "-1.250"),
                ("DECIMAL(10,3)", "DECIMAL(12,5)", "1.250", "1.25000"),
                ("VARCHAR(10)", "STRING", "é", "é"),
                ("TIMESTAMP(3)", "TIMESTAMP(6)", 1_000, 1_000),
            ]
        ),
    ],
)
def test_another_layout_reads_old_state(old, rows, extras, new, expected):
    data = old.encode(group_of(rows, old, **extras))
    assert rows_of(new.decode(data, 0), new) == expected


@pytest.mark.parametrize(
    ("data", "layout", "column", "expected"),
    [
        pytest.param(
            LAYOUT.encode(group_of(ONE_ROW)),
            of_columns("id BIGINT, name STRING, weight DECIMAL(10,3)", with_ttl=True),
            *("written", [5000]),
            id="a TTL that is switched on starts now",
        ),
        pytest.param(
            LAYOUT.encode(group_of(ONE_ROW)),
            POSITIONED_ONLY,
            *("epoch", [0]),
            id="positions that are switched on accept the next change",
        ),
        pytest.param(
            (FIXTURES / "v1" / "rows-with-ttl.bin").read_bytes(),
            of_columns("id BIGINT, name STRING, weight DECIMAL(10,3)", with_ttl=True),
            *("written", [1_700_000_000_123]),
            id="version 1 has its processing times",
        ),
    ],
)
def test_old_state_has_times_and_positions(data, layout, column, expected):
    assert layout.decode(data, 5000).extra(column).tolist() == expected


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
            f"a column of {was} cannot become one of {now}": lambda was=was, now=now: of_columns(
                f"id BIGINT, x {now}"
            ).decode(
                of_columns(f"id BIGINT, x {was}").encode(
                    group_of({1: (1, None)}, of_columns(f"id BIGINT, x {was}"))
                ),
                0,
            )
            for was, now in [
                ("BIGINT", "INT"),
                ("DOUBLE", "FLOAT"),
                ("DECIMAL(10,3)", "DECIMAL(10,4)"),
                ("DECIMAL(10,3)", "DECIMAL(12,2)"),
                ("STRING", "BINARY"),
                ("INT", "STRING"),
                ("TIMESTAMP", "TIMESTAMP_NTZ"),
                ("ARRAY<INT>", "ARRAY<BIGINT>"),
            ]
        },
        "another number of key groups": partial(
            Layout(32, COLUMNS, ("id",)).decode, LAYOUT.encode(LAYOUT.empty()), 0
        ),
        "another key": partial(
            Layout(64, COLUMNS, ("name",)).decode, LAYOUT.encode(LAYOUT.empty()), 0
        ),
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
