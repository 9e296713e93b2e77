"""`MetricsListener`: the progress of streaming queries in the log and as Prometheus metrics.

=============================================  =====================================================
metric                                         labels, meaning
=============================================  =====================================================
``changelog_records_total``                    query: records that Spark's sources read
``changelog_counts_total``                     query, observation, count: the counts of each pass
``changelog_bad_records_total``                query, observation, condition: records that could not
                                               be decoded
``changelog_lag_seconds``                      query, observation, of (``oldest``, ``newest``): from
                                               `observe_lag`, last micro-batch
``changelog_offsets_behind``                   query, source: the most offsets that a partition is
                                               behind the end of its topic
``changelog_batch``                            query: the number of the last micro-batch
``changelog_batch_seconds``                    query: how long it took
``changelog_batch_ended_timestamp_seconds``    query: when it was done
``changelog_alive_timestamp_seconds``          query: when Spark last reported a micro-batch, or that
                                               there is no record for one
``changelog_state_rows``                       query, operator: rows of a stateful operator's state
                                               (of ChangelogNormalize: key groups)
``changelog_state_bytes``                      query, operator: its memory
``changelog_query_running``                    query: 1, or 0 after its end
``changelog_query_failures_total``             query: ends with an error
``changelog_unused_masks``                     query: masks of `sync_database` that are of no column
                                               of any table so far
``changelog_table_records_total``              query, table: records of a table of `sync_database`
                                               that were applied
``changelog_table_rows_total``                 query, table: rows that were merged or deleted
``changelog_table_bad_records_total``          query, table, condition: records that could not be
                                               decoded
``changelog_table_schema_changes_total``       query, table: how often the schema was decided or
                                               extended
``changelog_table_missed_records_total``       query, table: records that were not applied, because
                                               the table is stopped
``changelog_table_torn_keys_total``            query, table: keys that have records in several
                                               Kafka partitions, which only timestamps order
``changelog_table_stopped``                    query, table: 1 if the table is stopped, or 0
``changelog_table_open_questions``             query, table: columns whose types are guesses
``changelog_table_writer``                     query, table, writer, reason: 1; what merged the last
                                               micro-batch into a Delta table, and why
``changelog_table_resync``                     query, table, phase: the offsets that are left of a
                                               table that is read again
``changelog_table_differences``                query, table: the keys whose rows differ from the
                                               source, of a table that is compared with it
``changelog_table_verified_timestamp_seconds``  query, table: when the last comparison of all its rows
                                               began
``changelog_table_lag_seconds``                query, table, of: from Kafka's timestamp until the
                                               table was written, last micro-batch
=============================================  =====================================================
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from cdc_formats.errors import DECODE_CONDITIONS, DecodeError, MissingDependencyError

from .explain_error import explain_error
from .progress import Progress, TableProgress, read_progress, subscribe

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_LOG = logging.getLogger("normalize")
_COUNTERS = {
    "records": ("Records that Spark's sources read",),
    "counts": ("Counts of each pass", "observation", "count"),
    "bad_records": ("Records that could not be decoded", "observation", "condition"),
    "query_failures": ("Ends of the query with an error",),
    "table_records": ("Records of a table of sync_database that were applied", "table"),
    "table_rows": ("Rows that were merged or deleted", "table"),
    "table_bad_records": ("Records of a table that could not be decoded", "table", "condition"),
    "table_schema_changes": ("How often the schema was decided or extended", "table"),
    "table_missed_records": (
        "Records that were not applied, because the table is stopped",
        "table",
    ),
    "table_torn_keys": ("Keys that have records in several Kafka partitions", "table"),
}
"""For each counter its description, and its labels after ``query``."""
_GAUGES = {
    "lag_seconds": (
        "From the time of observe_lag until the micro-batch was done",
        "observation",
        "of",
    ),
    "offsets_behind": (
        "The most offsets that a partition is behind the end of its topic",
        "source",
    ),
    "batch": ("The number of the last micro-batch",),
    "batch_seconds": ("How long the last micro-batch took",),
    "batch_ended_timestamp_seconds": ("When the last micro-batch was done",),
    "alive_timestamp_seconds": ("When Spark last reported a micro-batch, or that no records wait",),
    "state_rows": ("Rows of a stateful operator's state", "operator"),
    "state_bytes": ("Memory of a stateful operator's state", "operator"),
    "query_running": ("1, or 0 after the query's end",),
    "unused_masks": ("Masks that are of no column of any table so far",),
    "table_stopped": ("1 if the table is stopped, or 0", "table"),
    "table_open_questions": ("Columns of a table whose types are guesses", "table"),
    "table_writer": (
        "What merged the last micro-batch into a Delta table, delta-rs or spark, and why",
        "table",
        "writer",
        "reason",
    ),
    "table_resync": (
        "Offsets that are left of a table that is read again, or was",
        "table",
        "phase",
    ),
    "table_differences": ("Keys of a table whose rows differ from the source", "table"),
    "table_verified_timestamp_seconds": (
        "When the last comparison of all rows of a table with the source began",
        "table",
    ),
    "table_lag_seconds": ("From Kafka's timestamp until the table was written", "table", "of"),
}
_BAD_RECORDS = frozenset({*DECODE_CONDITIONS, DecodeError.condition})


class MetricsListener(StreamingQueryListener):
    """Logs the progress of streaming queries, and serves it to Prometheus.

    ::

        listener = MetricsListener(port=9108)
        spark.streams.addListener(listener)

    Parameters
    ----------
    port : int or None
        The port on which the metrics are served, on the driver. None: they are only in `registry`.
    address : str
        The address to listen on; ``0.0.0.0`` lets other machines read the metrics, which have no
        secrets, but names of topics and tables.
    registry : CollectorRegistry or None
        By default a new one. Pass ``prometheus_client.REGISTRY`` to add the metrics to those of
        your program.
    log : bool
        Whether the logger ``normalize`` gets a line for each micro-batch at level INFO, and for
        each failed query at level ERROR.

    Raises
    ------
    MissingDependencyError
        When ``prometheus-client`` is not installed.

    Notes
    -----
    Name your queries with ``queryName``: the label ``query`` is the name. Without a name it is the
    query's id, which the checkpoint keeps. Spark calls listeners after a micro-batch is done, so
    that they do not delay it.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        address: str = "127.0.0.1",
        registry: CollectorRegistry | None = None,
        log: bool = True,
    ) -> None:
        try:
            from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server
        except ImportError as error:
            raise MissingDependencyError(
                f"{error}; pip install 'pyspark-kafka-changelog[metrics]'"
            ) from error
        self.registry = CollectorRegistry() if registry is None else registry
        self.log = log
        self._names: dict[str, str] = {}
        self._queries: dict[str, str] = {}
        self._labels: dict[tuple[str, ...], tuple[str, ...]] = {}

        def declared(kind: Any, metrics: Mapping[str, tuple[str, ...]]) -> dict[str, Any]:
            items = metrics.items()
            return {
                name: kind(f"changelog_{name}", text, ("query", *labels), registry=self.registry)
                for name, (text, *labels) in items
            }

        self._counters, self._gauges = declared(Counter, _COUNTERS), declared(Gauge, _GAUGES)
        subscribe(self)
        self._server = None if port is None else start_http_server(port, address, self.registry)

    @property
    def port(self) -> int | None:
        """The port on which the metrics are served; ``port=0`` chooses a free one."""
        return None if self._server is None else int(self._server[0].server_port)

    def close(self) -> None:
        """Stop serving the metrics."""
        if self._server is not None:
            self._server[0].shutdown()
            self._server[0].server_close()
            self._server = None

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name
        name = event.name or str(event.id)
        self._names[str(event.runId)] = self._queries[str(event.id)] = name
        self._gauges["query_running"].labels(name).set(1)
        self._gauges["alive_timestamp_seconds"].labels(name).set_to_current_time()

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802 - Spark's name
        self.take(read_progress(json.loads(event.progress.json)))

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802 - Spark's name
        """Note that the query waits for records: the last micro-batch stays the last one."""
        name = self._names.get(str(event.runId), str(event.id))
        self._gauges["alive_timestamp_seconds"].labels(name).set_to_current_time()

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802 - Spark's name
        name = self._names.pop(str(event.runId), str(event.id))
        self._gauges["query_running"].labels(name).set(0)
        if event.exception:
            self._counters["query_failures"].labels(name).inc()
            if self.log:
                _LOG.error(
                    "query %s failed: %s", name, explain_error(RuntimeError(event.exception))
                )

    def take_table(self, progress: TableProgress) -> None:
        """Add what a micro-batch did to a table, if this listener saw its query start."""
        query, table = self._queries.get(progress.query), progress.table
        if query is None:
            return
        if progress.resync or progress.proof:
            self._take_state(query, progress)
            return
        for condition, number in progress.bad.items():
            self._counters["table_bad_records"].labels(query, table, condition).inc(number)
        if progress.unused_masks is not None:
            self._gauges["unused_masks"].labels(query).set(progress.unused_masks)
        if not table:
            return
        for name, number in (
            ("table_records", progress.records),
            ("table_rows", progress.rows),
            ("table_schema_changes", progress.schema_changes),
            ("table_missed_records", progress.missed),
            ("table_torn_keys", progress.torn),
        ):
            self._counters[name].labels(query, table).inc(number)
        self._gauges["table_stopped"].labels(query, table).set(progress.stopped)
        self._gauges["table_open_questions"].labels(query, table).set(progress.open_questions)
        if progress.writer:
            self._set_one("table_writer", (query, table, progress.writer, progress.reason), 1)
        for of, seconds in progress.lag.items():
            self._gauges["table_lag_seconds"].labels(query, table, of).set(seconds)

    def _take_state(self, query: str, progress: TableProgress) -> None:
        """Set how far a table is that is read again, or compared with its source."""
        table = progress.table
        if progress.resync:
            self._set_one("table_resync", (query, table, progress.resync), progress.resync_left)
        for name, value in progress.proof.items():
            self._gauges[name].labels(query, table).set(value)

    def _set_one(self, name: str, labels: tuple[str, ...], value: float) -> None:
        """Set a gauge that a table has once: the one with its earlier labels goes."""
        gauge, of_table = self._gauges[name], (name, *labels[:2])
        earlier = self._labels.get(of_table)
        if earlier is not None and earlier != labels:
            gauge.remove(*earlier)
        gauge.labels(*labels).set(value)
        self._labels[of_table] = labels

    def take(self, progress: Progress) -> None:
        """Add a micro-batch to the metrics and the log."""
        query = progress.query
        self._counters["records"].labels(query).inc(progress.records)
        for (observation, count), value in progress.counts.items():
            counter = self._counters["bad_records" if count in _BAD_RECORDS else "counts"]
            counter.labels(query, observation, count).inc(value)
        for (observation, of), seconds in progress.lag.items():
            self._gauges["lag_seconds"].labels(query, observation, of).set(seconds)
        for source, offsets in progress.behind.items():
            self._gauges["offsets_behind"].labels(query, source).set(offsets)
        for operator, (rows, size) in progress.state.items():
            self._gauges["state_rows"].labels(query, operator).set(rows)
            self._gauges["state_bytes"].labels(query, operator).set(size)
        self._gauges["batch"].labels(query).set(progress.batch)
        self._gauges["batch_seconds"].labels(query).set(progress.seconds)
        self._gauges["batch_ended_timestamp_seconds"].labels(query).set(progress.ended)
        self._gauges["alive_timestamp_seconds"].labels(query).set_to_current_time()
        if self.log:
            _LOG.info("%s", _line(progress))


def _line(progress: Progress) -> str:
    """Return a micro-batch as one line."""
    bad = sum(value for (_, count), value in progress.counts.items() if count in _BAD_RECORDS)
    parts = [
        (
            f"query {progress.query}: micro-batch {progress.batch}, {progress.records:,} records, "
            f"{progress.seconds:.1f} s"
        )
    ]
    parts += [f"{bad:,} bad records"] * bool(bad)
    parts += [
        f"{of} of {observation} is {seconds:.1f} s old"
        for (observation, of), seconds in progress.lag.items()
    ]
    parts += [f"{offsets:,} offsets behind" for offsets in progress.behind.values() if offsets]
    return ", ".join(parts)
