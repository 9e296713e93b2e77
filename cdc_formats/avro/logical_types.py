"""Avro's logical types of times: the column's type of each, and its unit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from cdc_formats.values.schema import SqlType

LOGICAL_TIMES: Mapping[str, tuple[SqlType, Literal["ms", "us", "ns"]]] = {
    "time-millis": (SqlType("TIME", 3), "ms"),
    "time-micros": (SqlType("TIME", 6), "us"),
    "timestamp-millis": (SqlType("TIMESTAMP", 3), "ms"),
    "timestamp-micros": (SqlType("TIMESTAMP", 6), "us"),
    "timestamp-nanos": (SqlType("TIMESTAMP", 9), "ns"),
    "local-timestamp-millis": (SqlType("TIMESTAMP_NTZ", 3), "ms"),
    "local-timestamp-micros": (SqlType("TIMESTAMP_NTZ", 6), "us"),
    "local-timestamp-nanos": (SqlType("TIMESTAMP_NTZ", 9), "ns"),
}
"""A ``timestamp-*`` is an instant, and a ``local-timestamp-*`` has no zone."""
