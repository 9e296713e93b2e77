"""Parses command-line values: formats and their options, pairs, names."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import typer

from cdc_formats.errors import FormatOptionError
from cdc_formats.format import Format, option_name
from cdc_formats.registry import format_class, get_format, list_formats
from cdc_formats.topics.client import from_environment


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return ``name=value`` texts as a mapping; ``env:NAME`` is an environment variable's value.

    Parameters
    ----------
    texts : sequence of str
    option : str
        The option that they were passed with, for errors. Errors never contain a value.

    Raises
    ------
    typer.BadParameter
        When there is no ``=``.
    ArgumentError
        When the environment variable is not set.

    Examples
    --------
    >>> pairs(["security.protocol=SASL_SSL", "sasl.username=orders=1"], "-X")
    {'security.protocol': 'SASL_SSL', 'sasl.username': 'orders=1'}
    """
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{option} requires name=value")
        values[name.strip()] = from_environment(name.strip(), value.strip())
    return values


def names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated text."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def complete_format(incomplete: str) -> list[str]:
    """Return the formats whose names begin with `incomplete`, for shell completion."""
    return [name for name in list_formats() if name.startswith(incomplete)]


def make_format(identifier: str, options: Mapping[str, str]) -> Format:
    """Return a format with options that are given as text.

    Raises
    ------
    UnknownFormatError, AmbiguousFormatError, MissingDependencyError
    FormatOptionError
        When an option does not exist (the error suggests the nearest one), or its value is not
        valid.
    """
    types = {field.name: field.type for field in fields(format_class(identifier))}
    texts = {option_name(name): text for name, text in options.items()}
    values = {
        name: _value(identifier, name, types.get(name, str), text) for name, text in texts.items()
    }
    try:
        return get_format(identifier, **values)
    except TypeError as error:
        raise FormatOptionError(f"{identifier}: {error}") from None


def _value(identifier: str, name: str, declared: Any, text: str) -> Any:
    """Return text as the option's declared type; the format itself checks the value."""
    kind = getattr(declared, "__name__", str(declared))
    try:
        if kind in ("int", "float"):
            return {"int": int, "float": float}[kind](text)
        if kind == "Any":
            return json.loads(text)
    except ValueError:
        expected = "JSON" if kind == "Any" else f"a number ({kind})"
        raise FormatOptionError(
            f"{identifier}: {name} must be {expected}; the given text is not"
        ) from None
    return {"true": True, "false": False}.get(text.lower(), text) if "bool" in kind else text
