"""The block ``source`` of the messages that are written: where in its source's log a row stands, from columns of a DataFrame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cdc_formats.errors import SchemaError
from cdc_formats.schema import name_parts

from .encode import SOURCE

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def columns_of(source: Mapping[str, str]) -> list[str]:
    """Return the columns that the block's fields are, or are of: ``position`` for ``position.file``."""
    return sorted({part for path in source.values() for part in name_parts(path)[:1]})


def source_block(df: DataFrame, source: Mapping[str, str]) -> list[Column]:
    """Return the block as a column of JSON text, nothing where there are no fields; a NULL is left out of it.

    Raises
    ------
    SchemaError
        When there is no such column.
    """
    from pyspark.sql import functions as F

    if not source:
        return []
    return [F.to_json(F.struct(*(_value(df, path).alias(name) for name, path in source.items()))).alias(SOURCE)]


def _value(df: DataFrame, path: str) -> Column:
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F
    from pyspark.sql.types import TimestampType

    try:
        kind = df.select(path).schema[0].dataType
    except AnalysisException as error:
        raise SchemaError(f"source has the column {path!r}, which the DataFrame has not: {error.getMessage()}") from None
    return F.unix_millis(path) if isinstance(kind, TimestampType) else F.col(path)
