"""The source table of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

from normalize.tables.writers.jdbc import JdbcTable


@dataclass(frozen=True)
class JdbcSource(JdbcTable):
    """A source table of PostgreSQL, MySQL or MariaDB.

    Parameters
    ----------
    url : str
        ``jdbc:postgresql://host:5432/database``, ``jdbc:mysql://host:3306/database`` or
        ``jdbc:mariadb://...``; without a password.
    table : str
        ``table`` or ``schema.table``, spelled as in the database.
    user, password : str or None
        The password never appears in reprs, plans or errors.
    options : mapping
        PostgreSQL: options of the JDBC driver (``sslmode``, ...). MySQL and MariaDB: options of
        ``mysql-changelog`` (``ssl.ca``, ...). They may contain secrets, and so are not shown.
    """
