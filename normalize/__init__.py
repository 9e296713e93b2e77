"""Changelogs on Spark: `from_kafka_changelog` and related functions. Importing this package does not import Spark or Arrow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aggregates import aggregate_changes
    from .changelog_normalize import ChangelogNormalize
    from .checkpoint import read_state
    from .kafka import READER_DEFAULTS, SPARK_PACKAGES, explain_changelog, from_kafka_changelog, to_kafka_changelog
    from .local_kafka import LocalKafka
    from .sinks.apply import apply_changes
    from .sinks.change_feed import from_change_feed, to_change_feed
    from .sinks.tables import SINK_PACKAGES, DeltaTable, IcebergTable, JdbcTable

_HOME = {
    "ChangelogNormalize": "changelog_normalize",
    "DeltaTable": "sinks.tables",
    "IcebergTable": "sinks.tables",
    "JdbcTable": "sinks.tables",
    "LocalKafka": "local_kafka",
    "READER_DEFAULTS": "kafka",
    "SINK_PACKAGES": "sinks.tables",
    "SPARK_PACKAGES": "kafka",
    "aggregate_changes": "aggregates",
    "apply_changes": "sinks.apply",
    "explain_changelog": "kafka",
    "from_change_feed": "sinks.change_feed",
    "from_kafka_changelog": "kafka",
    "read_state": "checkpoint",
    "to_change_feed": "sinks.change_feed",
    "to_kafka_changelog": "kafka",
}

__all__ = [
    "READER_DEFAULTS",
    "SINK_PACKAGES",
    "SPARK_PACKAGES",
    "ChangelogNormalize",
    "DeltaTable",
    "IcebergTable",
    "JdbcTable",
    "LocalKafka",
    "aggregate_changes",
    "apply_changes",
    "explain_changelog",
    "from_change_feed",
    "from_kafka_changelog",
    "read_state",
    "to_change_feed",
    "to_kafka_changelog",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
