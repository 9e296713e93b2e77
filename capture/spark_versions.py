"""What differs between the versions of Spark that the source runs on.

Spark 4.2 passes a start and a limit to ``latestOffset``, and lets the source fix where a run with
``availableNow`` ends. Spark 4.0 and 4.1 do neither: they ask the source once, so that
``availableNow`` runs one micro-batch.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

HAS_READ_LIMITS = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
"""Whether Spark limits a micro-batch of a Python source, and reads several with
``availableNow``."""

if TYPE_CHECKING or HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        SupportsTriggerAvailableNow,
    )
else:

    class ReadLimit:
        """A limit, which Spark 4.0 and 4.1 never pass."""

    class SupportsTriggerAvailableNow:
        """A mixin, which Spark 4.0 and 4.1 ignore."""

    ReadAllAvailable = ReadMaxBytes = ReadLimit

__all__ = [
    "HAS_READ_LIMITS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
]

_IN_UTC: dict[str, Any] = (
    {"timezone": "UTC"} if "timezone" in inspect.signature(to_arrow_schema).parameters else {}
)


def arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema, with UTC timestamps, that Spark expects of Python source batches."""
    return to_arrow_schema(schema, **_IN_UTC)
