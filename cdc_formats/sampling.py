"""How inference and profiling read a sample of a format: the hooks of `SampledFormat`, from which `Format` inherits.

Each hook has a default. A format without hooks is detected by the records that it reads, and its columns are inferred from values.

=================================  =================================================================================================
hook                               its use
=================================  =================================================================================================
`SampledFormat.declaration`        columns and primary key that a record declares
`SampledFormat.key_columns`        the columns in a Kafka key
`SampledFormat.source_key`         the columns of the source's primary key that a record names
`SampledFormat.sample_reader`      events of records whose columns are unknown
`SampledFormat.sample_value`       values of documents in another notation
`SampledFormat.connector`          the connector that wrote a message
`SampledFormat.column_notes`       notes on a column's type
`SampledFormat.inferred_options`   options that follow from a sample's rows
`SampledFormat.sample_notes`       notes on a sample
`SampledFormat.detected_options`   options that follow from the encodings of a sample, before it is read
`SampledFormat.evidence`           what speaks for and against the format in a record
=================================  =================================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from cdc_formats.decoding.json_reader import read_json
from cdc_formats.errors import DecodeError, MalformedMessageError
from cdc_formats.values.schema import Column

if TYPE_CHECKING:
    from cdc_formats.avro.schema_registry import Registry
    from cdc_formats.decoding.rows import RowConverter
    from cdc_formats.events import Headers, Reader
    from cdc_formats.topics.encodings import InspectedRecord
    from cdc_formats.topics.inference.observed import ColumnValues
    from cdc_formats.topics.inference.sample import TopicSample


class DeclaredColumn(NamedTuple):
    """A column as its producer declares it.

    Attributes
    ----------
    column : Column
    source_type : str
        The producer's name of the type.
    note : str
        A note for the user on the chosen type, or an empty string.
    """

    column: Column
    source_type: str
    note: str = ""


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
        Sentences for `str.format`, with the number of records that have the remark and the number of all records:
        ``"{} of {} have a schema block"``.
    refusal : DecodeError or None
        Why a record that the format reads is probably of another format.
    """

    distinctive: bool = False
    remarks: tuple[str, ...] = ()
    refusal: DecodeError | None = None


class SampledFormat:
    """The hooks of a format for inference and profiling, each with a default."""

    marks: ClassVar[tuple[str, ...]] = ()
    """Top-level fields of messages. Detection counts the values that have them."""
    operation_path: ClassVar[tuple[str, ...]] = ()
    """The path to the operation in a message, which a profile counts; empty if there is none."""
    plain_rows: ClassVar[bool] = False
    """Whether a value is a row without an operation, so that any object can be one, and a null value is a delete of the key."""
    exact_numbers: ClassVar[bool] = True
    """Whether the producer writes decimals as JSON numbers. Otherwise a number with a fraction is a DOUBLE."""
    complete_connectors: ClassVar[Collection[str]] = ()
    """The connectors whose messages have all values, so that text equal to the placeholder is ordinary data."""
    reads_key: ClassVar[bool] = False
    """Whether `read` needs the Kafka key."""
    uses_key: ClassVar[bool] = False
    """Whether `read` takes the primary key from the Kafka key if a message lacks it."""
    reader: Callable[..., Reader]

    @property
    def registry(self) -> Registry | None:
        """The schema registry of the format's options; None if the format uses none."""
        return None

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the columns and the primary key that a record with rows declares.

        By default the primary key is `key_columns` if the format reads the Kafka key.

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
        return Declaration(primary_key=tuple(self.key_columns(key, headers)) if self.reads_key else ())

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return the columns in a Kafka key with their values; empty if the key is a single value or cannot be read.

        By default these are the fields of a JSON object, with or without a schema block.
        """
        return key_fields(key)

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return the columns of the source's primary key that a record names; empty if it names none.

        By default these are `key_columns` if the format reads the Kafka key.

        Parameters
        ----------
        message : Any
            `Event.message`; None for a record without a value.
        key : bytes or None
        headers : sequence of (str, bytes or None)
        """
        return tuple(self.key_columns(key, headers)) if self.reads_key else ()

    def sample_reader(self, rows: RowConverter) -> Reader:
        """Return the reader of records whose columns are unknown: images are mappings with all their columns.

        Parameters
        ----------
        rows : RowConverter
            A table with a single column, which no message has, so that readers return images as in the message.

        Raises
        ------
        InferenceError
            When the messages have no column names.
        """
        return self.reader(rows, keyed=True)

    def sample_value(self, value: Any) -> Any:
        """Return an image's value as JSON writes it; override it if rows are documents in another notation."""
        return value

    def connector(self, message: Any) -> str | None:
        """Return the connector that wrote a message, for example ``mysql``; None if the message does not name it.

        Parameters
        ----------
        message : Any
            `Event.message`.
        """
        return None

    def column_notes(
        self, column: Column, values: ColumnValues, notes: Sequence[str], *, guessed: bool, connectors: Collection[str]
    ) -> Iterable[str]:
        """Return the notes for the user on a column's type; override it to name the options that the type depends on.

        Parameters
        ----------
        column : Column
            With the chosen type.
        values : ColumnValues
        notes : sequence of str
            The notes without this hook.
        guessed : bool
            Whether the type is inferred from the values.
        connectors : collection of str
            The connectors of all messages; empty text for a message that does not name it.
        """
        return notes

    def inferred_options(self, sample: TopicSample) -> Mapping[str, tuple[Any, str]]:
        """Return the options that follow from a sample's rows, each with its value and the reason for it."""
        return {}

    def sample_notes(self, sample: TopicSample) -> Iterable[str]:
        """Return notes for the user on a sample."""
        return ()

    @classmethod
    def detected_options(cls, records: Sequence[InspectedRecord], given: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the options with which the format reads a sample.

        Parameters
        ----------
        records : sequence of InspectedRecord
        given : mapping
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


def message_fields(value: bytes) -> dict[str, Any]:
    """Return the fields of a JSON object; empty for another value."""
    try:
        found = read_json(value)
    except (MalformedMessageError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def key_fields(key: bytes | None) -> dict[str, Any]:
    """Return the fields of a Kafka key, with or without a schema block; empty for a key that is not a JSON object."""
    fields = message_fields(key) if key else {}
    payload = fields["payload"] if is_wrapped(fields) else fields
    return payload if isinstance(payload, dict) else {}


def is_wrapped(fields: Mapping[str, Any]) -> bool:
    """Whether a JSON object is only the wrapper of a message or key: its payload, mostly next to its schema.

    Examples
    --------
    >>> is_wrapped({"schema": None, "payload": {"id": 1}}), is_wrapped({"payload": {"id": 1}}), is_wrapped({"payload": 1})
    (True, True, False)
    """
    if set(fields) == {"payload"}:
        return fields["payload"] is None or isinstance(fields["payload"], dict)
    return set(fields) == {"schema", "payload"}


def listed_names(names: Any) -> tuple[str, ...]:
    """Return an array of names in a message; empty for another value.

    Examples
    --------
    >>> listed_names(["id", "line"]), listed_names(None)
    (('id', 'line'), ())
    """
    return tuple(map(str, names)) if isinstance(names, list) else ()
