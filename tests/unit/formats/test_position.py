"""Positions: each producer's fields, the order after packing, and refused malformed fields."""

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, strategies as st

from cdc_formats import ChangelogMode, Event, Format, KeyedChange, get_format
from cdc_formats.errors import (
    FormatOptionError,
    MissingFieldError,
    TypeConversionError,
)
from cdc_formats.events import Position
from cdc_formats.formats.debezium.position import position_of
from cdc_formats.formats.maxwell import MaxwellJson
from cdc_formats.formats.ogg import trail_position
from cdc_formats.formats.ticdc import commit_position
from cdc_formats.registry import BUILT_IN
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


def at(source: dict[str, Any], **changed: Any) -> tuple[str, int | None, int]:
    position = position_of({**source, **changed})
    assert position is not None
    return position.history, position.high, position.low


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


def test_a_failover_with_gtids_compares_numbers_and_a_new_primary_is_a_new_history() -> None:
    assert at(MARIADB, file="other.000001", gtid="7-33061-1803", pos=4) > at(
        MARIADB, file="binlog.000999"
    )
    assert at(MARIADB, server_id=2, gtid="7-2-1803")[0] != at(MARIADB)[0]
    assert at(MYSQL, server_id=2)[0] != at(MYSQL)[0]


def test_a_postgresql_transaction_that_commits_later_is_later_regardless_of_its_lsns() -> None:
    assert at(POSTGRES, sequence='["200","150"]', lsn=150) > at(
        POSTGRES, sequence='["100","190"]', lsn=190
    )


NUMBER = st.integers(0, 2**64 - 1)
HALF = st.integers(0, 2**32 - 1)


def pairs(
    *parts: st.SearchStrategy[Any],
) -> st.SearchStrategy[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """Two tuples that often share their first elements, so that the last ones decide."""

    def half(first: tuple[Any, ...]) -> st.SearchStrategy[tuple[tuple[Any, ...], tuple[Any, ...]]]:
        second = st.tuples(
            *(st.one_of(st.just(value), part) for value, part in zip(first, parts, strict=True))
        )
        return st.tuples(st.just(first), second)

    return st.tuples(*parts).flatmap(half)


def keeps_order(first: tuple[Any, ...], second: tuple[Any, ...], *places: tuple[Any, ...]) -> None:
    for _, high, low in places:
        assert 0 <= high <= MOST
        assert 0 <= low <= MOST
    a, b = ((high, low) for _, high, low in places)
    assert (a < b, a == b) == (first < second, first == second)


@given(pairs(st.integers(0, 10**6), HALF, HALF))
def test_the_order_of_file_pos_and_row_is_kept(
    two: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    places = [at(MYSQL, file=f"mysql-bin.{file:06}", pos=pos, row=row) for file, pos, row in two]
    keeps_order(*two, *places)
    keeps_order(
        *two, *[at(MARIADB, gtid=f"0-1-{number}", pos=pos, row=row) for number, pos, row in two]
    )
    texts = [
        binlog_position(
            f"mysql-bin.{file:06}:{pos}", row, last=row == MOST >> 32, server_id=1, ts=1
        )
        for file, pos, row in two
    ]
    keeps_order(*two, *[(each.history, each.high, each.low) for each in texts if each])


@given(pairs(NUMBER, NUMBER))
def test_the_order_of_two_numbers_is_kept(two: tuple[tuple[int, int], tuple[int, int]]) -> None:
    keeps_order(*two, *[at(POSTGRES, sequence=f'["{commit}","1"]', lsn=lsn) for commit, lsn in two])


@given(pairs(HALF, NUMBER))
def test_the_order_of_changes_of_mongodb_is_kept(two: tuple[tuple[int, int], ...]) -> None:
    keeps_order(
        *two, *[at(MONGODB, ts_ms=seconds * 1000 + 7, ord=number) for seconds, number in two]
    )


@given(
    pairs(HALF, HALF, st.integers(0, 2**16 - 1), HALF, st.integers(0, 2**13 - 1), st.integers(0, 7))
)
def test_the_order_of_lsns_of_sql_server_is_kept(
    two: tuple[tuple[int, ...], tuple[int, ...]],
) -> None:
    """Commits within one block are ordered by their changes."""
    tuples, places = [], []
    for commit_file, commit_block, before, block, slot, serial in two:
        file = max(commit_file - before, 0)
        change = f"{file:08x}:{block:08x}:{slot:04x}"
        places.append(
            at(
                SQLSERVER,
                commit_lsn=f"{commit_file:08x}:{commit_block:08x}:0001",
                change_lsn=change,
                event_serial_no=serial,
            )
        )
        tuples.append((commit_file, commit_block, file, block, slot, serial))
    keeps_order(*tuples, *places)


@given(pairs(st.integers(2**32, 2**64 - 1), HALF, HALF))
def test_the_order_of_scns_is_kept(two: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    tuples = [(commit, commit - before, number) for commit, before, number in two]
    places = [
        at(ORACLE, commit_scn=str(commit), scn=str(scn), txSeq=number)
        for commit, scn, number in tuples
    ]
    keeps_order(*tuples, *places)


@given(pairs(st.integers(2**48, 2**80 - 1), st.integers(0, 2**48 - 1)))
def test_the_order_of_lsns_of_db2_is_kept(two: tuple[tuple[int, int], tuple[int, int]]) -> None:
    def lsn(number: int) -> str:
        return f"{number >> 96:08x}:{number >> 64 & (2**32 - 1):08x}:{number & (2**64 - 1):016x}"

    tuples = [(commit, commit - before) for commit, before in two]
    places = [at(DB2, commit_lsn=lsn(commit), change_lsn=lsn(change)) for commit, change in tuples]
    keeps_order(*tuples, *places)


@given(st.tuples(*[st.integers(0, 10**38 - 1)] * 2))
def test_the_order_of_a_trail_is_kept(two: tuple[int, int]) -> None:
    positions = [trail_position(f"{number:038}", None) for number in two]
    keeps_order(two[:1], two[1:], *[(each.history, each.high, each.low) for each in positions])


def test_the_time_of_a_commit_ts_is_its_own() -> None:
    assert commit_position(437451128625954821) == Position("", 437451128625954821, 0, 1668743624214)


def test_the_row_without_an_offset_is_the_last_of_its_transaction() -> None:
    last = binlog_position("binlog.000002:1062368", None, last=True, server_id=None, ts=1795269592)
    assert last == Position("", 2, 1062368 << 32 | 2**32 - 1, 1795269592000)


def test_a_bootstrap_row_has_only_a_clock() -> None:
    line = (
        b'{"type":"bootstrap-insert","database":"shop","table":"a","ts":1795269573,"data":{"id":1}}'
    )
    decoder = get_format("maxwell-json").decoder("id INT", unique_key=["id"], positions=True)
    assert decoder.upserts(None, line) == [
        KeyedChange((1,), (1,), position=Position("", None, 0, 1795269573000))
    ]


@pytest.mark.parametrize(
    ("source", "path"),
    [
        pytest.param({**MYSQL, "pos": "7"}, "$.source.pos", id="text for a number"),
        pytest.param({**MYSQL, "pos": 1.5}, "$.source.pos", id="a fraction"),
        pytest.param({**MYSQL, "pos": True}, "$.source.pos", id="a boolean"),
        pytest.param({**MYSQL, "pos": 2**32}, "$.source.pos", id="a position beyond 4 GiB"),
        pytest.param({**MYSQL, "pos": -1}, "$.source.pos", id="a negative position"),
        pytest.param({**MYSQL, "row": -1}, "$.source.row", id="a negative row"),
        pytest.param({**MYSQL, "ts_ms": 2**63}, "$.source.ts_ms", id="a clock beyond 64 bits"),
        pytest.param({**MYSQL, "ts_ms": -(2**63) - 1}, "$.source.ts_ms", id="one below 64 bits"),
        pytest.param({**MYSQL, "file": "binlog"}, "$.source.file", id="a file without a number"),
        pytest.param(
            {**MYSQL, "file": "binlog.\u0663"},
            "$.source.file",
            id="a file with another script's number",
        ),
        pytest.param({**MYSQL, "file": 7}, "$.source.file", id="a number for a file"),
        pytest.param({**MYSQL, "gtid": "7"}, "$.source.gtid", id="a number for a GTID"),
        pytest.param(
            {**MYSQL, "gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"},
            "$.source.gtid",
            id="a set of GTIDs",
        ),
        pytest.param(
            {**POSTGRES, "lsn": "0/16B3748"}, "$.source.lsn", id="an LSN as PostgreSQL writes it"
        ),
        pytest.param({**POSTGRES, "lsn": 2**64}, "$.source.lsn", id="an LSN beyond 64 bits"),
        pytest.param(
            {**POSTGRES, "sequence": "[1,2]"}, "$.source.sequence", id="numbers in sequence"
        ),
        pytest.param(
            {**POSTGRES, "sequence": '["x","2"]'}, "$.source.sequence", id="text in sequence"
        ),
        pytest.param(
            {**POSTGRES, "sequence": "not JSON"}, "$.source.sequence", id="sequence is not JSON"
        ),
        pytest.param(
            {**SQLSERVER, "commit_lsn": "27:758:5"},
            "$.source.commit_lsn",
            id="an LSN that is not padded",
        ),
        pytest.param(
            {**SQLSERVER, "change_lsn": "00000028:00000758:0003"},
            "$.source.change_lsn",
            id="a change after its commit",
        ),
        pytest.param(
            {**SQLSERVER, "commit_lsn": "00020027:00000758:0005"},
            "$.source.change_lsn",
            id="a transaction of too many files",
        ),
        pytest.param(
            {**SQLSERVER, "event_serial_no": 8},
            "$.source.event_serial_no",
            id="a serial number beyond 3 bits",
        ),
        pytest.param(
            {**DB2, "commit_lsn": "5b27d10"}, "$.source.commit_lsn", id="Db2's LSN without groups"
        ),
        pytest.param(
            {**DB2, "commit_lsn": "00000000:00010000:0000000005b37d40"},
            "$.source.commit_lsn",
            id="Db2's LSN of more than 80 bits",
        ),
        pytest.param(
            {**DB2, "change_lsn": "00000000:00000000:0000000005b37d41"},
            "$.source.change_lsn",
            id="Db2's change after its commit",
        ),
        pytest.param({**ORACLE, "scn": 2122184}, "$.source.scn", id="a number for an SCN"),
        pytest.param({**ORACLE, "scn": "2122186"}, "$.source.scn", id="an SCN after the commit's"),
        pytest.param(
            {**ORACLE, "commit_scn": "2122185:1:00"},
            "$.source.commit_scn",
            id="text instead of an SCN",
        ),
        pytest.param({**MONGODB, "ord": "1"}, "$.source.ord", id="text for an ordinal"),
        pytest.param({**MONGODB, "ts_ms": -1}, "$.source.ts_ms", id="a time before 1970"),
        pytest.param("text", "$.source", id="text for a source"),
    ],
)
def test_a_source_of_the_wrong_form_is_an_error_with_its_path(source: Any, path: str) -> None:
    for block in (source, msgspec.Raw(json.dumps(source).encode())):
        with pytest.raises(TypeConversionError) as caught:
            position_of(block)
        assert caught.value.path == path


@pytest.mark.parametrize(
    ("source", "path"),
    [
        pytest.param(None, "$.source", id="no source"),
        pytest.param(
            {"connector": "mysql", "server_id": 1}, "$.source.file", id="MySQL without a file"
        ),
        pytest.param(
            {"connector": "mariadb", "file": "b.000002"},
            "$.source.file",
            id="MariaDB without a place in the file",
        ),
        pytest.param(
            {"connector": "postgresql", "name": "shop", "ts_ms": 5},
            "$.source.lsn",
            id="PostgreSQL without an LSN",
        ),
        pytest.param(
            {"connector": "sqlserver", "ts_ms": 5},
            "$.source.commit_lsn",
            id="SQL Server without a commit's LSN",
        ),
        pytest.param(
            {"connector": "oracle", "commit_scn": "7"}, "$.source.scn", id="Oracle without an SCN"
        ),
        pytest.param(
            {"connector": "mongodb", "ts_ms": 5}, "$.source.ord", id="MongoDB without an ordinal"
        ),
        pytest.param({"connector": "db2"}, "$.source.commit_lsn", id="Db2 without a commit's LSN"),
        pytest.param({"db": "shop", "table": "orders"}, "$", id="no connector and no position"),
        *(
            pytest.param({**MYSQL, "connector": name}, "$.source.connector", id=name)
            for name in ("informix", "spanner")
        ),
        pytest.param(
            {"connector": "cockroachdb"}, "$.source.ts_hlc", id="CockroachDB without a clock"
        ),
        pytest.param(
            {**ORACLE, "commit_scn": None},
            "$.source.commit_scn",
            id="an event without the commit's SCN",
        ),
    ],
)
def test_a_source_without_a_position_is_an_error_with_its_path(source: Any, path: str) -> None:
    with pytest.raises(MissingFieldError) as caught:
        position_of(source)
    assert caught.value.path == path


@pytest.mark.parametrize("named", [{"connector": "cockroachdb"}, {"origin": "cockroachdb"}])
def test_the_clock_of_cockroachdb_is_its_position(named: dict[str, str]) -> None:
    source = {**named, "ts_hlc": "1745527444910044000.0000000003", "ts_ns": 1}
    assert position_of(source) == Position("", 1745527444910044000, 3, 1745527444910)
    with pytest.raises(TypeConversionError, match="nanoseconds and ten digits"):
        position_of({**source, "ts_hlc": "1745527444910044000"})


def test_vitess_has_no_order_of_changes() -> None:
    source = {"connector": "vitess", "keyspace": "shop", "shard": "-80", "vgtid": "[]"}
    with pytest.raises(MissingFieldError, match=r"vitess.*`vgtid`.*use order='arrival'") as error:
        position_of(source)
    assert error.value.path == "$.source.connector"


def test_requiring_positions_of_a_format_without_them_is_an_error() -> None:
    without = {name for name in BUILT_IN if get_format(name).traits.positions}
    assert without == {"canal-json", "dms-json", "op-json", "upsert-kafka"}
    for name in without:
        with pytest.raises(
            FormatOptionError, match=f"{name} has no positions that order changes: "
        ):
            get_format(name).decoder("id INT", unique_key=["id"], positions=True)
    assert "Canal writes no binlog position" in get_format("canal-json").positions


class Acme(Format):
    """A third-party format that does not define positions."""

    identifier = "acme"
    changelog_mode = ChangelogMode.insert_only()

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        return [Event.insert({"id": 1})]


def test_a_format_that_defines_no_position_has_none() -> None:
    assert Acme().decoder("id INT", unique_key=["id"]).upserts(None, b"x") == [
        KeyedChange((1,), (1,))
    ]
    with pytest.raises(FormatOptionError, match=r"Format\.position"):
        Acme().decoder("id INT", positions=True)


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
        assert position is not None
        assert position.high is not None
        assert (position.high, position.low) >= highest.get(position.history, (0, 0))
        highest[position.history] = position.high, position.low
    assert set(highest) == histories
