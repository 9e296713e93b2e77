"""The tables that a changelog is applied to: small values that name them, and say how they are reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from cdc_formats.errors import ArgumentError, ChangelogError
from cdc_formats.schema import backquoted

SINK_PACKAGES: Mapping[str, str] = {
    "delta": "io.delta:delta-spark_2.13:4.0.0",
    "iceberg": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.10.0",
    "postgresql": "org.postgresql:postgresql:42.7.7",
    "mariadb": "org.mariadb.jdbc:mariadb-java-client:3.5.5",
    "mysql": "com.mysql:mysql-connector-j:9.4.0",
}
"""What ``spark.jars.packages`` needs for each kind of table, for Spark 4.0."""


class TargetError(ChangelogError, RuntimeError):
    """The table that changes are applied to is not there, cannot be reached, or is not fit for them."""

    condition = "TARGET"


@dataclass(frozen=True)
class LakeTable:
    """A table of the session's catalogs, that Spark's own ``MERGE INTO`` writes."""

    name: str
    provider: ClassVar[str]

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ArgumentError(f"{type(self).__name__} needs the name of a table, got {self.name!r}")

    @property
    def sql_name(self) -> str:
        """The name as it stands in SQL."""
        return self.name


@dataclass(frozen=True)
class DeltaTable(LakeTable):
    """A Delta table.

    Parameters
    ----------
    name : str
        A path (what has a ``/``), or a name in the session's catalogs.
    """

    provider: ClassVar[str] = "delta"

    @property
    def sql_name(self) -> str:
        """The name as it stands in SQL: a path is ``delta.`path```."""
        return f"delta.{backquoted(self.name)}" if "/" in self.name and "`" not in self.name else self.name


@dataclass(frozen=True)
class IcebergTable(LakeTable):
    """An Iceberg table.

    Parameters
    ----------
    name : str
        As ``catalog.namespace.table``.
    """

    provider: ClassVar[str] = "iceberg"


_SECRET = re.compile(r"(?i)(?:password|passwd|pwd|passphrase)\w*\s*=|//[^/@]*:[^/@]*@")


@dataclass(frozen=True)
class JdbcTable:
    """A table of PostgreSQL, MySQL or MariaDB.

    The password is in no repr, plan, event log or error. At log level DEBUG Spark's own class ``BasicConnectionProvider`` writes every
    connection's properties into the log, as of any use of Spark's JDBC source.

    Parameters
    ----------
    url : str
        ``jdbc:postgresql://``, ``jdbc:mysql://`` or ``jdbc:mariadb://``; without a password.
    table : str
        ``table`` or ``schema.table``, as it is spelled in the database.
    user, password : str or None
    options : mapping
        Of the driver (``sslmode``, ...) and of Spark's JDBC writer (``batchsize``, ``numPartitions``, ...). They are not shown: secrets
        may be among them.
    """

    url: str
    table: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or _SECRET.search(self.url):
            # Without the url: the secret is in it.
            raise ArgumentError("JdbcTable has a password in its url, where logs and plans may show it: give password=... in its place")
        if not self.url.startswith(("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")):
            raise ArgumentError(f"JdbcTable has the url {self.url!r}; it begins with jdbc:postgresql:, jdbc:mysql: or jdbc:mariadb:")
        if not self.table or not all(self.table.split(".")):
            raise ArgumentError(f"JdbcTable has the table {self.table!r}; it is 'table' or 'schema.table'")


Table = LakeTable | JdbcTable
