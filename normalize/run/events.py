"""What a running job reports: its micro-batches, when it has caught up, and its restarts."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Literal

from pyspark.sql.streaming.query import StreamingQuery

from normalize.monitoring.progress import TableProgress, read_progress, subscribe

_log = logging.getLogger("normalize.run")
_MOST_TABLES = 5
_BY = {"delta-rs": " by delta-rs", "spark": " by Spark"}


@dataclass(frozen=True)
class Event:
    """Something that a job reports.

    Attributes
    ----------
    kind : {"started", "micro-batch", "caught up", "warning", "failed", "stopped"}
    text : str
        A line for a person.
    values : mapping
        JSON values for a program.
    """

    kind: Literal["started", "micro-batch", "caught up", "warning", "failed", "stopped"]
    text: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return one line of JSON, with the time."""
        now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
        return json.dumps({"time": now, "event": self.kind, **self.values})


Report = Callable[[Event], None]


def log_event(event: Event) -> None:
    """Write an event to the logger ``normalize.run``: a failure as a warning, others as INFO."""
    _log.log(logging.WARNING if event.kind == "failed" else logging.INFO, "%s", event.text)


class Warnings(logging.Handler):
    """Reports the warnings of a logger as events."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.WARNING)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Report a warning."""
        self._report(Event("warning", record.getMessage(), {"text": record.getMessage()}))


def offsets_left(progress: Mapping[str, Any]) -> int | None:
    """Return how many offsets the ends of the topics were ahead, None if Spark does not say it.

    Examples
    --------
    >>> offsets_left({"sources": [{"endOffset": {"t": {"0": 5, "1": 9}}, "latestOffset": {"t": {"0": 7, "1": 9}}}]})
    2
    """
    left = [_ahead(each.get("endOffset"), each.get("latestOffset")) for each in progress["sources"]]
    numbers = [each for each in left if each is not None]
    return sum(numbers) if numbers else None


def _ahead(end: Any, latest: Any) -> int | None:
    if not isinstance(end, Mapping) or not isinstance(latest, Mapping):
        return None
    return sum(
        int(offset) - int(end.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, offset in partitions.items()
    )


class BatchReporter:
    """Reports the micro-batches of a query, with what each did to the tables.

    Parameters
    ----------
    report : callable
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._last = -1
        self._query = ""
        self._is_behind = True
        self._tables: dict[int, dict[str, TableProgress]] = {}
        subscribe(self)

    def begin(self, query: StreamingQuery) -> None:
        """Report the micro-batches of this query from now on."""
        self._query, self._last, self._is_behind = str(query.id), -1, True

    def take_table(self, progress: TableProgress) -> None:
        """Keep what a micro-batch did to a table until the micro-batch is reported."""
        if progress.table and progress.query == self._query and not progress.resync:
            self._tables.setdefault(progress.batch, {})[progress.table] = progress

    def look(self, query: StreamingQuery) -> None:
        """Report the micro-batches that were finished since the last call."""
        newest = query.lastProgress
        if newest is None or int(newest["batchId"]) <= self._last:
            return
        for progress in query.recentProgress:
            if int(progress["batchId"]) > self._last:
                self._last = int(progress["batchId"])
                self.take(json.loads(progress.json))

    def take(self, progress: Mapping[str, Any]) -> None:
        """Report a micro-batch, and whether the query has caught up."""
        batch = read_progress(progress)
        tables = self._tables.pop(batch.batch, {})
        self._tables = {
            number: each for number, each in self._tables.items() if number > batch.batch
        }
        left = offsets_left(progress)
        if batch.records or tables:
            self._report(micro_batch(batch.batch, batch.records, batch.seconds, left, tables))
        if left == 0 and self._is_behind:
            self._report(Event("caught up", "caught up: the ends of the topics are reached"))
        self._is_behind = left != 0


def _duration(seconds: float) -> str:
    """Return a duration for people.

    Examples
    --------
    >>> _duration(2.04), _duration(666510)
    ('2.0 s', '7 days, 17:08:30')
    """
    return f"{seconds:.1f} s" if seconds < 120 else str(timedelta(seconds=round(seconds)))


def micro_batch(
    number: int,
    records: int,
    seconds: float,
    left: int | None,
    tables: Mapping[str, TableProgress],
) -> Event:
    """Return the event of a micro-batch.

    Parameters
    ----------
    number, records : int
    seconds : float
    left : int or None
        The offsets to the ends of the topics.
    tables : mapping
        What it did to each table.
    """
    by_rows = sorted(tables.values(), key=lambda each: (-each.rows, each.table))
    shown = [
        f"{each.table} {each.rows:,} rows{_BY.get(each.writer, '')}"
        + (" (stopped)" if each.stopped else "")
        for each in by_rows[:_MOST_TABLES]
    ]
    more = len(by_rows) - len(shown)
    parts = [f"micro-batch {number}", f"{records:,} records", f"{seconds:.1f} s", *shown]
    if more > 0:
        parts.append(f"{more} more tables")
    lags = [each.lag["newest"] for each in by_rows if "newest" in each.lag]
    if lags:
        parts.append(f"lag {_duration(max(lags))}")
    if left:
        parts.append(f"{left:,} offsets left")
    values = {
        "batch": number,
        "records": records,
        "seconds": seconds,
        "offsets_left": left,
        "tables": {
            each.table: {
                "records": each.records,
                "rows": each.rows,
                "missed": each.missed,
                "stopped": each.stopped,
                "bad": dict(each.bad),
                "lag_seconds": dict(each.lag),
                "writer": each.writer,
                "reason": each.reason,
            }
            for each in by_rows
        },
    }
    return Event("micro-batch", ", ".join(parts), values)
