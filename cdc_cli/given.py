"""What a person gives on the command line, read: formats and their options, columns, where to begin."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
from importlib.metadata import entry_points
from typing import Any

import typer

from cdc_formats.base import Format
from cdc_formats.errors import ArgumentError, FormatOptionError
from cdc_formats.registry import GROUP, get_format, list_formats

_VARIABLE = re.compile(r"env:([A-Za-z_]\w*)", re.ASCII)


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return ``name=value`` texts as a mapping; a value ``env:NAME`` is that of an environment variable.

    Parameters
    ----------
    texts : sequence of str
    option : str
        What they were given as, for errors, in which no value stands.

    Raises
    ------
    typer.BadParameter
        When there is no ``=``.
    ArgumentError
        When there is no such variable.

    Examples
    --------
    >>> pairs(["security.protocol=SASL_SSL", "sasl.username=orders=1"], "-X")
    {'security.protocol': 'SASL_SSL', 'sasl.username': 'orders=1'}
    """
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise typer.BadParameter(f"{option} takes name=value")
        found[name.strip()] = from_environment(name.strip(), value.strip())
    return found


def from_environment(name: str, value: str) -> str:
    """Return a value, or that of the environment's variable which it names.

    Raises
    ------
    ArgumentError
        When there is no such variable.
    """
    variable = _VARIABLE.fullmatch(value)
    if variable is None:
        return value
    if variable[1] not in os.environ:
        raise ArgumentError(f"{name} is to be taken from the environment, which has no {variable[1]}")
    return os.environ[variable[1]]


def names(text: str) -> tuple[str, ...]:
    """Return names that stand with commas between them."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def spelled(name: str) -> str:
    """Return an option's name as a format has it: Flink's dots and dashes are underscores."""
    return name.replace("-", "_").replace(".", "_")


def complete_format(incomplete: str) -> list[str]:
    """Return the formats whose names begin so, for the shell."""
    return [name for name in list_formats() if name.startswith(incomplete)]


def make_format(identifier: str, options: Mapping[str, str]) -> Format:
    """Return a format with options that were given as text.

    Raises
    ------
    UnknownFormatError, AmbiguousFormatError, MissingDependencyError
    FormatOptionError
        When an option does not exist (the text has the nearest that does), or its value cannot be used.
    """
    types = {field.name: field.type for field in fields(format_class(identifier))}
    texts = {spelled(name): text for name, text in options.items()}
    values = {name: _value(identifier, name, types.get(name, str), text) for name, text in texts.items()}
    try:
        return get_format(identifier, **values)
    except FormatOptionError as error:
        near = [(name, get_close_matches(name, types, 1)) for name in sorted(set(texts) - set(types))]
        hints = [f". Did you mean {found[0]} for {name}?" for name, found in near if found]
        raise FormatOptionError(str(error.args[0]) + "".join(hints)) from None
    except TypeError as error:
        raise FormatOptionError(f"{identifier}: {error}") from None


def format_class(identifier: str) -> type[Format]:
    """Return the class that is registered as `identifier`, also of a format that cannot be made without some option.

    Raises
    ------
    UnknownFormatError, AmbiguousFormatError, MissingDependencyError
    """
    try:
        return type(get_format(identifier))
    except (FormatOptionError, TypeError):
        (point,) = entry_points(group=GROUP, name=identifier)
        found: type[Format] = point.load()
        return found


def _value(identifier: str, name: str, declared: Any, text: str) -> Any:
    """Return text as the type that an option is declared with; which values it takes is for the format to say."""
    kind = getattr(declared, "__name__", str(declared))
    try:
        if kind in ("int", "float"):
            return {"int": int, "float": float}[kind](text)
        if kind == "Any":
            return json.loads(text)
    except ValueError:
        expected = "JSON" if kind == "Any" else f"a number ({kind})"
        raise FormatOptionError(f"{identifier}: {name} is {expected}, and what was given is not") from None
    return {"true": True, "false": False}.get(text.lower(), text) if "bool" in kind else text
