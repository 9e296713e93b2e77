"""The condition of `where=`: its column, and the error when it cannot be evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_formats.errors import PartialImageError

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn

MATCHES = "_matches"
"""The column that says whether a change's row matches; true for a delete."""


def matches(where: str | SparkColumn | None) -> SparkColumn:
    """Return the column `MATCHES` for a condition; NULL does not match, as in SQL."""
    from pyspark.sql import functions as F

    if where is None:
        return F.lit(True).alias(MATCHES)
    condition = F.expr(where) if isinstance(where, str) else where
    return F.coalesce(condition.cast("boolean"), F.lit(False)).alias(MATCHES)


def require_known(matching: bool | None, where: str) -> bool:
    """Return whether a change's row matches.

    Raises
    ------
    PartialImageError
        When the row lacks a column of the condition.
    """
    if matching is None:
        raise PartialImageError(
            "the producer left out a column of where= as unchanged, so that the condition cannot be evaluated: use other columns, or "
            "configure the producer to write all (PostgreSQL: REPLICA IDENTITY FULL; GoldenGate: NOCOMPRESSUPDATES)",
            "$.after",
            where=where,
        )
    return matching
