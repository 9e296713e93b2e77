"""Jobs of other sessions that rewrite and remove the files of a table while a query writes it."""

from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from normalize.tables.targets import ConflictError
from normalize.tables.writers.lake import LakeTarget


class Statements(NamedTuple):
    """The maintenance of a kind of table.

    Attributes
    ----------
    adding : str
        The property by which each MERGE adds files.
    rewrites : tuple of str
        They write the table's rows to fewer files.
    remove : str
        Removes files that the table does not have.
    """

    adding: str
    rewrites: tuple[str, ...]
    remove: str


MAINTENANCE = {
    "delta": Statements(
        "'delta.enableDeletionVectors' = 'true'",
        ("OPTIMIZE {table}",),
        "VACUUM {table} RETAIN 0 HOURS",
    ),
    "iceberg": Statements(
        "'write.merge.mode' = 'merge-on-read'",
        (
            (
                "CALL lake.system.rewrite_data_files(table => '{table}', options => "
                "map('min-input-files', '2'))"
            ),
            "CALL lake.system.rewrite_manifests(table => '{table}')",
        ),
        (
            "CALL lake.system.expire_snapshots(table => '{table}', older_than => TIMESTAMP "
            "'{now}', retain_last => 1)"
        ),
    ),
}


class Maintained:
    """A table that other sessions maintain, to which each MERGE adds files.

    The maintenance may lose a commit to the query.
    """

    def __init__(self, spark: SparkSession, target: LakeTarget) -> None:
        self._spark, self._target, self._statements = spark, target, MAINTENANCE[target.provider]
        spark.sql(f"ALTER TABLE {target.sql_name} SET TBLPROPERTIES ({self._statements.adding})")

    def rewrite(self) -> None:
        """Rewrite the files, unless the query commits at the same time."""
        for statement in self._statements.rewrites:
            self._run(statement)

    def remove(self) -> None:
        """Remove files that the table no longer has."""
        self._run(self._statements.remove)

    def has_only_its_files(self) -> bool:
        """Return whether nothing is left that the table no longer has."""
        if self._target.provider == "iceberg":
            return len(self._run("SELECT * FROM {table}.snapshots")) == 1
        (detail,) = self._run("DESCRIBE DETAIL {table}")
        return len(list(Path(self._target.name).glob("*.parquet"))) == int(detail["numFiles"])

    def _run(self, statement: str) -> list[Any]:
        # As another job: Iceberg keeps the tables that a session has read.
        other = self._spark.newSession()
        other.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
        # VACUUM would start 10,000 tasks, during which the query waits for a core.
        other.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
        now = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M:%S.%f}"
        text = statement.format(table=self._target.sql_name, now=now)
        with suppress(ConflictError), self._target.sink(other).conflicts():
            return list(other.sql(text).collect())
        return []
