"""A Spark source: MySQL and MariaDB tables as a changelog, a lock-free snapshot and then changes.

::

    import capture

    capture.register(spark)
    changes = spark.readStream.format("mysql-changelog").options(**{"hostname": "db", "username": "cdc", ...}).load()

A row has ``row_kind`` (``+I -U +U -D``), the table's columns, and ``database``, ``table``,
``op_ts``, ``position``. `capture.chunk` explains why the snapshot is exact. Spark and the database
driver are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["SOURCE", "register"]

SOURCE = {
    "db": "database",
    "table": "table",
    "ts_ms": "op_ts",
    **{
        field: f"position.{field}"
        for field in ("file", "pos", "row", "server_id", "gtid", "snapshot")
    },
}
"""The columns for each field of Debezium's ``source`` block: pass it to
``to_kafka_changelog(source=...)``."""


def register(spark: SparkSession) -> None:
    """Register the format ``mysql-changelog`` for ``spark.readStream``.

    Parameters
    ----------
    spark : SparkSession

    Raises
    ------
    MissingDependencyError
        If the database driver is not installed.
    """
    from cdc_formats.errors import MissingDependencyError

    try:
        from .source import MySqlChangelog
    except ImportError as error:
        raise MissingDependencyError(
            f"{error}; pip install 'pyspark-kafka-changelog[capture,spark]'"
        ) from error
    spark.dataSource.register(MySqlChangelog)
