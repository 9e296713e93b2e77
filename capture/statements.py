"""Determines the possible effect of a logged statement on a captured table.

A statement has no effect if it does not name the table, or if its first words show that it changes
no rows and columns. An unrecognized statement may have any effect on the tables that it names. The
definitions of all other tables are then compared.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from itertools import product
from typing import Literal, NamedTuple

from pymysql.charset import charset_by_id

from .server import LogPosition
from .table import Row, TableId

# --------------------------------------------------------------------------------------------------
# SQL tokens as MySQL and MariaDB split them: no comments, but content of executable comments.
#
# The scanner accepts any text and reads each character once, so its time is linear in the length of
# the text.

_LEXEME = r"""
(?P<skipped>[\x00-\x20\xa0]+|\#[^\n\0]*|--(?=[\x00-\x20\x7f]|\Z)[^\n\0]*)
|(?P<open>/\*{executable}(?:[0-9]{{5,6}})?)
|(?P<comment>/\*)
|(?P<close>\*/)
|(?P<word>[0-9A-Za-z_$\x80-\x9f\xa1-\U0010ffff]+)
|(?P<quote>['"`])
|(?P<symbol>.)
"""
_LEXEMES = {
    mariadb: re.compile(
        _LEXEME.format(executable="M?!" if mariadb else "!"), re.VERBOSE | re.DOTALL
    )
    for mariadb in (False, True)
}
_ESCAPES = r"\\.|"
_QUOTES = {
    (quote, escapes): re.compile(rf"{escapes}{quote}{quote}|{quote}", re.DOTALL)
    for quote in "'\"`"
    for escapes in ("", _ESCAPES)
}
_ANSI_QUOTES = 2**2
_NO_BACKSLASH_ESCAPES = 2**20
_MULTIBYTE = {"big5", "cp932", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"}
"""Character sets in which a multi-byte character can contain the byte of a quotation mark, a
backslash or a letter."""
_NOPAD = 1024
"""MariaDB adds this to a collation's number for the NOPAD variant of the collation."""


class Token(NamedTuple):
    """A token; `text` excludes quotes."""

    kind: Literal["word", "name", "string", "symbol"]
    text: str

    @property
    def word(self) -> str:
        """An unquoted word in upper case, or a symbol; empty for any other token."""
        return self.text.upper() if self.kind in ("word", "symbol") else ""

    @property
    def name(self) -> str:
        """A possible name of a table or column, in lower case; empty for any other token."""
        return self.text.lower() if self.kind in ("word", "name") else ""


class ServerSyntax(NamedTuple):
    """The settings that tokens depend on.

    Attributes
    ----------
    mariadb : bool
        Only MariaDB executes ``/*M! ... */``.
    sql_mode : int
        The session's SQL mode, of which ``ANSI_QUOTES`` and ``NO_BACKSLASH_ESCAPES`` matter.
    """

    mariadb: bool
    sql_mode: int = 0


def decode(statement: bytes, charset: int) -> tuple[str, bool]:
    """Return a statement's text, and whether the server certainly decoded the same text.

    Parameters
    ----------
    charset : int
        The number of the client's character set.
    """
    try:
        encoding = charset_by_id(charset % _NOPAD if charset < 2 * _NOPAD else charset).encoding
    except KeyError:  # numbers that PyMySQL does not know are collations of UTF-8
        encoding = "utf8"
    encoding = "utf8" if encoding == "binary" else encoding
    try:
        return statement.decode(encoding, "strict" if encoding in _MULTIBYTE else "replace"), True
    except (LookupError, UnicodeError):
        return statement.decode("latin-1"), statement.isascii()


def scan(text: str, syntax: ServerSyntax) -> tuple[list[Token], bool]:
    """Return a statement's tokens, and whether every comment and quotation is complete.

    The server replaces the ``!`` of an executable comment that it does not execute. So it executed
    all that are in its log.
    """
    tokens: list[Token] = []
    at, opened, whole = 0, False, True
    while match := _LEXEMES[syntax.mariadb].match(text, at):
        kind, at = match.lastgroup, match.end()
        if kind in ("word", "symbol"):
            tokens.append(Token(kind, match[0]))  # type: ignore[arg-type]
        elif kind == "quote":
            token, at, closed = _quoted(text, at, match[0], syntax)
            tokens.append(token)
            whole = whole and closed
        elif kind == "comment":
            end = text.find("*/", at)
            at, whole = (end + 2, whole) if end >= 0 else (len(text), False)
        elif (
            kind == "close" and not opened and text.startswith("*", at)
        ):  # an asterisk, then a comment
            tokens.append(Token("symbol", "*"))
            at -= 1
        elif kind in ("open", "close"):
            whole = whole and opened == (kind == "close")
            opened = kind == "open"
    return tokens, whole and not opened


def _quoted(text: str, start: int, quote: str, syntax: ServerSyntax) -> tuple[Token, int, bool]:
    """Return the token after an opening quote, the index after it, and whether the quote closes."""
    is_name = quote == "`" or (quote == '"' and bool(syntax.sql_mode & _ANSI_QUOTES))
    escapes = "" if is_name or syntax.sql_mode & _NO_BACKSLASH_ESCAPES else _ESCAPES
    at = start
    while match := _QUOTES[quote, escapes].search(text, at):
        at = match.end()
        if match[0] == quote:
            return _of_quoted(is_name, text[start : match.start()], quote), at, True
    return _of_quoted(is_name, text[start:], quote), len(text), False


def _of_quoted(is_name: bool, text: str, quote: str) -> Token:
    return Token("name" if is_name else "string", text.replace(quote * 2, quote))


class Effect(Enum):
    """The possible effect of a statement on a table."""

    NOTHING = "keeps columns and rows"
    KEEPS = "may add columns"
    RESHAPES = "may change columns, and keeps rows"
    EMPTIES = "removes rows without events in the log, and keeps columns"
    WRITES = "changes rows, and is in the log instead of them"
    REPLACES = "may do anything"


class _Kind(NamedTuple):
    """A kind of statement.

    `concerns` returns whether such a statement affects a table, given its tokens and the default
    database.
    """

    effect: Effect
    concerns: Callable[[Sequence[Token], str, TableId], bool] = lambda *_: False
    ends_transaction: bool = True


class SqlStatement:
    """A parsed statement.

    Parameters
    ----------
    text : str
    syntax : ServerSyntax
    is_exact : bool
        False if the server may have decoded another text.

    Attributes
    ----------
    names : frozenset of str
        Its words and quoted names, in lower case.
    removed : frozenset of str
        The columns that it drops or renames, in lower case.
    """

    def __init__(self, text: str, syntax: ServerSyntax, *, is_exact: bool = True) -> None:
        tokens, is_whole = scan(text, syntax)
        self._tokens = _without_settings(tokens)
        self._start, self._rest, self._ignores_errors = _start(self._tokens)
        self._kind = (
            _KINDS.get(self._start, _KINDS.get((*self._start[:1], _ANYTHING)))
            if is_exact and is_whole
            else None
        )
        self._target, self._clauses = _parts(self._rest) if self._start == _ALTER else ([], [])
        self.names = frozenset(token.name for token in self._tokens)
        self.removed = frozenset(filter(None, map(_removed, self._clauses)))

    @property
    def ends_transaction(self) -> bool:
        """Whether it ends a transaction of the log."""
        return self._kind is None or self._kind.ends_transaction

    @property
    def may_create(self) -> bool:
        """Whether it may create or rename a table."""
        return self._kind is None or self._start in _NAMING

    def effect(self, schema: str, table: TableId) -> Effect:
        """Return its possible effect on a table, if `schema` is the session's default database."""
        if self._kind is None:
            return Effect.REPLACES if _names_table(self._tokens, schema, table) else Effect.KEEPS
        if not self.names & {table.database.lower(), table.name.lower()}:
            return Effect.NOTHING
        if self._start == _ALTER:
            return self._effect_of_alter(schema, table)
        return (
            self._kind.effect if self._kind.concerns(self._rest, schema, table) else Effect.NOTHING
        )

    def _effect_of_alter(self, schema: str, table: TableId) -> Effect:
        changing = [clause for clause in self._clauses if not _keeps_rows(clause)]
        if any(
            _names_table(clause, schema, table) for clause in changing
        ):  # for example EXCHANGE PARTITION p WITH TABLE t
            return Effect.REPLACES
        if not _names_table(self._target, schema, table):
            return Effect.NOTHING
        if changing or self._ignores_errors:
            return Effect.REPLACES
        return Effect.RESHAPES if any(map(_reshapes, self._clauses)) else Effect.KEEPS


def _without_settings(tokens: list[Token]) -> list[Token]:
    """Return a statement without MariaDB's prefix ``SET STATEMENT ... FOR``."""
    start, depth = 0, 0
    while [token.word for token in tokens[start : start + 2]] == ["SET", "STATEMENT"]:
        for index in range(start, len(tokens)):
            depth += _depth(tokens[index])
            if tokens[index].word == "FOR" and not depth:
                start = index + 1
                break
        else:
            break
    return tokens[start:]


def _start(tokens: Sequence[Token]) -> tuple[tuple[str, ...], Sequence[Token], bool]:
    """Return a statement's kind as words, tokens after them, and whether it is ``ALTER IGNORE``."""
    words = [token.word for token in tokens[:_LONGEST_START]]
    if not words or words[0] not in _VERBS:
        return tuple(words[:2]), tokens[1:], False
    first, at = (f"{words[0]} OR REPLACE", 3) if words[1:3] == ["OR", "REPLACE"] else (words[0], 1)
    while words[at : at + 1] and words[at] in _MODIFIERS:
        at += 1
    return (first, *words[at : at + 1]), tokens[at + 1 :], "IGNORE" in words[1:at]


def _depth(token: Token) -> int:
    return (token.word == "(") - (token.word == ")")


def _word(tokens: Sequence[Token], index: int) -> str:
    return tokens[index].word if index < len(tokens) else ""


def _names_table(tokens: Sequence[Token], schema: str, table: TableId) -> bool:
    database, name = table.database.lower(), table.name.lower()
    is_default = schema.lower() == database
    indexes = [index for index, token in enumerate(tokens) if token.name == name]
    return any(_is_in_database(tokens, index, database, is_default=is_default) for index in indexes)


def _is_in_database(
    tokens: Sequence[Token], index: int, database: str, *, is_default: bool
) -> bool:
    """Return whether the name at an index is a table of a database, perhaps the default."""
    if not index or tokens[index - 1].word != ".":
        return is_default and _word(tokens, index + 1) != "."
    before = tokens[index - 2] if index > 1 else None
    qualified = before is not None and before.name == database
    return qualified or (
        is_default and (before is None or not before.name or before.word in _BEFORE_TABLE)
    )


def _targets_table(tokens: Sequence[Token], schema: str, table: TableId) -> bool:
    return _names_table(_split(tokens)[0], schema, table)


def _names_database(tokens: Sequence[Token], schema: str, table: TableId) -> bool:
    return any(token.name == table.database.lower() for token in tokens)


def _split(tokens: Sequence[Token]) -> tuple[Sequence[Token], Sequence[Token]]:
    """Return the tokens of the first table's name, and those after it."""
    start = 0
    while _word(tokens, start) in _BEFORE_TARGET:
        start += 1
    end = start
    while end < len(tokens) and (end == start or "." in (tokens[end].word, tokens[end - 1].word)):
        end += 1
    return tokens[start:end], tokens[end:]


def _parts(tokens: Sequence[Token]) -> tuple[Sequence[Token], list[list[Token]]]:
    """Return the table's name and an ``ALTER TABLE``'s clauses, without tokens in parentheses."""
    target, tokens = _split(tokens)
    start = {"WAIT": 2, "NOWAIT": 1}.get(_word(tokens, 0), 0)
    clauses: list[list[Token]] = [[]]
    depth = 0
    for token in tokens[start:]:
        depth += _depth(token)
        if depth:
            continue
        if token.word == "," and _word(clauses[-1], 0) not in _PARTITIONING:
            clauses.append([])
        else:
            clauses[-1].append(token)
    return target, clauses


def _keeps_rows(clause: Sequence[Token]) -> bool:
    """Return whether an ``ALTER TABLE`` clause surely keeps the table's name, rows and values."""
    first, second = _word(clause, 0), _word(clause, 1)
    if first in _KEEPING:
        return second in _KEEPING[first]
    if first == "DROP":
        return second != "PARTITION"
    if first in (
        "CHANGE",
        "MODIFY",
    ):  # changing a generated column can change its values in all rows
        return all(token.word != "AS" for token in clause)
    if first in ("", "ADD", "ALTER"):
        return first != "" or not clause
    return (first in _OPTIONS or second == "=") and all(
        engine == "INNODB" for engine in _engines(clause)
    )


def _engines(clause: Sequence[Token]) -> Iterator[str]:
    for index, token in enumerate(clause):
        if token.word == "ENGINE":
            yield from [
                value.text.upper() for value in clause[index + 1 : index + 3] if value.word != "="
            ][:1]


def _reshapes(clause: Sequence[Token]) -> bool:
    """Return whether a clause of an ``ALTER TABLE`` may change an existing column."""
    first, second = _word(clause, 0), _word(clause, 1)
    if first == "DROP":
        return second not in _NO_COLUMN
    return first in ("CHANGE", "CONVERT", "MODIFY") or (first, second) == ("RENAME", "COLUMN")


def _removed(clause: Sequence[Token]) -> str:
    """Return the column that an ``ALTER TABLE`` clause drops or renames; empty for no column."""
    first = _word(clause, 0)
    names = [
        token.name for token in clause[1:] if token.word not in ("COLUMN", "IF", "EXISTS", "TO")
    ]
    keeps_name = (
        first in ("CONVERT", "MODIFY")
        or (first == "CHANGE" and names[:1] == names[1:2])
        or _word(clause, 1) == "PRIMARY"
    )
    return names[0] if names and _reshapes(clause) and not keeps_name else ""


_VERBS = {"ALTER", "CREATE", "DROP", "RENAME"}
_MODIFIERS = {"FULLTEXT", "IGNORE", "OFFLINE", "ONLINE", "SPATIAL", "UNIQUE", "VECTOR"}
_LONGEST_START = 12
_BEFORE_TABLE = {
    "EXISTS",
    "FROM",
    "IGNORE",
    "INTO",
    "JOIN",
    "ON",
    "TABLE",
    "TABLES",
    "TO",
    "TRUNCATE",
    "UPDATE",
    "WITH",
}
"""After these words, ``.t`` is a table of the default database."""
_BEFORE_TARGET = {
    "DELAYED",
    "EXISTS",
    "HIGH_PRIORITY",
    "IF",
    "IGNORE",
    "INTO",
    "LOW_PRIORITY",
    "NOT",
}
_ALTER = ("ALTER", "TABLE")
_NAMING = {
    _ALTER,
    ("CREATE", "TABLE"),
    ("CREATE OR REPLACE", "TABLE"),
    ("RENAME", "TABLE"),
    ("RENAME", "TABLES"),
}
_KEEPING = {"RENAME": ("COLUMN", "INDEX", "KEY"), "CONVERT": ("TO",)}
"""First words of clauses of an ``ALTER TABLE``, and the second words with which these keep the
table's name and rows."""
_NO_COLUMN = {"CHECK", "CONSTRAINT", "FOREIGN", "INDEX", "KEY"}
_PARTITIONING = {
    "ANALYZE",
    "CHECK",
    "COALESCE",
    "OPTIMIZE",
    "PARTITION",
    "REBUILD",
    "REMOVE",
    "REORGANIZE",
    "REPAIR",
}
"""First words of the last clause of an ``ALTER TABLE``, where a comma separates partitions."""
_OPTIONS = {
    *_PARTITIONING,
    *(
        "ALGORITHM",
        "AUTOEXTEND_SIZE",
        "AUTO_INCREMENT",
        "AVG_ROW_LENGTH",
        "CHARACTER",
        "CHARSET",
        "CHECKSUM",
        "COLLATE",
        "COMMENT",
    ),
    *(
        "COMPRESSION",
        "CONNECTION",
        "DATA",
        "DEFAULT",
        "DELAY_KEY_WRITE",
        "DISABLE",
        "ENABLE",
        "ENCRYPTION",
        "ENGINE",
        "ENGINE_ATTRIBUTE",
    ),
    *(
        "FORCE",
        "INDEX",
        "INSERT_METHOD",
        "KEY_BLOCK_SIZE",
        "LOCK",
        "MAX_ROWS",
        "MIN_ROWS",
        "ORDER",
        "PACK_KEYS",
        "PAGE_CHECKSUM",
    ),
    *(
        "PASSWORD",
        "ROW_FORMAT",
        "SECONDARY_ENGINE",
        "SECONDARY_ENGINE_ATTRIBUTE",
        "SECONDARY_LOAD",
        "SECONDARY_UNLOAD",
    ),
    *(
        "STATS_AUTO_RECALC",
        "STATS_PERSISTENT",
        "STATS_SAMPLE_PAGES",
        "STORAGE",
        "TABLESPACE",
        "TRANSACTIONAL",
        "UNION",
        "WITH",
        "WITHOUT",
    ),
}
"""First words of further clauses of an ``ALTER TABLE`` that keep the rows."""

_ANYTHING = "..."
_OBJECTS = (
    *(
        "AGGREGATE",
        "ALGORITHM",
        "DEFINER",
        "EVENT",
        "FUNCTION",
        "INSTANCE",
        "LIBRARY",
        "LOGFILE",
        "PACKAGE",
        "PROCEDURE",
        "RESOURCE",
    ),
    *("ROLE", "SERVER", "SQL", "TABLESPACE", "TEMPORARY", "TRIGGER", "UNDO", "USER", "VIEW"),
)
"""Objects that are neither a table nor a database, and words that only precede such objects."""
_HARMLESS = (
    *product(("COMMIT", "FLUSH", "GRANT", "REVOKE", "ROLLBACK", "XA"), (_ANYTHING,)),
    *product(("SET",), ("DEFAULT", "PASSWORD", "ROLE")),
    *product(("ANALYZE", "OPTIMIZE", "REPAIR"), ("TABLE", "TABLES")),
    *product(("ALTER", "CREATE", "CREATE OR REPLACE", "DROP", "RENAME"), _OBJECTS),
    *product(("ALTER", "CREATE"), ("DATABASE", "SCHEMA", "SEQUENCE")),
    *product(("CREATE", "CREATE OR REPLACE"), ("INDEX",)),
    ("CREATE", "TABLE"),
    ("DROP", "SEQUENCE"),
)
_WITHIN_TRANSACTIONS = (
    *((), ("BEGIN",), ("BEGIN", "WORK")),
    *product(("SAVEPOINT",), (_ANYTHING,)),
    *(("ROLLBACK", "TO"), ("XA", "BEGIN"), ("XA", "END"), ("XA", "START")),
)
_ON_ROWS = ("CALL", "DELETE", "DO", "LOAD", "SELECT", "UPDATE", "WITH")
"""Statements that a log has if ``binlog_format`` is not ROW, between a BEGIN and a COMMIT."""
_KINDS: dict[tuple[str, ...], _Kind] = {
    **dict.fromkeys(_HARMLESS, _Kind(Effect.NOTHING)),
    **dict.fromkeys(_WITHIN_TRANSACTIONS, _Kind(Effect.NOTHING, ends_transaction=False)),
    **dict.fromkeys(
        product(_ON_ROWS, (_ANYTHING,)), _Kind(Effect.WRITES, _names_table, ends_transaction=False)
    ),
    **dict.fromkeys(
        product(("INSERT", "REPLACE"), (_ANYTHING,)),
        _Kind(Effect.WRITES, _targets_table, ends_transaction=False),
    ),
    ("TRUNCATE", _ANYTHING): _Kind(Effect.EMPTIES, _names_table),
    _ALTER: _Kind(Effect.RESHAPES, _names_table),
    ("DROP", "INDEX"): _Kind(Effect.KEEPS, _names_table),
    **dict.fromkeys(
        product(("DROP", "RENAME"), ("TABLE", "TABLES")), _Kind(Effect.REPLACES, _names_table)
    ),
    **dict.fromkeys(
        product(("CREATE OR REPLACE",), ("SEQUENCE", "TABLE")),
        _Kind(Effect.REPLACES, _targets_table),
    ),
    **dict.fromkeys(
        product(("CREATE OR REPLACE", "DROP"), ("DATABASE", "SCHEMA")),
        _Kind(Effect.REPLACES, _names_database),
    ),
}


# --------------------------------------------------------------------------------------------------
# Entries of a binary log: row changes, statements, and ends of transactions.


class RowChange(NamedTuple):
    """A row change.

    Attributes
    ----------
    before, after : Row or None
        `before` is None for an insert, `after` for a delete.
    position : Position
        The end of its event. If the server does not write that (MariaDB since 11.4), the end of the
        last event that has one.
    number : int
        The index of the row among the captured tables' rows in the transaction.
    seconds : int
        The source's time, since 1970-01-01 UTC.
    server_id : int
        The server where the change was made.
    gtid : str or None
        The transaction's GTID; None if there is none or it cannot be read.
    table : TableId
    """

    before: Row | None
    after: Row | None
    position: LogPosition
    number: int
    seconds: int
    server_id: int
    gtid: str | None
    table: TableId


class Statement(NamedTuple):
    """A statement that affects a table.

    Attributes
    ----------
    text : str
    position : Position
        The end of its event.
    table : TableId
    effect : Effect
    names : frozenset of str
        Its words and quoted names, in lower case.
    removed : frozenset of str
        The columns that it drops or renames, in lower case.
    """

    text: str
    position: LogPosition
    table: TableId
    effect: Effect
    names: frozenset[str]
    removed: frozenset[str]


class TableCreation(NamedTuple):
    """A statement that may have created or renamed a table."""

    position: LogPosition


class TransactionEnd(NamedTuple):
    """The end of a transaction.

    Attributes
    ----------
    touched : frozenset of TableId
        The tables that the transaction may have changed. A reader without row changes reports a
        table only for the first such transaction.
    seconds, gtid
        See `RowChange`.
    """

    position: LogPosition
    touched: frozenset[TableId]
    seconds: int
    gtid: str | None


LogEntry = RowChange | Statement | TableCreation | TransactionEnd
