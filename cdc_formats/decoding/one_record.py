"""One Kafka record: its rows, the reason why it has none, or the error that it causes."""

from __future__ import annotations

from collections.abc import Callable
from traceback import extract_tb
from typing import Any, Protocol, TypeVar

from cdc_formats.errors import (
    ChangelogError,
    DecodeError,
    FormatBugError,
    MalformedMessageError,
    excerpt_of,
)

T = TypeVar("T")

_INFRASTRUCTURE_ERRORS = (ChangelogError, OSError, ImportError, MemoryError)
"""Errors that no record causes, such as an unreachable registry (`DecodeError` is excluded)."""


class Record(Protocol):
    """The parts of a Kafka record that an error text needs."""

    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def where(self) -> str: ...


def decode_one(identifier: str, decode: Callable[..., T], *arguments: Any) -> T | DecodeError:
    """Return what `decode` returns for one record, or the error that the record causes.

    Parameters
    ----------
    identifier : str
        The format's.
    decode : callable
        An exception of it that is not a `DecodeError` is a bug of the format.
    *arguments
        Those of `decode`.

    Raises
    ------
    ChangelogError, OSError, ImportError, MemoryError
        Infrastructure errors, which no record causes.
    """
    try:
        return decode(*arguments)
    except DecodeError as error:
        return error.at()  # without the frames of the traceback
    except _INFRASTRUCTURE_ERRORS:
        raise
    except RecursionError:
        return MalformedMessageError("nested too deeply")
    except Exception as error:
        return _bug(identifier, error)


def _bug(identifier: str, error: Exception) -> DecodeError:
    # Spark does not show a cause's traceback: the text includes the line.
    _, line, function, _ = extract_tb(error.__traceback__)[-1]
    what = f"{identifier} failed with {type(error).__name__}"
    rule = (
        f" (line {line}, in {function}), but a format may only raise DecodeError: please report "
        "this bug of the format"
    )
    bug = FormatBugError(f"{what}: {error}{rule}", bare=what + rule)
    bug.__cause__ = error
    return bug


def in_record(error: DecodeError, record: Record, *, excerpt: bool) -> DecodeError:
    """Return an error with its record's position in Kafka.

    Parameters
    ----------
    error : DecodeError
    record : Record
    excerpt : bool
        Whether the error shows data of the message (`Format.error_excerpt`), also in its cause.
    """
    if not excerpt:
        return error.without_data().at(where=record.where)
    message = record.key if error.field == "key" else record.value
    located = error.at(where=record.where, excerpt=excerpt_of(message))
    located.__cause__ = error.__cause__
    return located
