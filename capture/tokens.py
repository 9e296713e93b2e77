"""SQL tokens as MySQL and MariaDB split them: no comments, but content of executable comments.

The scanner accepts any text and reads each character once, so its time is linear in the length of
the text.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from pymysql.charset import charset_by_id

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


def scan(text: str, dialect: ServerSyntax) -> tuple[list[Token], bool]:
    """Return a statement's tokens, and whether every comment and quotation is complete.

    The server replaces the ``!`` of an executable comment that it does not execute. So it executed
    all that are in its log.
    """
    tokens: list[Token] = []
    at, opened, whole = 0, False, True
    while match := _LEXEMES[dialect.mariadb].match(text, at):
        kind, at = match.lastgroup, match.end()
        if kind in ("word", "symbol"):
            tokens.append(Token(kind, match[0]))  # type: ignore[arg-type]
        elif kind == "quote":
            token, at, closed = _quoted(text, at, match[0], dialect)
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


def _quoted(text: str, start: int, quote: str, dialect: ServerSyntax) -> tuple[Token, int, bool]:
    """Return the token after an opening quote, the index after it, and whether the quote closes."""
    is_name = quote == "`" or (quote == '"' and bool(dialect.sql_mode & _ANSI_QUOTES))
    escapes = "" if is_name or dialect.sql_mode & _NO_BACKSLASH_ESCAPES else _ESCAPES
    at = start
    while match := _QUOTES[quote, escapes].search(text, at):
        at = match.end()
        if match[0] == quote:
            return _of_quoted(is_name, text[start : match.start()], quote), at, True
    return _of_quoted(is_name, text[start:], quote), len(text), False


def _of_quoted(is_name: bool, text: str, quote: str) -> Token:
    return Token("name" if is_name else "string", text.replace(quote * 2, quote))
