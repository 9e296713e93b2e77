"""Descriptions of the tables that a changelog is applied to: name and connection."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from cdc_formats.errors import ArgumentError, ChangelogError
from cdc_formats.values.schema import backquoted, name_parts


class TargetError(ChangelogError, RuntimeError):
    """The target table is missing, cannot be reached, or does not support the changes."""

    condition = "TARGET"


class ConflictError(TargetError):
    """Another writer changed the table at the same time, so that nothing was written."""

    condition = "CONFLICT"


@dataclass(frozen=True)
class LakeTarget:
    """A table of the session's catalogs, written with Spark's ``MERGE INTO``."""

    name: str
    provider: ClassVar[str]

    def __post_init__(self) -> None:
        if not self.name or not isinstance(self.name, str):
            raise ArgumentError(f"{type(self).__name__} requires the name of a table, got {self.name!r}")
        if not self.parts:
            raise ArgumentError(
                f"table name {self.name!r} has an empty part or an unbalanced backquote: write, for example, `shop`.`order``items`"
            )

    @property
    def parts(self) -> tuple[str, ...]:
        """The catalog, namespaces and table; empty if the name cannot be parsed."""
        return name_parts(self.name)

    @property
    def sql_name(self) -> str:
        """The name in SQL, every part in backquotes."""
        return ".".join(map(backquoted, self.parts))


def is_path(name: str) -> bool:
    """Return whether the name of a Delta table or database is a path: it has a slash outside of backquotes."""
    return "/" in re.sub("`(?:[^`]|``)*`", "", name)


def require_absolute(name: str) -> None:
    """Raise an error for a relative path, which Delta does not read.

    Raises
    ------
    ArgumentError
    """
    if is_path(name) and not re.match("/|[A-Za-z][A-Za-z0-9+.-]*:", name):
        raise ArgumentError(f"the path {name!r} is relative: pass an absolute path (/lake/shop) or a URI (s3a://lake/shop)")


@dataclass(frozen=True)
class DeltaTarget(LakeTarget):
    """A Delta table.

    Parameters
    ----------
    name : str
        An absolute path or a URI (with a ``/`` outside of backquotes), or a name in the session's catalogs. Backquotes are needed only
        around a part with a dot, a slash or a backquote: ``shop.`order.items```.
    """

    provider: ClassVar[str] = "delta"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_absolute(self.name)

    @property
    def parts(self) -> tuple[str, ...]:
        """The catalog, namespaces and table; of a path, ``delta`` and the path."""
        return ("delta", self.name) if is_path(self.name) else super().parts


@dataclass(frozen=True)
class IcebergTarget(LakeTarget):
    """An Iceberg table.

    Parameters
    ----------
    name : str
        As ``catalog.namespace.table``. Backquotes are needed only around a part with a dot or a backquote: ``lake.db.`order.items```.
    """

    provider: ClassVar[str] = "iceberg"


_SECRET = re.compile(r"(?i)(?:password|passwd|pwd|passphrase)\w*\s*=|//[^/@]*:[^/@]*@")


@dataclass(frozen=True)
class JdbcTarget:
    """A table of PostgreSQL, MySQL or MariaDB.

    The password never appears in reprs, plans, event logs or errors. At log level DEBUG, Spark's class ``BasicConnectionProvider`` logs
    every connection's properties, as for any use of Spark's JDBC source.

    Parameters
    ----------
    url : str
        ``jdbc:postgresql://``, ``jdbc:mysql://`` or ``jdbc:mariadb://``; without a password.
    table : str
        ``table`` or ``schema.table``, spelled as in the database.
    user, password : str or None
    options : mapping
        Options of the driver (``sslmode``, ...) and of Spark's JDBC writer (``batchsize``, ``numPartitions``, ...). They may contain
        secrets, and so are not shown.
    """

    url: str
    table: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or _SECRET.search(self.url):
            # The text leaves out the url, which contains the secret.
            raise ArgumentError("JdbcTarget has a password in its url, where logs and plans may show it: pass password=... instead")
        if not self.url.startswith(("jdbc:postgresql:", "jdbc:mysql:", "jdbc:mariadb:")):
            raise ArgumentError(f"JdbcTarget has the url {self.url!r}: it must begin with jdbc:postgresql:, jdbc:mysql: or jdbc:mariadb:")
        if not self.table or not all(self.table.split(".")):
            raise ArgumentError(f"JdbcTarget has the table {self.table!r}: write 'table' or 'schema.table'")


TableTarget = LakeTarget | JdbcTarget
