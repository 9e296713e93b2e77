"""Changelogs on Spark: the functions of the README's table.

Importing the package imports neither Spark nor Arrow. Import other functions and classes from their
module: ``from normalize.checkpoint.read_state import read_state``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from normalize.verify.database_table import JdbcSource

    from .aggregates import aggregate_changes, signed_avg, signed_count, signed_sum
    from .api import decode_changelog, from_kafka_changelog, to_kafka_changelog
    from .kafka.dead_letter import DeadLetter
    from .local_kafka import LocalKafka
    from .monitoring.metrics_listener import MetricsListener
    from .query import ChangelogNormalize
    from .session import local_session
    from .tables.apply import apply_batch, apply_changes
    from .tables.database_target import DeltaDatabase, IcebergDatabase, JdbcDatabase
    from .tables.sync_database import sync_database
    from .tables.sync_table import sync_table
    from .tables.table_options import Maintenance, TableOptions
    from .tables.writers.delta import DeltaTarget
    from .tables.writers.iceberg import IcebergTarget
    from .tables.writers.jdbc import JdbcTarget
    from .verify.proof import Verify
    from .verify.verify_table import verify_table

_HOME = {
    "ChangelogNormalize": "query",
    "DeadLetter": "kafka.dead_letter",
    "DeltaDatabase": "tables.database_target",
    "DeltaTarget": "tables.writers.delta",
    "IcebergDatabase": "tables.database_target",
    "IcebergTarget": "tables.writers.iceberg",
    "JdbcDatabase": "tables.database_target",
    "JdbcSource": "verify.database_table",
    "JdbcTarget": "tables.writers.jdbc",
    "LocalKafka": "local_kafka",
    "Maintenance": "tables.table_options",
    "MetricsListener": "monitoring.metrics_listener",
    "TableOptions": "tables.table_options",
    "Verify": "verify.proof",
    "aggregate_changes": "aggregates",
    "apply_batch": "tables.apply",
    "apply_changes": "tables.apply",
    "decode_changelog": "api",
    "from_kafka_changelog": "api",
    "local_session": "session",
    "signed_avg": "aggregates",
    "signed_count": "aggregates",
    "signed_sum": "aggregates",
    "sync_database": "tables.sync_database",
    "sync_table": "tables.sync_table",
    "to_kafka_changelog": "api",
    "verify_table": "verify.verify_table",
}

__all__ = [
    "ChangelogNormalize",
    "DeadLetter",
    "DeltaDatabase",
    "DeltaTarget",
    "IcebergDatabase",
    "IcebergTarget",
    "JdbcDatabase",
    "JdbcSource",
    "JdbcTarget",
    "LocalKafka",
    "Maintenance",
    "MetricsListener",
    "TableOptions",
    "Verify",
    "aggregate_changes",
    "apply_batch",
    "apply_changes",
    "decode_changelog",
    "from_kafka_changelog",
    "local_session",
    "signed_avg",
    "signed_count",
    "signed_sum",
    "sync_database",
    "sync_table",
    "to_kafka_changelog",
    "verify_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    except ImportError as error:
        from cdc_formats.errors import missing_dependency

        raise missing_dependency(error) from None


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
