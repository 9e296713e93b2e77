"""Soft deletes: a delete keeps the row, and sets a column to the time of the delete."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND

from .merge import ADDS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DELETED_AT = "deleted_at"
"""The column's default name."""
DELETED_PROPERTY = "changelog.deleted_column"
"""The property with the column's name, of Delta and Iceberg tables that get the column here."""


def soft_delete_column(deletes: str, deleted_column: str) -> str | None:
    """Return the column of soft deletes, or None for hard deletes.

    Raises
    ------
    ArgumentError
        When `deletes` is unknown, or `deleted_column` has no effect.
    """
    if deletes not in ("hard", "soft"):
        raise ArgumentError(f"deletes={deletes!r} is unknown: pass 'hard' or 'soft'")
    if deletes == "hard" and deleted_column != DELETED_AT:
        raise ArgumentError(
            "deleted_column has no effect with hard deletes: remove it, or pass deletes='soft'"
        )
    return deleted_column if deletes == "soft" else None


def with_deletion_times(changes: DataFrame, name: str, time_column: str | None = None) -> DataFrame:
    """Return changes with the column, which is NULL in rows that are not deleted.

    Parameters
    ----------
    changes : DataFrame
        With ``row_kind``.
    name : str
        The name of the new column.
    time_column : str or None
        The TIMESTAMP column with the time of a change; None for the time at which the changes are
        applied.
    """
    from pyspark.sql import functions as F

    time = F.current_timestamp() if time_column is None else F.col(backquoted(time_column))
    return changes.withColumn(name, F.when(~F.col(ROW_KIND).isin(*ADDS), time))


def with_arrow_deletion_times(changes: pa.Table, name: str) -> pa.Table:
    """Return the same for Arrow's columns, with the time at which the changes are applied."""
    now = pa.scalar(datetime.now(timezone.utc), pa.timestamp("us", "UTC"))
    added = pc.is_in(changes.column(ROW_KIND), pa.array(ADDS))
    return changes.append_column(name, pc.if_else(added, pa.scalar(None, now.type), now))
