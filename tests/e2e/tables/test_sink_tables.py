"""Changes applied to Delta, Iceberg, PostgreSQL and MariaDB tables.

The tests cover types, new columns, deletes, moves and repeated batches.
"""

import re
import traceback
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from itertools import zip_longest
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from normalize import JdbcTarget
from normalize.tables.apply import apply_batch
from normalize.tables.table_spec import TableSpec
from normalize.tables.targets import ArrowRows, TargetError
from normalize.tables.writers.jdbc import JdbcConnection
from tests.support.sink_kinds import delta_in_each_version
from tests.support.sinking import NewSink, Sink, changelog

TYPES = {
    "bo": ("BOOLEAN", [True, False, None]),
    "ti": ("TINYINT", [-128, 127, None]),
    "sm": ("SMALLINT", [-(2**15), 2**15 - 1, None]),
    "i": ("INT", [-(2**31), 2**31 - 1, None]),
    "bi": ("BIGINT", [-(2**63), 2**63 - 1, None]),
    "fl": ("FLOAT", [1.5, -(2.0**100), None]),
    "do": ("DOUBLE", [0.1, 1.7976931348623157e308, None]),
    "de": (
        "DECIMAL(38,18)",
        [
            Decimal("12345678901234567890.123456789012345678"),
            Decimal("-1.000000000000000001"),
            None,
        ],
    ),
    "st": ("STRING", ['it\'s "q" \\ `b` \n é 😀', "", None]),
    "by": ("BINARY", [b"\x00\xff'", b"", None]),
    "da": ("DATE", [date(1500, 2, 28), date(9999, 12, 31), None]),
    # Instants on both sides of the end of summer time in Berlin, where the hour is repeated.
    "ts": (
        "TIMESTAMP",
        [
            datetime(2024, 10, 27, 0, 30, 0, 123456, timezone.utc),
            datetime(2024, 10, 27, 1, 30, 0, 1, timezone.utc),
            None,
        ],
    ),
    # Does not exist in Berlin, where the hour is skipped.
    "nt": ("TIMESTAMP_NTZ", [datetime(2024, 3, 31, 2, 30, 0, 999999), datetime(1600, 1, 1), None]),
}


@delta_in_each_version
def test_values_of_every_type_are_read_back_unchanged(spark: SparkSession, sink: Sink) -> None:
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    rows = list(zip(*(values for _, values in TYPES.values()), strict=True))
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        changes = changelog(
            spark, f"id INT, {schema}", [("+I", index, *row) for index, row in enumerate(rows)]
        )
        apply_batch(changes, sink.table, keys="id")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    typed = (
        sink.read()
        .orderBy("id")
        .selectExpr(*(f"CAST({name} AS {kind}) AS {name}" for name, (kind, _) in TYPES.items()))
    )
    assert [tuple(row.values()) for row in typed.toArrow().to_pylist()] == rows


@delta_in_each_version
def test_keys_that_differ_in_case_or_a_blank_are_rows_of_their_own(
    spark: SparkSession, sink: Sink
) -> None:
    rows = [("+I", key, 1, key) for key in ("a", "A", "a ")]
    inserted = changelog(spark, "id STRING, part INT, name STRING", rows)
    apply_batch(inserted, sink.table, keys=["id", "part"])
    # The names of columns differ in case, and the delete has only the key.
    deleted = changelog(spark, "ID STRING, part INT, name STRING", [("-D", "a", 1, None)])
    apply_batch(deleted, sink.table, keys=["ID", "part"])
    assert sink.rows("id", "part", "name") == [("A", 1, "A"), ("a ", 1, "a ")]


# --------------------------------------------------------------------------------------------------
# the databases

AWKWARD = {
    "DOUBLE": ("0.1", "4.9E-324", "1.7976931348623157E308"),
    "DECIMAL(38,38)": ("0.12345678901234567890123456789012345678",),
    "STRING": (
        *("", " ", "a ", "\ufeff", "\uffff", "\U0010ffff", "\\N", "\\.", '"', "NULL", "\\x00"),
        *("a\r\nb", "é" * 70_000),
    ),
    "BINARY": ("", "\\x", "\0", "é"),
    "DATE": ("0001-01-01", "1582-10-10", "9999-12-31"),
    "TIMESTAMP": ("1970-01-01 00:00:01Z", "2024-10-27 00:30:00Z", "2038-01-19 03:14:07.5Z"),
    "TIMESTAMP_NTZ": ("0001-01-01 00:00:00", "2024-03-31 02:30:00", "9999-12-31 23:59:59.999999"),
}
TEXT_OF = {
    "postgresql": (
        "CAST({0} AS TEXT)",
        "encode({0}, 'hex')",
        "CAST({0} AT TIME ZONE 'UTC' AS TEXT)",
    ),
    "mariadb": ("CAST({0} AS CHAR)", "LOWER(HEX({0}))", "CAST({0} AS CHAR)"),
}
ONLY_OF = {
    "postgresql": {
        "DOUBLE": ("NaN", "Infinity", "-Infinity"),
        "TIMESTAMP": ("0001-01-01 00:00:00Z", "9999-12-31 23:59:59.999999Z"),
    },
    "mariadb": {"STRING": ("a\0b",), "DATE": ("0000-01-01",)},
}
REFUSED = {
    "postgresql": {
        "STRING": ("a\0b", "invalid byte sequence"),
        "DATE": ("0000-01-01", "out of range"),
    },
    "mariadb": {
        "DOUBLE": ("NaN", "Unknown column 'NaN'"),
        "TIMESTAMP": ("2038-01-19 03:14:08Z", "Incorrect datetime value"),
    },
}


def plain(kind: str, text: str | None) -> str | None:
    """A value's text, which both servers and Python write differently."""
    if text is None or kind in ("STRING", "BINARY"):
        return text
    if kind == "DOUBLE":
        return repr(float(text))
    return re.sub(r"([.]0+|(?<=[.]\d)0+)?Z?$", "", text)


def of_texts(
    spark: SparkSession, kinds: Sequence[str], rows: Sequence[Sequence[str | None]]
) -> Any:
    """Changes whose columns ``v0`` and so on have values that Spark casts from text."""
    names = [f"v{number}" for number in range(len(kinds))]
    texts = changelog(
        spark,
        f"id INT, {', '.join(f'{name} STRING' for name in names)}",
        [("+I", number, *row) for number, row in enumerate(rows)],
    )
    casts = (f"CAST({name} AS {kind}) AS {name}" for name, kind in zip(names, kinds, strict=True))
    return texts.selectExpr("row_kind", "id", *casts)


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_awkward_values_are_stored_or_refused(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink, (text, hexadecimal, time) = new_sink(kind), TEXT_OF[kind]
    values = [values + ONLY_OF[kind].get(of, ()) for of, values in AWKWARD.items()]
    rows = list(zip_longest(*values))
    apply_batch(of_texts(spark, list(AWKWARD), rows), sink.table, keys="id")
    forms = {"BINARY": hexadecimal, "TIMESTAMP": time}
    with JdbcConnection.open(spark, sink.table) as connection:
        selected = (forms.get(of, text).format(f"v{at}") for at, of in enumerate(AWKWARD))
        stored = connection.rows(f"SELECT {', '.join(selected)} FROM {sink.sql_name} ORDER BY id")
    for at, of in enumerate(AWKWARD):
        expected = [each[at] for each in rows]
        if of == "BINARY":
            expected = [value if value is None else value.encode().hex() for value in expected]
        assert [plain(of, row[at]) for row in stored] == [plain(of, value) for value in expected]
    for of, (value, error) in REFUSED[kind].items():
        with pytest.raises(TargetError, match=error):
            apply_batch(of_texts(spark, [of], [[value]]), new_sink(kind).table, keys="id")


LOSSY = {
    "postgresql": (
        "id CHAR(9) PRIMARY KEY, at TIMESTAMP(0), price NUMERIC(10,2)",
        "character(9)",
        'ALTER COLUMN "at" TYPE TIMESTAMP(6)',
    ),
    "mariadb": (
        "id VARCHAR(9) COLLATE latin1_general_ci PRIMARY KEY, at DATETIME, price DECIMAL(10,2)",
        "latin1_general_ci",
        "MODIFY COLUMN `at` DATETIME(6)",
    ),
}


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_columns_that_change_values_are_warnings(
    spark: SparkSession, new_sink: NewSink, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink, (columns, folding, statement) = new_sink(kind), LOSSY[kind]
    sink.execute(f"CREATE TABLE {sink.sql_name} ({columns})")
    kinds = "id STRING, at TIMESTAMP_NTZ, price STRING"
    for _ in range(2):
        apply_batch(changelog(spark, kinds, [("+I", "a", None, "1.239")]), sink.table, keys="id")
    of_key, of_time, of_text = (each.getMessage() for each in caplog.records)
    assert f"`id` is part of the key and has the type or collation {folding}, in which" in of_key
    assert "`at` has 0 digits of a second" in of_time
    assert statement in of_time
    assert "`price` is DECIMAL(10,2), and the server converts the text" in of_text
    created = new_sink(kind)
    for _ in range(2):  # the second finds the table
        apply_batch(changelog(spark, kinds, [("+I", "a", None, "1")]), created.table, keys="id")
    assert len(caplog.records) == 3


@pytest.mark.mariadb
@pytest.mark.parametrize("in_url", [True, False])
def test_a_session_that_would_change_values_is_refused(
    spark: SparkSession, new_sink: NewSink, in_url: bool
) -> None:
    table = new_sink("mariadb").table
    other = (
        replace(table, url=f"{table.url}?sessionVariables=wait_timeout=100")
        if in_url
        else replace(table, options={"sessionVariables": "wait_timeout=100"})
    )
    with pytest.raises(TargetError, match=r"are in \+09:00 .* add time_zone='\+00:00',sql_mode="):
        apply_batch(changelog(spark, "id INT", [("+I", 1)]), other, keys="id")


@pytest.mark.postgres
def test_values_of_every_type_are_copied_into_postgresql_unchanged(
    spark: SparkSession, new_sink: NewSink
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    rows = list(zip(*(values for _, values in TYPES.values()), strict=True))
    changes = changelog(
        spark, f"id INT, {columns}", [("+I", index, *row) for index, row in enumerate(rows)]
    )
    sink = new_sink("postgresql")
    spec = TableSpec(tuple(changes.schema.fields[1:]), ("id",), create=True, on_new_column="fail")
    database = sink.table.sink(spark)
    database.prepare(spec)

    def frame() -> DataFrame:
        raise AssertionError("no row of the JVM is needed")

    database.merge_arrow(ArrowRows(changes.toArrow(), frame), spec)
    read = sink.read().orderBy("id").drop("id").toArrow().to_pylist()
    assert [tuple(row.values()) for row in read] == rows


@pytest.mark.postgres
def test_postgresql_reads_text_as_its_column_is(spark: SparkSession, new_sink: NewSink) -> None:
    sink = new_sink("postgresql")
    sink.execute(
        f'CREATE TABLE {sink.sql_name} (id UUID PRIMARY KEY, "Doc" JSONB, at TIMESTAMP NOT NULL '
        "DEFAULT now())"
    )
    key = "6f2a7d29-bb88-482d-86a8-b4be3ef0d8f8"
    apply_batch(
        changelog(
            spark, "id STRING, doc STRING", [("+I", key, '{"a": 1}'), ("+U", key, '{"a": 2}')]
        ),
        sink.table,
        keys="id",
    )
    assert sink.rows("id", "Doc") == [(key, '{"a": 2}')]


@pytest.mark.mariadb
def test_keys_that_the_collation_makes_equal_are_an_error(
    spark: SparkSession, new_sink: NewSink
) -> None:
    sink = new_sink("mariadb")
    sink.execute(
        f"CREATE TABLE {sink.sql_name} (name VARCHAR(20) COLLATE latin1_general_ci PRIMARY KEY, n "
        "INT)"
    )
    with pytest.raises(
        TargetError, match="are equal in the table's collation: use a binary collation"
    ):
        apply_batch(
            changelog(spark, "name STRING, n INT", [("+I", "a", 1), ("+I", "A", 2)]),
            sink.table,
            keys="name",
        )
    # One of the final rows has a new encoding.
    for rows in ([("+I", "a", 1)], [("-D", "a", 1), ("+I", "A", 2)]):
        apply_batch(changelog(spark, "name STRING, n INT", rows), sink.table, keys="name")
    assert sink.rows() == [("A", 2)]


@pytest.mark.mariadb
def test_a_table_whose_indexes_cannot_upsert_is_refused(
    spark: SparkSession, new_sink: NewSink
) -> None:
    changes = changelog(spark, "id STRING, n INT", [("+I", "1", 1)])
    refused = {
        "id INT, n INT": r"has no unique index on \(id\)",
        "id VARCHAR(9), n INT, PRIMARY KEY (id(3))": r"has no unique index on \(id\)",
        "id INT PRIMARY KEY, n INT UNIQUE": r"has another unique index, on \(n\)",
    }
    for columns, text in refused.items():
        sink = new_sink("mariadb")
        sink.execute(f"CREATE TABLE {sink.sql_name} ({columns})")
        with pytest.raises(TargetError, match=text):
            apply_batch(changes, sink.table, keys="id")


@pytest.mark.postgres
def test_a_partial_or_longer_index_is_not_accepted_and_one_with_included_columns_is(
    spark: SparkSession, new_sink: NewSink
) -> None:
    sink, changes = new_sink("postgresql"), changelog(spark, "id INT, n INT", [("+I", 1, 1)])
    sink.execute(f"CREATE TABLE {sink.sql_name} (id INT, n INT)")
    for index in ("", "(id) WHERE n > 0", "(id, abs(n))"):
        if index:
            sink.execute(f"CREATE UNIQUE INDEX ON {sink.sql_name} {index}")
        with pytest.raises(TargetError, match=r"has no unique index on \(id\)"):
            apply_batch(changes, sink.table, keys="id")
    sink.execute(f"CREATE UNIQUE INDEX ON {sink.sql_name} (id) INCLUDE (n)")
    apply_batch(changes, sink.table, keys="id")
    assert sink.rows() == [(1, 1)]


@pytest.mark.postgres
def test_a_refused_batch_leaves_no_rows(spark: SparkSession, new_sink: NewSink) -> None:
    sink = new_sink("postgresql")
    sink.execute(f"CREATE TABLE {sink.sql_name} (id INT PRIMARY KEY, n INT CHECK (n < 10))")
    apply_batch(
        changelog(spark, "id INT, n INT", [("+I", 1, 1), ("+I", 2, 2)]), sink.table, keys="id"
    )
    with pytest.raises(TargetError, match="violates check constraint"):
        apply_batch(
            changelog(spark, "id INT, n INT", [("-D", 1, 1), ("+I", 3, 3), ("+I", 4, 99)]),
            sink.table,
            keys="id",
        )
    assert sink.rows() == [(1, 1), (2, 2)]
    with JdbcConnection.open(spark, sink.table) as connection:
        staging = "tablename LIKE '%changes%' AND schemaname NOT LIKE 'pg_temp%'"
        assert connection.number(f"SELECT COUNT(*) FROM pg_tables WHERE {staging}") == 0


@pytest.mark.parametrize("kind", ["postgresql", "mariadb"])
def test_a_wrong_password_is_an_error_without_the_password(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    right = new_sink(kind).table
    wrong = JdbcTarget(
        right.url,
        right.table,
        user=right.user,
        password="hunter2-secret",
        options={"trustStorePassword": "hunter3"},
    )
    with pytest.raises(
        TargetError, match=r"(?i)password authentication failed|access denied"
    ) as caught:
        apply_batch(changelog(spark, "id INT", [("+I", 1)]), wrong, keys="id")
    assert "hunter" not in f"{wrong!r} {''.join(traceback.format_exception(caught.value))}"
