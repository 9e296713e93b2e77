"""Names that databases refuse, and the types of columns in both dialects.

What the statements do is tested in real tables: `tests/e2e/sinks`.
"""

import pytest

from cdc_formats.errors import SchemaError
from normalize.tables.writers.dialects import Dialect, MySql

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

    text, time = StructField("s", StringType()), StructField("at", TimestampType())
    assert MYSQL.type(text, in_key=True) == "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE bin"
    assert MYSQL.type(text, in_key=False) == "LONGTEXT CHARACTER SET utf8mb4"
    assert MYSQL.type(StructField("b", BinaryType()), in_key=True) == "VARBINARY(255)"
    assert (MYSQL.type(time, in_key=True), MYSQL.type(time, in_key=False)) == (
        "TIMESTAMP(6)",
        "TIMESTAMP(6) NULL",
    )
    assert POSTGRESQL.type(text, in_key=True) == POSTGRESQL.type(text, in_key=False) == "TEXT"
    assert POSTGRESQL.type(StructField("d", DecimalType(20, 4)), in_key=False) == "DECIMAL(20,4)"
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
