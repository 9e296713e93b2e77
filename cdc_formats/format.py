"""The format interface: `Format` (configuration), from which `Decoder` and `Encoder` are compiled.

Like Flink's DecodingFormat and DeserializationSchema, configuration and decoding are separate. A
format is a small frozen description made on the driver; each worker compiles a decoder from it
once.
"""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from difflib import get_close_matches
from functools import lru_cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, ClassVar, TypeVar

from cdc_formats.errors import AmbiguousFormatError, MissingDependencyError, UnknownFormatError

from .decoder import Decoder
from .errors import FormatOptionError
from .events import KeyValue, RowKind
from .message_format import (
    MessageFormat,
    MetadataColumn,
    RowNames,
    Traits,
    as_boolean,
    choice,
    json_schema_of,
    message_validator,
    names_in_row,
    table_filter,
    untyped_reader,
)
from .values.schema import Column, columns as to_columns

__all__ = [
    "Encoder",
    "FilteredFormat",
    "Format",
    "MetadataColumn",
    "RowNames",
    "Traits",
    "ZonedFormat",
    "choice",
    "json_schema_of",
    "message_validator",
    "names_in_row",
    "nearest_options",
    "option_name",
    "table_filter",
    "untyped_reader",
]

F = TypeVar("F", bound="Format")

_FLINK_OPTIONS_ELSEWHERE = {
    "basic_auth_credentials_source": "basic_auth_user_info, or a user in the url, is enough",
    "bearer_auth_credentials_source": "bearer_auth_token is enough",
    "ignore_parse_errors": (
        "Flink's ignore-parse-errors is from_kafka_changelog(mode='DROPMALFORMED') here, or "
        "'PERMISSIVE'"
    ),
    "encode_decimal_as_plain_number": "Decimals are always written as plain numbers",
    "encode_ignore_null_fields": (
        "NULL is always written: in a before-image, and in ogg-json, a missing column is unchanged "
        "and not NULL"
    ),
    "json_encode_ignore_null_fields": "NULL is always written",
    "ssl_keystore_location": (
        "Java's key stores are not read: ssl_certificate_location and ssl_key_location are PEM "
        "files"
    ),
    "ssl_truststore_location": "Java's key stores are not read: ssl_ca_location is a PEM file",
}
"""Flink's options that formats here do not have, and what to use instead."""


class Encoder(ABC):
    """Encodes rows as the key and value of a Kafka record."""

    pairs_updates: bool = True
    """Whether an update is one record, with the ``-U`` row as `before` of its ``+U``. Otherwise
    each row is encoded separately."""
    writes_source: bool = False
    """Whether messages have a ``source`` block, like Debezium's, with the position in the source's
    log."""
    source: Any = None
    """The ``source`` block: a JSON object, or its text as `msgspec.Raw`; set it before each
    `encode`. None: no block is written."""

    @abstractmethod
    def encode(
        self, kind: RowKind, row: tuple[Any, ...], before: tuple[Any, ...] | None = None
    ) -> KeyValue | None:
        """Return the key and value of the record for a change; None if the format has none for it.

        Parameters
        ----------
        kind : RowKind
            ``UPDATE_BEFORE`` is passed only if the matching ``+U`` is missing or has another key.
            Formats without a record for half an update then write a delete, and an insert for such
            a ``+U`` (Flink does so for every update).
        row : tuple
            Canonical values in the order of the columns.
        before : tuple or None
            The row before an ``UPDATE_AFTER``, if known; then the record is an update.

        Raises
        ------
        EncodeError
            When a value would not be read back as the same value.
        """


@dataclass(frozen=True, kw_only=True, repr=False)
class Format(MessageFormat):
    """A changelog format: its name, its declarations, and its options (the dataclass's fields).

    Subclass it, set `identifier` and `changelog_mode`, write `read`, and decorate the class with
    `cdc_formats.register_format`; options are fields of a
    ``@dataclass(frozen=True, kw_only=True)``.
    """

    written_by: ClassVar[Callable[..., Encoder] | None] = None
    """The encoder, called with the format, the columns and the unique key; None: only read."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__repr__" not in cls.__dict__:  # or `dataclass` would write one with all options
            cls.__repr__ = Format.__repr__  # type: ignore[method-assign]

    def __repr__(self) -> str:
        """Return the call that makes an equal format: the options that differ from the defaults."""
        named = [
            f"{each.name}={value!r}"
            for each in fields(self)
            if each.repr and (value := getattr(self, each.name)) != each.default
        ]
        return f"{type(self).__name__}({', '.join(named)})"

    def decoder(
        self,
        columns: str | Sequence[Column],
        *,
        unique_key: Sequence[str] = (),
        metadata: Sequence[str] = (),
        positions: bool = False,
        tables: Sequence[str] = (),
        require_key: bool = False,
        completes_moved: bool = True,
    ) -> Decoder:
        """Compile a decoder.

        Parameters
        ----------
        columns : str or sequence of Column
            DDL text, or its columns.
        unique_key : sequence of str
            The columns of the primary key; `Decoder.upserts` needs it.
        metadata : sequence of str
            Names of `metadata` to read.
        positions : bool
            Whether `Decoder.upserts` reads `KeyedChange.position`.
        tables : sequence of str
            Columns of `table_identity` whose values `Decoder.tables` collects.
        require_key : bool
            Whether `Decoder.decode` refuses a row without its key, as `Decoder.upserts` always
            does.
        completes_moved : bool
            Whether the caller of `Decoder.upserts` can complete a partial row whose key is new,
            from the row of the old key. Otherwise such a row is an error, and its old row is not
            deleted.

        Raises
        ------
        SchemaError
            When the columns, the key or the metadata do not exist or cannot be read by this format.
        FormatOptionError
            When positions are requested and the format has none; the text includes the reason.
        """
        return Decoder(
            self,
            to_columns(columns),
            tuple(unique_key),
            tuple(metadata),
            positions=positions,
            tables=tables,
            require_key=require_key,
            completes_moved=completes_moved,
        )

    def encoder(
        self, columns: str | Sequence[Column], *, unique_key: Sequence[str] = ()
    ) -> Encoder:
        """Compile an encoder, if the format has one.

        Parameters
        ----------
        columns : str or sequence of Column
        unique_key : sequence of str
            The columns of the Kafka key; records have no key if empty.

        Raises
        ------
        FormatOptionError
            When the format cannot be written.
        """
        if self.written_by is not None:
            return self.written_by(self, columns, unique_key)
        raise FormatOptionError(
            f"{self.identifier} cannot be written, only read: choose another format, such as "
            "debezium-json"
        )

    @classmethod
    def from_options(cls: type[F], options: Mapping[str, Any]) -> F:
        """Make the format from named options; dots and dashes (Flink's spelling) mean underscores.

        Raises
        ------
        FormatOptionError
            When an option does not exist (the text lists the existing ones and names the nearest),
            or its value cannot be used.
        """
        types = {field.name: field.type for field in fields(cls)}
        values = {option_name(name): value for name, value in options.items()}
        unknown = sorted(set(values) - set(types))
        if unknown:
            elsewhere = "".join(
                f". {_FLINK_OPTIONS_ELSEWHERE[name]}"
                for name in unknown
                if name in _FLINK_OPTIONS_ELSEWHERE
            )
            hint = elsewhere + nearest_options(
                [name for name in unknown if name not in _FLINK_OPTIONS_ELSEWHERE], types
            )
            raise FormatOptionError(
                f"{cls.identifier} has no option {', '.join(unknown)}; it has "
                f"{', '.join(sorted(types))}{hint}"
            )
        return cls(
            **{
                name: as_boolean(value) if types[name] in ("bool", bool) else value
                for name, value in values.items()
            }
        )


@dataclass(frozen=True, kw_only=True)
class ZonedFormat(Format):
    """A format whose producer writes some times without their zone."""

    time_zone: str | None = None


@dataclass(frozen=True, kw_only=True)
class FilteredFormat(ZonedFormat):
    """A format whose topics may have several tables of several databases."""

    database_include: str | None = None
    table_include: str | None = None


def nearest_options(unknown: Iterable[str], options: Iterable[str]) -> str:
    """Return a question for each unknown option that is spelled like an existing one.

    An error ends with these questions.

    Examples
    --------
    >>> nearest_options(["tabel_include", "x"], ["table_include", "time_zone"])
    '. Did you mean table_include for tabel_include?'
    """
    near = {name: get_close_matches(name, list(options), 1) for name in unknown}
    return "".join(
        f". Did you mean {match[0]} for {name}?" for name, match in near.items() if match
    )


def option_name(name: str) -> str:
    """Return an option's name as declared, with underscores for Flink's dots and dashes."""
    return name.replace("-", "_").replace(".", "_")


# --------------------------------------------------------------------------------------------------
# Formats by name: the built-in ones, those of installed packages, and those registered here.
#
# Names are looked up in this order: `register_format` (this process), the entry points of the group
# ``cdc_formats.formats`` of other installed packages, and `BUILT_IN`. Listing imports no format;
# `get_format` imports only the requested one, and only if it is installed or registered.


FormatClass = TypeVar("FormatClass", bound=type[Format])
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


def register_format(cls: FormatClass, *, replace: bool = False) -> FormatClass:
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
    return sorted(installed | ({BUILT_IN[identifier]} if identifier in BUILT_IN else set[str]()))


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
