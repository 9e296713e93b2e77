"""Declared types of source types per producer, and conversions to the truth's encoding."""

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from tests.support.replay import truth
from tests.support.replay.truth import Column


class As(NamedTuple):
    """A declared type, and the function from its value (never None) to the truth's."""

    type: str
    back: Callable[[Any], Any] = truth.same


Producer = Callable[[Column], As]

# --------------------------------------------------------------------------------------------------
# MySQL and MariaDB

_MYSQL = re.compile(r"(\w+)(?:\((.*)\))?( unsigned)?")
_SIGNED = {
    "tinyint": "TINYINT",
    "smallint": "SMALLINT",
    "mediumint": "INT",
    "int": "INT",
    "bigint": "BIGINT",
    "year": "INT",
}
_UNSIGNED = {
    "tinyint": "SMALLINT",
    "smallint": "INT",
    "mediumint": "INT",
    "int": "BIGINT",
    "bigint": "DECIMAL(20,0)",
}
_TEXT = ("char", "varchar", "text", "longtext", "json", "enum", "set")
_BINARY = ("binary", "varbinary", "blob")
_GEOMETRY = As("STRUCT<wkb: BINARY, srid: INT>", truth.mysql_geometry)


def _parts(column: Column) -> tuple[str, str, bool]:
    match = _MYSQL.fullmatch(column.type)
    assert match is not None, column
    return match[1], match[2] or "", bool(match[3])


def _labels(size: str) -> list[str]:
    return [label.replace("''", "'") for label in re.findall(r"'((?:[^']|'')*)'", size)]


def _mysql(column: Column) -> As:
    """Common conversions of all MySQL producers."""
    kind, _, unsigned = _parts(column)
    digits = column.fraction or 0
    if kind in _SIGNED:
        return As(_UNSIGNED[kind], int) if unsigned else As(_SIGNED[kind])
    if kind in _TEXT:
        return As("STRING")
    if kind in _BINARY:
        return As("BINARY", truth.in_base64)
    return {
        "decimal": As(f"DECIMAL({column.precision},{column.scale})", truth.plain),
        "float": As("FLOAT"),
        "double": As("DOUBLE"),
        "date": As("DATE", truth.iso),
        "time": As("INTERVAL DAY TO SECOND", truth.mysql_time(digits)),
        "datetime": As(f"TIMESTAMP_NTZ({digits})", truth.mysql_stamp(digits)),
        "timestamp": As(f"TIMESTAMP({digits})", truth.mysql_stamp(digits)),
        "bit": As("DECIMAL(20,0)", int),
    }[kind]


_SPATIAL = {
    "point": As("STRUCT<x: DOUBLE, y: DOUBLE, wkb: BINARY, srid: INT>", truth.mysql_geometry),
    "geometry": _GEOMETRY,
    "linestring": _GEOMETRY,
    "vector": As("ARRAY<FLOAT>", truth.mysql_vector),
}


def debezium_mysql(column: Column) -> As:
    """Debezium's connectors for MySQL and MariaDB, in their default modes."""
    kind, size, _ = _parts(column)
    if kind == "bit":
        return As("BOOLEAN", int) if size == "1" else As("BINARY", truth.little_endian)
    return _SPATIAL.get(kind) or _mysql(column)


def maxwell(column: Column) -> As:
    """Maxwell: a SET is an array."""
    return As("ARRAY<STRING>", ",".join) if _parts(column)[0] == "set" else _mysql(column)


def canal(column: Column) -> As:
    """Canal: an ENUM is the number of its label, a SET has a bit for each."""
    kind, size, _ = _parts(column)
    labels = _labels(size)
    if kind == "enum":
        return As("INT", lambda value: labels[value - 1])
    if kind == "set":
        return As(
            "BIGINT",
            lambda value: ",".join(label for bit, label in enumerate(labels) if value >> bit & 1),
        )
    return _mysql(column)


def flattened_mysql(column: Column) -> As:
    """Return a column's `As` in Debezium's rows without the envelope, as upsert-kafka reads it.

    Decimals are bytes, and times are numbers.
    """
    kind, _, unsigned = _parts(column)
    digits = column.fraction or 0
    if kind == "decimal":
        return As("BINARY", _unscaled(column.scale or 0))
    if kind == "date":
        return As("INT", truth.postgres_date)
    if kind == "time":
        return As("BIGINT", lambda value: truth.mysql_time(digits)(timedelta(microseconds=value)))
    if kind == "datetime":
        return As("BIGINT", _of_epoch(digits))
    if kind == "bigint" and unsigned:
        return As("BIGINT", lambda value: value % 2**64)
    return debezium_mysql(column)


def _unscaled(scale: int) -> Callable[[bytes], str]:
    return lambda value: truth.postgres_numeric({"scale": scale, "value": value})


def _of_epoch(digits: int) -> Callable[[int], str]:
    """Return the function from Debezium's adaptive number to text.

    The number is in milliseconds for up to 3 digits, else in microseconds.
    """
    unit = timedelta(milliseconds=1) if digits <= 3 else timedelta(microseconds=1)
    return lambda value: truth.mysql_stamp(digits)(truth.EPOCH + value * unit)


# --------------------------------------------------------------------------------------------------
# PostgreSQL

_POSTGRES: Mapping[str, As] = {
    "boolean": As("BOOLEAN"),
    "smallint": As("SMALLINT"),
    "integer": As("INT"),
    "bigint": As("BIGINT"),
    "money": As("DECIMAL(19,2)", truth.postgres_money),
    "real": As("FLOAT", truth.postgres_float(single=True)),
    "double precision": As("DOUBLE", truth.postgres_float(single=False)),
    "date": As("DATE", truth.iso),
    # The truth is the server's cast to text, which cuts the padding.
    "character": As("STRING", lambda value: value.rstrip(" ")),
    "bytea": As("BINARY", truth.in_base64),
    "bit": As("BINARY", truth.postgres_bits(20)),
    "bit varying": As("BINARY", truth.postgres_bits(None)),
    "_int4": As("ARRAY<INT>", truth.postgres_array(truth.same)),
    "_text": As("ARRAY<STRING>", truth.postgres_array(truth.same)),
    "_numeric": As("ARRAY<DECIMAL(10,2)>", truth.postgres_array(truth.plain)),
    "_timestamptz": As("ARRAY<TIMESTAMP>", truth.postgres_array(truth.postgres_stamp)),
    "_uuid": As("ARRAY<STRING>", truth.postgres_array(truth.same)),
    "hstore": As("STRING", truth.postgres_hstore),
    "vector": As("ARRAY<DOUBLE>", truth.postgres_vector),
    "halfvec": As("ARRAY<FLOAT>", truth.postgres_vector),
    "sparsevec": As(
        "STRUCT<dimensions: SMALLINT, vector: MAP<SMALLINT, DOUBLE>>", truth.postgres_sparse_vector
    ),
    "_vector": As("ARRAY<ARRAY<DOUBLE>>", truth.postgres_array(truth.postgres_vector)),
    "point": As("STRUCT<x: DOUBLE, y: DOUBLE, wkb: BINARY, srid: INT>", truth.postgres_point),
}


def debezium_postgres(column: Column) -> As:
    """Debezium's connector for PostgreSQL, in its default modes."""
    if column.type == "numeric":
        if column.precision is None:
            return As("STRUCT<scale: INT, value: BINARY>", truth.postgres_numeric)
        return As(f"DECIMAL({column.precision},{column.scale})", truth.plain)
    return {
        **_POSTGRES,
        "time without time zone": As(f"TIME({column.fraction})", truth.postgres_time),
        "timestamp without time zone": As(
            f"TIMESTAMP_NTZ({column.fraction})", truth.postgres_stamp
        ),
        "timestamp with time zone": As(f"TIMESTAMP({column.fraction})", truth.postgres_stamp),
    }.get(column.type, As("STRING"))
