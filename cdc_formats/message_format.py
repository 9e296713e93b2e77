"""How a format's messages are read: declarations, options, validation, `MessageFormat.read`.

The author of a format writes one method, `MessageFormat.read`, which turns the bytes of a Kafka
record into `Event` values with unconverted row images. `cdc_formats.decoder.Decoder` does the rest
for all formats. Formats are subclasses of `cdc_formats.Format`.
"""

from __future__ import annotations

import json
from abc import ABC
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from itertools import islice
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from .decoding.envelope import Envelope, TableFilter
from .decoding.rows import RowConverter
from .decoding.scalar_reader import ScalarReader
from .errors import FormatOptionError, MissingDependencyError, SchemaValidationError, clip
from .events import ChangelogMode, ControlEvent, Event, Headers, Ignored, Position, Reader
from .values.json_reader import read_json
from .values.masks import NO_MASKS, masks_of
from .values.schema import Column, Handling, SqlType, columns as to_columns

# --------------------------------------------------------------------------------------------------
# Opt-in validation of messages against their format's JSON Schema before decoding.
#
# ``validate=True`` turns it on; it uses ``jsonschema``.
#
# Decoding only checks the fields that it reads. A schema describes the whole envelope, including
# fields that the format does not read. It does not contain the declared columns.


def packaged_schema(identifier: str) -> dict[str, Any] | None:
    """Return the JSON Schema shipped with a format, or None; this also works from a zip."""
    from importlib.resources import files  # takes 30 ms, so only on request

    file = files("cdc_formats.formats").joinpath("json_schemas", f"{identifier}.json")
    if not file.is_file():
        return None
    schema: dict[str, Any] = json.loads(file.read_text("utf-8"))
    return schema


def message_validator(identifier: str, schema: dict[str, Any] | None) -> Callable[[bytes], None]:
    """Return a function that raises for messages that do not match the schema.

    Parameters
    ----------
    identifier : str
        The format's identifier, for errors.
    schema : dict or None
        JSON Schema, draft 2020-12.

    Raises
    ------
    FormatOptionError
        When there is no schema, or it is invalid.
    MissingDependencyError
        When ``jsonschema`` is not installed.
    SchemaValidationError, MalformedMessageError
        From the returned function.
    """
    if schema is None:
        raise FormatOptionError(f"{identifier} has no JSON Schema: remove validate=True")
    return _compiled(identifier, json.dumps(schema))


@lru_cache(maxsize=32)
def _compiled(identifier: str, text: str) -> Callable[[bytes], None]:
    # A stream creates a decoder for each task, and compiling takes too long to delay each task's
    # first message.
    try:
        from jsonschema import Draft202012Validator, SchemaError
        from jsonschema.exceptions import best_match
        from referencing import Registry
    except ImportError as error:
        raise MissingDependencyError(
            "validate=True needs jsonschema: pip install 'pyspark-kafka-changelog[validate]'"
        ) from error
    schema = json.loads(text)
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise FormatOptionError(
            f"the JSON Schema of {identifier} is invalid: {error.message[:200]}"
        ) from None
    validator = Draft202012Validator(
        schema, registry=Registry()
    )  # an empty registry: nothing is fetched

    def check(value: bytes) -> None:
        error = best_match(islice(validator.iter_errors(read_json(value)), 100))
        if error is not None:
            raise _refusal(error)

    return check


def _refusal(error: Any) -> SchemaValidationError:
    keyword, allowed, got = error.validator, error.validator_value, error.instance
    path = "$" + "".join(
        f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.absolute_path
    )
    kind = (
        {
            dict: "object",
            list: "array",
            str: "string",
            bool: "boolean",
            int: "integer",
            type(None): "null",
        }
    ).get(type(got), "number")
    if keyword == "required":
        reason = f"missing {', '.join(f'`{name}`' for name in allowed if name not in got)}"
        return SchemaValidationError(reason, path)
    if keyword == "type":
        names = allowed if isinstance(allowed, str) else " or ".join(allowed)
        return SchemaValidationError(f"expected `{names}`, got `{kind}`", path)
    allowed_text = (
        " or ".join(map(str, allowed)) if keyword == "enum" else f"{keyword} {json.dumps(allowed)}"
    )
    expected = f"expected {clip(allowed_text)}, got `{kind}`"
    shown = f" {clip(ascii(got), 60)}" if isinstance(got, str | int | bool) else ""
    return SchemaValidationError(expected + shown, path, bare=expected)


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


def names_in_row(event: Event) -> RowNames | None:
    """Return the names in the after-image, or in the before-image of a delete.

    The latter may be incomplete. None if the image has no names.
    """
    image = event.before if event.after is None else event.after
    if not isinstance(image, Mapping):
        return None
    return RowNames(image.keys(), event.after is not None and not event.sparse)


class Traits(NamedTuple):
    """What decoders and Spark's stages ask of a format besides its messages.

    A format declares each as an attribute, a property or a method of its class, with this name.

    Attributes
    ----------
    reads_tombstones : bool
        Whether null values are passed to `read`; otherwise they are `Ignored.TOMBSTONE`.
    reads_headers : bool
        Whether the reader needs the Kafka headers; then it is called with three arguments.
    reads_key : bool
        Whether `read` needs the Kafka key.
    uses_key : bool
        Whether `read` takes the primary key from the Kafka key if a message lacks it.
    key_names : str
        The field of messages with the names of the primary key's columns; empty if none has them.
    whole_rows : str
        The producer setting for whole rows, quoted in errors about a missing column; empty if there
        is no such setting.
    table_identity : mapping
        The `metadata` columns that identify the table of a message, from the outermost to
        the table's own name. Each has the option that selects its values by a regular expression,
        or empty text if there is none. Without entries, messages do not name their table, and the
        topic identifies it.
    table_parts : callable
        From the values of the columns in `table_identity` to the parts of the table's name. Declare
        it if one of them has several parts: ``SHOP.ORDERS``.
    sampler : str
        The class that detection, profiles and inference ask about the format, as ``module:Class``:
        a `cdc_formats.topics.sampler.Sampler`. Decoding does not import it. Empty: the defaults.
    positions : str
        The reason why messages have no position in their source's log; empty if `position` reads
        one.
    position : callable
        Returns the position of a message's event (`Event.message`) in its source's log. None is
        only for a message that never has one: its change is applied as it arrives, also if it is a
        redelivery, is counted, and warned about. Raises a DecodeError when the position is missing
        or malformed, or the producer is not configured to write it.
    logs_empty_values : callable
        Whether an empty value in the row before an update of this message is the column's.
        Otherwise it may be a column that the log lacks: PostgreSQL's REPLICA IDENTITY USING INDEX
        logs the index's columns only, and the others have NULL or their type's default. It then
        does not complete the row after.
    row_names : callable
        From an `Event` whose images are mappings with all names in the message to the columns of
        its row, or None if the format has no column names. Declare it if rows have additional
        columns or omit columns that are NULL.
    old_key_header : str
        The header with the key that a row had before, as a JSON object; empty if there is none.
        Only producers need it that write a change of the key as a delete and an insert, which may
        lack unchanged columns.
    for_topic : callable or None
        Returns the format to write a topic, if the defaults of options depend on the topic.
    json_schema : callable or None
        Returns the JSON Schema (draft 2020-12) of the messages. None: the packaged one, if any.
    """

    reads_tombstones: bool = False
    reads_headers: bool = False
    reads_key: bool = False
    uses_key: bool = False
    key_names: str = ""
    whole_rows: str = ""
    table_identity: Mapping[str, str] = MappingProxyType({})
    table_parts: Callable[[Sequence[str | None]], Sequence[str | None]] = lambda names: names
    sampler: str = ""
    positions: str = "the format does not implement `Format.position`"
    position: Callable[[Any], Position | None] = lambda message: None
    logs_empty_values: Callable[[Any], bool] = lambda message: False
    row_names: Callable[[Event], RowNames | None] = names_in_row
    old_key_header: str = ""
    for_topic: Callable[[str], Any] | None = None
    json_schema: Callable[[], dict[str, Any] | None] | None = None

    @classmethod
    def of(cls, format: Any) -> Traits:
        """Return the traits of a format, or those of a class whose traits do not depend on options."""
        return cls(**{name: getattr(format, name) for name in cls._fields if hasattr(format, name)})


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
        "drop"}`` (`decoding.rows`). It also sets `error_excerpt` to False.
    mask_key_env, mask_key_file : str or None
        The key of ``hmac``, at least 16 bytes: the name of an environment variable of the driver,
        or a file that the driver can read.
    """

    identifier: ClassVar[str]
    changelog_mode: ClassVar[ChangelogMode] = ChangelogMode.all()
    metadata: ClassVar[Mapping[str, MetadataColumn]] = {}
    """Readable metadata columns, by Flink's names."""

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

    @property
    def traits(self) -> Traits:
        """What decoders and Spark's stages ask of the format besides its messages."""
        return Traits.of(self)

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
            The table's columns and key, and the msgspec shapes for its images. If it is `untyped`,
            images have all names, declared or not.
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
        return ScalarReader(envelope, rows, table_filter(self), keyed=keyed).guarded()

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope | None:
        """Return where the operation and the rows are, from which the readers of messages are made.

        None: `read` reads them.

        The columnar decoder (`normalize.decode.columnar`) uses them, too, and gives the same rows.
        A subclass that reads messages differently declares them again; otherwise the scalar decoder
        reads its messages.

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
        return replace(self.encodings, rounding=self.rounding, masks=self.mask or NO_MASKS)

    def check(self, columns: Sequence[Column], unique_key: Sequence[str] = ()) -> None:
        """Reject columns or a key that this format cannot read as configured; called on the driver.

        Raises
        ------
        SchemaError, FormatOptionError
        """
        return None


def json_schema_of(format: type[MessageFormat]) -> dict[str, Any] | None:
    """Return the JSON Schema of a format's messages, None without one."""
    own = Traits.of(format).json_schema
    return packaged_schema(format.identifier) if own is None else own()


def table_reader(format: MessageFormat, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from `Event.message` to the values of `Traits.table_identity` columns.

    Parameters
    ----------
    format : MessageFormat
    names : sequence of str
    """
    readers = [format.metadata[name].read for name in names]
    return lambda message: tuple([read(message) for read in readers])


def table_filter(format: MessageFormat) -> TableFilter:
    """Return the filter of messages by their table, from the options in `Traits.table_identity`."""
    selected = {name: option for name, option in format.traits.table_identity.items() if option}
    options = {option: getattr(format, option) for option in selected.values()}
    return TableFilter(options, list(selected), table_reader(format, list(selected)))


def untyped_reader(
    format: MessageFormat, columns: Sequence[Column] = (), unique_key: Sequence[str] = ()
) -> Reader:
    """Return `MessageFormat.reader` for images with all names and the producer's values.

    Parameters
    ----------
    format : MessageFormat
    columns : sequence of Column
        The columns that are known.
    unique_key : sequence of str

    Raises
    ------
    InferenceError
        When the messages have no column names.
    """
    rows = RowConverter(columns, format.handling, unique_key, untyped=True)
    return format.reader(rows, keyed=True)
