"""What a micro-batch reports: Spark's progress as values, that of a table, and `observe_lag`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


_LAG = "_lag"
_OLDEST, _NEWEST = "oldest_micros", "newest_micros"
_BEHIND = "maxOffsetsBehindLatest"


def observe_lag(df: DataFrame, column: str, *, name: str = "changelog") -> DataFrame:
    """Return the same DataFrame, whose micro-batches report a column's oldest and newest time.

    `MetricsListener` makes a lag of it: the time from then until the micro-batch was done.

    Parameters
    ----------
    df : DataFrame
    column : str
        A TIMESTAMP column. With ``metadata={"committed_at": "source.timestamp"}`` it is the time of
        the commit in the source, and the lag is from commit to target. With ``"timestamp"`` it is
        Kafka's time of the record, and the lag is from Kafka to target.
    name : str
        The name of the observation, such as the table's.

    Raises
    ------
    ArgumentError
        When the DataFrame has no such column, or it is not a TIMESTAMP.

    Notes
    -----
    It adds two aggregates to a pass over rows that Spark makes anyway. Changes that a later step
    drops are part of it, changes that an earlier step dropped are not. The lag is wrong by the
    difference of the two machines' clocks.
    """
    from pyspark.sql import functions as F

    kinds = dict(df.dtypes)
    if kinds.get(column) != "timestamp":
        actual = f"is {kinds[column].upper()}" if column in kinds else "does not exist"
        raise ArgumentError(
            f"observe_lag requires a TIMESTAMP column, and {column!r} {actual}: pass "
            f"metadata={{{column!r}: 'source.timestamp'}}"
        )
    micros = F.unix_micros(F.col(backquoted(column)))
    return df.observe(f"{name}{_LAG}", F.min(micros).alias(_OLDEST), F.max(micros).alias(_NEWEST))


@dataclass(frozen=True)
class Progress:
    """What a micro-batch of a query did.

    Attributes
    ----------
    query : str
        The query's name; without one, its id.
    batch : int
    ended : float
        When it was done, in seconds since 1970-01-01 UTC.
    seconds : float
        How long it took.
    records : int
        The records that Spark's sources read.
    counts : mapping of (str, str) to int
        Counts by observation and name: ``("changelog_decode", "RECORDS")``.
    lag : mapping of (str, str) to float
        Seconds by the name given to `observe_lag`, and ``oldest`` or ``newest``. Empty if the
        micro-batch had no such rows.
    behind : mapping of str to int
        By source: the most offsets that a partition is behind the end of its topic.
    state : mapping of str to (int, int)
        By stateful operator: its rows and bytes.
    """

    query: str
    batch: int
    ended: float
    seconds: float
    records: int
    counts: Mapping[tuple[str, str], int]
    lag: Mapping[tuple[str, str], float]
    behind: Mapping[str, int]
    state: Mapping[str, tuple[int, int]]


def read_progress(progress: Mapping[str, Any]) -> Progress:
    """Return a query's progress.

    Parameters
    ----------
    progress : mapping
        ``query.lastProgress``, or the JSON of a listener's event.
    """
    seconds = float(progress.get("durationMs", {}).get("triggerExecution", 0)) / 1000
    ended = (
        datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00")).timestamp() + seconds
    )
    counts, lag = _observed(progress.get("observedMetrics") or {}, ended)
    behind = {
        source["description"]: int(source["metrics"][_BEHIND])
        for source in progress.get("sources", [])
        if _BEHIND in (source.get("metrics") or {})
    }
    state = {
        f"{number} {operator['operatorName']}": (
            int(operator["numRowsTotal"]),
            int(operator["memoryUsedBytes"]),
        )
        for number, operator in enumerate(progress.get("stateOperators", []))
    }
    return Progress(
        query=progress.get("name") or progress["id"],
        batch=int(progress["batchId"]),
        ended=ended,
        seconds=seconds,
        records=int(progress.get("numInputRows", 0)),
        counts=counts,
        lag=lag,
        behind=behind,
        state=state,
    )


def _observed(
    observations: Mapping[str, Any], ended: float
) -> tuple[dict[tuple[str, str], int], dict[tuple[str, str], float]]:
    """Return the counts and the lags of a micro-batch's observations."""
    counts: dict[tuple[str, str], int] = {}
    lag: dict[tuple[str, str], float] = {}
    for observation, values in observations.items():
        if observation.endswith(_LAG) and set(values) == {_OLDEST, _NEWEST}:
            of = observation.removesuffix(_LAG)
            times = {"oldest": values[_OLDEST], "newest": values[_NEWEST]}
            lag |= {
                (of, which): ended - micros / 1e6
                for which, micros in times.items()
                if micros is not None
            }
        else:
            # Observations of the user's own can have values of any type.
            counts |= {
                (observation, name): value for name, value in values.items() if type(value) is int
            }
    return counts, lag


# --------------------------------------------------------------------------------------------------
# What a micro-batch of `sync_database` did to one table, for the listeners of its query.
#
# `sync_database` calls `publish` on the driver, and each `MetricsListener` of the process receives
# it. Spark's own progress has no tables.

RESYNCS = "changelog/resync"
"""The folder of a checkpoint with a file for each table that is read again, for ``cdc status``."""
DECODERS = "changelog/decoders"
"""The folder of a checkpoint with a file for each table: what decodes its messages."""
PROOFS = "changelog/verified"
"""The folder of a checkpoint with a file for each table that is compared with its source."""
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
    torn : int
        The keys that have records in several Kafka partitions.
    resync : str
        The phase of a table that is read again, and then this is about nothing else; else empty.
    resync_left : int
        The offsets that are left until it has caught up.
    proof : mapping of str to float
        The gauges of a table that is compared with its source, and then this is about nothing else.
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
    torn: int = 0
    resync: str = ""
    resync_left: int = 0
    proof: Mapping[str, float] = field(default_factory=dict)
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
