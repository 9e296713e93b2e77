"""Values of every type, equal from query and log, with the types listed in `capture.columns`."""

from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest

from capture.chunk import Selector
from capture.errors import BinlogError
from capture.options import read_options
from capture.server import connect
from capture.tables import read_tables
from tests.support.servers.local_source import SMALL, LocalSource, Replica, Stream

TYPES: dict[str, tuple[str, list[tuple[str, Any]]]] = {
    "ti": ("TINYINT", [("-128", -128), ("127", 127)]),
    "tu": ("TINYINT UNSIGNED", [("255", 255), ("0", 0)]),
    "su": ("SMALLINT UNSIGNED", [("65535", 65535), ("1", 1)]),
    "ms": ("MEDIUMINT", [("-8388608", -(2**23)), ("5", 5)]),
    "mu": ("MEDIUMINT UNSIGNED", [("16777215", 2**24 - 1), ("7", 7)]),
    "iu": ("INT UNSIGNED ZEROFILL", [("4294967295", 2**32 - 1), ("42", 42)]),
    "bs": ("BIGINT", [("-9223372036854775808", -(2**63)), ("9223372036854775807", 2**63 - 1)]),
    "bu": ("BIGINT UNSIGNED", [("18446744073709551615", Decimal(2**64 - 1)), ("0", Decimal(0))]),
    "dc": (
        "DECIMAL(10,3)",
        [("-0.001", Decimal("-0.001")), ("1234567.890", Decimal("1234567.890"))],
    ),
    "dw": (
        "DECIMAL(65,30)",
        [
            ("1.5", "1.500000000000000000000000000000"),
            ("-0.1", "-0.100000000000000000000000000000"),
        ],
    ),
    "df": ("DECIMAL(4,4)", [("0.0001", Decimal("0.0001")), ("-0.9999", Decimal("-0.9999"))]),
    "fl": ("FLOAT", [("0.1", 0.10000000149011612), ("3.4e38", 3.3999999521443642e38)]),
    "db": ("DOUBLE", [("0.1", 0.1), ("-1.7976931348623157e308", -1.7976931348623157e308)]),
    "ye": ("YEAR", [("0", 0), ("2155", 2155)]),
    "da": ("DATE", [("'1000-01-01'", date(1000, 1, 1)), ("'9999-12-31'", date(9999, 12, 31))]),
    "d0": (
        "DATETIME",
        [
            ("'1000-01-01 00:00:00'", datetime(1000, 1, 1)),
            ("'2024-02-29 23:59:59'", datetime(2024, 2, 29, 23, 59, 59)),
        ],
    ),
    "d3": (
        "DATETIME(3)",
        [
            ("'2024-01-01 00:00:00.007'", datetime(2024, 1, 1, 0, 0, 0, 7000)),
            ("'1969-12-31 23:59:59.999'", datetime(1969, 12, 31, 23, 59, 59, 999000)),
        ],
    ),
    "t6": (
        "TIMESTAMP(6) NULL",
        [
            ("FROM_UNIXTIME(0.000001 + 1)", datetime(1970, 1, 1, 0, 0, 1, 1, timezone.utc)),
            ("FROM_UNIXTIME(2147483647)", datetime(2038, 1, 19, 3, 14, 7, tzinfo=timezone.utc)),
        ],
    ),
    "tm": ("TIME", [("'-838:59:59'", "-838:59:59"), ("'00:00:07'", "00:00:07")]),
    "t2": ("TIME(2)", [("'838:59:58.25'", "838:59:58.25"), ("'-00:00:01.50'", "-00:00:01.50")]),
    "ch": ("CHAR(4) CHARACTER SET latin1", [("'é '", "é"), ("_latin1 0x8180", "\x81€")]),
    "vu": ("VARCHAR(300) CHARACTER SET utf8mb4", [("'🛴 x '", "🛴 x "), ("''", "")]),
    "u2": ("VARCHAR(9) CHARACTER SET ucs2", [("'é'", "é"), ("'x'", "x")]),
    "tx": (
        "MEDIUMTEXT CHARACTER SET utf8mb4",
        [("'a\\nb'", "a\nb"), ("REPEAT('ü', 70000)", "ü" * 70000)],
    ),
    "bi": ("BINARY(4)", [("x'01'", b"\x01\0\0\0"), ("x'00ff00ff'", b"\0\xff\0\xff")]),
    "vb": ("VARBINARY(9)", [("x'00'", b"\0"), ("''", b"")]),
    "bl": ("BLOB", [("x'fffe'", b"\xff\xfe"), ("x'00'", b"\0")]),
    "b1": ("BIT(1)", [("b'1'", True), ("b'0'", False)]),
    "b9": ("BIT(9)", [("b'100000001'", b"\x01\x01"), ("0", b"\0\0")]),
    "en": ("ENUM('a','it''s','ü')", [("'it''s'", "it's"), ("'ü'", "ü")]),
    "se": ("SET('x','y','z')", [("'z,x'", "x,z"), ("''", "")]),
}


def test_values_of_every_type_are_the_same_from_query_and_log(source: LocalSource) -> None:
    source.run(
        "CREATE TABLE types (id INT PRIMARY KEY, "
        f"{', '.join(f'{name} {kind}' for name, (kind, _) in TYPES.items())})"
    )

    def insert(number: int, which: int | None) -> str:
        values = ["NULL" if which is None else cases[which][0] for _, cases in TYPES.values()]
        return f"INSERT INTO types VALUES ({number}, {', '.join(values)})"

    source.run(insert(1, 0), insert(2, 1), insert(3, None))
    assert_both_drivers_read_equal_rows(source, "types")
    stream, replica = Stream(source.options("types", **SMALL)), Replica("id")
    snapshot = {row["id"]: row for row in stream.batch()}
    source.run(
        insert(4, 0), insert(5, 1), insert(6, None), "UPDATE types SET ti = 1", "DELETE FROM types"
    )
    log = stream.batch()
    inserted = {row["id"] - 3: row for row in log if row["row_kind"] == "+I"}
    for name, (_, cases) in TYPES.items():
        expected = [case[1] for case in cases] + [None]
        assert [snapshot[number][name] for number in (1, 2, 3)] == expected, f"{name} of the query"
        assert [inserted[number][name] for number in (1, 2, 3)] == expected, f"{name} of the log"
    replica.apply([*snapshot.values(), *log])
    assert not replica.rows


def test_cached_and_new_values_of_the_log_equal_those_of_a_query(source: LocalSource) -> None:
    source.run(
        "CREATE TABLE recurring (id INT PRIMARY KEY, d DECIMAL(9,2), t DATETIME(3), b BIT(12), x "
        "DOUBLE, s SET('p','q'), y YEAR, c CHAR(3))"
    )
    stream, replica = Stream(source.options("recurring")), Replica("id")
    assert stream.batch() == []
    source.run(
        "INSERT INTO recurring SELECT seq, seq / 7, TIMESTAMP('2024-01-01') + INTERVAL seq % 1500 "
        "* 7001000 MICROSECOND, seq % 4096, IF(seq % 5, seq / 3e0, NULL), seq % 4, 1901 + seq % "
        "200, seq % 1000 FROM seq_1_to_3000",
        "UPDATE recurring SET d = -d, b = IF(id % 3, b, NULL), x = id / 9e0",
        "DELETE FROM recurring WHERE id % 10 = 0",
    )
    replica.apply(stream.batch())
    read_again = Replica("id")
    read_again.apply(Stream(source.options("recurring")).batch())
    assert replica.contents() == read_again.contents()
    assert len(read_again.rows) == 2700


def assert_both_drivers_read_equal_rows(source: LocalSource, table: str) -> None:
    options = read_options(source.options(table))
    with connect(options) as server:
        selector = Selector(server, options, *read_tables(server, options))
        assert selector.by_arrow
        quick = selector.select("TRUE")
        assert selector.by_arrow, "connectorx failed"
        selector.by_arrow = False
        assert quick.equals(selector.select("TRUE"))


def test_dates_with_zeros_raise_an_error_or_become_null(source: LocalSource) -> None:
    with source.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute(
            "CREATE TABLE zeros (id INT PRIMARY KEY, d DATE NOT NULL, t DATETIME(3), s TIMESTAMP "
            "NOT NULL DEFAULT 0)"
        )
        cursor.execute("INSERT INTO zeros VALUES (1, '0000-00-00', '2024-00-10', 0)")
        lenient = Stream(source.options("zeros", **{"zero-dates": "null"}))
        strict = Stream(source.options("zeros"))
        (first,) = lenient.batch()
        cursor.execute("UPDATE zeros SET id = 2")
    with pytest.raises(BinlogError, match="column `d` has the date 0000-00-00"):
        strict.batch()
    second = lenient.batch()[1]
    for row in (first, second):
        assert (row["d"], row["t"], row["s"]) == (None, None, None)
