"""Reads records without declared columns: their events, with images exactly as in the message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..base import Event, Format, Headers, Ignored
from ..errors import InferenceError, MalformedMessageError
from ..json_reader import read_object
from ..rows import RowConverter
from ..schema import Column
from ..upsert import UpsertKafka
from .messages import key_fields
from .source_types import STRING

if TYPE_CHECKING:
    from .avro_sample import AvroSample

_NAMES = (
    ("source.database", "source.schema", "source.table"),
    ("source.database", "source.collection"),
    ("database", "schema", "table"),
)


class AnyColumns:
    """Reads the records of a format without declared columns.

    Parameters
    ----------
    format : Format

    Attributes
    ----------
    avro : AvroSample or None
        Reads records whose schemas are in a registry; None for other formats.

    Raises
    ------
    InferenceError
        When the format has no column names.
    """

    def __init__(self, format: Format) -> None:
        self.format = format
        self.avro = _avro_sample(format)
        self._read = self._reader()

    def _reader(self) -> Callable[..., Any]:
        if self.avro is not None:
            return self.avro.read
        if isinstance(self.format, UpsertKafka):
            return _upsert_reader(self.format)
        return self.format.reader(_any_columns(self.format), keyed=True)

    def events(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> Sequence[Event] | Ignored:
        """Return the events of one record with the producer's values, or the reason why it has none.

        Raises
        ------
        DecodeError
            When the format cannot read the record.
        """
        if not value and not self.format.reads_tombstones:
            return Ignored.TOMBSTONE
        try:
            found: Sequence[Event] | Ignored
            found = self._read(key, value, headers) if self.format.reads_headers or self.avro else self._read(key, value)
        except RecursionError:
            raise MalformedMessageError("nested too deeply") from None
        return found

    def table(self, message: Any) -> tuple[str, ...] | None:
        """Return the table's names from a message's metadata; None when it has none.

        Parameters
        ----------
        message : Any
            `Event.message`.

        Raises
        ------
        DecodeError
            When the metadata cannot be read.
        """
        metadata = self.format.metadata
        for names in _NAMES:
            if names[-1] in metadata and message is not None:
                found = [metadata[name].read(message) for name in names if name in metadata]
                return tuple(str(name) for name in found if name is not None) or None
        return None


def _any_columns(format: Format) -> RowConverter:
    # msgspec has no field for this name, so that the reader returns images exactly as in the message, with all their columns.
    return RowConverter((Column('"', STRING),), format.handling)


def _avro_sample(format: Format) -> AvroSample | None:
    if isinstance(format, UpsertKafka):
        if format.value_format not in ("json", "avro-confluent"):
            raise InferenceError(f"value_format {format.value_format!r} has no column names to infer a schema from: pass schema")
        if format.value_format == "json":
            return None
    elif not hasattr(format, "registry"):
        return None
    from .avro_sample import AvroSample  # fastavro is an optional dependency

    return AvroSample(format, _any_columns(format))


def _upsert_reader(format: UpsertKafka) -> Callable[..., Any]:
    def read(key: bytes | None, value: bytes | None, headers: Headers = ()) -> Any:
        if value is None or bytes(value) == b"null":
            return Ignored.TOMBSTONE
        fields = {format.key_fields_prefix + name: part for name, part in (key_fields(key) or {}).items()}
        keyed = fields if format.key_format == "json" and format.value_fields_include == "EXCEPT_KEY" else {}
        return [Event.insert({**keyed, **read_object(value)}, path="$")]

    return read
