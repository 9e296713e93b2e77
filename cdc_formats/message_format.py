"""How a format's messages are read: its declarations, its options, and `MessageFormat.read`.

The author of a format writes one method, `MessageFormat.read`, which turns the bytes of a Kafka
record into `Event` values with unconverted row images. `cdc_formats.decoder.Decoder` does the rest
for all formats. Formats are subclasses of `cdc_formats.Format`.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

from cdc_formats.events import Position
from cdc_formats.row_kind import ChangelogMode

from .decoding.rows import RowConverter
from .decoding.scalar_reader import ScalarReader
from .decoding.tables import TableFilter
from .decoding.validation import packaged_schema
from .errors import FormatOptionError
from .events import ControlEvent, Event, Headers, Ignored, Reader
from .values.handling import Handling
from .values.masks import NO_MASKS, Masks, masks_of
from .values.schema import Column, SqlType, columns as to_columns

if TYPE_CHECKING:
    from .decoding.envelope import Envelope


_CHOICES = "choices"


def choice(default: C, *other_values: C) -> Any:
    """Return the dataclass field of an option that has one of some values.

    Parameters
    ----------
    default, *other_values
        True and False can also be given as text.
    """
    return field(default=default, metadata={_CHOICES: (default, *other_values)})


def as_boolean(value: Any) -> Any:
    """Return the boolean that text names, and any other value as it is."""
    return (
        {"true": True, "false": False}.get(value.lower(), value)
        if isinstance(value, str)
        else value
    )


_READING = {"envelope", "metadata", "position", "read", "reader", "table_identity", "table_reader"}
"""The members of a format that decide what is read of a message."""


C = TypeVar("C")


class RowNames(NamedTuple):
    """The columns of a row in a message.

    Attributes
    ----------
    names : collection of str
        The names in the row.
    whole : bool
        Whether the producer writes all columns of the table; then a column that is missing here is
        missing in the table.
    added : collection of str
        The members of `names` that the producer adds to the table's columns.
    """

    names: Collection[str]
    whole: bool
    added: Collection[str] = ()


@dataclass(frozen=True)
class MetadataColumn:
    """A readable metadata column: its type and the function that reads it from `Event.message`.

    Parameters
    ----------
    type : str
        DDL text.
    read : callable
        From the message to the canonical value, or None if the message has none.
    """

    type: str
    read: Callable[[Any], Any]

    @property
    def sql_type(self) -> SqlType:
        """The type, parsed."""
        return to_columns(f"value {self.type}")[0].type


@dataclass(frozen=True, kw_only=True)
class MessageFormat(ABC):
    """What a format declares, its options (the dataclass's fields), and how it reads messages.

    Subclasses inherit from `cdc_formats.Format`. They set `identifier` and `changelog_mode`, and
    write `read`.

    Parameters
    ----------
    error_excerpt : bool
        Whether errors show the first bytes of the message (at most 200) and the invalid value. Turn
        it off if messages contain personal data.
    validate : bool
        Whether each message is validated against `json_schema` before it is decoded. This is slow
        and requires the package ``jsonschema``.
    rounding : {"error", "half_up"}
        The treatment of a decimal with more digits after the point than its column holds. ``error``
        rejects the record. ``half_up`` rounds the value, as Flink does: 9.995 becomes 10.00 in a
        ``DECIMAL(10,2)`` column. Zeros at the end always fit.
    unknown_columns : {"ignore", "fail"}
        The treatment of columns that are not declared. ``ignore`` skips them. ``fail`` rejects a
        record whose row has a value in one, so that no value of a new column is lost. Each record
        is then parsed twice. Only formats with column names support it.
    mask : mapping
        Columns whose values never leave the decoder: ``{"email": "hmac", "card": "redact", "name":
        "drop"}`` (`decoding.masking`). It also sets `error_excerpt` to False.
    mask_key_env, mask_key_file : str or None
        The key of ``hmac``, at least 16 bytes: the name of an environment variable of the driver,
        or a file that the driver can read.
    """

    identifier: ClassVar[str]
    changelog_mode: ClassVar[ChangelogMode] = ChangelogMode.all()
    reads_tombstones: ClassVar[bool] = False
    """Whether null values are passed to `read`; otherwise they are `Ignored.TOMBSTONE`."""
    reads_headers: ClassVar[bool] = False
    """Whether the reader needs the Kafka headers; then it is called with three arguments."""
    reads_key: ClassVar[bool] = False
    """Whether `read` needs the Kafka key."""
    uses_key: ClassVar[bool] = False
    """Whether `read` takes the primary key from the Kafka key if a message lacks it."""
    whole_rows: ClassVar[str] = ""
    """The producer setting for whole rows, quoted in errors about a missing column; empty if there
    is no such setting."""
    positions: ClassVar[str] = "the format does not implement `Format.position`"
    """The reason why messages have no position in their source's log; empty if `position` reads
    one."""
    metadata: ClassVar[Mapping[str, MetadataColumn]] = {}
    """Readable metadata columns, by Flink's names."""
    table_identity: ClassVar[Mapping[str, str]] = {}
    """The `metadata` columns that together identify the table of a message, from the outermost to
    the table's own name.

    Each has the option that selects its values by a regular expression, or empty text if there is
    none. Without entries, messages do not name their table, and the topic identifies it.
    """

    sampler: ClassVar[str] = ""
    """The class that detection, profiles and inference ask about the format, as ``module:Class``: a
    `cdc_formats.topics.sampler.Sampler`.

    Decoding does not import it. Empty: the defaults.
    """

    error_excerpt: bool = True
    validate: bool = False
    rounding: Literal["error", "half_up"] = choice("error", "half_up")
    unknown_columns: Literal["ignore", "fail"] = choice("ignore", "fail")
    mask: Any = ()
    mask_key_env: str | None = None
    mask_key_file: str | None = None

    def __post_init__(self) -> None:
        masks = masks_of(self.mask, env=self.mask_key_env, file=self.mask_key_file)
        if masks:
            object.__setattr__(self, "mask", masks)
            object.__setattr__(self, "error_excerpt", False)
        for option in fields(self):
            choices, value = option.metadata.get(_CHOICES, ()), getattr(self, option.name)
            if True in choices:
                value = as_boolean(value)
                object.__setattr__(self, option.name, value)
            if choices and value not in choices:
                listed = ", ".join(map(repr, choices))
                raise FormatOptionError(
                    f"{self.identifier}: {option.name} is {value!r}; it is one of {listed}"
                )

    @classmethod
    def json_schema(cls) -> dict[str, Any] | None:
        """Return the JSON Schema (draft 2020-12) of this format's messages, or None.

        Override it in your own format.
        """
        return packaged_schema(cls.identifier)

    def read(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | Ignored:
        """Return the events of one Kafka record, or the reason why it has none.

        Raises
        ------
        DecodeError
            When the record is not valid in this format. No input may raise another exception.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines none of read(), envelope() and reader()"
        )

    def reader(self, rows: RowConverter, *, keyed: bool = False) -> Reader:
        """Return `read` compiled for one table; without `read`, the reader of `envelope`.

        Parameters
        ----------
        rows : RowConverter
            The table's columns and key, and the msgspec shapes for its images.
        keyed : bool
            Whether only the key's columns of a before-image are used (`Decoder.upserts`).
        """
        envelope = None if type(self).read is not MessageFormat.read else self.envelope(rows)
        if envelope is None:
            return self.read
        if not envelope.is_plain:
            raise NotImplementedError(
                f"{type(self).__name__} needs read() or reader(): its messages have blocks, frames "
                "or keys to read"
            )
        return ScalarReader(envelope, rows, self.table_filter, keyed=keyed).guarded()

    def untyped_reader(self) -> Reader:
        """Return the reader of records whose columns are unknown.

        Images are mappings with all names and the producer's values.

        Raises
        ------
        InferenceError
            When the messages have no column names.
        """
        # msgspec has no field for this name, so that the reader returns images exactly as in the
        # message.
        return self.reader(
            RowConverter((Column('"', SqlType("STRING")),), self.handling), keyed=True
        )

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return the places of operation and rows, from which the readers of messages are made.

        None: `read` reads them.

        Many messages are decoded together. The rows are those of each message alone. A subclass
        that reads messages differently declares them again; otherwise its messages are read alone
        (`reads_as_declared`).

        Parameters
        ----------
        rows : RowConverter
            The table's columns and key.
        metadata : sequence of str
            The names of the requested metadata.
        positions : bool
            Whether `position` is called for each message.
        """
        return None

    @classmethod
    def reads_as_declared(cls) -> bool:
        """Whether the class that declares the `envelope` decides all that is read of a message."""
        decisive = next(members for of in cls.__mro__ if _READING & (members := vars(of).keys()))
        return "envelope" in decisive

    @property
    def table_filter(self) -> TableFilter:
        """The filter of messages by their table, from the options in `table_identity`."""
        columns = [name for name, option in self.table_identity.items() if option]
        options = {
            option: getattr(self, option) for option in self.table_identity.values() if option
        }
        return TableFilter(options, columns, self.table_reader(columns))

    def row_names(self, event: Event) -> RowNames | None:
        """Return the columns of an event's row, or None if the format has no column names.

        By default these are the names in the after-image, or in the before-image of a delete, which
        may be incomplete. Override it if rows have additional columns or omit columns that are
        NULL.

        Parameters
        ----------
        event : Event
            Its images are mappings with all names in the message; only the names are used.
        """
        image = event.before if event.after is None else event.after
        if not isinstance(image, Mapping):
            return None
        return RowNames(image.keys(), event.after is not None and not event.sparse)

    def position(self, message: Any) -> Position | None:
        """Return the position of a message's event in its source's log.

        None is only for a message that never has one. Its change is applied as it arrives, also if
        it is a redelivery. It is counted, and warned about.

        Parameters
        ----------
        message : Any
            `Event.message`.

        Raises
        ------
        DecodeError
            When the position is missing or malformed, or the producer is not configured to write
            it.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no position()")

    def logs_empty_values(self, message: Any) -> bool:
        """Whether an empty value in a row before an update is the column's.

        Otherwise it may be a column that the log lacks: PostgreSQL's REPLICA IDENTITY USING INDEX
        logs the index's columns only, and the others have NULL or their type's default. It then
        does not complete the row after.

        Parameters
        ----------
        message : Any
            `Event.message`.
        """
        return False

    def previous_key(self, headers: Headers) -> Mapping[str, Any]:
        """Return the columns of the key that a record's row had before.

        They have the producer's values. The result is empty if no header names the previous key.

        Only producers need it that write a change of the key as a delete and an insert, which may
        lack unchanged columns.

        Parameters
        ----------
        headers : sequence of (str, bytes or None)
        """
        return {}

    def table_reader(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        """Return the function from `Event.message` to the values of these `table_identity` columns.

        The decoder calls it for every message.

        Parameters
        ----------
        names : sequence of str
        """
        readers = [self.metadata[name].read for name in names]
        return lambda message: tuple([read(message) for read in readers])

    def control_event(
        self, key: bytes | None, value: bytes | None, reason: Ignored, headers: Headers = ()
    ) -> ControlEvent:
        """Return the control event of a record that `read` ignored for `reason`.

        It is called only if the user requests control events.

        Parameters
        ----------
        key, value : bytes or None
        reason : Ignored
        headers : sequence of (str, bytes or None)
            Empty unless `reads_headers`.

        Raises
        ------
        DecodeError
            When the record is not one of this format's.
        """
        return ControlEvent(reason)

    @property
    def encodings(self) -> Handling:
        """The producer's value encodings, by default text and numbers, and base64.

        Override it in formats with options for them.
        """
        return Handling(time_zone=getattr(self, "time_zone", None))

    @property
    def handling(self) -> Handling:
        """The rules for reading and writing values: `encodings` and the options of all formats."""
        return replace(self.encodings, rounding=self.rounding, masks=self.masks)

    @property
    def masks(self) -> Masks:
        """The masks of columns."""
        return self.mask or NO_MASKS

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Reject columns or a key that this format cannot read as configured; called on the driver.

        Raises
        ------
        SchemaError, FormatOptionError
        """
        return None
