"""The ``source`` block to write, with a row's source log position, from DataFrame columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import name_parts

from .encode_pass import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def columns_of(source: Mapping[str, str]) -> list[str]:
    """Return the top-level columns of the block's fields: ``position`` for ``position.file``."""
    return sorted({part for path in source.values() for part in name_parts(path)[:1]})


def source_block(df: DataFrame, source: Mapping[str, str]) -> list[Column]:
    """Return a list with the block as a JSON text column without NULL fields; empty without fields.

    Raises
    ------
    SchemaError
        When the DataFrame lacks a column of the block.
    """
    from pyspark.sql import functions as F

    if not source:
        return []
    return [
        F.to_json(F.struct(*(_value(df, path).alias(name) for name, path in source.items()))).alias(
            SOURCE
        )
    ]


def _value(df: DataFrame, path: str) -> Column:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    try:
        kind = df.select(path).schema[0].dataType
    except AnalysisException as error:
        raise SchemaError(
            f"source has the column {path!r}, which the DataFrame lacks: "
            f"{str(error).splitlines()[0]}"
        ) from None
    return F.unix_millis(path) if isinstance(kind, TimestampType) else F.col(path)
