"""All tables of a query: `SyncDatabase` applies the records of a micro-batch.

In each micro-batch:

1. A pass over the records finds the table of each, and the columns that have a value (`route`). Its
   result is computed once.
2. A table that is new gets a schema, and a new column is added to the schema and the target, before
   any of its records is decoded.
3. Each table's records are decoded with its schema, and the last change of each key is merged into
   its target: several tables at a time.

The pass also decodes the records of tables that an earlier micro-batch has written. If one has a
new column, or an error, the micro-batch is routed again, and its tables are decoded one by one.

A micro-batch that Spark repeats after a failure merges the same changes again, and ends in the same
rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from functools import partial
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException, ArithmeticException, NumberFormatException
from pyspark.sql import DataFrame, functions as F

from cdc_formats.errors import (
    DECODE_CONDITIONS,
    ArgumentError,
    ChangelogError,
    DecodeError,
    FormatOptionError,
    InferenceError,
    SchemaError,
    TruncateError,
)
from cdc_formats.values.masks import folded
from cdc_formats.values.schema import backquoted
from normalize.dataframe import ChangeOrderError
from normalize.kafka.reader_options import decodes_natively
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.progress import TableProgress, publish
from normalize.monitoring.watch import shown_names
from normalize.spark.micro_batch import in_thread, running_batch
from normalize.spark.packed import batches_in
from normalize.spark.plans import in_session, rows_of, stored
from normalize.spark.sessions import (
    is_java,
    java_causes,
    most_collected,
    spark_error_types,
)

from .database_target import Database, table_name
from .facts import (
    same_target,
    tables_of_topic,
)
from .job import BAD_RECORDS, TableJob, TableRecords, Verifier, verify_part
from .query import Query, are_few, records_of
from .route import (
    MOST_HELD,
    ROUTED_DDL,
    Route,
    TableSummary,
    decode_summary,
    merged,
    route_pass,
)
from .schema import TableSchema
from .schema_store import SchemaStore
from .table_options import (
    OpenQuestionError,
    Selection,
    SyncError,
    TableOptions,
    misspelt,
    without_quotes,
)
from .targets import (
    ConflictError,
    RefusedError,
    TargetError,
    TargetMissingError,
    UnavailableError,
    most_changes,
)

_log = logging.getLogger("normalize")
_FEW_BYTES = 32 << 20
"""The most bytes of records that are decoded on the driver."""


@dataclass
class SyncDatabase:
    """Applies micro-batches to all tables; for ``foreachBatch``.

    Parameters
    ----------
    query : Query
    database : LakeDatabase or JdbcDatabase
    options : dict
        The options of single tables.
    route : Route
    on_table_error : {"fail", "stop_table"}
    on_question : {"fail", "stop_table", "guess"}
        Same as in `DeltaDatabase`.
    parallel : int
    tables : dict
        The jobs of tables that have appeared, in this run or in an earlier one.
    stop_warning : str
        What the log says of a table that stops and of its error.
    """

    query: Query
    database: Database
    options: Mapping[str, TableOptions]
    route: Route
    on_table_error: str
    on_question: str
    parallel: int
    tables: dict[str, TableJob] = field(default_factory=dict)
    stop_warning: str = "%s is stopped, and the other tables go on: %s"
    _loaded: bool = False
    _warned_of_masks: bool = False
    _seen: set[str] = field(default_factory=set)
    _latest: Mapping[str, TableSummary] = field(default_factory=dict, repr=False)
    _verifier: Verifier | None = field(default=None, repr=False)
    _pool: ThreadPoolExecutor | None = field(default=None, repr=False)
    """Its threads are kept: each has a connection to the JVM."""

    def job(self, table: str) -> TableJob:
        """Return the job of a table.

        Raises
        ------
        ArgumentError
            When its options cannot be used.
        """
        options, database = self.options.get(table, TableOptions()), self.database
        return TableJob(
            table,
            self.query,
            database.of.policy(options, database.table_options),
            database.of,
            lambda: options.name or table_name(database.table, table),
            database.target,
            lambda option: f"pass tables={{{table!r}: TableOptions({option}=...)}}",
            (database.max_columns, type(database).__name__),
            routed=True,
            guesses=self.on_question == "guess",
            schema=TableSchema(table),
        )

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply a micro-batch.

        Raises
        ------
        SyncError
            When a table fails and `on_table_error` is ``fail``; the other tables are written.
        TopicReplacedError
            When a topic was deleted and created again; nothing is written.
        """
        self.apply(batch)
        for job in self.tables.values():
            job.maintain()
        self._verifier = verify_part(self.tables.values(), self._verifier)

    def beside(self, table: str, name: str, store: SchemaStore) -> SyncDatabase:
        """Return what applies the records of one table to a table with another name.

        Records that cannot be read are not dead letters again.

        Parameters
        ----------
        table : str
        name : str
            The name of the target.
        store : SchemaStore
            The folder of its file.
        """
        query, selected = self.query, self.route.selection
        mode: Any = query.mode if query.dead_letters is None else "DROPMALFORMED"
        own = replace(
            query,
            store=store,
            topics=replace(query.topics, compares=False),
            mode=mode,
            dead_letters=None,
        )
        shards = {each: of for each, of in selected.shards.items() if each == table}
        include = shards.get(table, re.escape(table))
        route = Route(
            query.format,
            Selection((include,), selected.exclude, shards),
            fail=False,
            dead_letters=None,
            stops_table=mode == "FAILFAST",
        )
        options = {table: replace(self.options.get(table, TableOptions()), name=name)}
        return SyncDatabase(
            own,
            self.database,
            options,
            route,
            on_table_error="stop_table",
            on_question=self.on_question.replace("fail", "stop_table"),
            parallel=1,
            stop_warning="%s cannot be read again: %s",
            _warned_of_masks=True,
        )

    def apply(self, batch: DataFrame) -> None:
        """Apply records of Kafka to all tables; raises as a call does."""
        spark = batch.sparkSession
        running, tasks = running_batch(spark), spark.sparkContext.defaultParallelism
        count = None if running is None else running.records
        # Few records are returned by the first job: a second one would take as many tasks.
        small, native = are_few(count) * _FEW_BYTES // tasks, decodes_natively(self.query.kafka)
        route = replace(self.route, small=small, native=native)
        most_bytes = min(most_changes(), most_collected(spark)) // tasks
        latest = self._latest.values()
        # Records are expected to have the size of those in the last micro-batch.
        size = sum(each.size for each in latest) / (sum(each.records for each in latest) or 1)
        if count is not None and count * size <= min(most_bytes, MOST_HELD) * tasks:
            jobs = {table: self.tables[table] for table in self._latest}
            decoders = {
                table: job.decoder
                for table, job in jobs.items()
                if job.decoder is not None and not job.schema.stopped
            }
            route = replace(route, decoders=decoders, most_bytes=most_bytes)
        if not self._apply_routed(batch, route):
            # A new column, a value that is an error, or more bytes than expected. Bad records are
            # reported already.
            again = replace(route, decoders={}, fail=False, dead_letters=None)
            self._apply_routed(batch, again)

    def _apply_routed(self, batch: DataFrame, route: Route) -> bool:
        """Apply records; False if decoders could not decode all, and nothing is written."""
        routing: Any = partial(route_pass, route=route)
        running, decoders = running_batch(batch.sparkSession), route.decoders
        routed = records_of(batch).mapInArrow(routing, ROUTED_DDL)
        # The first action computes all rows, and returns them or lets executors hold them.
        returns_all = bool(decoders and route.small)
        with nullcontext(routed) if returns_all else stored(routed) as rows:
            first = rows.where("small OR summary IS NOT NULL").toArrow()
            of_tasks = first.filter(first.column("summary").is_valid())
            is_whole = pc.all(of_tasks.column("small"), min_count=0).as_py()
            summaries = merged(map(decode_summary, of_tasks.column("summary").to_pylist()))
            are_decoded = all(
                self.tables[table].decodes(summary)
                for table, summary in summaries.items()
                if table in decoders
            )
            if not are_decoded or (returns_all and not is_whole):
                return False
            values = first.filter(first.column("table").is_valid())
            is_decoded = values.column("decoded")
            records = (
                values.filter(pc.invert(is_decoded))
                if is_whole
                else in_session(self.query.spark, rows_of(rows)).where("NOT decoded")
            )
            decoded = values.filter(is_decoded)
            self.query.topics({topic for summary in summaries.values() for topic in summary.topics})
            ignored = summaries.pop("", TableSummary(""))
            self._load(summaries)
            self._latest = summaries
            if ignored.records:
                _log.info("%s records have no rows: %s", ignored.records, ignored.reasons)
                bad = {name: at for name, at in ignored.reasons.items() if name in BAD_RECORDS}
                if running is not None:
                    publish(TableProgress(query=running.query, table="", bad=bad))
            try:
                unread = self._with_unread(summaries, ignored.unread)
                self._apply(self._parts(summaries, records, decoded), summaries, unread)
            finally:
                self._report_unused_masks()
        return True

    def _load(self, tables: Collection[str]) -> None:
        """Read the files of all tables, also of those without records: their targets are taken."""
        if not self._loaded:
            self._loaded = True
            self.tables = {table: self.job(table) for table in self.query.store.tables()}
            with ThreadPoolExecutor(self.parallel, "load") as pool:
                list(pool.map(TableJob.load, self.tables.values()))
        new = set(tables) - self._seen
        self.tables |= {table: self.job(table) for table in new if table not in self.tables}
        self._seen |= new
        for name, table in misspelt(self._seen, self.options).items():
            if table in new:
                _log.warning(
                    (
                        "tables= has %r, which no message names so far: if it is misspelt, correct "
                        "it to %r"
                    ),
                    name,
                    table,
                )

    def _report_unused_masks(self) -> None:
        """Publish how many masks no table has used, and warn of them once."""
        masks, batch = self.query.format.handling.masks, running_batch(self.query.spark)
        tables = {
            table: sync.schema.names for table, sync in self.tables.items() if sync.owns_target
        }
        if not masks or not tables:
            return
        unused = masks.unused(tables)
        if batch is not None:
            publish(TableProgress(query=batch.query, table="", unused_masks=len(unused)))
        # The table itself warns about a mask that names it.
        named = {name for table in tables for name in masks.naming(table)}
        unknown = [name for name in unused if name not in named]
        if unknown and not self._warned_of_masks:
            self._warned_of_masks = True
            _log.warning(
                "mask has %s, which no table has so far%s. If it is misspelt, the column is written "
                "without a mask",
                shown_names(unknown),
                _similar(unknown, tables),
            )

    def _with_unread(
        self, summaries: Mapping[str, TableSummary], unread: Mapping[str, str]
    ) -> dict[str, str]:
        """Return the tables of records that cannot be read, each with its error.

        Parameters
        ----------
        summaries : mapping
        unread : mapping
            The error of such a record in each topic.

        Raises
        ------
        SyncError
            When the topic has several tables, since the record names none.
        """
        topics = {table: {*sync.schema.facts.topics} for table, sync in self.tables.items()}
        for table, summary in summaries.items():
            topics[table] |= summary.topics
        reasons = {}
        for topic, text in unread.items():
            table, *other_tables = tables_of_topic(topic, topics)
            if other_tables:
                raise SyncError(
                    f"{text}. Its topic has the tables {', '.join([table, *other_tables])}, and the "
                    "record names none of them: pass mode=DeadLetter(...), or 'DROPMALFORMED'"
                )
            reasons[table] = text
        # A topic that had no table yet is stopped itself: its first table lacks the record.
        of_topics = {
            topic: sync.schema.stopped
            for topic, sync in self.tables.items()
            if sync.schema.stopped and not sync.owns_target
        }
        reasons |= {
            table: of_topics[topic]
            for table in summaries
            for topic in topics[table] & of_topics.keys()
            if topic != table
        }
        self.tables |= {table: self.job(table) for table in reasons if table not in self.tables}
        return reasons

    def _apply(
        self,
        parts: Mapping[str, TableRecords],
        summaries: Mapping[str, TableSummary],
        unread: Mapping[str, str],
    ) -> None:
        refused = {**unread, **self._refused(parts.keys() - unread.keys())}
        failed = [
            Failure(table, text, of_table=True)
            for table, text in refused.items()
            if not self.tables[table].schema.stopped
        ]
        written = {table: part for table, part in parts.items() if table not in refused}
        failed += self._in_parallel(written)
        rules = {False: self.on_table_error, True: self.on_question}
        fatal = [each for each in failed if not each.of_table or rules[each.asks] == "fail"]
        if fatal:
            shown = "; ".join(f"{failure.table}: {failure.text}" for failure in fatal)
            # What a table's own records or options say stays, and no earlier run could write it.
            lasting = all(
                each.of_table and not self.tables[each.table].schema.facts.written for each in fatal
            )
            text = f"{shown}. The other tables of the micro-batch are written"
            raise TablesFailedError(f"{text}. {LASTING}" if lasting else text)
        for failure in failed:
            summary = summaries.get(failure.table)
            self.tables[failure.table].stop(failure.text, 0 if summary is None else summary.records)
            _log.warning(self.stop_warning, failure.table, failure.text)

    def _refused(self, tables: Collection[str]) -> dict[str, str]:
        """Return the errors of tables that are not written.

        They are new ones that are more than the target allows, the last by name, and those whose
        entry in `tables=`, or whose file, has another name.
        """
        owned = {table for table, sync in self.tables.items() if sync.owns_target}
        new = [table for table in tables if table not in owned]
        limit, of = self.database.max_tables, type(self.database).__name__
        text = (
            f"the query has {len(owned)} tables and {len(new)} new ones, and max_tables is "
            f"{limit}: leave tables out with include= or exclude=, or pass {of}(max_tables=...)"
        )
        texts = dict.fromkeys(sorted(new)[max(0, limit - len(owned)) :], text)
        file = self.query.store.file
        texts |= {
            table: f"tables= has options for {name!r}, and the messages name {table!r}: correct the "
            f"entry, or add {table!r}: TableOptions() if there are two tables"
            for name, table in misspelt(self.tables, self.options).items()
            if without_quotes(name) == without_quotes(table)
        }
        # Release 0.2 took the names of GoldenGate's tables for one part.
        texts |= {
            table: f"its file is {file(backquoted(table))}, with its name in backquotes: stop the "
            f"query, rename the file to {file(table)}, and remove the backquotes in its `table`"
            for table in tables
            if backquoted(table) in self.tables
        }
        return {table: text for table, text in texts.items() if table in tables}

    def _parts(
        self,
        summaries: Mapping[str, TableSummary],
        records: DataFrame | pa.Table,
        decoded: pa.Table,
    ) -> dict[str, TableRecords]:
        """Return the records of the tables that are not stopped, or what tasks decoded of them."""
        running = {}
        for table, summary in sorted(summaries.items()):
            sync = self.tables[table]
            if sync.schema.stopped:
                sync.miss(summary.records)
                _log.warning(
                    "%s is stopped and misses %s records: %s", table, sync.lost, sync.schema.stopped
                )
            else:
                running[table] = summary
        of_tasks = {*decoded.column("table").to_pylist()}
        rest = [summary for table, summary in running.items() if table not in of_tasks]
        few = are_few(sum(s.records for s in rest)) and sum(s.size for s in rest) <= _FEW_BYTES
        if few and rest and isinstance(records, DataFrame):
            records = records.toArrow()

        def of_table(table: str) -> DataFrame | pa.Table:
            values = decoded if table in of_tasks else records
            if isinstance(values, DataFrame):
                return values.where(F.col("table") == table)
            packed = values.filter(pc.equal(values.column("table"), table)).column("ipc")
            return pa.Table.from_batches(batches_in(packed))

        return {
            table: TableRecords(of_table(table), each, table in of_tasks)
            for table, each in running.items()
        }

    def _in_parallel(self, parts: Mapping[str, TableRecords]) -> list[Failure]:
        """Apply parts, several at a time, and return the errors."""
        targets = {}
        for table, sync in self.tables.items():
            # A stopped table that never had a row has no target.
            if sync.owns_target or not sync.schema.stopped:
                with suppress(TargetError):  # an error of this table alone, once it has records
                    targets[table] = sync.kept_target_name
        # The largest parts first. Each thread takes the next one: Spark's settings are copied once.
        waiting = iter(sorted(parts.values(), key=lambda part: -part.summary.records))

        def apply_waiting() -> list[Failure | None]:
            return [self._apply_part(part, targets) for part in waiting]

        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.parallel, "sync")
        threads = [
            self._pool.submit(in_thread(self.query.spark, apply_waiting))
            for _ in range(min(self.parallel, len(parts)))
        ]
        wait(threads)
        failed = [failure for each in threads for failure in each.result() if failure is not None]
        return sorted(failed, key=lambda failure: failure.table)

    def _apply_part(self, part: TableRecords, targets: Mapping[str, str]) -> Failure | None:
        sync = self.tables[part.summary.table]
        try:
            owners = [other for other, each in self.tables.items() if each.owns_target]
            name = targets.get(sync.table)
            if name and (sharing := same_target(sync.table, targets, owners)):
                raise SyncError(
                    f"the target {name!r} is that of {' and of '.join(sorted([sync.table, *sharing]))}: "
                    "pass another template of names, such as table='{database}_{table}', or, if one "
                    "of them has rows already, a name for the other in tables="
                )
            sync.apply(part)
        except spark_error_types(ChangelogError) as error:
            # The query's own error begins with the same condition.
            text = explain_error(error).removeprefix(f"[{SyncError.condition}] ")
            text = text if text.startswith("[") else violation(error) or text
            of_table = self.is_of_table(error, sync.table)
            text = sync.with_remedy(part, text) if of_table else text
            return Failure(sync.table, text, of_table, isinstance(error, OpenQuestionError))
        return None

    def is_of_table(self, error: Exception, table: str) -> bool:
        """Return whether an error comes from a table's records or definition.

        Any other error, such as a broken connection, may go away.
        """
        if isinstance(error, TargetError):
            if isinstance(error, ConflictError | TargetMissingError | UnavailableError):
                return False
            job = self.tables[table]
            try:
                sink = job.sink(job.target_name())
            except TargetError:  # the name cannot be one of a table
                return True
            return sink.is_reachable()
        if isinstance(error, ChangelogError):
            return isinstance(error, _OF_TABLE) and not isinstance(error, TablesFailedError)
        if isinstance(
            error, AnalysisException | ArithmeticException | NumberFormatException
        ) or violation(error):
            return True
        return explain_error(error).startswith(tuple(f"[{condition}]" for condition in _CONDITIONS))


LASTING = "Correct this first: a restart ends in the same error"
"""How the error of tables ends that no query has written yet, and that no restart cures."""


class TablesFailedError(SyncError):
    """Tables of a micro-batch failed, and with them the query."""

    condition = SyncError.condition


class Failure(NamedTuple):
    """The error of a table.

    Attributes
    ----------
    table : str
    text : str
    of_table : bool
        Whether its records or definition are the reason, so that other tables can go on without it.
    asks : bool
        Whether it is a question that the messages do not answer.
    """

    table: str
    text: str
    of_table: bool
    asks: bool = False


_OF_TABLE = (
    SyncError,
    RefusedError,
    ChangeOrderError,
    SchemaError,
    DecodeError,
    InferenceError,
    ArgumentError,
    FormatOptionError,
    TruncateError,
)
_CONDITIONS = (*DECODE_CONDITIONS, *(error.condition for error in (DecodeError, TruncateError)))


def _similar(masks: Sequence[str], tables: Mapping[str, Sequence[str]]) -> str:
    """Return the columns whose names are similar to those of masks, for a warning."""
    columns = {
        folded(column): f"{backquoted(column)} of {table}"
        for table, names in tables.items()
        for column in names
    }
    near = {
        columns[name]: None
        for mask in masks
        for name in get_close_matches(folded(mask).rpartition(".")[2], columns, 1)
    }
    return f"; similar columns are {', '.join(near)}" if near else ""


_STATES_OF_TABLE = ("22", "23", "42", "54")
"""Classes of SQLSTATE: data, constraints (CHECK, NOT NULL, the length of a VARCHAR), definitions
and access, limits."""
_NOT_ALLOWED = "42501"
_MOST_TEXT = 300


def violation(error: Any) -> str:
    """Return which rule of a table its rows violate, which no restart changes; else an empty text.

    Parameters
    ----------
    error : Exception
        Of py4j or of Spark.
    """
    text = ""
    for java in java_causes(error):
        has_state = is_java(java, "org.apache.spark.SparkThrowable")
        state = java.getSqlState() if has_state else None
        if state == _NOT_ALLOWED:
            return ""
        if state and state.startswith(_STATES_OF_TABLE):
            text = " ".join(str(java.getMessage()).split())[:_MOST_TEXT]
    return text
