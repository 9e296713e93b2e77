"""Selects the rows of a chunk as columns of text, with connectorx or PyMySQL.

connectorx returns Arrow and takes a tenth of PyMySQL's time. PyMySQL replaces it for a client
certificate, which connectorx does not support, and if connectorx fails, for example at another
login method. Both return the same rows. Both encrypt the connection and verify the server in the
same cases.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from urllib.parse import quote

import connectorx
import pyarrow as pa
import pymysql

from .columns import SourceColumn, as_text, to_arrow
from .errors import SchemaChangedError
from .options import CaptureOptions
from .server import LogPosition, Server, session_settings
from .table import NUMBERS, Row, Table, literal, quoted

_LOG = logging.getLogger(__name__)
_ALTERED = (1054, 1146)
"""Error codes for a missing column or table."""


def texts_of(table: Table, rows: Sequence[Row]) -> pa.Table:
    """Return rows as columns of text, with the table's column names."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(table.columns)
    arrays = [
        pa.array(values, column.text_type)
        for column, values in zip(table.columns, columns, strict=True)
    ]
    return pa.table(arrays, names=[column.name for column in table.columns])


def rows_of(texts: pa.Table, columns: Sequence[int]) -> list[Row]:
    """Return some columns of text as rows."""
    return list(zip(*(texts.column(index).to_pylist() for index in columns), strict=True))


class Selector:
    """Selects chunks of a table as columns of text.

    Parameters
    ----------
    server : Server
    options : CaptureOptions
    table : Table
    """

    def __init__(self, server: Server, options: CaptureOptions, table: Table) -> None:
        self.server = server
        self.options = options
        self.table = table
        self.encrypted = server.encrypted()
        self.by_arrow = options.ssl_cert is None and options.ssl_key is None

    def select(self, condition: str) -> pa.Table:
        """Return the rows that satisfy a condition."""
        if self.by_arrow:
            try:
                return self._read_arrow(condition)
            except Exception as error:  # PyMySQL reads the same rows, or raises the error again
                # The error's text can contain the address with the password, so the log has only
                # its type.
                _LOG.warning(
                    "%s: connectorx failed (%s); PyMySQL reads the table, more slowly",
                    self.table.qualified,
                    type(error).__name__,
                )
                self.by_arrow = False
        try:
            return texts_of(
                self.table,
                list(self.server.stream(f"SELECT {self.table.selected} {self._source(condition)}")),
            )
        except pymysql.err.MySQLError as error:
            if error.args[0] not in _ALTERED:
                raise
            raise SchemaChangedError(
                f"{self.table.qualified} was altered while its snapshot was read: "
                f"{error.args[-1]}. Start with a new checkpoint"
            ) from None

    def _read_arrow(self, condition: str) -> pa.Table:
        options, columns = self.options, self.table.columns
        user, password = quote(options.username, safe=""), quote(options.password, safe="")
        database = quote(self.table.database, safe="")
        address = f"mysql://{user}:{password}@{options.hostname}:{options.port}/{database}{self._encryption()}"
        names = [quoted(f"c{index}") for index in range(len(columns))]
        selected = ", ".join(
            f"{as_text(column, quoted(column.name))} AS {name}"
            for column, name in zip(columns, names, strict=True)
        )
        # The assignment fails on any other server than the one whose log is read.
        guard = f"@one_server = IF(@@server_id = {self.server.id}, 1, (SELECT 1 UNION SELECT 2))"
        rows = connectorx.read_sql(
            address,
            f"SELECT {selected} {self._source(condition)}",
            return_type="arrow",
            protocol="text",
            pre_execution_query=f"{session_settings(self.server.is_mariadb)}, {guard}",
        )
        arrays = [rows.column(index).cast(column.text_type) for index, column in enumerate(columns)]
        return pa.table(arrays, names=[column.name for column in columns])

    def _encryption(self) -> str:
        if self.options.ssl_ca is not None:
            return f"?ssl-mode=VERIFY_IDENTITY&ssl-ca={quote(self.options.ssl_ca)}"
        return "?ssl-mode=REQUIRED" if self.encrypted else "?ssl-mode=DISABLED"

    def _source(self, condition: str) -> str:
        return f"FROM {self.table.qualified} WHERE {condition}"


# --------------------------------------------------------------------------------------------------
# Reads the current rows of some keys.

_AT_ONCE = 500


def rows_of_keys(
    server: Server,
    options: CaptureOptions,
    table: Table,
    names: Sequence[str],
    keys: Sequence[Sequence[str | None]],
) -> tuple[pa.Table, LogPosition]:
    """Return the rows that have one of the keys, and the end of the log at that time.

    Parameters
    ----------
    names : sequence of str
        The columns of the keys.
    keys : sequence of sequences
        Values as text; bytes as hexadecimal digits. Rows that are equal in the columns' collations
        are returned too.
    """
    of_key = [next(column for column in table.columns if column.name == name) for name in names]
    rows: list[Row] = []
    server.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
    position = server.written()
    possible = [key for key in keys if all(map(_can_have, of_key, key))]
    # Keys without NULL first: their statements have IN alone, which uses an index.
    possible.sort(key=lambda key: None in key)
    for start in range(0, len(possible), _AT_ONCE):
        condition = _is_one_of(of_key, possible[start : start + _AT_ONCE])
        rows += server.rows(f"SELECT {table.selected} FROM {table.qualified} WHERE {condition}")
    server.rows("COMMIT")
    texts = texts_of(table, rows)
    arrays = [
        to_arrow(column, values, zero_dates=options.zero_dates)
        for column, values in zip(table.columns, texts.columns, strict=True)
    ]
    return pa.table(arrays, names=texts.column_names), position


def _is_one_of(columns: Sequence[SourceColumn], keys: Sequence[Sequence[str | None]]) -> str:
    """Return the condition of rows that have one of the keys."""
    names = [quoted(column.name) for column in columns]
    # IN is never true for NULL.
    listed = [f"({', '.join(map(_literal, columns, key))})" for key in keys if None not in key]
    conditions = [f"({', '.join(names)}) IN ({', '.join(listed)})"] if listed else []
    conditions += [
        " AND ".join(map("{} <=> {}".format, names, map(_literal, columns, key)))
        for key in keys
        if None in key
    ]
    return " OR ".join(conditions)


def _literal(column: SourceColumn, text: str | None) -> str:
    return "NULL" if text is None else literal(column, text)


def _can_have(column: SourceColumn, text: str | None) -> bool:
    """Return whether a column can have a value: in a number column only NULL and numbers."""
    if text is None or column.data_type not in NUMBERS:
        return True
    try:
        return Decimal(text).is_finite()
    except InvalidOperation:
        return False
