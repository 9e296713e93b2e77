"""What is kept of a table that is read again: its file, and the offsets of the next step.

The file is ``query/resync/<table>.json`` of `schema_location`. A command writes the request, and the
query writes everything else, before and after each step: a query that is killed goes on with the
step that it had planned.

=============  =====================================================================================
phase          what happens
=============  =====================================================================================
``requested``  the query has not seen the request yet
``loading``    another process writes the source's rows to a new table, or lets Debezium write them to
               the topic
``reading``    the table's records are applied to a new table, a step at a time
``replacing``  the new table has caught up, and its rows replace those of the old one
``replaced``   done
``counted``    done, of a request that only counts
``refused``    the table cannot be read again, for a `reason`
``failed``     an error ended it, the `reason`; the table is as if it had not been requested
=============  =====================================================================================
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

Offsets = dict[str, dict[int, int]]
"""The offset of the next record, by topic and partition."""
Phase = Literal[
    "requested", "loading", "reading", "replacing", "replaced", "counted", "refused", "failed"
]


class Resync(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The request to read a table again, and how far the query is.

    Attributes
    ----------
    table : str
        The source table.
    id : str
        A UUID. The new table has a part of it in its name, and its commits carry it as a query's id.
    requested_at : str
        In UTC.
    remove_missing : bool
        Whether keys leave that only the old table has.
    dry_run : bool
        Whether the new table is only counted.
    from_source : bool
        Whether another process writes the source's rows to the new table first.
    start : dict
        The first offsets to read; Kafka's first ones without.
    abandoned : tuple of str
        The earlier requests whose process ended before it had written them.
    new : str
        The name of the new table.
    phase : str
    step : int
        The number of the current step.
    offsets : dict
        What the new table has of the topics.
    until : dict
        The end of a step that is planned, and may be in the new table already; empty before it is.
    records : int
        The records that were read.
    left : int
        The offsets to the end of the micro-batch in which `offsets` were reached.
    missing : int or None
        The keys that only the old table has; None until the new table has caught up.
    resumes : bool
        Whether the old table was stopped, or had no row.
    carries_batch : bool
        Whether the commit that replaces its rows carries the micro-batch, which it lacks.
    reason : str
        Why it was refused or failed.
    """

    table: str
    id: str = ""
    requested_at: str = ""
    remove_missing: bool = False
    dry_run: bool = False
    from_source: bool = False
    start: Offsets = {}
    abandoned: tuple[str, ...] = ()
    new: str = ""
    phase: Phase = "requested"
    step: int = 0
    offsets: Offsets = {}
    until: Offsets = {}
    records: int = 0
    left: int = 0
    missing: int | None = None
    resumes: bool = False
    carries_batch: bool = False
    reason: str = ""

    @property
    def is_active(self) -> bool:
        """Whether it has not ended."""
        return self.phase in ("requested", "loading", "reading", "replacing")

    @property
    def is_unbegun(self) -> bool:
        """Whether the query has not begun to read it."""
        return self.phase in ("requested", "loading")

    @property
    def described(self) -> str:
        """How far it is, as a part of a sentence.

        Examples
        --------
        >>> Resync("shop.orders", "0", "", phase="reading", records=20_000, left=980_000).described
        'reading, 20,000 records, 980,000 offsets left'
        >>> Resync("shop.orders", "0", "", phase="refused", reason="[SYNC] it is a history").described
        'refused: [SYNC] it is a history'
        """
        if self.reason:
            return f"{self.phase}: {self.reason}"
        if self.phase == "loading":
            where = "a new table" if self.from_source else "the topic, by Debezium"
            return f"loading: the rows of the source are being written to {where}"
        if self.phase == "requested":
            return "requested: the query begins at its next micro-batch"
        left = [f"{self.left:,} offsets left"] * (self.phase == "reading")
        parts = [self.phase, f"{self.records:,} records", *left]
        if self.missing is not None:
            outcome = f" ({'removed' if self.remove_missing else 'kept'})"
            shown = outcome * bool(self.missing and not self.dry_run)
            parts.append(f"{self.missing:,} keys that only the old table has{shown}")
        return ", ".join(parts)


def offsets_between(offsets: Mapping[str, Mapping[int, int]], end: Offsets) -> int:
    """Return the number of offsets up to an end.

    Examples
    --------
    >>> offsets_between({"t": {0: 5}}, {"t": {0: 7, 1: 3}})
    5
    """
    return sum(
        max(0, last - offsets.get(topic, {}).get(partition, 0))
        for topic, partitions in end.items()
        for partition, last in partitions.items()
    )


def next_offsets(offsets: Offsets, end: Offsets, most: int) -> Offsets:
    """Return the end of a step: at most so many offsets, of each partition the same share.

    Changes of a key may be in two partitions, and so all are read at about the same pace.

    Parameters
    ----------
    offsets : dict
        The begin of the step, of all partitions of `end`.
    end : dict
    most : int

    Examples
    --------
    >>> next_offsets({"t": {0: 0, 1: 50}}, {"t": {0: 300, 1: 150}}, 100)
    {'t': {0: 75, 1: 75}}
    >>> next_offsets({"t": {0: 0, 1: 50}}, {"t": {0: 300, 1: 150}}, 1000)
    {'t': {0: 300, 1: 150}}
    """
    left = offsets_between(offsets, end)
    return {
        topic: {
            partition: min(
                last,
                offsets[topic][partition]
                + -(-(last - offsets[topic][partition]) * min(most, left) // max(left, 1)),
            )
            for partition, last in partitions.items()
        }
        for topic, partitions in end.items()
    }
