"""Changelogs on Spark: `from_kafka_changelog` and related functions. Importing this package does not import Spark or Arrow."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normalize.aggregates.aggregate_changes import aggregate_changes
    from normalize.aggregates.signed import signed_avg, signed_count, signed_sum
    from normalize.checkpoint.carry_over import carry_over
    from normalize.checkpoint.read_state import read_state
    from normalize.checkpoint.status import CheckpointStatus, checkpoint_status
    from normalize.kafka.dead_letter import DeadLetter
    from normalize.monitoring.explain_error import explain_error
    from normalize.monitoring.metrics_listener import MetricsListener
    from normalize.monitoring.progress import observe_lag
    from normalize.query import ChangelogNormalize
    from normalize.sinks.apply import apply_batch, apply_changes
    from normalize.sinks.change_feed import from_change_feed, to_change_feed
    from normalize.sinks.databases import DeltaDatabase, IcebergDatabase, JdbcDatabase
    from normalize.sinks.targets import DeltaTarget, IcebergTarget, JdbcTarget
    from normalize.stage_options import NativeEngine
    from normalize.sync.sync_database import sync_database
    from normalize.sync.table_options import TableOptions
    from normalize.verify.verification import Difference, Verification
    from normalize.verify.verify_table import JdbcSource, verify_table

    from .api import (
        READER_DEFAULTS,
        decode_changelog,
        encode_changelog,
        explain_changelog,
        from_kafka_changelog,
        to_kafka_changelog,
    )
    from .local_kafka import LocalKafka
    from .session import local_session
    from .spark_versions import spark_packages

_HOME = {
    "ChangelogNormalize": "query",
    "CheckpointStatus": "checkpoint.status",
    "DeadLetter": "kafka.dead_letter",
    "DeltaDatabase": "sinks.databases",
    "DeltaTarget": "sinks.targets",
    "Difference": "verify.verification",
    "IcebergDatabase": "sinks.databases",
    "IcebergTarget": "sinks.targets",
    "JdbcDatabase": "sinks.databases",
    "JdbcSource": "verify.verify_table",
    "JdbcTarget": "sinks.targets",
    "LocalKafka": "local_kafka",
    "MetricsListener": "monitoring.metrics_listener",
    "NativeEngine": "stage_options",
    "READER_DEFAULTS": "api",
    "TableOptions": "sync.table_options",
    "Verification": "verify.verification",
    "aggregate_changes": "aggregates.aggregate_changes",
    "apply_batch": "sinks.apply",
    "apply_changes": "sinks.apply",
    "carry_over": "checkpoint.carry_over",
    "checkpoint_status": "checkpoint.status",
    "decode_changelog": "api",
    "encode_changelog": "api",
    "explain_changelog": "api",
    "explain_error": "monitoring.explain_error",
    "from_change_feed": "sinks.change_feed",
    "from_kafka_changelog": "api",
    "local_session": "session",
    "observe_lag": "monitoring.progress",
    "read_state": "checkpoint.read_state",
    "signed_avg": "aggregates.signed",
    "signed_count": "aggregates.signed",
    "signed_sum": "aggregates.signed",
    "spark_packages": "spark_versions",
    "sync_database": "sync.sync_database",
    "to_change_feed": "sinks.change_feed",
    "to_kafka_changelog": "api",
    "verify_table": "verify.verify_table",
}

__all__ = [
    "READER_DEFAULTS",
    "ChangelogNormalize",
    "CheckpointStatus",
    "DeadLetter",
    "DeltaDatabase",
    "DeltaTarget",
    "Difference",
    "IcebergDatabase",
    "IcebergTarget",
    "JdbcDatabase",
    "JdbcSource",
    "JdbcTarget",
    "LocalKafka",
    "MetricsListener",
    "NativeEngine",
    "TableOptions",
    "Verification",
    "aggregate_changes",
    "apply_batch",
    "apply_changes",
    "carry_over",
    "checkpoint_status",
    "decode_changelog",
    "encode_changelog",
    "explain_changelog",
    "explain_error",
    "from_change_feed",
    "from_kafka_changelog",
    "local_session",
    "observe_lag",
    "read_state",
    "signed_avg",
    "signed_count",
    "signed_sum",
    "spark_packages",
    "sync_database",
    "to_change_feed",
    "to_kafka_changelog",
    "verify_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f".{_HOME[name]}", __name__), name)
