"""Table filters for topics with several tables (Canal's ``database.include`` and ``table.include``)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from cdc_formats.errors import DecodeError, FormatOptionError, MissingFieldError
from cdc_formats.events import Event, Headers, Ignored, Reader

from .json_reader import json_reader, read_json

Path = tuple[str, ...]
_members = json_reader(dict[str, msgspec.Raw])


class TableFilter:
    """Regular expressions that a message's database and table must match in full, as in Flink.

    Parameters
    ----------
    database, table : str or None
        None matches everything.
    level : str
        The container of a producer's tables, ``database`` or ``schema``: the option's name begins with it.

    Raises
    ------
    FormatOptionError
        When an expression is not a regular expression.
    """

    def __init__(self, database: str | None, table: str | None, *, level: str = "database") -> None:
        self.level = level
        self.database = _compile(f"{level}_include", database)
        self.table = _compile("table_include", table)
        self.set = self.database is not None or self.table is not None

    def match(self, database: Any, table: Any, path: str) -> bool:
        """Whether a row belongs to a selected table.

        Raises
        ------
        MissingFieldError
            When the message does not contain the name (Flink: a NullPointerException). A JSON null is treated as missing.
        """
        for pattern, name, what in ((self.database, database, self.level), (self.table, table, "table")):
            if pattern is None:
                continue
            if name is None:
                raise MissingFieldError(f"`{what}` is null or missing, and {what}_include is set", path)
            if not pattern.fullmatch(str(name)):
                return False
        return True

    def guard(self, read: Reader, *places: tuple[Path, Path]) -> Reader:
        """Return `read` for JSON messages, which ignores other tables' messages even if `read` raises an error.

        Parameters
        ----------
        read : callable
        *places : pair of tuple of str
            The paths of the database's and the table's name in a message: member names from the root. Each pair is tried.
        """
        if not self.set:
            return read

        def guarded(key: bytes | None, value: bytes | None, *headers: Headers) -> Sequence[Event] | Ignored:
            try:
                return read(key, value, *headers)
            except DecodeError:
                if value is not None and any(self._is_other(value, *place) for place in places):
                    return Ignored.OTHER_TABLE
                raise

        return guarded

    def _is_other(self, value: bytes, database: Path, table: Path) -> bool:
        try:
            return not self.match(_at(value, database), _at(value, table), "$")
        except DecodeError:
            return False  # not JSON, or without the name


def _at(text: bytes, path: Path) -> Any:
    """Return the value at a path, None if there is none. The other members are skipped and may hold anything."""
    for name in path:
        members = _members(text)
        if name not in members:
            return None
        text = bytes(members[name])
    return read_json(text)


def _compile(option: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except (re.error, TypeError) as error:
        raise FormatOptionError(f"{option} {text!r} is not a regular expression: {error}") from None
