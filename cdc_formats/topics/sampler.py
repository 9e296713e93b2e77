"""What detection, profiles and inference know about a format: its `Sampler`.

A format names its sampler in `Traits.sampler`; without one it has the hooks' defaults. Then it is
detected by the records that it reads, and its columns are inferred from values.

===========================  =====================================================================
hook                         its use
===========================  =====================================================================
`Sampler.declaration`        columns and primary key that a record declares
`Sampler.key_columns`        the columns in a Kafka key
`Sampler.source_key`         the columns of the source's primary key that a record names
`Sampler.plain_value`        values of documents in another notation
`Sampler.connector`          the connector that wrote a message
`Sampler.column_notes`       notes on a column's type
`Sampler.inferred_options`   options that follow from a sample's rows
`Sampler.sample_notes`       notes on a sample
`Sampler.detected_options`   options that follow from the encodings of a sample, before it is read
`Sampler.evidence`           what speaks for and against the format in a record
===========================  =====================================================================
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple
from uuid import UUID

from cdc_formats.avro.schema_registry import Registry
from cdc_formats.decoding.envelope import unraw
from cdc_formats.errors import DecodeError, MalformedMessageError
from cdc_formats.events import Headers, Ignored
from cdc_formats.format import Format, Traits, load_class
from cdc_formats.topics.declared import DeclaredColumn, Question
from cdc_formats.values.connect_schema import is_wrapped, key_fields, message_fields
from cdc_formats.values.frames import GlueVersion, read_frame
from cdc_formats.values.json_reader import read_json
from cdc_formats.values.schema import Column

if TYPE_CHECKING:
    from .inference.observed import ColumnValues

# --------------------------------------------------------------------------------------------------
# Records of a sample, and how their keys and values are encoded.


NULL, EMPTY = "null", "empty"
JSON_OBJECT, JSON_BLOCK, JSON_VALUE, JSON_NULL = (
    "JSON object",
    "JSON with a schema block",
    "JSON value",
    "JSON null",
)
JSON_PAYLOAD = "JSON with a payload and no schema block"
CONFLUENT, CONFLUENT_JSON = "Confluent framing (Avro or Protobuf)", "Confluent framing, then JSON"
GLUE, GLUE_JSON = "AWS Glue framing (Avro or Protobuf)", "AWS Glue framing, then JSON"
FRAMED, FRAMED_JSON = (CONFLUENT, GLUE), (CONFLUENT_JSON, GLUE_JSON)
"""The encodings in a registry's frame."""
TEXT, BYTES = "text", "bytes"


class Encoded(NamedTuple):
    """The encoding and content of a key or value.

    Attributes
    ----------
    encoding : str
        One of this module's constants.
    value : Any
        The JSON value without its schema block, or the text; otherwise None.
    schema_id : str
        The id of a schema in a registry; empty if there is no id.
    """

    encoding: str
    value: Any = None
    schema_id: str = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of a JSON object; empty for other values."""
        return self.value if isinstance(self.value, dict) else {}


class SampledRecord(NamedTuple):
    """A Kafka record.

    Attributes
    ----------
    topic : str
    partition, offset : int
    timestamp : int
        Milliseconds since 1970-01-01 UTC; -1 if there is none.
    key, value : bytes or None
    headers : tuple of (str, bytes or None)
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def where(self) -> str:
        """``topic[partition]@offset``."""
        return f"{self.topic}[{self.partition}]@{self.offset}"


@dataclass(frozen=True)
class InspectedRecord:
    """A record with the encodings of its key and value."""

    record: SampledRecord

    @cached_property
    def key(self) -> Encoded:
        """The key's encoding."""
        return inspect_part("key", self.record.key, self.record.headers)

    @cached_property
    def value(self) -> Encoded:
        """The value's encoding."""
        return inspect_part("value", self.record.value, self.record.headers)


def inspect_all(records: Iterable[SampledRecord]) -> list[InspectedRecord]:
    """Return the records with their key and value encodings, sorted by partition and offset."""
    return [
        InspectedRecord(each)
        for each in sorted(records, key=lambda each: (each.topic, each.partition, each.offset))
    ]


def inspect_part(part: str, data: bytes | None, headers: Headers = ()) -> Encoded:
    """Return the encoding and content of a key or value.

    Parameters
    ----------
    part : str
        ``key`` or ``value``.
    data : bytes or None
    headers : sequence of (str, bytes or None)
        A header may have the schema's id.

    Examples
    --------
    >>> inspect_part("key", b'{"id": 1}')
    Encoded(encoding='JSON object', value={'id': 1}, schema_id='')
    """
    if not data:
        return Encoded(NULL if data is None else EMPTY)
    data = bytes(data)
    if any(name == f"__{part}_schema_id" and value for name, value in headers):
        return Encoded(CONFLUENT, schema_id="in a header")
    if (framed := _framed(data)) is not None:
        return framed
    try:
        return _of_json(read_json(data))
    except (MalformedMessageError, RecursionError):
        text = _text(data)
        return Encoded(BYTES) if text is None else Encoded(TEXT, text)


def _framed(data: bytes) -> Encoded | None:
    """Return data in a registry's frame with content, and with a number from 1 if it has one."""
    frame = read_frame(data)
    if frame is None or not frame.schema or len(data) == frame.size:
        return None
    name = frame.schema.hex if isinstance(frame.schema, UUID) else str(frame.schema)
    binary, json = (
        (GLUE, GLUE_JSON) if isinstance(frame.schema, GlueVersion) else (CONFLUENT, CONFLUENT_JSON)
    )
    with suppress(MalformedMessageError, RecursionError):
        content = frame.content(data)
        if content[:1] in (b"{", b"["):
            return Encoded(json, read_json(content), name)
    # Text may begin with 0x01 or 0x03.
    return None if data[0] and _text(data) is not None else Encoded(binary, schema_id=name)


def _of_json(value: Any) -> Encoded:
    if value is None:
        return Encoded(JSON_NULL)
    if not isinstance(value, dict):
        return Encoded(JSON_VALUE, value)
    if is_wrapped(value) and isinstance(value.get("schema"), (dict, type(None))):
        return Encoded(JSON_BLOCK if "schema" in value else JSON_PAYLOAD, value["payload"])
    return Encoded(JSON_OBJECT, value)


def _text(data: bytes) -> str | None:
    with suppress(UnicodeDecodeError):
        return data.decode()
    return None


# --------------------------------------------------------------------------------------------------
# What a record declares about its table, and what it shows about its format


class Declaration(NamedTuple):
    """The columns and the primary key that a record declares.

    Attributes
    ----------
    source : str
        Where the columns are declared, for example ``schema block``; empty if they are not.
    columns : sequence of DeclaredColumn
        A type without a name (``SqlType("")``) is inferred from the values.
    primary_key : tuple of str
        Empty if the record names no primary key.
    key_source : str
        Where the primary key is named.
    """

    source: str = ""
    columns: Sequence[DeclaredColumn] = ()
    primary_key: tuple[str, ...] = ()
    key_source: str = "the fields of the Kafka key"


class Evidence(NamedTuple):
    """What speaks for and against a format in a record.

    Attributes
    ----------
    distinctive : bool
        Whether the value has something that only this format writes, of all formats that read it.
    remarks : tuple of str
        Sentences for `str.format`, with the number of records that have the remark and the number
        of all records: ``"{} of {} have a schema block"``.
    refusal : DecodeError or None
        Why a record that the format reads is probably of another format.
    """

    distinctive: bool = False
    remarks: tuple[str, ...] = ()
    refusal: DecodeError | None = None


def value_at(value: Any, path: Sequence[str]) -> Any:
    """Return the value at a path in objects; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def listed_names(names: Any) -> tuple[str, ...]:
    """Return an array of names in a message; empty for another value.

    Examples
    --------
    >>> listed_names(["id", "line"]), listed_names(None)
    (('id', 'line'), ())
    """
    return tuple(map(str, names)) if isinstance(names, list) else ()


@dataclass(kw_only=True)
class SampleCounts:
    """What a sample has, for `Sampler.inferred_options` and `Sampler.sample_notes`.

    Parameters
    ----------
    messages, rows : int
        The number of records with a value that have rows, and of after-images.
    with_key : int
        The number of records with a Kafka key.
    with_added : int
        The number of after-images with names that are no columns (`RowNames.added`).
    json_nulls : int
        The number of values that are JSON's null.
    declared : dict
        The declarations of each column, in the order of their first message.
    sources : Counter
        The number of messages by the source of their columns' declarations; empty text for none.
    connectors : set of str
        The connectors of the messages (`Sampler.connector`).
    """

    messages: int = 0
    rows: int = 0
    with_key: int = 0
    with_added: int = 0
    json_nulls: int = 0
    declared: dict[str, list[DeclaredColumn]] = field(default_factory=dict)
    sources: Counter[str] = field(default_factory=Counter)
    connectors: set[str] = field(default_factory=set)


class Sampler:
    """The hooks for samples of a format, each with a default.

    Unstable: a minor release may change it without a deprecation.

    Parameters
    ----------
    format : Format
    """

    marks: ClassVar[tuple[str, ...]] = ()
    """Top-level fields of messages. Detection counts the values that have them."""
    operation_path: ClassVar[tuple[str, ...]] = ()
    """The path to the operation in a message, which a profile counts; empty if there is none."""
    plain_rows: ClassVar[bool] = False
    """Whether a value is a row without an operation, so that any object can be one, and a null
    value is a delete of the key."""
    fallback: ClassVar[bool] = False
    """Whether the format describes messages of many producers, so that it is tried only if the
    format of no other reads the sample."""
    declaring: ClassVar[Collection[Ignored]] = ()
    """The reasons of records without rows that declare the columns of a table."""
    uses_kafka_key: ClassVar[bool] = False
    """Whether the Kafka key has the primary key, although the format does not need it."""
    exact_numbers: ClassVar[bool] = True
    """Whether the producer writes decimals as JSON numbers. Otherwise a number with a fraction is a
    DOUBLE."""
    not_asked: ClassVar[Collection[Question]] = ()
    """The questions on text that do not arise: text is text, as the producer writes numbers, or
    bytes, in another way."""

    def __init__(self, format: Format) -> None:
        self.format = format

    @property
    def registry(self) -> Registry | None:
        """The schema registry of the format's options; None if the format uses none."""
        return getattr(self.format, "registry", None)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the columns and the primary key that a record with rows declares.

        By default it has the primary key, as `source_key`.

        Parameters
        ----------
        key : bytes or None
        value : bytes
        headers : sequence of (str, bytes or None)

        Raises
        ------
        DecodeError
            When a declaration is malformed.
        """
        names = self.format.traits.key_names
        if not names:
            return Declaration(primary_key=self._primary_key(None, key, headers))
        return Declaration(
            primary_key=self._primary_key(message_fields(value).get(names), key, headers),
            key_source=f"{names}, or the Kafka key" if self.uses_kafka_key else names,
        )

    def _primary_key(self, named: Any, key: bytes | None, headers: Headers) -> tuple[str, ...]:
        is_read = self.uses_kafka_key or self.format.traits.reads_key
        return listed_names(named) or (tuple(self.key_columns(key, headers)) if is_read else ())

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return a Kafka key's columns with values; empty for a single value or an unreadable key.

        By default these are the fields of a JSON object, with or without a schema block.
        """
        return key_fields(key)

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return the source's primary key columns that a record names; empty if it names none.

        By default these are those in the field `Traits.key_names`, or else `key_columns` if the
        format reads the Kafka key, or `uses_kafka_key`.

        Parameters
        ----------
        message : Any
            `Event.message`; None for a record without a value.
        key : bytes or None
        headers : sequence of (str, bytes or None)
        """
        named = getattr(message, self.format.traits.key_names, None)
        return self._primary_key(unraw(named), key, headers)

    def plain_value(self, value: Any) -> Any:
        """Return an image's value as JSON writes it; override for documents in another notation."""
        return value

    def connector(self, message: Any) -> str | None:
        """Return a message's connector, for example ``mysql``; None if the message names none.

        Parameters
        ----------
        message : Any
            `Event.message`.
        """
        return None

    def is_complete(self, message: Any) -> bool:
        """Whether a message has all values, so that the placeholder's text is ordinary data.

        Parameters
        ----------
        message : Any
            `Event.message`.
        """
        return False

    def column_notes(
        self,
        column: Column,
        values: ColumnValues,
        notes: Sequence[str | Question],
        *,
        guessed: bool,
        connectors: Collection[str],
    ) -> Iterable[str | Question]:
        """Return notes for the user on a column's type; override to name the options it depends on.

        A `Question` on a guessed type is a decision that ``cdc run`` asks for.

        Parameters
        ----------
        column : Column
            With the chosen type.
        values : ColumnValues
        notes : sequence of str or Question
            The notes without this hook.
        guessed : bool
            Whether the type is inferred from the values.
        connectors : collection of str
            The connectors of all messages; empty text for a message that does not name it.
        """
        return notes

    def inferred_options(self, sample: SampleCounts) -> Mapping[str, tuple[Any, str]]:
        """Return the options that follow from a sample's rows, with their values and reasons."""
        return {}

    def sample_notes(self, sample: SampleCounts) -> Iterable[str]:
        """Return notes for the user on a sample."""
        return ()

    @classmethod
    def detected_options(
        cls, records: Sequence[InspectedRecord], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the options with which the format reads a sample.

        Parameters
        ----------
        records : sequence of InspectedRecord
        options : mapping
            The user's options, which have precedence; they may be of other formats.
        """
        return {}

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return what speaks for and against the format in a record.

        Parameters
        ----------
        record : InspectedRecord
            A record with the encodings of its key and value.
        """
        return Evidence()


def sampler_class(format: type[Format]) -> type[Sampler]:
    """Return the sampler's class of a format's class.

    Raises
    ------
    UnknownFormatError, MissingDependencyError
        When `Traits.sampler` does not name a subclass of `Sampler`, or it needs a package that is
        not installed.
    """
    return (
        load_class(f"the sampler of {format.identifier!r}", path, Sampler)
        if (path := Traits.of(format).sampler)
        else Sampler
    )


def sampler_of(format: Format) -> Sampler:
    """Return the sampler of a format.

    Raises
    ------
    UnknownFormatError, MissingDependencyError
        As `sampler_class`.
    """
    return sampler_class(type(format))(format)
