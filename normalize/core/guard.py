"""The guard: state about the whole query that is compared in every micro-batch.

A key group's state is compared with the query's options only when a change touches the group.
Options that must not change are therefore also stored in a separate state row, the key group
`GUARD`. Every task of the first pass sends one `PartitionSummary` for each Kafka partition that it
read. The guard compares them with its state before the micro-batch commits anything:

- the layout of the state (`state.Layout`): ``key_groups``, ``primary_key``, types of columns;
- the masks of columns, and the fingerprint of their key: the state has masked values;
- the condition of ``where=``: the checkpoint's result has the rows that matched it;
- the tables: a second table, whose rows would be merged with those of the first by their primary
  key;
- the topics' ids: a topic that was deleted and created again has other records at the checkpoint's
  offsets;
- partitions that were added to a topic: a key may have moved to one of them, and its older changes
  may still be unread.

All functions here are pure. The state is the MessagePack array of `_Guard`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from cdc_formats.errors import (
    PartitionsAddedError,
    SeveralTablesError,
    StateDamagedError,
    StateVersionError,
    TopicReplacedError,
)
from cdc_formats.topics.client import TopicDescription

from .arrow import encode
from .state import Layout, stored_names

GUARD = -1
"""The key group of the guard; those of keys are not negative."""
VERSION = 1


class SourceTable(msgspec.Struct, frozen=True, array_like=True):
    """A table that records belong to.

    Attributes
    ----------
    names : dict of str to str
        By column of `Identity.columns`; empty where messages do not name their table.
    topic : str
        The topic, which identifies the table where `names` is empty.
    where : str
        Where a record of it was read: ``topic[partition]`` and offset.
    """

    names: dict[str, str]
    topic: str
    where: str


class PartitionSummary(msgspec.Struct, array_like=True):
    """A summary of the records that a task read from one Kafka partition.

    Attributes
    ----------
    topic : str
        Empty where the changes do not come from Kafka.
    partition : int
    first_stamp : int
        The least Kafka timestamp, in ms.
    tables : list of SourceTable
    first_offset : int
        The offset of its first record.
    """

    topic: str = ""
    partition: int = 0
    first_stamp: int = 0
    tables: list[SourceTable] = []
    first_offset: int = 0


decode_summary = msgspec.msgpack.Decoder(PartitionSummary).decode


class _Topic(msgspec.Struct, array_like=True):
    """A topic: its id, and its partition count at the query's first read and after each growth."""

    topic_id: str
    partitions: list[int]


class _Guard(msgspec.Struct, array_like=True):
    """The state of the guard.

    `layout` is the state of an empty key group. `added` has the first timestamp of each added
    partition.

    Earlier releases did not store `condition`, nor `masks`, which they did not have.
    """

    version: int
    layout: bytes
    tables: list[SourceTable]
    topics: dict[str, _Topic]
    added: dict[str, dict[int, int]]
    condition: str | None = None
    masks: dict[str, str] = {}


_decode = msgspec.msgpack.Decoder(_Guard).decode


@dataclass(frozen=True)
class Identity:
    """The values that must be equal in all messages, since rows of two tables would merge by key.

    Parameters
    ----------
    columns : tuple of str
        Columns of `Traits.table_identity` that neither an option selects nor the primary key
        contains.
    options : tuple of str
        For each, the option that selects its values, or the empty string.
    topics : bool
        Whether two topics are two tables where messages name no table.
    primary_key : tuple of str
        For the error's text.
    """

    columns: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    topics: bool = False
    primary_key: tuple[str, ...] = ()

    @property
    def compared(self) -> bool:
        """Whether there is anything to compare."""
        return self.topics or bool(self.columns)

    def merged(
        self, tables: Sequence[SourceTable], more: Iterable[SourceTable]
    ) -> list[SourceTable]:
        """Return a list with the table that all records belong to; empty if it is not known yet.

        Raises
        ------
        SeveralTablesError
            When records belong to two tables.
        """
        merged = list(tables)
        for table in more:
            if not merged:
                merged = [table]
            elif self._differ(merged[0], table):
                raise self._error(merged[0], table)
            elif not merged[0].names:
                # The first records had no rows, and so named no table.
                merged = [table]
        return merged

    def _differ(self, first: SourceTable, second: SourceTable) -> bool:
        if first.names and second.names:
            return any(
                first.names.get(column) != second.names.get(column) for column in self.columns
            )
        return self.topics and first.topic != second.topic

    def _error(self, first: SourceTable, second: SourceTable) -> SeveralTablesError:
        if not (first.names and second.names):
            return self.several_topics(first.topic, second.topic)
        differing = [
            column for column in self.columns if first.names.get(column) != second.names.get(column)
        ]
        return self.several_tables(_named(first), _named(second), differing)

    def several_topics(self, first: str, second: str) -> SeveralTablesError:
        """Return the error for records of two topics that do not name their table."""
        return SeveralTablesError(
            f"the records come from the topics {first} and {second}, and do not name their table: "
            "rows with equal keys would be merged. Read each topic in a separate call, or make "
            f"the topic part of the key: {self._key(['topic'])}"
        )

    def several_tables(
        self, first: str, second: str, differing: Sequence[str] = ()
    ) -> SeveralTablesError:
        """Return the error for records of two tables.

        `differing` are the columns in which their names differ, by default all.
        """
        columns = differing or self.columns
        options = [
            option
            for column, option in zip(self.columns, self.options, strict=True)
            if column in columns and option
        ]
        select = (
            f"select one with {' and '.join(options)} in format_options (a regular expression), or "
            if options
            else ""
        )
        return SeveralTablesError(
            f"the records belong to two tables, {first} and {second}: rows with equal keys would "
            f"be merged. To fix it, {select}make the table part of the key: {self._key(columns)}"
        )

    def _key(self, columns: Sequence[str]) -> str:
        return f"metadata={[*columns]!r}, primary_key={[*columns, *self.primary_key]!r}"


def _named(table: SourceTable) -> str:
    return f"{'.'.join(table.names.values())} ({table.where})"


@dataclass(frozen=True)
class Expected:
    """What the guard's state is compared with.

    Parameters
    ----------
    identity : Identity
    topics : mapping
        Kafka's description of the topics when the query was defined; empty if unknown.
    by_source : bool
        Whether changes are ordered by their position in the source's log, independent of their
        partition.
    has_positions : bool
        Whether the format supports that order.
    condition : str
        The condition of ``where=`` (`engines.condition`); empty if there is none.
    masks : mapping
        The masks of columns (`values.masks.Masks.facts`).
    """

    identity: Identity = Identity()
    topics: Mapping[str, TopicDescription] = field(default_factory=dict)
    by_source: bool = False
    has_positions: bool = False
    condition: str = ""
    masks: Mapping[str, str] = field(default_factory=dict)


NOTHING_EXPECTED = Expected()


def check(
    stored: bytes | None,
    seen: Sequence[PartitionSummary],
    layout: Layout,
    expected: Expected,
    now_ms: int,
) -> bytes:
    """Return the guard's state after a micro-batch, which is compared with the state before.

    Parameters
    ----------
    stored : bytes or None
        None in a query's first micro-batch.
    seen : sequence of PartitionSummary
    layout : Layout
    expected : Expected
    now_ms : int
        Processing time, in ms.

    Raises
    ------
    StateVersionError
        When the state has another layout or condition, or other masks.
    SeveralTablesError, TopicReplacedError, PartitionsAddedError
    StateDamagedError
    """
    guard = _Guard(VERSION, b"", [], {}, {}) if stored is None else _read(stored)
    if guard.layout:
        _require_same_masks(guard, layout, expected)
        layout.decode(guard.layout, now_ms)
    if guard.condition not in (None, expected.condition):
        raise StateVersionError(
            f"where= is {expected.condition or None}, and was {guard.condition or None} when the "
            "checkpoint was written: set it back, or start from a new checkpoint"
        )
    tables = expected.identity.merged(
        guard.tables, (table for each in seen for table in each.tables)
    )
    topics = _topics(guard.topics, expected.topics)
    added = _added(guard, topics, seen, expected)
    return encode(
        _Guard(
            VERSION,
            layout.encode(layout.empty()),
            tables,
            topics,
            added,
            expected.condition,
            dict(expected.masks),
        )
    )


def changed_mask(
    before: Mapping[str, str], now: Mapping[str, str], names: Iterable[str]
) -> str | None:
    """Return how the mask of a column, or its key, changed; None if no mask did.

    Parameters
    ----------
    before, now : mapping
        Same as `values.masks.Masks.facts`.
    names : iterable of str
        The columns that are compared.

    Examples
    --------
    >>> changed_mask({}, {"email": "redact"}, ["id", "email"])
    "the mask of 'email' is 'redact', and was None"
    """
    for name in names:
        if before.get(name) != now.get(name):
            return f"the mask of {name!r} is {now.get(name)!r}, and was {before.get(name)!r}"
    return None


def _require_same_masks(guard: _Guard, layout: Layout, expected: Expected) -> None:
    # A column that the state does not have, or the query no longer has, has no values to confuse.
    names = {*expected.masks, *(column.name for column in layout.columns)}
    changed = changed_mask(
        guard.masks,
        expected.masks,
        [name for name in stored_names(guard.layout) if name in names],
    )
    if changed:
        raise StateVersionError(
            f"{changed} when the checkpoint was written, whose state has values of the column: set "
            "it back, or start from a new checkpoint"
        )


def _read(stored: bytes) -> _Guard:
    version = stored[1] if len(stored) > 1 else None
    if version != VERSION:
        raise StateVersionError(
            f"the checkpoint's guard has version {version}; this release reads version {VERSION}"
        )
    try:
        return _decode(stored)
    except msgspec.MsgspecError as error:
        raise StateDamagedError(
            f"the checkpoint's guard is damaged ({type(error).__name__}): restore the checkpoint "
            "from a backup, or start from a new one"
        ) from None


def _topics(
    stored: Mapping[str, _Topic], described: Mapping[str, TopicDescription]
) -> dict[str, _Topic]:
    topics = dict(stored)
    for name, now in described.items():
        before = topics.get(name)
        if before is None:
            topics[name] = _Topic(now.topic_id, [now.partitions])
            continue
        require_same_topic(name, before.topic_id, now.topic_id)
        grown = [now.partitions] if now.partitions > before.partitions[-1] else []
        topics[name] = _Topic(before.topic_id or now.topic_id, before.partitions + grown)
    return topics


def require_same_topic(name: str, before: str, now: str) -> None:
    """Raise an error for a topic with another id than before; an empty id is not known.

    Raises
    ------
    TopicReplacedError
    """
    if before and now and before != now:
        raise TopicReplacedError(
            f"topic {name} was deleted and created again since the checkpoint was written (topic "
            f"id {before}, now {now}): the checkpoint's offsets would skip records. Start from a "
            "new checkpoint"
        )


def _added(
    guard: _Guard,
    topics: Mapping[str, _Topic],
    seen: Sequence[PartitionSummary],
    expected: Expected,
) -> dict[str, dict[int, int]]:
    added = {name: dict(partitions) for name, partitions in guard.added.items()}
    for each in seen:
        if each.topic not in topics or expected.by_source:
            continue
        # A partition's generation is how often the topic had grown when it was added.
        counts = topics[each.topic].partitions
        for partition, since in guard.added.get(each.topic, {}).items():
            if (
                bisect_right(counts, each.partition) < bisect_right(counts, partition)
                and each.first_stamp < since
            ):
                raise _late(each, partition, since, expected)
        if bisect_right(counts, each.partition):
            of_topic = added.setdefault(each.topic, {})
            of_topic[each.partition] = min(
                each.first_stamp, of_topic.get(each.partition, each.first_stamp)
            )
    return added


def _late(
    seen: PartitionSummary, partition: int, since: int, expected: Expected
) -> PartitionsAddedError:
    remedy = (
        "with order='source', which orders changes by the source's log"
        if expected.has_positions
        else (
            "without maxOffsetsPerTrigger, so that one micro-batch reads both partitions and "
            "orders their changes by Kafka's timestamps"
        )
    )
    return PartitionsAddedError(
        f"{seen.topic}[{partition}] was added to the topic, and its records were read before older "
        f"ones of {seen.topic}[{seen.partition}] (Kafka timestamp {seen.first_stamp}, before "
        f"{since}): an older change of a key that moved would win. Start from a new checkpoint "
        f"{remedy}"
    )
