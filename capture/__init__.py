"""MySQL or MariaDB tables as a changelog, without a lock: the whole tables first, then their changes, on Spark.

::

    import capture

    capture.register(spark)
    changes = spark.readStream.format("mysql-changelog").options(**{"hostname": "db", "username": "cdc", ...}).load()

The rows are ``row_kind`` (``+I -U +U -D``), the tables' columns, and ``database``, ``table``, ``op_ts``, ``position``. How it is exact
is told in `capture.chunk`. Importing this loads neither Spark nor a driver until it is used.
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
    **{field: f"position.{field}" for field in ("file", "pos", "row", "server_id", "gtid", "snapshot")},
}
"""Where a row stands, for ``to_kafka_changelog(source=...)``: the fields of Debezium's ``source`` and the columns that they are."""


def register(spark: SparkSession) -> None:
    """Make ``mysql-changelog`` a format of a session's ``readStream``.

    Raises
    ------
    MissingDependencyError
        When the driver is not installed.
    """
    from cdc_formats.errors import MissingDependencyError

    try:
        from .source import MySqlChangelog
    except ImportError as error:
        raise MissingDependencyError(f"{error}; pip install 'pyspark-kafka-changelog[capture,spark]'") from error
    spark.dataSource.register(MySqlChangelog)
