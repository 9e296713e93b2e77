"""Reads records without declared columns: their events, with images exactly as in the message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cdc_formats.decoding.one_record import decode_one
from cdc_formats.decoding.other_messages import named
from cdc_formats.errors import ArgumentError, DecodeError, MalformedMessageError
from cdc_formats.events import Event, Headers, Ignored
from cdc_formats.format import Format
from cdc_formats.message_format import untyped_reader
from cdc_formats.registry import get_format
from cdc_formats.topics.encodings import InspectedRecord, SampledRecord
from cdc_formats.topics.sampler import sampler_of


class Reading(NamedTuple):
    """The result of reading a record: events, a reason why it has none, or an error.

    Attributes
    ----------
    inspected : InspectedRecord
    events : tuple of Event
    table : tuple of str or None
        The names of the events' table.
    ignored : Ignored or None
    error : DecodeError or None
    """

    inspected: InspectedRecord
    events: tuple[Event, ...] = ()
    table: tuple[str, ...] | None = None
    ignored: Ignored | None = None
    error: DecodeError | None = None

    @property
    def record(self) -> SampledRecord:
        """The record."""
        return self.inspected.record


def named_format(format: str | Format, options: Mapping[str, Any]) -> Format:
    """Return the format of a name and options, or the format, which takes no options.

    Raises
    ------
    ArgumentError, FormatOptionError, UnknownFormatError
    """
    if not isinstance(format, Format):
        return get_format(format, **options)
    if options:
        raise ArgumentError(
            f"options require a format's name: pass them to {type(format).__name__}(...) instead"
        )
    return format


class AnyColumns:
    """Reads the records of a format without declared columns.

    Parameters
    ----------
    format : Format

    Raises
    ------
    InferenceError
        When the format has no column names.
    """

    def __init__(self, format: Format) -> None:
        self.format = format
        self.sampler = sampler_of(format)
        self._read = untyped_reader(format)

    def read(self, inspected: InspectedRecord) -> Reading:
        """Read a record.

        Raises
        ------
        ChangelogError, OSError, ImportError, MemoryError
            Infrastructure errors, for example of a schema registry that does not answer.
        """
        result = decode_one(self.format.identifier, self._reading, inspected)
        return Reading(inspected, error=result) if isinstance(result, DecodeError) else result

    def _reading(self, inspected: InspectedRecord) -> Reading:
        record = inspected.record
        result = self.events(record.key, record.value, record.headers)
        if isinstance(result, Ignored):
            return Reading(inspected, ignored=result)
        events = tuple(result)
        return Reading(inspected, events, self.table(events[0].message) if events else None)

    def events(
        self, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Sequence[Event] | Ignored:
        """Return a record's events with the producer's values, or the reason why it has none.

        Raises
        ------
        DecodeError
            When the format cannot read the record.
        """
        if not value and not self.format.traits.reads_tombstones:
            return Ignored.TOMBSTONE
        try:
            events: Sequence[Event] | Ignored
            events = (
                self._read(key, value, headers)
                if self.format.traits.reads_headers
                else self._read(key, value)
            )
        except DecodeError as error:
            raise named(error, value) from None
        except RecursionError:
            raise MalformedMessageError("nested too deeply") from None
        return events

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
        if message is None:
            return None
        names = [
            self.format.metadata[name].read(message) for name in self.format.traits.table_identity
        ]
        return tuple(str(name) for name in names if name is not None) or None
