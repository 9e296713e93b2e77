"""Arguments that several public functions have."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from cdc_formats.errors import ArgumentError
from cdc_formats.format import Format, get_format


def names_of(names: str | Sequence[str], argument: str = "") -> tuple[str, ...]:
    """Return one name or several as a tuple.

    Parameters
    ----------
    names : str or sequence of str
    argument : str
        The user's argument that has them, for errors.

    Raises
    ------
    ArgumentError
    """
    if isinstance(names, str):
        return (names,)
    if not isinstance(names, Collection) or not all(isinstance(each, str) for each in names):
        raise ArgumentError(f"{argument or 'it'} is {names!r}: pass a name or a list of names")
    return tuple(names)


def check_mapping(name: str, value: Any) -> None:
    """Raise an error for an argument that is neither a mapping nor None.

    Its value is not shown, since it can have a password.

    Raises
    ------
    ArgumentError
    """
    if value is not None and not isinstance(value, Mapping):
        raise ArgumentError(f"{name} is of type {type(value).__name__}: pass a mapping")


def check_location(name: str, value: Any) -> None:
    """Raise an error for an argument that is no folder's path or URL.

    Raises
    ------
    ArgumentError
    """
    if not isinstance(value, str) or not value.strip():
        raise ArgumentError(f"{name} is {value!r}: pass the path or the URL of a folder")


_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400}


def seconds_of(name: str, interval: str) -> int:
    """Return the seconds of an argument that is an interval, such as ``10 minutes``.

    Raises
    ------
    ArgumentError
    """
    matched = re.fullmatch(rf"(\d+) ({'|'.join(_SECONDS)})s?", interval)
    if not matched:
        raise ArgumentError(
            f"{name} is {interval!r}: pass a number of seconds, minutes, hours or days, as "
            "'10 minutes'"
        )
    return int(matched[1]) * _SECONDS[matched[2]]


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise an error for an argument that is not one of the choices.

    Raises
    ------
    ArgumentError
    """
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}: use {' or '.join(map(repr, choices))}")


def as_mode(mode: Any, choices: Sequence[str]) -> Any:
    """Return a mode in capitals: as in Spark, it may have any case.

    Raises
    ------
    ArgumentError
    """
    if str(mode).upper() not in choices:
        raise ArgumentError(
            f"mode is {mode!r}: use one of {', '.join(choices)}, or DeadLetter(topic)"
        )
    return str(mode).upper()


def as_format(format: str | Format, options: Mapping[str, Any] | None) -> Format:
    """Return the format of the arguments `format` and `format_options`.

    Raises
    ------
    ArgumentError, UnknownFormatError, FormatOptionError
    """
    check_mapping("format_options", options)
    if isinstance(format, Format):
        if options:
            raise ArgumentError(
                "format_options require a format's name: pass the options to "
                f"{type(format).__name__}(...) instead"
            )
        return format
    if not isinstance(format, str):
        raise ArgumentError(
            f"format is {format!r}: pass an identifier such as 'debezium-json', or a Format"
        )
    return get_format(format, **(options or {}))


def metadata_columns(metadata: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return the requested metadata by the names of their columns.

    Raises
    ------
    ArgumentError
        When metadata is requested twice.
    """
    if not isinstance(metadata, Mapping):
        metadata = {name: name for name in names_of(metadata)}
    names = list(metadata.values())
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ArgumentError(f"metadata has {twice[0]!r} in two columns: remove one of them")
    return dict(metadata)
