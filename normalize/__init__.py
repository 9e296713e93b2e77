"""Changelogs on Spark: `from_kafka_changelog` and what belongs to it. Importing this loads neither Spark nor Arrow until it is used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .aggregates import aggregate_changes
    from .changelog_normalize import ChangelogNormalize
    from .checkpoint import read_state
    from .kafka import READER_DEFAULTS, SPARK_PACKAGES, explain_changelog, from_kafka_changelog, to_kafka_changelog
    from .local_kafka import LocalKafka

_HOME = {
    "ChangelogNormalize": "changelog_normalize",
    "LocalKafka": "local_kafka",
    "READER_DEFAULTS": "kafka",
    "SPARK_PACKAGES": "kafka",
    "aggregate_changes": "aggregates",
    "explain_changelog": "kafka",
    "from_kafka_changelog": "kafka",
    "read_state": "checkpoint",
    "to_kafka_changelog": "kafka",
}

__all__ = [
    "READER_DEFAULTS",
    "SPARK_PACKAGES",
    "ChangelogNormalize",
    "LocalKafka",
    "aggregate_changes",
    "explain_changelog",
    "from_kafka_changelog",
    "read_state",
    "to_kafka_changelog",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
