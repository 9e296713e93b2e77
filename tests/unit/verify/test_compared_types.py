"""The common type of two columns, and the types that are refused."""

from __future__ import annotations

import pytest
from pyspark.sql.pandas.types import from_arrow_type

from cdc_formats import columns
from cdc_formats.errors import SchemaError
from normalize.core.arrow import arrow_type
from normalize.verify.canonical import compared_column


def values(source: str, target: str, *, is_json: bool = False) -> tuple[str, str]:
    """The expressions of both sides of a column."""
    # Spark itself would parse DDL only in a session.
    kinds = [from_arrow_type(arrow_type(column.type)) for column in columns(f"a {source}, b {target}")]
    column = compared_column("a", kinds[0], "b", kinds[1], is_json=is_json)
    return column.source_value, column.target_value


@pytest.mark.parametrize(
    ("source", "target", "common"),
    [
        ("INT", "BIGINT", "DECIMAL(19,0)"),
        ("DECIMAL(10,2)", "DECIMAL(8,4)", "DECIMAL(12,4)"),
        ("TINYINT", "DECIMAL(38,0)", "DECIMAL(38,0)"),
        ("FLOAT", "DOUBLE", "float"),
        ("DOUBLE", "DOUBLE", "double"),
    ],
)
def test_numbers_are_cast_to_a_type_with_the_values_of_both(source: str, target: str, common: str) -> None:
    assert values(source, target) == (f"CAST(`a` AS {common})", f"CAST(`b` AS {common})")


def test_a_boolean_is_a_number() -> None:
    assert values("TINYINT", "BOOLEAN") == ("CAST(`a` AS DECIMAL(3,0))", "CAST(CAST(`b` AS INT) AS DECIMAL(3,0))")


@pytest.mark.parametrize("kind", ["STRING", "BINARY", "DATE", "TIMESTAMP_NTZ"])
def test_values_of_one_type_are_compared_as_they_are(kind: str) -> None:
    assert values(kind, kind) == ("`a`", "`b`")


def test_text_is_compared_with_the_value_that_it_has() -> None:
    assert values("STRING", "BIGINT") == ("`a`", "CAST(`b` AS STRING)")
    assert values("DATE", "STRING") == ("CAST(`a` AS STRING)", "`b`")
    text, number = values("STRING", "DECIMAL(10,2)")
    assert (number, "try_cast(`a` AS decimal(10,2))" in text) == ("`b`", True)


def test_json_is_compared_without_blanks() -> None:
    assert values("STRING", "STRING", is_json=True)[0] == "coalesce(to_json(try_parse_json(`a`)), `a`)"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("DECIMAL(38,0)", "DECIMAL(38,10)"),
        ("DOUBLE", "DECIMAL(10,2)"),
        ("STRING", "BOOLEAN"),
        ("STRING", "TIMESTAMP"),
        ("STRING", "DOUBLE"),
        ("BINARY", "STRING"),
        ("DATE", "TIMESTAMP_NTZ"),
        ("ARRAY<INT>", "ARRAY<INT>"),
    ],
)
def test_types_without_an_exact_common_type_are_refused(source: str, target: str) -> None:
    with pytest.raises(SchemaError, match=r"column `a` is .* which cannot be compared exactly: exclude the column"):
        values(source, target)
