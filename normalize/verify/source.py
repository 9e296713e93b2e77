"""The source table of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cdc_formats.errors import ArgumentError
from normalize.sinks.targets import JdbcTarget


@dataclass(frozen=True)
class JdbcSource:
    """A source table of PostgreSQL, MySQL or MariaDB.

    Parameters
    ----------
    url : str
        ``jdbc:postgresql://host:5432/database``, ``jdbc:mysql://host:3306/database`` or ``jdbc:mariadb://...``; without a password.
    table : str
        ``table`` or ``schema.table``, spelled as in the database.
    user, password : str or None
        The password never appears in reprs, plans or errors.
    options : mapping
        PostgreSQL: options of the JDBC driver (``sslmode``, ...). MySQL and MariaDB: options of ``mysql-changelog`` (``ssl.ca``, ...). They
        may contain secrets, and so are not shown.
    """

    url: str
    table: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        try:
            self.as_target()
        except ArgumentError as error:
            raise ArgumentError(str(error.args[0]).replace("JdbcTarget", "JdbcSource")) from None

    def as_target(self) -> JdbcTarget:
        """Return the same connection and table as a `JdbcTarget`."""
        return JdbcTarget(self.url, self.table, self.user, self.password, self.options)
