"""What a micro-batch of `sync_database` did to one table, for the listeners of its query.

`sync_database` calls `publish` on the driver, and each `MetricsListener` of the process receives
it. Spark's own progress has no tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

RESYNCS = "changelog/resync"
"""The folder of a checkpoint with a file for each table that is read again, for ``cdc status``."""
WRITERS = "changelog/writers"
"""The folder of a checkpoint with a file for each Delta table: what writes it, for ``cdc status``.
Spark does not use it."""


@dataclass(frozen=True, kw_only=True)
class TableProgress:
    """What a micro-batch did to one table.

    Attributes
    ----------
    query : str
        The query's id.
    batch : int
        The number of the micro-batch.
    table : str
        The source table; empty for what belongs to no table: records that cannot be read, and
        `unused_masks`.
    records : int
        The records that were applied.
    rows : int
        The rows that were merged or deleted: the last change of each key.
    bad : mapping of str to int
        The records that could not be decoded, by condition.
    schema_changes : int
        How often the schema was decided or extended.
    open_questions : int
        The columns whose types are guesses.
    missed : int
        The records that were not applied, because the table is stopped.
    stopped : bool
    writer, reason : str
        What merged the rows of a Delta table, ``delta-rs`` or ``spark``, and why; empty for other
        tables.
    lag : mapping of str to float
        Seconds from Kafka's timestamp of the ``oldest`` and the ``newest`` record until the table
        was written; empty without records.
    resync : str
        The phase of a table that is read again, and then this is about nothing else; else empty.
    resync_left : int
        The offsets that are left until it has caught up.
    unused_masks : int or None
        How many masks are of no column of any table so far; None if this is not about masks.
    """

    query: str
    table: str
    batch: int = -1
    records: int = 0
    rows: int = 0
    bad: Mapping[str, int] = field(default_factory=dict)
    schema_changes: int = 0
    open_questions: int = 0
    missed: int = 0
    stopped: bool = False
    writer: str = ""
    reason: str = ""
    lag: Mapping[str, float] = field(default_factory=dict)
    resync: str = ""
    resync_left: int = 0
    unused_masks: int | None = None


class Receiver(Protocol):
    """An object that receives the progress of tables."""

    def take_table(self, progress: TableProgress) -> None:
        """Take the progress of a table, of any query of the process."""


_receivers: WeakSet[Receiver] = WeakSet()


def subscribe(receiver: Receiver) -> None:
    """Send the progress of all tables to an object, as long as the program keeps it."""
    _receivers.add(receiver)


def publish(progress: TableProgress) -> None:
    """Send the progress of a table to all receivers."""
    for receiver in list(_receivers):
        receiver.take_table(progress)
