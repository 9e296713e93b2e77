"""Formats by name: built-in ones, those of installed packages, those registered in this process.

Names are looked up in this order: `register_format` (this process), the entry points of the group
``cdc_formats.formats`` of other installed packages, and `BUILT_IN`. Listing imports no format;
`get_format` imports only the requested one, and only if it is installed or registered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from .errors import AmbiguousFormatError, MissingDependencyError, UnknownFormatError
from .format import Format

F = TypeVar("F", bound=type[Format])
C = TypeVar("C")

GROUP = "cdc_formats.formats"
BUILT_IN: Mapping[str, str] = {
    "canal-json": "cdc_formats.formats.canal:CanalJson",
    "changelog-json": "cdc_formats.formats.changelog:ChangelogJson",
    "cockroachdb-json": "cdc_formats.formats.cockroachdb:CockroachdbJson",
    "debezium-avro-confluent": "cdc_formats.formats.debezium.avro:DebeziumAvro",
    "debezium-flat-json": "cdc_formats.formats.debezium.flat:DebeziumFlatJson",
    "debezium-json": "cdc_formats.formats.debezium.json:DebeziumJson",
    "debezium-mongodb-json": "cdc_formats.formats.debezium.mongodb:DebeziumMongodbJson",
    "dms-json": "cdc_formats.formats.dms:DmsJson",
    "maxwell-json": "cdc_formats.formats.maxwell:MaxwellJson",
    "mongodb-json": "cdc_formats.formats.mongodb:MongodbJson",
    "ogg-json": "cdc_formats.formats.ogg:OggJson",
    "op-json": "cdc_formats.formats.op:OpJson",
    "sqlserver-ces-json": "cdc_formats.formats.sqlserver_ces:SqlserverCesJson",
    "ticdc-canal-json": "cdc_formats.formats.ticdc:TicdcCanalJson",
    "ticdc-simple-json": "cdc_formats.formats.ticdc_simple:TicdcSimpleJson",
    "upsert-kafka": "cdc_formats.formats.upsert.upsert_kafka:UpsertKafka",
}

registered: dict[str, type[Format]] = {}
"""The formats of `register_format`, by name."""


def register_format(cls: F, *, replace: bool = False) -> F:
    """Register a format's class under its identifier, for this process; use it as a decorator.

    Workers need no registration: Spark sends them the format itself, with its class if a notebook
    or script defines it.

    Parameters
    ----------
    cls : type
        A subclass of `Format` with an `identifier`.
    replace : bool
        Whether to replace another class with the same identifier.

    Raises
    ------
    AmbiguousFormatError
        When another class has the identifier. The same class may be defined again (a notebook cell
        that runs twice).

    Examples
    --------
    >>> from cdc_formats import Event, Format, get_format, read_object, register_format
    >>> @register_format
    ... class Acme(Format):
    ...     identifier = "acme-json"
    ...     def read(self, key, value):
    ...         return [Event.insert(read_object(value))]
    >>> get_format("acme-json").decoder("id INT").decode(None, b'{"id": 1}')
    [Change(kind=<RowKind.INSERT: 0>, row=(1,), metadata=())]
    """
    name = getattr(cls, "identifier", None)
    if not isinstance(name, str) or not name:
        raise UnknownFormatError(
            f'{cls.__qualname__} has no identifier: set `identifier = "my-format"` in the class'
        )
    if not replace:
        for other in claims_of(name):
            if other != _path(cls):
                raise AmbiguousFormatError(
                    f"{name!r} is already registered as {other}, not {_path(cls)}; "
                    "register_format(cls, replace=True) replaces it"
                )
    registered[name] = cls
    return cls


def list_formats() -> list[str]:
    """Return the known identifiers, sorted, without importing the formats."""
    return sorted({*registered, *_installed(), *BUILT_IN})


def get_format(identifier: str, **options: Any) -> Format:
    """Return the format registered as `identifier`.

    Parameters
    ----------
    identifier : str
        For example ``debezium-json``.
    **options
        The format's options, with Flink's names; dots and dashes are read as underscores.

    Raises
    ------
    UnknownFormatError
        When no format has the identifier; the text lists the known ones.
    AmbiguousFormatError
        When two installed packages claim the name.
    FormatOptionError
        When an option does not exist or its value cannot be used.
    MissingDependencyError
        When the format needs a package that is not installed.
    """
    return format_class(identifier).from_options(options)


def format_class(identifier: str) -> type[Format]:
    """Return the class of the format registered as `identifier`.

    Raises
    ------
    UnknownFormatError, AmbiguousFormatError, MissingDependencyError
        As `get_format`.
    """
    if identifier in registered:
        return registered[identifier]
    claims = claims_of(identifier)
    if len(claims) > 1:
        raise AmbiguousFormatError(
            f"{identifier!r} is claimed by {' and by '.join(claims)}; uninstall one"
        )
    if claims:
        return load_class(f"format {identifier!r}", claims[0], Format)
    near = get_close_matches(identifier, list_formats(), 1)
    hint = f"; did you mean {near[0]!r}?" if near else "."
    raise UnknownFormatError(
        f"no format {identifier!r}{hint} Known: {', '.join(list_formats())}. Your own: see "
        "register_format"
    )


def claims_of(identifier: str) -> list[str]:
    """Return the registered, installed or built-in classes with this name, as ``module:name``."""
    if identifier in registered:
        return [_path(registered[identifier])]
    installed = {point.value for point in _installed().get(identifier, ())}
    return sorted(installed | ({BUILT_IN[identifier]} if identifier in BUILT_IN else set()))


def _path(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _installed() -> dict[str, list[EntryPoint]]:
    return _entry_points(tuple((path, _modified(path)) for path in sys.path))


def _modified(path: str) -> int | None:
    with suppress(OSError):
        return os.stat(path or ".").st_mtime_ns
    return None


@lru_cache(maxsize=1)
def _entry_points(_: tuple[tuple[str, int | None], ...]) -> dict[str, list[EntryPoint]]:
    # Reading the metadata of all distributions takes milliseconds: read it again only when their
    # folders change.
    points: dict[str, list[EntryPoint]] = {}
    for point in entry_points(group=GROUP):
        points.setdefault(point.name, []).append(point)
    return points


def load_class(what: str, path: str, base: type[C]) -> type[C]:
    """Return the subclass of `base` that a path names.

    Parameters
    ----------
    what : str
        What names it, for errors.
    path : str
        ``module:Class``.
    base : type

    Raises
    ------
    MissingDependencyError
        When the module needs a package that is not installed.
    UnknownFormatError
        When there is no such class, or it is not a subclass of `base`.
    """
    module, _, name = path.partition(":")
    try:
        cls = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        missing = error.name or str(error)
        raise MissingDependencyError(
            f"{what} ({path}) needs {missing}: pip install {missing}"
        ) from error
    except AttributeError as error:
        raise UnknownFormatError(
            f"{what} is registered as {path}, and this class does not exist: {error}"
        ) from error
    if not (isinstance(cls, type) and issubclass(cls, base)):
        raise UnknownFormatError(
            f"{what} is registered as {path}, which is not a subclass of {base.__name__}"
        )
    return cls
