"""Statements of the log, by their text: which may alter a table, and which may make one."""

from __future__ import annotations

import re

from .table import TableId

_FLAGS = re.IGNORECASE | re.DOTALL
_ASIDE = r"(?:\s|/\*.*?\*/|--[^\n]*\n)*"
_ALTERS = re.compile(rf"{_ASIDE}(?:ALTER|CREATE\s+OR\s+REPLACE|DROP|RENAME|TRUNCATE)\b", _FLAGS)
_CREATES = re.compile(rf"{_ASIDE}(?:CREATE\b.*\bTABLE|RENAME|ALTER\b.*\bRENAME)\b", _FLAGS)


def alters(text: str) -> bool:
    """Return whether a statement may alter, empty, rename or drop a table."""
    return _ALTERS.match(text) is not None


def creates(text: str) -> bool:
    """Return whether a statement may make a table, or give one another name."""
    return _CREATES.match(text) is not None


def concerns(text: str, schema: str, table: TableId) -> bool:
    """Return whether a statement that alters a table, in a session with a default database, may be of this one."""
    database, name = (rf"(?:`{re.escape(each.replace('`', '``'))}`|(?<![\w$`]){re.escape(each)}(?![\w$`]))" for each in table)
    qualified, bare = rf"{database}\s*\.\s*{name}", rf"(?<!\.)(?<!\.\s){name}"
    dropped = rf"DROP\s+(?:DATABASE|SCHEMA)\b.*{database}"
    wanted = [qualified, dropped, *([bare] if schema == table.database else [])]
    return any(re.search(each, text, _FLAGS) for each in wanted)
