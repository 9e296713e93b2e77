"""Column names come from messages: statements quote them, and schemas keep them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import to_ddl
from normalize import DeltaDatabase, DeltaTarget, IcebergTarget, JdbcTarget
from normalize.dataframe import table_columns
from normalize.tables.merge import merge_plan
from normalize.tables.writers.dialects import Dialect, MySql
from normalize.tables.writers.rows_text import as_csv, as_values
from tests.support.error_texts import error_test
from tests.support.hostile_names import names, spark_type, tables


@given(table=tables)
def test_a_schema_of_spark_is_read_with_all_its_names(table: Any) -> None:
    from pyspark.sql.types import StructField, StructType

    schema = StructType([StructField(column.name, spark_type(column)) for column in table])
    assert to_ddl(table_columns(schema)) == to_ddl(table)


_QUOTED = {'"': r'"(?:[^"]|"")*"', "`": r"`(?:[^`]|``)*`"}


@pytest.mark.parametrize("dialect", [Dialect(), MySql()])
@given(
    column_names=st.lists(names.filter(bool), min_size=2, max_size=4, unique=True),
    table=names.filter(lambda name: "." not in name),
)
def test_names_change_only_the_quoted_parts_of_a_statement(
    dialect: Dialect, column_names: list[str], table: str
) -> None:
    from pyspark.sql.types import IntegerType, StructField

    def statements(table: str, names: Sequence[str]) -> str:
        fields = [StructField(name, IntegerType()) for name in names]
        columns = {name: f"c{index}" for index, name in enumerate(names)}
        plan = merge_plan(
            names, names[:1], deleted_column=names[-1], position_column=names[-1], partial_rows=True
        )
        made = [
            dialect.create(table, fields, names[:1]),
            dialect.add(table, fields[0]),
            dialect.stage("staging", table, columns),
            dialect.twins("staging", ["c0"]),
            *(statement for statement, _ in dialect.merge(plan, "staging", table, columns)),
        ]
        return re.sub(_QUOTED[dialect.quote], "name", "\n".join(made))

    assert statements(table, column_names) == statements(
        "table", [f"n{index}" for index, _ in enumerate(column_names)]
    )


# --------------------------------------------------------------------------------------------------
# Names that databases refuse, and the types of columns in both dialects
POSTGRESQL, MYSQL = Dialect(), MySql("bin")


@pytest.mark.parametrize(
    ("dialect", "refused", "accepted"),
    [
        (POSTGRESQL, ["", "a\0b", "x" * 64, "é" * 32], ["x" * 63, "é" * 31, "x ", "😀"]),
        (MYSQL, ["", "a\0b", "x" * 65, "x ", "😀"], ["x" * 64, "é" * 64, " x"]),
    ],
)
def test_a_name_that_a_database_cannot_hold_is_refused(
    dialect: Dialect, refused: list[str], accepted: list[str]
) -> None:
    for name in refused:
        with pytest.raises(
            SchemaError, match=r"^\[SCHEMA\] the column name '.*: choose another name$"
        ):
            dialect.require_name(name)
    for name in accepted:
        dialect.require_name(name)


def test_a_type_of_the_database() -> None:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DecimalType,
        IntegerType,
        StringType,
        StructField,
        TimestampType,
        VariantType,
    )

    text, time = StringType(), TimestampType()
    for dialect, kind, in_key, expected in (
        (MYSQL, text, True, "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE bin"),
        (MYSQL, text, False, "LONGTEXT CHARACTER SET utf8mb4"),
        (MYSQL, BinaryType(), True, "VARBINARY(255)"),
        (MYSQL, time, True, "TIMESTAMP(6)"),
        (MYSQL, time, False, "TIMESTAMP(6) NULL"),
        (POSTGRESQL, text, True, "TEXT"),
        (POSTGRESQL, text, False, "TEXT"),
        (POSTGRESQL, DecimalType(20, 4), False, "DECIMAL(20,4)"),
    ):
        assert dialect.type(StructField("a", kind), in_key=in_key) == expected
    with pytest.raises(
        SchemaError,
        match=(
            r"column `a` is array<int>, which has no type in the database: convert it to text with "
            r"to_json"
        ),
    ):
        POSTGRESQL.type(StructField("a", ArrayType(IntegerType())), in_key=False)
    with pytest.raises(
        SchemaError, match=r"`v` is variant, which has no type .* declare it as STRING"
    ):
        MYSQL.type(StructField("v", VariantType()), in_key=False)


# --------------------------------------------------------------------------------------------------
# Targets: invalid ones are refused, names are quoted, and secrets are not shown
URL = "jdbc:postgresql://localhost/shop"


def test_a_jdbc_table_does_not_show_its_secrets() -> None:
    table = JdbcTarget(
        URL, "products", user="me", password="hunter2", options={"sslpassword": "hunter3"}
    )
    assert (
        repr(table)
        == "JdbcTarget(url='jdbc:postgresql://localhost/shop', table='products', user='me')"
    )


@pytest.mark.parametrize(
    ("table", "name"),
    [
        (DeltaTarget("s3://lake/products"), "`delta`.`s3://lake/products`"),
        (DeltaTarget("/lake/it`s"), "`delta`.`/lake/it``s`"),
        (DeltaTarget("shop.products"), "`shop`.`products`"),
        (DeltaTarget("delta.`/lake/products`"), "`delta`.`/lake/products`"),
        (DeltaTarget("shop.`a/b.c``d`"), "`shop`.`a/b.c``d`"),
        (IcebergTarget("lake.db.t USING x; --"), "`lake`.`db`.`t USING x; --`"),
    ],
)
def test_every_name_is_quoted_and_a_path_is_a_table_of_delta(
    table: DeltaTarget | IcebergTarget, name: str
) -> None:
    assert table.sql_name == name


# --------------------------------------------------------------------------------------------------
# Arrow's columns as the text that servers load
def test_rows_are_text_for_copy_and_for_insert() -> None:
    at = pa.array([0, None, 1_700_000_000_000_001], pa.timestamp("us", "Europe/Berlin"))
    small = pa.array([Decimal("1E-9"), None, Decimal(-2)], pa.decimal128(12, 9))
    table = pa.table(
        {
            "at": at,
            "bytes": [b"\x00\xff", b"", None],
            "text": ["it's ${x}\\", "it's ${x}", None],
            "no": [None, 1.5, -2e300],
            "small": small,
            "whole": [1, None, -1],
            "is": [True, None, False],
        }
    )
    assert as_csv(table) == (
        b'"1970-01-01 00:00:00.000000+00","\\x00ff","it\'s ${x}\\",,"1E-9","1","true"\n'
        b',"\\x","it\'s ${x}","1.5",,,\n'
        b'"2023-11-14 22:13:20.000001+00",,,"-2e+300","-2.000000000","-1","false"\n'
    )
    assert as_values(table) == [
        "('1970-01-01 00:00:00.000000', x'00ff', _utf8mb4 x'6974277320247b787d5c', NULL, '1E-9', 1, "
        "1), (NULL, x'', 'it''s ${x}', '1.5', NULL, NULL, NULL), ('2023-11-14 22:13:20.000001', "
        "NULL, NULL, '-2e+300', '-2.000000000', -1, 0)"
    ]


def test_the_rows_of_an_insert_are_some_of_its_size() -> None:
    long = pa.table({"x": ["ä" * 200_000, "b", "ä" * 200_000, "c"]})
    (first, second) = as_values(long) or ()
    assert (first.count("("), second.count("(")) == (2, 2)


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), date.min, date.max),
        (pa.timestamp("us"), datetime.min, datetime.max),
        (pa.timestamp("us", "UTC"), datetime.min, datetime.max),
    ],
)
def test_only_years_of_four_digits_have_a_text(kind: pa.DataType, first: date, last: date) -> None:
    numbers = pa.int32() if kind == pa.date32() else pa.int64()
    least, greatest = pa.array([first, last], kind).cast(numbers).to_pylist()

    def text(*values: int | None) -> tuple[bytes | None, list[str] | None]:
        table = pa.table({"x": pa.array(values, numbers).cast(kind)})
        return as_csv(table), as_values(table)

    copied, (inserted,) = text(least, None, greatest)
    assert [line[1:5] for line in copied.split(b"\n")] == [b"0001", b"", b"9999", b""]
    assert re.findall(r"'(....)-|NULL", inserted) == ["0001", "", "9999"]
    assert text(least - 1) == text(greatest + 1) == (None, None)
    assert None not in text(None)


test_error_texts = error_test(
    __file__,
    {
        **{
            f"a name that arrow cannot hold is refused, {number}": lambda ddl=ddl: table_columns(
                ddl
            )
            for number, ddl in enumerate(["`a\0b` INT", "a ARRAY<STRUCT<`b\0`: INT>>"], 1)
        },
        **{
            f"a password in the url is refused without being shown, {number}": lambda url=url: (
                JdbcTarget(url, "products")
            )
            for number, url in enumerate(
                [
                    f"{URL}?user=me&password=hunter2",
                    f"{URL}?ssl=true&sslpassword=hunter2",
                    "jdbc:mysql://me:hunter2@localhost/shop",
                    "jdbc:mariadb://address=(host=a)(password=hunter2)/shop",
                ],
                1,
            )
        },
        **{
            f"invalid tables, {number}": lambda make=make: make()
            for number, make in enumerate(
                [
                    lambda: JdbcTarget("jdbc:oracle:thin:@x", "t"),
                    lambda: JdbcTarget(URL, ""),
                    lambda: JdbcTarget(URL, "a..b"),
                    lambda: DeltaTarget(""),
                    lambda: IcebergTarget("lake..t"),
                    lambda: DeltaTarget("shop.a`b"),
                    lambda: IcebergTarget(None),  # type: ignore[arg-type]
                ],
                1,
            )
        },
        **{
            f"a relative path is refused (1), {number}": lambda name=name: DeltaTarget(name)
            for number, name in enumerate(["lake/products", "./products", "../lake/products"], 1)
        },
        **{
            f"a relative path is refused (2), {number}": lambda name=name: DeltaDatabase(name)
            for number, name in enumerate(["lake/products", "./products", "../lake/products"], 1)
        },
    },
)
