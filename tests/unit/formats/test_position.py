"""Positions: each producer's fields, the order after packing, and refused malformed fields."""

import json
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from cdc_formats import ChangelogMode, Event, Format, get_format
from cdc_formats.events import Position
from cdc_formats.format import BUILT_IN
from cdc_formats.formats.debezium.position import position_of
from cdc_formats.formats.maxwell import MaxwellJson
from cdc_formats.formats.ogg import trail_position
from cdc_formats.formats.ticdc import commit_position
from tests.support.error_texts import error_test, text_test
from tests.support.samples import recorded

MOST = 2**64 - 1

MARIADB = {
    "connector": "mariadb",
    "name": "shop",
    "ts_ms": 1795266835000,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "server_id": 33061,
    "gtid": "7-33061-1802",
    "file": "binlog.000001",
    "pos": 3748162,
    "row": 3,
}
MYSQL = {**MARIADB, "connector": "mysql", "gtid": None}
POSTGRES = {
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": 1795268049026,
    "snapshot": "false",
    "db": "inventory",
    "sequence": '["159978376","159992928"]',
    "lsn": 159992928,
}
SQLSERVER = {
    "connector": "sqlserver",
    "name": "shop",
    "db": "inventory",
    "ts_ms": 5,
    "snapshot": "false",
    "change_lsn": "00000027:00000758:0003",
    "commit_lsn": "00000027:00000758:0005",
    "event_serial_no": 2,
}
ORACLE = {
    "connector": "oracle",
    "name": "shop",
    "db": "ORCL",
    "ts_ms": 5,
    "snapshot": "false",
    "scn": "2122184",
    "commit_scn": "2122185",
    "ssn": 1,
}
DB2 = {
    "connector": "db2",
    "name": "shop",
    "db": "shop",
    "ts_ms": 5,
    "snapshot": "false",
    "change_lsn": "00000000:00000000:0000000005b27d10",
    "commit_lsn": "00000000:00000000:0000000005b37d40",
}
MONGODB = {
    "connector": "mongodb",
    "name": "shop",
    "db": "inventory",
    "ts_ms": 1558965508000,
    "snapshot": "false",
    "ord": 31,
}


def binlog_position(
    position: Any, xoffset: Any, *, last: bool, server_id: Any, ts: Any
) -> Position | None:
    """Return the position of a message of Maxwell."""
    return MaxwellJson().position(
        SimpleNamespace(
            type="insert",
            position=position,
            xoffset=xoffset,
            commit=last,
            server_id=server_id,
            ts=ts,
        )
    )


def at(source: dict[str, Any], **changed: Any) -> Position | None:
    return position_of({**source, **changed})


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        pytest.param(
            MARIADB,
            Position("33061 7-33061", 1802, 3748162 << 32 | 3, 1795266835000),
            id="MariaDB with a GTID",
        ),
        pytest.param(
            MYSQL, Position("33061", 1, 3748162 << 32 | 3, 1795266835000), id="MySQL without GTIDs"
        ),
        pytest.param(
            {**MYSQL, "gtid": "3E11FA47-71CA-11E1-9E33-C80AA9429562:23"},
            Position(
                "33061 3E11FA47-71CA-11E1-9E33-C80AA9429562", 23, 3748162 << 32 | 3, 1795266835000
            ),
            id="MySQL with a GTID",
        ),
        pytest.param(
            {**MYSQL, "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:reports:4"},
            Position(
                "33061 3e11fa47-71ca-11e1-9e33-c80aa9429562:reports",
                4,
                3748162 << 32 | 3,
                1795266835000,
            ),
            id="MySQL with a tagged GTID",
        ),
        pytest.param(
            {**MYSQL, "snapshot": "last", "server_id": 0, "row": 0},
            Position("snapshot", 1, 3748162 << 32, 1795266835000),
            id="a snapshot of MySQL",
        ),
        pytest.param(
            POSTGRES,
            Position("shop inventory", 159978376, 159992928, 1795268049026),
            id="PostgreSQL",
        ),
        pytest.param(
            {**POSTGRES, "sequence": '[null,"159992928"]'},
            Position("shop inventory", 159992928, 159992928, 1795268049026),
            id="PostgreSQL before the first commit",
        ),
        pytest.param(
            {**POSTGRES, "sequence": None},
            Position("shop inventory", 159992928, 159992928, 1795268049026),
            id="Debezium without sequence",
        ),
        pytest.param(
            {**POSTGRES, "sequence": '[null,"7"]', "lsn": 7, "snapshot": True},
            Position("shop inventory snapshot", 7, 7, 1795268049026),
            id="a snapshot of PostgreSQL",
        ),
        pytest.param(
            {**POSTGRES, "sequence": None, "lsn": None, "snapshot": "incremental"},
            Position("shop inventory", None, 0, 1795268049026),
            id="an incremental snapshot of PostgreSQL",
        ),
        pytest.param(
            SQLSERVER,
            Position("shop inventory", 0x27_00000758, 0xFFFF << 48 | 0x758 << 16 | 3 << 3 | 2, 5),
            id="SQL Server",
        ),
        pytest.param(
            {**SQLSERVER, "change_lsn": None, "event_serial_no": None, "snapshot": "true"},
            Position("shop inventory", 0x27_00000758, 0, 5),
            id="a snapshot of SQL Server",
        ),
        pytest.param(ORACLE, Position("shop ORCL", 2122185, (2**32 - 2) << 32 | 1, 5), id="Oracle"),
        pytest.param(
            {**ORACLE, "txSeq": 9},
            Position("shop ORCL", 2122185, (2**32 - 2) << 32 | 9, 5),
            id="Oracle of Debezium 3",
        ),
        pytest.param(
            {**ORACLE, "commit_scn": None, "ssn": None, "snapshot": "true"},
            Position("shop ORCL", 2122184, 0, 5),
            id="a snapshot of Oracle",
        ),
        pytest.param(
            DB2, Position("shop shop", 0x5B3, 0x7D40 << 48 | (2**48 - 1 - 0x10030), 5), id="Db2"
        ),
        pytest.param(
            {**DB2, "change_lsn": "0000002d:00000a40:0003", "commit_lsn": "0000002d:00000a40:0009"},
            Position("shop shop", 0x2D_00000A40, 9 << 48 | (2**48 - 1 - 6), 5),
            id="Db2 with LSNs of 10 bytes",
        ),
        pytest.param(
            {**DB2, "change_lsn": None, "snapshot": "true"},
            Position("shop shop", 0x5B3, 0x7D40 << 48, 5),
            id="a snapshot of Db2",
        ),
        pytest.param(MONGODB, Position("shop", 1558965508, 31, 1558965508000), id="MongoDB"),
        pytest.param(
            {**MONGODB, "rs": "rs0", "snapshot": "first"},
            Position("shop rs0 snapshot", 1558965508, 31, 1558965508000),
            id="a snapshot of MongoDB",
        ),
    ],
)
def test_a_source_of_debezium_has_a_position(source: dict[str, Any], expected: Position) -> None:
    assert position_of(source) == position_of(msgspec.Raw(json.dumps(source).encode())) == expected


NUMBER, HALF = st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1)


def of_binlog(file: int, pos: int, row: int) -> list[Any]:
    text = f"mysql-bin.{file:06}"
    last = row == MOST >> 32
    return [
        at(MYSQL, file=text, pos=pos, row=row),
        at(MARIADB, gtid=f"0-1-{file}", pos=pos, row=row),
        binlog_position(f"{text}:{pos}", row, last=last, server_id=1, ts=1),
    ]


def of_sql_server(file: int, block: int, before: int, change: int, slot: int, serial: int) -> Any:
    """Commits within one block are ordered by their changes."""
    lsn = f"{max(file - before, 0):08x}:{change:08x}:{slot:04x}"
    commit = f"{file:08x}:{block:08x}:0001"
    return at(SQLSERVER, commit_lsn=commit, change_lsn=lsn, event_serial_no=serial)


def lsn_of_db2(number: int) -> str:
    return f"{number >> 96:08x}:{number >> 64 & (2**32 - 1):08x}:{number & (2**64 - 1):016x}"


Numbers = tuple[int, ...]
ORDERS: dict[str, tuple[st.SearchStrategy[Any], Callable[..., Any], Callable[..., Numbers]]] = {
    **{
        f"a binlog of {producer}": (
            st.tuples(st.integers(0, 10**6), HALF, HALF),
            lambda *parts, place=place: of_binlog(*parts)[place],
            lambda *parts: parts,
        )
        for place, producer in enumerate(("MySQL", "MariaDB", "Maxwell"))
    },
    "PostgreSQL": (
        st.tuples(NUMBER, NUMBER),
        lambda commit, lsn: at(POSTGRES, sequence=f'["{commit}","1"]', lsn=lsn),
        lambda *parts: parts,
    ),
    "MongoDB": (
        st.tuples(HALF, NUMBER),
        lambda seconds, number: at(MONGODB, ts_ms=seconds * 1000 + 7, ord=number),
        lambda *parts: parts,
    ),
    "SQL Server": (
        st.tuples(
            *(HALF, HALF, st.integers(0, 2**16 - 1), HALF),
            *(st.integers(0, 2**13 - 1), st.integers(0, 7)),
        ),
        of_sql_server,
        lambda file, block, before, *change: (file, block, max(file - before, 0), *change),
    ),
    "Oracle": (
        st.tuples(st.integers(2**32, 2**64 - 1), HALF, HALF),
        lambda commit, before, number: at(
            ORACLE, commit_scn=str(commit), scn=str(commit - before), txSeq=number
        ),
        lambda commit, before, number: (commit, commit - before, number),
    ),
    "Db2": (
        st.tuples(st.integers(2**48, 2**80 - 1), st.integers(0, 2**48 - 1)),
        lambda commit, before: at(
            DB2, commit_lsn=lsn_of_db2(commit), change_lsn=lsn_of_db2(commit - before)
        ),
        lambda commit, before: (commit, commit - before),
    ),
    "a trail of GoldenGate": (
        st.tuples(st.integers(0, 10**38 - 1)),
        lambda number: trail_position(f"{number:038}", None),
        lambda *parts: parts,
    ),
}
"""The parts of a place in a log, its position, and the parts in their order."""


@pytest.mark.parametrize(("parts", "place", "in_order"), ORDERS.values(), ids=ORDERS)
@given(data=st.data())
def test_the_order_of_a_log_is_kept(
    parts: st.SearchStrategy[Any],
    place: Callable[..., Any],
    in_order: Callable[..., Numbers],
    data: st.DataObject,
) -> None:
    first, other = data.draw(parts), data.draw(parts)
    # The first parts are often equal, so that the last ones decide.
    same = data.draw(st.integers(0, len(first)))
    second = (*first[:same], *other[same:])
    a, b = ((each.high, each.low) for each in (place(*first), place(*second)))
    assert all(0 <= number <= MOST for number in (*a, *b))
    one, two = in_order(*first), in_order(*second)
    assert (a < b, a == b) == (one < two, one == two)


def placed(source: Any, *, in_bytes: bool) -> Position | None:
    return position_of(msgspec.Raw(json.dumps(source).encode()) if in_bytes else source)


class Acme(Format):
    """A third-party format that does not define positions."""

    identifier = "acme"
    changelog_mode = ChangelogMode.insert_only()

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        return [Event.insert({"id": 1})]


WITHOUT_POSITIONS = [name for name in BUILT_IN if get_format(name).traits.positions]
CLOCK = {"ts_hlc": "1745527444910044000.0000000003", "ts_ns": 1}
test_texts = text_test(
    __file__,
    {
        "formats without positions": lambda: {
            name: get_format(name).positions for name in sorted(WITHOUT_POSITIONS)
        },
        "changes of a format that defines no position": lambda: (
            Acme().decoder("id INT", unique_key=["id"]).upserts(None, b"x")
        ),
        "another file after a failover with GTIDs": partial(
            position_of, {**MARIADB, "file": "other.000001", "gtid": "7-33061-1803", "pos": 4}
        ),
        "a new primary with a GTID": partial(
            position_of, {**MARIADB, "server_id": 2, "gtid": "7-2-1803"}
        ),
        "a new primary without GTIDs": partial(position_of, {**MYSQL, "server_id": 2}),
        "the time of a commit_ts is its own": partial(commit_position, 437451128625954821),
        "the row without an offset is the last of its transaction": partial(
            *(binlog_position, "binlog.000002:1062368", None),
            last=True,
            server_id=None,
            ts=1795269592,
        ),
        **{
            f"the clock of CockroachDB, {field}": partial(
                position_of, {field: "cockroachdb", **CLOCK}
            )
            for field in ("connector", "origin")
        },
    },
)
WRONG: dict[str, Any] = {
    "text for a number": {**MYSQL, "pos": "7"},
    "a fraction": {**MYSQL, "pos": 1.5},
    "a boolean": {**MYSQL, "pos": True},
    "a position beyond 4 GiB": {**MYSQL, "pos": 2**32},
    "a negative position": {**MYSQL, "pos": -1},
    "a negative row": {**MYSQL, "row": -1},
    "a clock beyond 64 bits": {**MYSQL, "ts_ms": 2**63},
    "one below 64 bits": {**MYSQL, "ts_ms": -(2**63) - 1},
    "a file without a number": {**MYSQL, "file": "binlog"},
    "a file with another script's number": {**MYSQL, "file": "binlog.٣"},
    "a number for a file": {**MYSQL, "file": 7},
    "a number for a GTID": {**MYSQL, "gtid": "7"},
    "a set of GTIDs": {**MYSQL, "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"},
    "an LSN as PostgreSQL writes it": {**POSTGRES, "lsn": "0/16B3748"},
    "an LSN beyond 64 bits": {**POSTGRES, "lsn": 2**64},
    "numbers in sequence": {**POSTGRES, "sequence": "[1,2]"},
    "text in sequence": {**POSTGRES, "sequence": '["x","2"]'},
    "sequence is not JSON": {**POSTGRES, "sequence": "not JSON"},
    "an LSN that is not padded": {**SQLSERVER, "commit_lsn": "27:758:5"},
    "a change after its commit": {**SQLSERVER, "change_lsn": "00000028:00000758:0003"},
    "a transaction of too many files": {**SQLSERVER, "commit_lsn": "00020027:00000758:0005"},
    "a serial number beyond 3 bits": {**SQLSERVER, "event_serial_no": 8},
    "Db2's LSN without groups": {**DB2, "commit_lsn": "5b27d10"},
    "Db2's LSN of more than 80 bits": {**DB2, "commit_lsn": "00000000:00010000:0000000005b37d40"},
    "Db2's change after its commit": {**DB2, "change_lsn": "00000000:00000000:0000000005b37d41"},
    "a number for an SCN": {**ORACLE, "scn": 2122184},
    "an SCN after the commit's": {**ORACLE, "scn": "2122186"},
    "text instead of an SCN": {**ORACLE, "commit_scn": "2122185:1:00"},
    "text for an ordinal": {**MONGODB, "ord": "1"},
    "a time before 1970": {**MONGODB, "ts_ms": -1},
    "text for a source": "text",
    "CockroachDB's clock without a counter": {
        **CLOCK,
        "connector": "cockroachdb",
        "ts_hlc": "1745527444910044000",
    },
    "no source": None,
    "MySQL without a file": {"connector": "mysql", "server_id": 1},
    "MariaDB without a place in the file": {"connector": "mariadb", "file": "b.000002"},
    "PostgreSQL without an LSN": {"connector": "postgresql", "name": "shop", "ts_ms": 5},
    "SQL Server without a commit's LSN": {"connector": "sqlserver", "ts_ms": 5},
    "Oracle without an SCN": {"connector": "oracle", "commit_scn": "7"},
    "MongoDB without an ordinal": {"connector": "mongodb", "ts_ms": 5},
    "Db2 without a commit's LSN": {"connector": "db2"},
    "no connector and no position": {"db": "shop", "table": "orders"},
    "CockroachDB without a clock": {"connector": "cockroachdb"},
    "an event without the commit's SCN": {**ORACLE, "commit_scn": None},
    **{f"the connector {name}": {**MYSQL, "connector": name} for name in ("informix", "spanner")},
    "Vitess": {"connector": "vitess", "keyspace": "shop", "shard": "-80", "vgtid": "[]"},
}
test_error_texts = error_test(
    __file__,
    {
        **{
            f"{name}{', in bytes' if in_bytes else ''}": partial(placed, source, in_bytes=in_bytes)
            for name, source in WRONG.items()
            for in_bytes in (False, True)
        },
        **{
            f"{name} has no positions": partial(
                get_format(name).decoder, "id INT", unique_key=["id"], positions=True
            )
            for name in WITHOUT_POSITIONS
        },
        "a format that defines no position": partial(Acme().decoder, "id INT", positions=True),
    },
)


@pytest.mark.parametrize(
    ("topic", "histories"),
    [
        ("dbz34-mariadb-json.inventory.customers", {"snapshot", "33061 7-33061"}),
        ("dbz34-mariadb-json.inventory.order_lines", {"snapshot", "33061 7-33061"}),
        (
            "dbz19-postgres-json.inventory.all_types",
            {"dbz19-postgres-json inventory", "dbz19-postgres-json inventory snapshot"},
        ),
    ],
)
def test_positions_of_a_recorded_topic_never_decrease_within_a_history(
    topic: str, histories: set[str]
) -> None:
    highest: dict[str, tuple[int, int]] = {}
    for record in recorded(topic, most=None):
        if record.value is None:
            continue
        position = position_of(json.loads(record.value)["source"])
        assert (position.high, position.low) >= highest.get(position.history, (0, 0))
        highest[position.history] = position.high, position.low
    assert set(highest) == histories
