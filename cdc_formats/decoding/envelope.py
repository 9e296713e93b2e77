"""What a format declares about its messages, so that many of them can be decoded together, column by column.

`normalize.decode.columnar` decodes the messages of an `Envelope`. It decodes only what it can decode exactly as `decoder.Decoder.upserts`
does, which is the specification: the same rows and the same errors. All other messages are left to that decoder, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import msgspec

from cdc_formats.events import Ignored
from cdc_formats.position import Position
from cdc_formats.row_kind import RowKind
from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.types import canonical_type

from .images import ABSENT
from .json_reader import BatchReader
from .rows import RowConverter
from .tables import TableFilter

if TYPE_CHECKING:
    from cdc_formats.avro.reader import AvroSchema


@dataclass(frozen=True, kw_only=True)
class Envelope:
    """The places of the operation and of the rows in a format's messages.

    Parameters
    ----------
    fields : type
        A msgspec struct of the fields other than the rows. A field whose value decides whether a message has rows needs a type that
        accepts no other values than those in `kinds`: a message that does not have these types is decoded alone.
    operation : tuple of str
        The fields with the operation; a field within another is ``outer.inner``. Empty: every message is the newest row of its key.
    kinds : mapping
        The row kind by the operation's value: a tuple if `operation` has several fields. Messages without rows have the reason, if their
        table is compared with the filter first. Messages of other operations are decoded alone.
    after : str
        The field with the row after the change. Empty: the message itself is the row.
    before : str
        The field with the row before an update; empty if the format has none. Unless a plan needs whole rows, only its key is read.
    before_has : {"all columns", "changed columns", "some columns"}
        The columns of the row before an update: all of the table, or only those that changed, or others, which are no row.
    deleted : str
        The field with the row of a delete, `after` or `before`.
    rows : {"one", "array", "array of one"}
        Whether the fields hold a row, or an array of rows.
    missing_is_null : bool
        Whether a column that is not in a row is NULL. Otherwise `lacks_nulls` decides, or messages with such rows are decoded alone.
    missing_mark : str
        The end of the names of fields in a row that say which of its columns are missing. Messages that have one are decoded alone.
    lacks_nulls : callable or None
        Returns whether all columns that a row lacks are NULL. Its arguments are the struct of the message, the row's kind, the row, and the
        row before an update. If it returns False or raises a DecodeError, the message is decoded alone. Only for messages in JSON.
    needs_before : bool
        Whether an update without `before` is decoded alone.
    names : mapping
        The names of the fields `after` and `before` in the message where they differ.
    block : tuple of str
        The fields of a message around the actual one: the schema block, and the message; empty if there are none.
    bare : bool
        Whether a message without a schema block is accepted.
    by_block : callable or None
        From the text of a schema block, or from a frame, to the converter of its rows. None, and where it returns None: the messages are
        decoded alone.
    frame : int
        The bytes in front of each message that identify its writer's schema; 0: messages are JSON.
    frame_header : str
        The Kafka header that replaces the frame; records that have it are decoded alone.
    writer_schema : callable or None
        From a frame to the Avro schema of the messages behind it; only with `frame`.
    row_reader : callable or None
        From the msgspec struct of a row to the reader of messages that are not JSON; only without `after`.
    key : type or None
        The msgspec struct of a key with the primary key's columns, if a record without a row is the delete of its key.
    key_reader : callable or None
        From `key` to the reader of keys that are not JSON.
    key_of_rows : bool
        Whether the key also gives a row the columns of the primary key that it lacks; then a row has a column of its own, too.
    deletes : tuple of (bytes or None)
        The values of records without a row; only with `key`.
    columns : tuple of int or None
        The columns that the message's row has; None: all.
    tables : TableFilter or None
        The filter of messages by their table.
    attributes : mapping
        Metadata that is a field of `fields`: by its name, the field (``outer.inner`` if it is within another), and the function from its
        value to the canonical one, None if it is the same. The format's `metadata` reads all others.
    position : callable or None
        From the struct of a message to its position; None: `Format.position`.
    message : callable or None
        From the struct and the text of a message to the value from which metadata, table and position are read; None: the struct.
    """

    fields: type[msgspec.Struct] = msgspec.Struct
    operation: tuple[str, ...] = ()
    kinds: Mapping[Any, RowKind | Ignored]
    after: str = ""
    before: str = ""
    before_has: Literal["all columns", "changed columns", "some columns"] = "all columns"
    deleted: str = ""
    rows: Literal["one", "array", "array of one"] = "one"
    missing_is_null: bool = False
    missing_mark: str = ""
    lacks_nulls: Callable[[Any, Any, Any, Any], bool] | None = None
    needs_before: bool = False
    names: Mapping[str, str] = field(default_factory=dict)
    block: tuple[str, ...] = ()
    bare: bool = True
    by_block: Callable[[bytes], RowConverter | None] | None = None
    frame: int = 0
    frame_header: str = ""
    writer_schema: Callable[[bytes], AvroSchema] | None = None
    row_reader: Callable[[Any], BatchReader] | None = None
    key: Any = None
    key_reader: Callable[[Any], BatchReader] | None = None
    key_of_rows: bool = False
    deletes: tuple[bytes | None, ...] = (None,)
    columns: tuple[int, ...] | None = None
    tables: TableFilter | None = None
    attributes: Mapping[str, tuple[str, Callable[[Any], Any] | None]] = field(default_factory=dict)
    position: Callable[[Any], Position | None] | None = None
    message: Callable[[Any, Any], Any] | None = None

    NEWEST: ClassVar[Mapping[Any, RowKind]] = {(): RowKind.UPDATE_AFTER}
    """The `kinds` of a format without operations."""

    def can_hold(self, rows: RowConverter) -> bool:
        """Whether no column has the name of a field of the message, if the message itself is the row."""
        fields = [] if self.after else [field.encode_name for field in msgspec.structs.fields(self.fields)]
        return not set(fields) & set(rows.names)

    def image(self, rows: RowConverter, missing: Any) -> Any:
        """Return the msgspec struct of a row: integers have their type, the values of other columns are checked by their converters.

        Parameters
        ----------
        rows : RowConverter
        missing : Any
            As of `image_shape`.
        """
        indices = range(len(rows.columns)) if self.columns is None else self.columns
        return image_shape(rows, indices, rows.names, missing, msgspec.Struct if self.after else self.fields, self.missing_mark)

    def shape(self, rows: RowConverter, image: Any, *, whole: bool) -> Any:
        """Return the msgspec struct of a message, whose rows are `image`; the row before an update has only the key, or is `whole`."""
        if not self.after:
            return image
        fields: list[Any] = [(self.after, self._many(image), None)]
        if self.before:
            whole = whole or self.before_has == "changed columns"
            indices = range(len(rows.columns)) if whole else rows.key_indices
            fields.append((self.before, self._many(image_shape(rows, indices, rows.names, ABSENT, missing_mark=self.missing_mark)), None))
        return msgspec.defstruct("Message", fields, bases=(self.fields,), rename=dict(self.names), gc=False)

    def _many(self, of: Any) -> Any:
        return of | None if self.rows == "one" else list[of] | None


def image_shape(
    rows: RowConverter,
    indices: Sequence[int],
    names: Sequence[str],
    missing: Any = None,
    base: type[msgspec.Struct] = msgspec.Struct,
    missing_mark: str = "",
) -> Any:
    """Return the msgspec struct of some of the columns, with a field ``c<index>`` for each; all others are `ABSENT`.

    An integer that the producer writes as a JSON number is checked by the struct; the converters check all other values.

    Parameters
    ----------
    rows : RowConverter
    indices : sequence of int
        The columns.
    names : sequence of str
        The names of all columns in the message.
    missing : Any
        The value of a missing column; ``msgspec.NODEFAULT``: it is an error.
    base : type
    missing_mark : str
        As of `Envelope`.
    """
    fields: list[Any] = []
    for index in indices:
        sql_type = rows.columns[index].type
        integer = sql_type.name in INTEGER_BITS and rows.handlings[index].native
        value = canonical_type(sql_type) | None if integer else Any
        fields.append((f"c{index}", value, missing))
    others = {f"c{index}": ABSENT for index in range(len(rows.columns)) if index not in indices}
    rename = {f"c{index}": names[index] for index in indices}
    if missing_mark:
        # A mark has no value that this type accepts.
        fields += [(f"m{index}", None, None) for index in indices]
        rename |= {f"m{index}": names[index] + missing_mark for index in indices}
    return msgspec.defstruct("Row", fields, bases=(base,), namespace=others, rename=rename, gc=False)
