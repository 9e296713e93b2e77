"""Awkward values of each type in Delta tables, as Spark casts them from text."""

from collections.abc import Sequence

from pyspark.sql import SparkSession

from normalize import DeltaTarget
from normalize.tables.apply import apply_batch
from tests.support.sinking import changelog

INSTANTS = (
    "-0044-03-15 00:00:00",
    "0001-01-01 00:00:00",
    "1500-06-01 12:00:00.123456",
    "1677-09-21 00:12:43.145224",
    "1969-12-31 23:59:59.999999",
    "2024-01-01 00:00:00.123456",
    "2024-01-01 00:00:00.123999",
    "2262-04-11 23:47:16.854776",
    "9999-12-31 23:59:59.999999",
    "+10000-01-01 00:00:00",
)
VALUES: dict[str, Sequence[str]] = {
    "BOOLEAN": ("true", "false"),
    "TINYINT": ("-128", "127"),
    "INT": ("-2147483648", "0", "2147483647"),
    "BIGINT": ("-9223372036854775808", "9007199254740993", "9223372036854775807"),
    "FLOAT": ("NaN", "-0.0", "0.0", "Infinity", "-Infinity", "0.1", "1e-45"),
    "DOUBLE": ("NaN", "-0.0", "0.0", "Infinity", "-Infinity", "0.1", "1e308"),
    "DECIMAL(15,4)": ("-0.2500", "0.0001", "99999999999.9999", "-99999999999.9998"),
    "DECIMAL(17,2)": ("123456789012345.67", "123456789012345.69", "-0.25"),
    "DECIMAL(20,0)": ("12345678901234567891", "1234567890123456789", "700000000000000001", "-1"),
    "DECIMAL(38,18)": ("1.000000000000000001", "12345678901234567890.123456789012345678"),
    "STRING": (
        "",
        "Zürich",
        "a/b",
        "100%20",
        "é" * 40,
        "a" * 32 + "\U0010ffff" * 5,
        "\uffff" * 70,
        "\U0010ffff" * 70,
        "b" * 64 + "c",
    ),
    "BINARY": ("", "\x00", "\x7f" * 80, "é"),
    "DATE": ("-0044-03-15", "0001-01-01", "1969-12-31", "9999-12-31", "+10000-01-01"),
    "TIMESTAMP": INSTANTS,
    "TIMESTAMP_NTZ": INSTANTS,
}
"""The values of each type, which Spark casts from text."""


def literal(value: str | None, kind: str) -> str:
    if value is None:
        return f"CAST(NULL AS {kind})"
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"CAST('{escaped}' AS {kind})"


ROW_SCHEMA = (
    "id INT, name STRING, part STRING, price DECIMAL(20,4), at TIMESTAMP, local TIMESTAMP_NTZ, "
    "day DATE, raw BINARY, tags ARRAY<STRING>, sizes MAP<STRING, INT>, doc STRUCT<a: BIGINT, b: TIMESTAMP>"
)
ROW_VALUES = (
    "CAST('1234567890123456.7891' AS DECIMAL(20,4)) AS price",
    "TIMESTAMP'2026-03-08 07:30:00.000001Z' AS at",
    "TIMESTAMP_NTZ'2026-03-08 02:30:00' AS local",
    "DATE'2026-01-02' AS day",
    "X'00ff' AS raw",
    "array('a', NULL) AS tags",
    "map('k', 1) AS sizes",
    "struct(1L AS a, TIMESTAMP'2026-03-08 07:30:00Z' AS b) AS doc",
)


def apply(spark: SparkSession, target: DeltaTarget, *changes: tuple[str, int, str, str]) -> None:
    """Apply changes with values of all types."""
    rows = changelog(spark, "id INT, name STRING, part STRING", changes).selectExpr(
        "*", *ROW_VALUES
    )
    apply_batch(rows, target, keys="id", order_by="id")
