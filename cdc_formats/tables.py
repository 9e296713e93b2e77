"""Several tables in one topic: which of them a format reads (Canal's ``database.include`` and ``table.include``)."""

from __future__ import annotations

import re
from typing import Any

from .errors import FormatOptionError, MissingFieldError


class TableFilter:
    """Regular expressions that a message's database and table must match in full, as in Flink.

    Parameters
    ----------
    database, table : str or None
        None matches everything.
    level : str
        What a producer's tables are in, ``database`` or ``schema``: the option's name begins with it.

    Raises
    ------
    FormatOptionError
        When an expression is not one.
    """

    def __init__(self, database: str | None, table: str | None, *, level: str = "database") -> None:
        self.level = level
        self.database = _compile(f"{level}_include", database)
        self.table = _compile("table_include", table)
        self.set = self.database is not None or self.table is not None

    def match(self, database: Any, table: Any, path: str) -> bool:
        """Whether a row is of a table that is read.

        Raises
        ------
        MissingFieldError
            When the message does not say (in Flink a NullPointerException; a JSON null counts as missing here).
        """
        for pattern, name, what in ((self.database, database, self.level), (self.table, table, "table")):
            if pattern is None:
                continue
            if name is None:
                raise MissingFieldError(f"`{what}` is null or missing, and {what}_include is set", path)
            if not pattern.fullmatch(str(name)):
                return False
        return True


def _compile(option: str, text: str | None) -> re.Pattern[str] | None:
    try:
        return None if text is None else re.compile(text)
    except (re.error, TypeError) as error:
        raise FormatOptionError(f"{option} {text!r} is not a regular expression: {error}") from None
