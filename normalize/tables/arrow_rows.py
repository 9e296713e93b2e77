"""Changes as Arrow's columns on the driver, for writers that need no rows of the JVM."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ArrowRows(NamedTuple):
    """The last change of each key, as in ``Sink.merge``.

    Attributes
    ----------
    table : pyarrow.Table
        ``row_kind`` and the columns, and `ABSENT_COLUMN` if there are partial rows.
    frame : callable
        Returns the same as a DataFrame.
    """

    table: pa.Table
    frame: Callable[[], DataFrame]
