"""Filters for topics of several tables (Canal's ``database.include`` and ``table.include``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from cdc_formats.errors import DecodeError, FormatOptionError, MissingFieldError
from cdc_formats.events import Event, Headers, Ignored, Reader
from cdc_formats.values.json_reader import json_reader, read_json

Path = tuple[str, ...]
_members = json_reader(dict[str, msgspec.Raw])


class TableFilter:
    """Regular expressions that the names of a message's table must match in full, as in Flink.

    Parameters
    ----------
    options : mapping
        By the names of the options, such as ``database_include``, their expressions; None matches
        everything.
    columns : sequence of str
        The metadata columns that the options select (`Traits.table_identity`).
    read : callable
        From a message to the values of these columns.

    Raises
    ------
    FormatOptionError
        When an expression is not a regular expression.
    """

    def __init__(
        self,
        options: Mapping[str, str | None],
        columns: Sequence[str],
        read: Callable[[Any], tuple[Any, ...]],
    ) -> None:
        self.patterns = {
            option.removesuffix("_include"): _compile(option, text)
            for option, text in options.items()
        }
        self.set = any(pattern is not None for pattern in self.patterns.values())
        self.columns, self.read = columns, read

    def match(self, message: Any, path: str) -> bool:
        """Whether a message belongs to a selected table.

        Parameters
        ----------
        message : Any
            `Event.message`.
        path : str
            The object with the names in the message, for errors.

        Raises
        ------
        MissingFieldError
            As `match_names`.
        """
        return not self.set or self.match_names(self.read(message), path)

    def match_names(self, names: Sequence[Any], path: str) -> bool:
        """Whether these are the names of a selected table.

        Raises
        ------
        MissingFieldError
            When the message does not contain a name (Flink: a NullPointerException). A JSON null is
            treated as missing.
        """
        for (what, pattern), name in zip(self.patterns.items(), names, strict=True):
            if pattern is None:
                continue
            if name is None:
                raise MissingFieldError(
                    f"`{what}` is null or missing, and {what}_include is set", path
                )
            if not pattern.fullmatch(str(name)):
                return False
        return True

    def guard(self, read: Reader, *places: Sequence[Path]) -> Reader:
        """Return `read`, but ignore other tables' JSON messages even if it raises an error.

        Parameters
        ----------
        read : callable
        *places : sequence of tuple of str
            The paths of the names that `match_names` compares, from the root of a record's value.
            Each sequence is tried.
        """
        if not self.set:
            return read

        def guarded(
            key: bytes | None, value: bytes | None, *headers: Headers
        ) -> Sequence[Event] | Ignored:
            try:
                return read(key, value, *headers)
            except DecodeError:
                if value is not None and any(self._is_other(value, place) for place in places):
                    return Ignored.OTHER_TABLE
                raise

        return guarded

    def _is_other(self, value: bytes, place: Sequence[Path]) -> bool:
        try:
            return not self.match_names([_at(value, path) for path in place], "$")
        except DecodeError:
            return False  # not JSON, or without the name


def _at(text: bytes, path: Path) -> Any:
    """Return the value at a path, or None; other members are skipped and may hold anything."""
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
