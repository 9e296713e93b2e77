"""Canonical values of every type, for hypothesis."""

import json

from hypothesis import strategies as st

from cdc_formats.values.numbers import decimal_text

_TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
_JSON = st.dictionaries(_TEXT, st.integers() | _TEXT, max_size=2).map(json.dumps)


def values_of(sql_type) -> st.SearchStrategy:
    """Canonical values of a type, including NULL."""
    bits = {
        "TINYINT": 7,
        "SMALLINT": 15,
        "INT": 31,
        "BIGINT": 63,
        "TIMESTAMP": 50,
        "TIMESTAMP_NTZ": 50,
        "INTERVAL DAY TO SECOND": 60,
    }
    if sql_type.name in bits:
        plain: st.SearchStrategy = st.integers(
            -(2 ** bits[sql_type.name]), 2 ** bits[sql_type.name] - 1
        )
    elif sql_type.name == "DECIMAL":
        whole = 10 ** (sql_type.precision - sql_type.scale) - 1
        plain = st.decimals(-whole, whole, places=sql_type.scale).map(
            lambda d: decimal_text(d, sql_type.precision, sql_type.scale)
        )
    elif sql_type.name == "ARRAY":
        plain = st.lists(values_of(sql_type.fields[0].type), max_size=3)
    elif sql_type.name == "MAP":
        entries = st.dictionaries(_TEXT, values_of(sql_type.fields[1].type), max_size=3)
        plain = entries.map(lambda entry: sorted([key, value] for key, value in entry.items()))
    elif sql_type.name == "STRUCT":
        plain = st.tuples(*(values_of(field.type) for field in sql_type.fields)).map(list)
    else:
        plain = {
            "BOOLEAN": st.booleans(),
            "FLOAT": st.floats(width=32, allow_nan=False),
            "DOUBLE": st.floats(allow_nan=False),
            "STRING": _TEXT,
            "VARIANT": _JSON,
            "BINARY": st.binary(max_size=5),
            "DATE": st.integers(-719162, 2932896),
        }[sql_type.name]
    return st.none() | plain


TYPES = [
    "BOOLEAN", "TINYINT", "SMALLINT", "INT", "BIGINT", "FLOAT", "DOUBLE", "STRING", "BINARY", "DATE", "TIMESTAMP(3)", "TIMESTAMP_NTZ",
    "INTERVAL DAY TO SECOND", "DECIMAL(38,18)", "DECIMAL(20,0)", "ARRAY<DECIMAL(5,2)>", "ARRAY<ARRAY<DATE>>", "MAP<STRING, TIMESTAMP>",
    "STRUCT<a: INT, b: ARRAY<STRING>>", "MAP<STRING, STRUCT<a: DECIMAL(9,3)>>", "VARIANT",
]  # fmt: skip
