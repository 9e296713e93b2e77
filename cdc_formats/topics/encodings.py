"""What a record shows without a format: its encodings, and what it declares about its table.

A key or value is null, JSON, in a schema registry's framing, text or bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from cdc_formats.errors import DecodeError, MalformedMessageError
from cdc_formats.events import Headers
from cdc_formats.values.connect_schema import is_wrapped
from cdc_formats.values.frames import GlueVersion, read_frame
from cdc_formats.values.json_reader import read_json
from cdc_formats.values.schema import Column

if TYPE_CHECKING:
    from cdc_formats.format import Format


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
_CONFLUENT = (CONFLUENT, CONFLUENT_JSON)
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
    ordered = sorted(records, key=lambda each: (each.topic, each.partition, each.offset))
    return list(map(InspectedRecord, ordered))


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
    if data is None:
        return Encoded(NULL)
    if not data:
        return Encoded(EMPTY)
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
    binary, json = (GLUE, GLUE_JSON) if isinstance(frame.schema, GlueVersion) else _CONFLUENT
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


@dataclass(frozen=True)
class Question:
    """What only the user can know of a column whose type is guessed from its values.

    Parameters
    ----------
    text : str
    options : mapping
        The format's options that another type may need, each with the values with which the
        guessed type is right.
    """

    text: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def is_settled(self, format: Format) -> bool:
        """Whether an option of the format answers the question."""
        return any(getattr(format, name, None) in right for name, right in self.options.items())

    def __str__(self) -> str:
        return self.text


class DeclaredColumn(NamedTuple):
    """A column as its producer declares it.

    Attributes
    ----------
    column : Column
    source_type : str
        The producer's name of the type.
    note : str
        A note for the user on the chosen type, or an empty string.
    comment : str
        The column's comment in the source, or an empty string.
    """

    column: Column
    source_type: str
    note: str = ""
    comment: str = ""


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
