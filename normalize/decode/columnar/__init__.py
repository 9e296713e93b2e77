"""Columnar decoding of a format's messages in four steps: `messages`, `rows`, `columns`, `changes`.

The result is that of `decoder.Decoder.upserts` for each message, or of `decoder.Decoder.decode` in
a plan without a stage. A format declares its messages as an `Envelope`. Each step refuses the
records in doubt. They are left to that decoder, which returns their rows or their error: a null
value, a message that is not of the declared shape, one without rows, an unavailable value, a value
that its column's converter refuses, NULL where it is not allowed, and a before-image that is not
whole where it has to be.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.message_format import MessageFormat
from normalize.core.changes import ChangeColumns
from normalize.core.fold_columns import Ints
from normalize.core.records import Records
from normalize.decode.plan import DecodePlan

from .changes import ChangeMaker
from .columns import ColumnConverter
from .messages import Encodings, MessageReader, TableMatcher
from .native import NativeDecoder, is_switched_off, native_module
from .rows import Needs, RowSelector

FEWEST = 24
"""Fewer messages are decoded faster one by one."""
FEWEST_IN_AVRO = 64
"""Fewer messages of a schema in Avro are read faster one by one."""


class Refused(NamedTuple):
    """Records that are to be decoded one by one, by their indexes in order."""

    indexes: list[int]


class NewTable(NamedTuple):
    """A table that no message was of before (`decoder.Decoder.tables`), and its first record."""

    first: int
    names: tuple[Any, ...]


class Decoded(NamedTuple):
    """The result for records of one Kafka partition.

    Attributes
    ----------
    steps : list of ChangeColumns, Refused or NewTable
        The changes of a step are not in the order of the records; those of a record are adjacent,
        and in their order. After them, refused records and new tables are in the order of the
        records: the first one that stops the query does so, as one by one.
    ignored : Counter
        The number of records that are only counted, by their `Ignored` value: null values, and
        tables that the format's filter excludes.
    """

    steps: list[ChangeColumns | Refused | NewTable]
    ignored: Counter[str]


class _Parts(NamedTuple):
    """The result before it is ordered: `refused` and `tables` are so by themselves."""

    changes: list[ChangeColumns]
    ignored: Counter[str]
    refused: list[int]
    tables: list[NewTable]

    def at(self, places: Ints) -> _Parts:
        """Return the result for records that have these indexes among others."""
        changes = [part._replace(places=places[part.places]) for part in self.changes]
        tables = [NewTable(int(places[first]), names) for first, names in self.tables]
        return _Parts(changes, self.ignored, places[self.refused].tolist(), tables)

    def ordered(self) -> Decoded:
        """Return the result as steps."""
        steps, start = list[ChangeColumns | Refused | NewTable](self.changes), 0
        for table in self.tables:
            end = bisect_left(self.refused, table.first)
            steps += [Refused(self.refused[start:end])] * (end > start)
            steps.append(table)
            start = end
        steps += [Refused(self.refused[start:])] * (start < len(self.refused))
        return Decoded(steps, self.ignored)


class ColumnarDecoder:
    """Decodes the records of one task.

    Parameters
    ----------
    plan : DecodePlan
    envelope : Envelope
    rows : RowConverter
    keyed : bool
        Whether the result is the newest row or the delete of each key; otherwise it is the topic's
        changelog.
    fewest : int
        Fewer records are to be decoded one by one.
    fewest_in_avro : int
        Fewer messages of a schema in Avro are decoded one by one.
    native : bool
        Whether the native decoder is used, if it is installed and knows what the plan needs.

    Attributes
    ----------
    fewest : int
    native : NativeDecoder or None
    tables : set
        Same as `decoder.Decoder`.
    """

    def __init__(
        self,
        plan: DecodePlan,
        envelope: Envelope,
        rows: RowConverter,
        *,
        keyed: bool,
        fewest: int,
        fewest_in_avro: int,
        native: bool,
    ) -> None:
        needs, matcher = Needs.of(plan, envelope, keyed=keyed), TableMatcher.of(plan, envelope)
        encodings = Encodings(envelope, rows, whole=not keyed, fewest=fewest_in_avro)
        self.fewest = fewest
        self.messages = MessageReader(plan, envelope, encodings, matcher)
        self.rows = RowSelector(plan, envelope, rows, needs, matcher)
        self.columns = ColumnConverter(plan, envelope, rows, needs)
        self.changes = ChangeMaker(plan, needs)
        self.tables: set[tuple[Any, ...]] = set()
        self.native = (
            NativeDecoder.of(plan, envelope, rows, keyed=keyed, fewest=fewest)
            if native and matcher is None
            else None
        )

    @classmethod
    def of(
        cls,
        plan: DecodePlan,
        *,
        keyed: bool = True,
        fewest: int = FEWEST,
        fewest_in_avro: int = FEWEST_IN_AVRO,
        native: bool = True,
    ) -> ColumnarDecoder | None:
        """Return the decoder of a plan; None if all its messages have to be decoded one by one."""
        format = plan.format
        if (
            format.validate
            or format.unknown_columns == "fail"
            or not reads_as_declared(type(format))
        ):
            return None
        rows = RowConverter(plan.read_columns, format.handling, plan.unique_key)
        if not isinstance(
            rows.shape, type(msgspec.Struct)
        ):  # a struct cannot have all names that JSON can have
            return None
        envelope = format.envelope(rows, plan.format_metadata, positions=plan.positions)
        if (
            envelope is None
            or not envelope.columnar.possible
            or not envelope.can_hold(rows)
            or (envelope.framing.frame and find_spec("polars") is None)
        ):
            return None
        # A delete that has only a key is no row of a changelog.
        if not keyed and envelope.images.before_has == "some columns":
            return None
        return cls(
            plan,
            envelope,
            rows,
            keyed=keyed,
            fewest=fewest,
            fewest_in_avro=fewest_in_avro,
            native=native,
        )

    def decode(self, records: Records, kafka: Sequence[tuple[Any, ...]]) -> Decoded:
        """Decode records.

        Parameters
        ----------
        records : Records
        kafka : sequence of tuple
            The metadata of each Kafka record, in the order of `DecodePlan.kafka_metadata`; empty if
            none is requested.
        """
        decoded = (
            self._decode(records, kafka)
            if self.native is None
            else self._natively(self.native, records, kafka)
        )
        self.tables.update(table.names for table in decoded.tables)
        return decoded.ordered()

    def _natively(
        self, native: NativeDecoder, records: Records, kafka: Sequence[tuple[Any, ...]]
    ) -> _Parts:
        """Decode records by the native decoder, and those that it leaves in doubt without it."""
        natives, rest, tables = native.decode(records, kafka)
        parts = [part for part in natives if len(part.places)]
        decoded = _Parts(parts, Counter(), rest.tolist(), [])
        if len(rest) >= self.fewest:
            of_rest = [kafka[place] for place in rest] if kafka else kafka
            python = self._decode(records.only(rest.tolist()), of_rest).at(rest)
            decoded = python._replace(changes=[*python.changes, *decoded.changes])
        for place, table in decoded.tables:
            tables[table] = min(place, tables.get(table, place))
        return decoded._replace(tables=self._new(tables))

    def _decode(self, records: Records, kafka: Sequence[tuple[Any, ...]]) -> _Parts:
        messages, ignored, refused = self.messages.read(records)
        parts, new_tables = list[ChangeColumns](), dict[tuple[Any, ...], int]()
        for part in messages:
            rows, ignored_rows, refused_rows = self.rows.select(records, part)
            converted, unconverted = self.columns.convert(part.encoding, rows, kafka)
            changes = self.changes.make(records, converted, unconverted)
            if changes is not None:
                parts.append(changes)
            for table, place in self._new_tables(converted.tables, rows.places, unconverted):
                new_tables[table] = min(place, new_tables.get(table, place))
            ignored += ignored_rows
            refused |= refused_rows | unconverted
        return _Parts(parts, ignored, sorted(refused), self._new(new_tables))

    def _new(self, tables: Mapping[tuple[Any, ...], int]) -> list[NewTable]:
        """Return the tables that are new, in the order of their first records."""
        new = (
            NewTable(first, names) for names, first in tables.items() if names not in self.tables
        )
        return sorted(new, key=attrgetter("first"))

    def _new_tables(
        self, tables: Sequence[tuple[Any, ...]], places: Sequence[int], refused: set[int]
    ) -> list[tuple[tuple[Any, ...], int]]:
        """Return the tables that are new, with the first record of each."""
        new = []
        for table in set(tables) - self.tables:
            pairs = zip(places, tables, strict=True)
            first = min(
                (place for place, other in pairs if other == table and place not in refused),
                default=None,
            )
            new += [] if first is None else [(table, first)]
        return new


ColumnarMaker = Callable[..., ColumnarDecoder | None]
"""Called as `ColumnarDecoder.of`."""


def decoder_of(plan: DecodePlan, *, keyed: bool = True) -> str:
    """Return which decoder reads most messages of a plan, and why, as text for the user."""
    columnar = ColumnarDecoder.of(plan, keyed=keyed)
    if columnar is not None and columnar.native is not None:
        return "the native decoder"
    if not plan.native or is_switched_off():
        reason = "the native decoder is switched off"
    elif native_module() is None:
        reason = "the native decoder is not installed"
    else:
        reason = "the native decoder does not know this format, key or option"
    return f"Python, since {reason}" if keyed else "Python, since there is no keyed stage"


def one_by_one(plan: DecodePlan, *, keyed: bool = True) -> None:
    """Return no decoder: each message is decoded alone."""


_READING = {"envelope", "metadata", "position", "read", "reader", "table_identity"}
"""The members of a format that decide what is read of a message."""


def reads_as_declared(cls: type[MessageFormat]) -> bool:
    """Whether the class that declares the `envelope` decides all that is read of a message."""
    decisive = next(members for of in cls.__mro__ if _READING & (members := vars(of).keys()))
    return "envelope" in decisive
