"""Reads one table of a running `sync_database` again, beside the old one, which stays current.

After a micro-batch, the query applies the next records of the table to a new table: from the begin
of its topics to the end of the micro-batch. Once the new table has all of them, both tables have
the same position, and its rows replace those of the old one in one commit.

A step is as idempotent as a micro-batch: its offsets are in the table's file before it
(`resync_state`), and its commits carry its number. The commit that replaces the rows carries a
number, too: a query that is killed after it does not repeat it.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any
from uuid import uuid4

import msgspec
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError, ChangelogError, refuse
from cdc_formats.values.schema import Column
from normalize.kafka.debezium_snapshot import IncrementalSnapshot, take_snapshot
from normalize.kafka.topics import describer
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.progress import RESYNCS, TableProgress, publish
from normalize.spark.micro_batch import Batch, end_offsets, in_batch, one_batch, running_batch
from normalize.spark.sessions import spark_error_types

from .batches import BatchOrderError, is_repeat, show_in_checkpoint
from .database import SyncDatabase
from .facts import GuardFacts, TableFacts
from .job import TableJob
from .resync_state import Offsets, Resync, next_offsets, offsets_between
from .schema import TableSchema
from .schema_store import SchemaStore
from .table_options import SyncError
from .targets import Replacement, Sink, TargetError, TargetMissingError, repeat_conflicts

_log = logging.getLogger("normalize")
_SHARE = 0.5
"""The time of the steps, as a part of the time that the micro-batches take."""
_LEAST, _MOST = 10_000, 10_000_000
"""The bounds of the offsets of a step. Each step has the costs of a MERGE, and so is not small."""
_LEAST_SECONDS = 3.0
"""A step that takes less is followed by a larger one."""
_POLL = 1  # second
_SETTLED = 1.0  # second


def resync_table(
    spark: SparkSession,
    table: str,
    *,
    schema_location: str,
    remove_missing: bool = False,
    dry_run: bool = False,
    from_source: bool = False,
    offsets: Offsets | None = None,
    again: bool = False,
) -> Resync:
    """Ask the running query of `sync_database` to read one of its tables again from its topics.

    The query begins after its next micro-batch, and the other tables go on. The old table stays
    current until the new rows replace its own in one commit. A stopped table is resumed.

    Parameters
    ----------
    spark : SparkSession
        A classic session, which need not be that of the query.
    table : str
        The source table, as in the query's files: ``shop.orders``.
    schema_location : str
        That of the query.
    remove_missing : bool
        Whether keys leave that only the old table has. By default, their rows stay.
    dry_run : bool
        Whether these keys are only counted, and the table is not replaced.
    from_source : bool
        Whether the source's rows are read first: call `normalize.verify.resync.resync_from_source`,
        which writes them.
    offsets : dict or None
        The first offset to read, by topic and partition, such as ``{"shop.orders": {0: 1200}}``: where
        the producer began to write all rows again. By default, and for other partitions, Kafka's
        first one.
    again : bool
        Whether the request replaces an earlier one that the query has not begun, or whose process
        ended before it had written the source's rows.

    Returns
    -------
    Resync
        The request. ``SchemaStore(spark, schema_location).read_resync(table)`` returns how far it
        is.

    Raises
    ------
    ArgumentError
        When the query has no such table, or the table is being read again.
    """
    store = SchemaStore(spark, schema_location)
    request = Resync(
        table,
        remove_missing=remove_missing,
        dry_run=dry_run,
        from_source=from_source,
        start=offsets or {},
    )
    return _requested(store, request, again=again)


def resync_from_snapshot(
    spark: SparkSession,
    table: str,
    snapshot: IncrementalSnapshot,
    *,
    schema_location: str,
    options: Mapping[str, str],
    remove_missing: bool = False,
    dry_run: bool = False,
    again: bool = False,
    report: Callable[[str], None] = lambda line: None,
) -> Resync:
    """Let Debezium write all rows of a table to its topic again, and ask the query to read these.

    Rows that Debezium did not write are those that the source no longer has.

    Parameters
    ----------
    spark, table, schema_location, remove_missing, dry_run, again
        Same as in `resync_table`.
    snapshot : IncrementalSnapshot
        The table of the connector, and the topics by which it is asked.
    options : mapping
        The query's options of Spark's Kafka source, such as ``kafka.bootstrap.servers``.
    report : callable
        Gets a line for each of Debezium's notifications.

    Returns
    -------
    Resync
        The request, once Debezium has written the rows.

    Raises
    ------
    ArgumentError
        As `resync_table`; and when Debezium does not answer, or cannot read the table.
    SampleError
        When Kafka does not answer, or has no such topic.
    """
    store = SchemaStore(spark, schema_location)
    schema = store.read(table) if table in store.tables() else None
    topics = () if schema is None else schema.facts.topics
    if schema is not None and not topics:
        raise ArgumentError(f"no record of {table} was read yet: its topic is not known")
    kafka = describer(options)
    start = kafka.ends(topics)
    request = Resync(
        table, remove_missing=remove_missing, dry_run=dry_run, start=start, phase="loading"
    )
    request = _requested(store, request, again=again)
    with failed_at_error(store, request, "Debezium's snapshot did not end"):
        take_snapshot(snapshot, options, lambda: offsets_between(start, kafka.ends(topics)), report)
    request = msgspec.structs.replace(request, phase="requested")
    store.write_resync(request)
    return request


def _requested(store: SchemaStore, request: Resync, *, again: bool) -> Resync:
    """Write a request, with an id and the time, if the table has no other.

    Raises
    ------
    ArgumentError
    """
    table, tables, earlier = request.table, store.tables(), store.read_resync(request.table)
    if table not in tables:
        raise ArgumentError(
            f"{store.location} has no table {table!r}: pass one of {', '.join(tables) or 'none'}"
        )
    abandoned = earlier is not None and earlier.is_unbegun and again
    if earlier is not None and earlier.is_active and not abandoned:
        raise _is_being_read(earlier)
    request = msgspec.structs.replace(
        request,
        id=str(uuid4()),
        requested_at=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        abandoned=(*earlier.abandoned, earlier.id) if abandoned and earlier is not None else (),
    )
    accepted = _settled(store, request)
    if accepted.id != request.id:
        raise _is_being_read(accepted)
    return request


def _settled(store: SchemaStore, request: Resync) -> Resync:
    """Write a request, and return the one that the table has then: of several, the last."""
    # Another process may write one at the same moment.
    with suppress(BatchOrderError):
        store.write_resync(request, f".{uuid4()}.new")
    time.sleep(_SETTLED)
    return store.read_resync(request.table) or request


def _is_being_read(resync: Resync) -> ArgumentError:
    hint = ", cancel it, or pass again to replace it" * resync.is_unbegun
    return ArgumentError(
        f"{resync.table} is being read again ({resync.described}): wait for its end{hint}"
    )


def cancel_resync(spark: SparkSession, table: str, *, schema_location: str) -> Resync:
    """Withdraw a request to read a table again, and return it; active if the query begins it now.

    Parameters
    ----------
    spark, table, schema_location
        Same as in `resync_table`.

    Raises
    ------
    ArgumentError
        When there is no such request, or the query has begun.
    """
    store = SchemaStore(spark, schema_location)
    resync = store.read_resync(table)
    if resync is None or not resync.is_unbegun:
        raise ArgumentError(
            f"{table} has no request that the query has not begun: there is nothing to cancel"
        )
    return _settled(
        store, msgspec.structs.replace(resync, phase="failed", reason="it was cancelled")
    )


@contextmanager
def failed_at_error(store: SchemaStore, request: Resync, what: str) -> Iterator[None]:
    """End a request whose process has an error, so that the table can be requested again."""
    try:
        yield
    except Exception as error:
        failed = msgspec.structs.replace(request, phase="failed", reason=f"{what}: {error}")
        store.write_resync(failed)
        raise


def wait_while(
    store: SchemaStore,
    resync: Resync,
    waits: Callable[[Resync], bool],
    report: Callable[[Resync], None],
    *,
    patience: int = 30,
) -> Resync:
    """Return how far a table is, once the query has taken it out of a state.

    A request that the query has not begun after `patience` seconds is a warning.
    """
    report(resync)
    waited = 0
    while waits(resync):
        time.sleep(_POLL)
        waited += _POLL
        if resync.phase == "requested" and waited == patience:
            _log.warning(
                "%s: the query had no micro-batch for %s s, in which it begins. Does it run, with "
                "this schema_location, and do its topics get records? This waits on; to withdraw "
                "the request, cancel it",
                resync.table,
                waited,
            )
        resync = store.read_resync(resync.table) or resync
        report(resync)
    return resync


@dataclass
class Resyncs:
    """Applies micro-batches, and after each takes steps of the tables that are read again.

    Parameters
    ----------
    live : SyncDatabase
        The tables of the running query.
    """

    live: SyncDatabase
    _beside: tuple[str, SyncDatabase] | None = field(default=None, repr=False)
    _size: int = _LEAST
    _credit: float = 0.0
    _cleaned: set[str] = field(default_factory=set, repr=False)

    def __call__(self, records: DataFrame, number: int) -> None:
        """Apply a micro-batch; take steps for a part of its time, and while no record waits."""
        began, spark = time.monotonic(), self.live.query.spark
        with one_batch(spark):
            self.live(records, number)
            batch = running_batch(spark)
            resync = None if batch is None else self._next(batch)
            if batch is None or resync is None:
                return
            ends = end_offsets(spark, batch)
            self._credit += _SHARE * (time.monotonic() - began)
            while resync is not None and ends:
                # Without records there is no micro-batch: the steps would wait for one.
                on_credit = self._credit > 0
                if not on_credit and self.live.query.behind(ends):
                    return
                began = time.monotonic()
                after = self._advanced(resync, batch, ends)
                self._credit -= on_credit * (time.monotonic() - began)
                resync = None if after == resync else self._next(batch)

    def _next(self, batch: Batch) -> Resync | None:
        """Return the table whose step is next; what is left of those that ended is deleted."""
        resyncs = self.live.query.store.resyncs()
        for each in resyncs:
            name = each.id or each.table
            if not each.is_active and name not in self._cleaned and each.table in self.live.tables:
                self._cleaned.add(name)
                if each.id:
                    self._remove(each)
                else:
                    _log.warning("%s is not read again: %s", each.table, each.reason)
                self._show(each, batch)
        # While the rows of the source are being written, the query has nothing to do.
        due = (each for each in resyncs if each.is_active and each.phase != "loading")
        return next(due, None)

    def _show(self, resync: Resync, batch: Batch) -> None:
        """Show `cdc status` and the metrics how far a table is."""
        spark, table = self.live.query.spark, resync.table
        values = {"phase": resync.phase, "progress": resync.described}
        show_in_checkpoint(spark, batch, RESYNCS, table, **values)
        publish(
            TableProgress(
                query=batch.query,
                table=table,
                batch=batch.number,
                resync=resync.phase,
                resync_left=resync.left if resync.is_active else 0,
            )
        )

    def _advanced(self, resync: Resync, batch: Batch, ends: Offsets) -> Resync:
        """Take the next step, and return how far the table is then."""
        steps = {"requested": self._begun, "reading": self._read, "replacing": self._replaced}
        begins = resync.phase == "requested"
        try:
            job = self._job(resync)
            topics = {*job.schema.facts.topics} & ends.keys() or ends.keys()
            of_table = {topic: ends[topic] for topic in sorted(topics)}
            after = steps[resync.phase](resync, job, batch, of_table)
        except spark_error_types(ChangelogError) as error:
            # What ends a query before it has begun is no reason to end it because of a request.
            ends_request = (
                begins
                or isinstance(error, TargetMissingError)
                or self.live.is_of_table(error, resync.table)
            )
            if isinstance(error, BatchOrderError) or not ends_request:
                raise
            text = explain_error(error).removeprefix(f"[{SyncError.condition}] ")
            phase: Any = "refused" if begins else "failed"
            after = msgspec.structs.replace(resync, phase=phase, reason=text)
        store = self.live.query.store
        if after == resync:
            return resync
        if begins and store.read_resync(resync.table) != resync:
            self._remove(resync)  # it was cancelled or replaced meanwhile
            return resync
        if after.phase != resync.phase:
            level = logging.WARNING if after.reason else logging.INFO
            _log.log(level, "%s is read again: %s", resync.table, after.described)
        store.write_resync(after)
        self._show(after, batch)
        return after

    # ----------------------------------------------------------------------------------------------
    # the steps

    def _begun(self, resync: Resync, job: TableJob, batch: Batch, ends: Offsets) -> Resync:
        """Prepare the new table of a request, and note from where its records are applied to it.

        The source's rows are written to it after that: a change that they lack is at a later
        offset. An older one is applied to them again, and so are those after it.

        Raises
        ------
        SyncError
            When the table cannot be read again.
        """
        if job.policy.is_history:
            raise SyncError(
                "it is a history, with versions that the topic may no longer have: begin a new one "
                "in another table"
            )
        for earlier in resync.abandoned:
            self._remove(msgspec.structs.replace(resync, id=earlier))
        if resync.from_source:
            offsets, phase = ends, "loading"
            self._require_rows_of_source(job)
        else:
            offsets, phase = self._offsets(resync.start, ends, "older records"), "reading"
            if offsets_between(ends, offsets):
                return resync  # the query has not read so far
        self._remove(resync)
        self._seed(resync, job)
        if resync.from_source:
            new, old = self._sink(resync), job.sink(job.kept_target_name)
            _prepare(job, self._replacement(resync, job), new, old)
        return msgspec.structs.replace(
            resync,
            phase=phase,
            offsets=offsets,
            left=offsets_between(offsets, ends),
            new=self._name(resync),
        )

    def _require_rows_of_source(self, job: TableJob) -> None:
        """Raise an error if a table has other rows than its source by design.

        Raises
        ------
        SyncError
        """
        masks = self.live.query.format.handling.masks.of_columns(job.schema.names, job.table)
        refuse(
            (
                not job.owns_target,
                "it has no columns yet: the source is read once it has had a record",
            ),
            (
                job.policy.shards is not None,
                "several source tables are merged into it: read it again from its topic",
            ),
            (
                masks,
                "its columns have masks, and the source has their values: read it again from its "
                "topic",
            ),
            error=SyncError,
        )

    def _seed(self, resync: Resync, job: TableJob) -> None:
        """Give the new table the columns of the old one, if they are known."""
        kept = job.schema
        if kept.columns:
            facts = TableFacts(
                self._name(resync),
                kept.facts.source_keys,
                kept.facts.topics,
                masks=kept.facts.masks,
                position_column=kept.facts.position_column,
                options=kept.facts.options,
            )
            self._store(resync).write(msgspec.structs.replace(kept, stopped="", facts=facts))
            self._sink(resync).create_like(job.sink(job.kept_target_name))

    def _offsets(self, known: Offsets, ends: Offsets, records: str) -> Offsets:
        """Return the next offset of each partition, of which Kafka has all records.

        Parameters
        ----------
        known : dict
            The next offsets; 0 for other partitions.
        ends : dict
            The partitions.
        records : str
            What those are that it would lack.

        Raises
        ------
        SyncError
            When Kafka removed records for another reason than a newer one of their key.
        """
        describer, offsets = self.live.query.describer, Offsets()
        ranges = describer.offsets(ends)
        for topic, partitions in ends.items():
            for partition, end in partitions.items():
                first, last = ranges[topic].get(partition, (0, end))
                at = known.get(topic, {}).get(partition, 0)
                if at > last:
                    raise SyncError(
                        f"{topic}[{partition}] ends at the offset {last:,}: {at:,} is later"
                    )
                if at < first and not describer.is_compacted(topic):
                    raise SyncError(
                        f"{topic}[{partition}] begins at the offset {first}: Kafka has removed "
                        f"{records}, and rows that did not change since would be missing. Give "
                        "topics of tables cleanup.policy=compact, or let the producer write a new "
                        "snapshot"
                    )
                offsets.setdefault(topic, {})[partition] = max(at, first)
        return offsets

    def _read(self, resync: Resync, job: TableJob, batch: Batch, ends: Offsets) -> Resync:
        """Apply the records of the next step, or those of the step that was planned."""
        offsets = self._offsets(resync.offsets, ends, "records that were not read again yet")
        if offsets_between(ends, offsets):
            return resync  # the query began again, with a new checkpoint
        if not resync.until:
            until = next_offsets(offsets, ends, min(_MOST, max(_LEAST, self._size)))
            resync = msgspec.structs.replace(resync, offsets=offsets, until=until)
            if until != offsets:
                self.live.query.store.write_resync(resync)
        records, at = self._apply(resync, job), resync.until
        read = msgspec.structs.replace(
            resync,
            step=resync.step + (at != resync.offsets),
            offsets=at,
            until={},
            records=resync.records + records,
            left=offsets_between(at, ends),
        )
        return self._counted(read, job, batch) if at == ends else read

    def _apply(self, resync: Resync, job: TableJob) -> int:
        """Apply the records of a planned step, and return their number.

        Raises
        ------
        SyncError
            When the new table stopped.
        """
        if resync.until == resync.offsets:
            return 0
        beside, began = self._new(resync, job), time.monotonic()
        before = sum(each.records for each in beside.tables.values())
        with in_batch(self.live.query.spark, Batch(resync.id, resync.step)):
            beside.apply(beside.query.records_between(resync.offsets, resync.until))
        # The next step takes about the time of this micro-batch.
        ratio = max(_LEAST_SECONDS, self._credit) / max(time.monotonic() - began, 0.01)
        self._size = int(max(_LEAST, self._size) * min(2.0, max(0.5, ratio)))
        for each in beside.tables.values():
            if each.schema.stopped:
                raise SyncError(each.schema.stopped)
        return sum(each.records for each in beside.tables.values()) - before

    def _new(self, resync: Resync, job: TableJob) -> SyncDatabase:
        """Return what applies records to the new table, which gets all columns of the old one."""
        store, live = self._store(resync), job.schema
        kept = store.read(resync.table)
        if kept is None and resync.records:
            raise SyncError("the file of its new table is missing: request it again")
        if kept is not None and live.columns and not live.stopped:
            columns = _all_columns(live, kept)
            if columns != kept.columns:
                store.write(msgspec.structs.replace(live, columns=columns, facts=kept.facts))
                self._beside = None
        if self._beside is None or self._beside[0] != resync.id:
            of_table = self.live.beside(resync.table, self._name(resync), self._store(resync))
            self._beside = resync.id, of_table
        return self._beside[1]

    def _counted(self, resync: Resync, job: TableJob, batch: Batch) -> Resync:
        """Count the keys that only the old table has, once the new one has caught up."""
        new, sink = self._sink(resync), job.sink(job.kept_target_name)
        if not new.exists():
            raise SyncError("the topic has no row of it: delete its rows by hand if this is right")
        replacement = self._replacement(resync, job)
        missing, has_batch = 0, False
        resumes = bool(job.schema.stopped) or not job.owns_target
        if sink.exists():
            has_batch = is_repeat(batch, sink.record(batch), sink.table)
            missing = sink.missing(new, replacement.key, replacement.deleted_column)
        return msgspec.structs.replace(
            resync,
            phase="counted" if resync.dry_run else "replacing",
            missing=missing,
            resumes=resumes,
            carries_batch=resumes and not has_batch,
        )

    def _replaced(self, resync: Resync, job: TableJob, batch: Batch, ends: Offsets) -> Resync:
        """Replace the rows of the old table by those of the new one."""
        sink = job.sink(job.kept_target_name)
        # A stopped table does not have the micro-batch: a query that is killed would repeat it.
        carried = batch if resync.carries_batch else Batch(resync.id, resync.step)
        is_done = sink.exists() and is_repeat(carried, sink.record(carried), sink.table)
        if not is_done and resync.offsets != ends:
            return msgspec.structs.replace(resync, phase="reading")
        if not is_done:
            new, replacement = self._sink(resync), self._replacement(resync, job)

            def commit() -> None:
                _prepare(job, replacement, sink, new)
                sink.replace_rows(new, replacement, carried)

            repeat_conflicts(commit)
            sink.table.refresh(self.live.query.user_session)
        self._resume(resync, job, batch)
        return msgspec.structs.replace(resync, phase="replaced", left=0)

    def _resume(self, resync: Resync, job: TableJob, batch: Batch) -> None:
        """Let the old table go on with the columns of the new one, also if it was stopped."""
        new, live, store = self._store(resync).read(resync.table), job.schema, self.live.query.store
        if new is None:  # the files are those of an earlier attempt, which ended
            return
        resumed, topics, after = new, new.facts.topics, new.facts.guard.after
        guard = GuardFacts(batch.query, batch.number, after, after)
        if not resync.resumes:
            columns, guard, topics = _all_columns(live, new), live.facts.guard, live.facts.topics
            resumed = msgspec.structs.replace(live, columns=columns, facts=new.facts)
        resumed = resumed.with_facts(
            target=job.target_name(), written=True, guard=guard, topics=topics
        )
        if resumed != live:
            store.write(resumed)
            self.live.tables[resync.table] = self.live.job(resync.table)
            self.live.tables[resync.table].load()

    # ----------------------------------------------------------------------------------------------
    # the two tables

    def _job(self, resync: Resync) -> TableJob:
        job = self.live.tables.get(resync.table)
        if job is None:
            raise SyncError("the query has no such table: check its name")
        return job

    def _replacement(self, resync: Resync, job: TableJob) -> Replacement:
        schema = self._store(resync).read(resync.table)
        if schema is None:
            raise SyncError("the file of its new table is missing: request it again")
        return job.replacement(schema, remove_missing=resync.remove_missing)

    def _name(self, resync: Resync) -> str:
        """Return the name of the new table: letters that every target supports."""
        name = re.sub("[^A-Za-z0-9]", "_", self._job(resync).kept_target_name)
        return f"{name[:24]}_resync_{resync.id[:8]}"

    def _sink(self, resync: Resync) -> Sink:
        """Return what writes the new table."""
        return self._job(resync).sink(self._name(resync))

    def _store(self, resync: Resync) -> SchemaStore:
        return self.live.query.store.beside(resync, self.live.query.user_session)

    def _remove(self, resync: Resync) -> None:
        """Delete the new table and its files."""
        self._beside, sink = None, None
        with suppress(TargetError, SyncError):  # a table without a name has none of them
            sink = self._sink(resync)
        if sink is not None:
            sink.drop()
        self._store(resync).remove()


def _all_columns(old: TableSchema, new: TableSchema) -> tuple[Column, ...]:
    """Return the columns of a table, and those that only the new one has."""
    return (*old.columns, *(each for each in new.columns if each.name not in old.names))


def _prepare(job: TableJob, replacement: Replacement, sink: Sink, other: Sink) -> None:
    """Create a table with the columns of another one, or add those that it lacks."""
    written = {name.lower() for name in replacement.names}
    if sink.exists():
        written -= {field.name.lower() for field in sink.fields()}
    fields = [each for each in other.fields() if each.name.lower() in written]
    if fields:
        sink.prepare(job.required_columns(fields, replacement.key))
