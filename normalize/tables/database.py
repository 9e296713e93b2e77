"""`sync_database`: one streaming query and one read of Kafka for all tables of a database.

In each micro-batch:

1. A pass over the records finds the table of each, and the columns that have a value (`route`). Its
   result is computed once.
2. A table that is new gets a schema, and a new column is added to the schema and the target, before
   any of its records is decoded.
3. Each table's records are decoded with its schema, and the last change of each key is merged into
   its target: several tables at a time.

A micro-batch that Spark repeats after a failure merges the same changes again, and ends in the same
rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

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
from cdc_formats.format import Format, option_name
from cdc_formats.topics.client import TopicDescription
from cdc_formats.values.masks import folded
from cdc_formats.values.schema import backquoted
from normalize.arguments import as_format, check_choice, check_mapping, names_of
from normalize.connect import require_jvm
from normalize.core.output import Destination, Mode
from normalize.decode.check import check_readable
from normalize.kafka.dead_letter import DeadLetter, destination_of
from normalize.kafka.reader_options import reader_options, reads_topic
from normalize.kafka.topics import UNKNOWN_IDS, TopicMonitor
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.notice import shown_names
from normalize.monitoring.table_progress import TableProgress, publish
from normalize.session_check import check_files, load_kafka
from normalize.spark_versions import check_kafka_source, check_version

from .arrival import ChangeOrderError
from .batches import Batch, running_batch
from .database_target import Database, JdbcDatabase, LakeDatabase
from .facts import (
    QueryFacts,
    above_limit,
    checked_topics,
    require_same_address,
    same_target,
    tables_of_topic,
)
from .job import BAD_RECORDS, Part, Rules, TableSync
from .latest import rows_of, stored
from .route import (
    RECORD_DDL,
    ROUTED_DDL,
    Route,
    Router,
    TableSummary,
    decode_summary,
    merged,
    route_pass,
)
from .schema_store import SchemaStore
from .table_options import Selection, SyncError, TableOptions, misspelt
from .targets import (
    ConflictError,
    RefusedError,
    TargetError,
    TargetMissingError,
    java_causes,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_log = logging.getLogger("normalize")
_FEW_RECORDS, _FEW_BYTES = 100_000, 32 << 20
"""So many records are decoded on the driver."""


def sync_database(
    spark: SparkSession,
    topic: str | Sequence[str] | re.Pattern[str] | None = None,
    *,
    format: str | Format,
    target: Database,
    schema_location: str,
    options: Mapping[str, Any],
    format_options: Mapping[str, Any] | None = None,
    tables: Mapping[str, TableOptions] | None = None,
    include: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    on_new_column: Literal["add", "ignore", "fail"] = "add",
    on_table_error: Literal["fail", "stop_table"] = "fail",
    on_truncate: Literal["fail", "ignore"] = "fail",
    mode: Literal["FAILFAST", "DROPMALFORMED"] | DeadLetter = "FAILFAST",
    parallel: int = 4,
    check: bool = True,
) -> DataStreamWriter:
    """Return a writer that keeps database tables equal to those of topics, in one streaming query.

    Parameters
    ----------
    spark : SparkSession
        A classic session.
    topic : str, sequence of str, re.Pattern or None
        As in `from_kafka_changelog`: a topic for each table, or topics with several tables.
    format : str or Format
        One format for all topics.
    target : DeltaDatabase, IcebergDatabase or JdbcDatabase
        Where the tables are written, and how they are named. Missing tables are created.
    schema_location : str
        A folder, which keeps a JSON file for each table with its columns, key and the evidence for
        them. A restarted query reads the files and infers nothing again: edit a file to change a
        decision while the query is stopped. The files also have facts that must stay as they are:
        each table's target and source key, and the ids of the topics.
    options : mapping
        Options of Spark's Kafka source; ``maxOffsetsPerTrigger`` bounds a micro-batch.
    format_options : mapping or None
        Options of the format. Others may be inferred for each table.
    tables : mapping
        Options of single tables, by the name of the source table:
        ``{"shop.orders": TableOptions(primary_key="id")}``. An entry with ``shards=`` is a table
        into which several source tables are merged.
    include, exclude : str or sequence of str
        Regular expressions for names of source tables: ``exclude="shop[.]tmp_.*"``.
    on_new_column : {"add", "ignore", "fail"}
        What happens to a column that the schema lacks, in the first micro-batch that has a value of
        it. It is added to the target and no value is lost; or it is not written, with a warning; or
        it is an error of the table.
    on_table_error : {"fail", "stop_table"}
        What an error of a table does: the query fails once the other tables are written, and
        repeats the micro-batch after a restart; or only the table stops, with a warning in each
        micro-batch that counts what it misses. Its file says why. To resume it, delete its file and
        its target, and get its rows again: by a new snapshot of the producer, or in a query of its
        own, whose table this one excludes. A record
        that cannot be read names no table: it stops that of its topic, and fails the query if the
        topic has several.
    on_truncate : {"fail", "ignore"}
        Whether a truncate of a source table is an error of the table. Its rows stay in the target.
    mode : {"FAILFAST", "DROPMALFORMED"} or DeadLetter
        What happens to a record that cannot be decoded, as in `from_kafka_changelog`.
    parallel : int
        The number of tables that are written at a time.
    check : bool
        Whether the driver tries the broker, the login, the topics and a sample of their records
        during this call.

    Returns
    -------
    DataStreamWriter
        Set its ``checkpointLocation``, then start it. One query needs its own `schema_location`.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError, MissingDependencyError,
    InferenceError
        During this call, when the arguments cannot be used.
    SampleError, DecodeError
        During this call, when the topics or a sampled record cannot be read.
    SyncError
        While the query runs: the text names the table, and has the sentence of its error.
    TopicReplacedError
        While the query runs: a topic was deleted and created again, so that the checkpoint's
        offsets would skip records.

    Notes
    -----
    The table of a message is the one that it names (Debezium's ``source``, Canal, Maxwell, OGG,
    DMS, ...), and otherwise its topic. Source tables are merged only by
    ``TableOptions(shards=...)``: if the template of names gives two of them one name, they are an
    error.

    A table's schema comes from its entry in `tables`, or else from a schema block, a registry or
    the types in the messages, or else from the values of the records in the micro-batch in which it
    appears. A column that has been NULL in all records is not written until it has a value. All
    columns but those of the key are nullable: a column that the source drops stays, and is NULL
    from then on.

    A column that a message leaves out as unchanged (PostgreSQL's TOAST values, GoldenGate's
    compressed updates) keeps the target's value. If the target does not have the row, the message
    is an error of its table, and so is one without a column that `TableOptions.where` reads.

    A history (``scd_type=2``) has every change, ordered by the record's offset. All changes of a
    key must therefore be in one Kafka partition: a key with changes of two is an error of the
    table.

    In other tables, the last change of each key in a micro-batch applies: by offset, and between
    Kafka partitions by timestamp, as in `from_kafka_changelog`. An event that a producer repeats in
    a later micro-batch sets its row back, until the events after it are repeated too:
    ``TableOptions(deletes="soft", position_column="position")`` drops it.
    """
    require_jvm(
        spark,
        "sync_database",
        "run this query in a classic session, or write each table with apply_changes",
    )
    check_arguments(target, tables or {}, on_new_column, on_table_error, parallel)
    reader = TopicReader.of(spark, topic, format, format_options, options, on_truncate, mode)
    chosen, kafka, dead_letters = reader.format, reader.kafka, reader.dead_letters
    if chosen.unknown_columns == "fail":
        raise ArgumentError(
            "unknown_columns='fail' has no effect in sync_database, whose schemas grow: pass "
            "on_new_column='fail'"
        )
    failfast, stops_table = mode == "FAILFAST", on_table_error == "stop_table"
    selection = Selection.of(
        names_of(include, "include"), names_of(exclude, "exclude"), tables or {}
    )
    route = Route(
        chosen,
        selection,
        failfast and not stops_table,
        dead_letters,
        stops_table=failfast and stops_table,
    )
    router = Router(chosen, route.selection)
    if check:
        check_readable(kafka, router.route, fail=route.fail, error_excerpt=chosen.error_excerpt)
    rules = Rules(
        format=chosen,
        passed_options=_named_options(format, format_options or {}),
        database=target,
        tables=dict(tables or {}),
        store=SchemaStore(spark, schema_location),
        on_new_column=on_new_column,
        on_truncate=on_truncate,
        mode=reader.mode,
        dead_letters=dead_letters,
        user_session=spark,
    )
    rules.check("tables[{}]")
    require_same_address(rules.store.read_query(), target.address, rules.store.query_file)
    for table in rules.tables:
        sync = TableSync(table, rules)
        sync.load()
        sync.check(spark, f"tables[{table!r}]")
    topics = KnownTopics(spark, rules.store, TopicMonitor(kafka), target.address)
    return reader.records(spark).writeStream.foreachBatch(
        SyncDatabase(target.of.session(spark), route, rules, on_table_error, parallel, topics)
    )


def _named_options(format: str | Format, format_options: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of the format's options that the user set: of a `Format`, all."""
    if isinstance(format, Format):
        return frozenset(each.name for each in fields(format))
    return frozenset(map(option_name, format_options))


def check_arguments(
    target: Any, tables: Mapping[str, Any], on_new_column: str, on_table_error: str, parallel: int
) -> None:
    """Raise an error for arguments that `sync_database` does not take.

    Raises
    ------
    ArgumentError
    """
    check_mapping("tables", tables)
    if not isinstance(target, LakeDatabase | JdbcDatabase):
        raise ArgumentError(
            f"target is {target!r}: pass DeltaDatabase(...), IcebergDatabase(...) or "
            "JdbcDatabase(...)"
        )
    wrong = [name for name, each in tables.items() if not isinstance(each, TableOptions)]
    if wrong:
        raise ArgumentError(
            f"tables has {tables[wrong[0]]!r} for {wrong[0]!r}: pass TableOptions(...)"
        )
    check_choice("on_new_column", on_new_column, ("add", "ignore", "fail"))
    check_choice("on_table_error", on_table_error, ("fail", "stop_table"))
    if not isinstance(parallel, int) or parallel < 1:
        raise ArgumentError(f"parallel is {parallel!r}: pass a number of tables, at least 1")


@dataclass(frozen=True)
class TopicReader:
    """The checked arguments that `sync_database` and `sync_table` share.

    Parameters
    ----------
    format : Format
    kafka : dict of str to str
        Options of Spark's Kafka source.
    mode : {"FAILFAST", "DROPMALFORMED"}
    dead_letters : Destination or None
    """

    format: Format
    kafka: dict[str, str] = field(repr=False)
    mode: Mode
    dead_letters: Destination | None

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        topic: Any,
        format: Any,
        format_options: Any,
        options: Mapping[str, Any],
        on_truncate: str,
        mode: Any,
    ) -> TopicReader:
        """Return the arguments; raises as `sync_database`."""
        check_choice("on_truncate", on_truncate, ("fail", "ignore"))
        chosen, kafka = as_format(format, format_options), reader_options(topic, options)
        check_version(spark)
        check_kafka_source(spark)
        check_files(spark.sparkContext.listFiles)
        if not isinstance(mode, DeadLetter):
            check_choice("mode", mode, ("FAILFAST", "DROPMALFORMED"))
            return cls(chosen, kafka, mode, None)
        if reads_topic(mode.topic, kafka):
            raise ArgumentError(
                f"{mode.topic!r} is also a topic that is read, so that dead letters would loop: "
                "choose another topic"
            )
        return cls(chosen, kafka, "FAILFAST", destination_of(mode, chosen.identifier, kafka))

    def records(self, spark: SparkSession) -> DataFrame:
        """Return the stream of Kafka's records."""
        return load_kafka(
            spark.readStream.format("kafka").options(**self.kafka, includeHeaders="true")
        )


@dataclass
class SyncDatabase:
    """Applies micro-batches to all tables; for ``foreachBatch``.

    Parameters
    ----------
    spark : SparkSession
        The session of all statements (`TableTarget.session`). A streaming query's own has no
        adaptive execution, which small MERGEs need. And Iceberg caches tables in each session: one
        does not see what another writes.
    route : Route
    rules : Rules
    on_table_error : {"fail", "stop_table"}
    parallel : int
    topics : KnownTopics
    tables : dict
        The tables that have appeared, in this run or in an earlier one.
    """

    spark: SparkSession
    route: Route
    rules: Rules
    on_table_error: str
    parallel: int
    topics: KnownTopics
    tables: dict[str, TableSync] = field(default_factory=dict)
    _loaded: bool = False
    _warned_of_masks: bool = False
    _seen: set[str] = field(default_factory=set)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply a micro-batch.

        Raises
        ------
        SyncError
            When a table fails and `on_table_error` is ``fail``; the other tables are written.
        TopicReplacedError
            When a topic was deleted and created again; nothing is written.
        """
        routing: Any = partial(route_pass, route=self.route)
        with stored(records_of(batch).mapInArrow(routing, ROUTED_DDL)) as rows:
            # The first action computes and stores all rows.
            packed = rows.where("summary IS NOT NULL").select("summary").collect()
            routed = in_session(self.spark, rows_of(rows))
            summaries = merged(decode_summary(bytes(row["summary"])) for row in packed)
            self.topics({topic for summary in summaries.values() for topic in summary.topics})
            ignored = summaries.pop("", TableSummary(""))
            self._load(summaries)
            _report_ignored(self.spark, ignored)
            try:
                self._apply(summaries, routed, self._with_unread(summaries, ignored.unread))
            finally:
                self._report_unused_masks()

    def _load(self, tables: Collection[str]) -> None:
        """Read the files of all tables, also of those without records: their targets are taken."""
        if not self._loaded:
            self._loaded = True
            self.tables = {
                table: TableSync(table, self.rules) for table in self.rules.store.tables()
            }
            with ThreadPoolExecutor(self.parallel, "load") as pool:
                list(pool.map(TableSync.load, self.tables.values()))
        new = set(tables) - self._seen
        self.tables |= {
            table: TableSync(table, self.rules) for table in new if table not in self.tables
        }
        self._seen |= new
        for name, table in misspelt(self._seen, self.rules.tables).items():
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
        masks, batch = self.rules.format.masks, running_batch(self.spark)
        tables = {table: sync.columns for table, sync in self.tables.items() if sync.columns}
        if not masks or not tables:
            return
        unused = masks.unused(tables)
        if batch is not None:
            publish(TableProgress(query=batch.query, table="", unused_masks=len(unused)))
        # Of a mask that names one of these tables, the table warns itself.
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
        topics = {table: {*sync.topics} for table, sync in self.tables.items()}
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
            topic: sync.stopped
            for topic, sync in self.tables.items()
            if sync.stopped and not sync.owns_target
        }
        reasons |= {
            table: of_topics[topic]
            for table in summaries
            for topic in topics[table] & of_topics.keys()
            if topic != table
        }
        self.tables |= {
            table: TableSync(table, self.rules) for table in reasons if table not in self.tables
        }
        return reasons

    def _apply(
        self, summaries: Mapping[str, TableSummary], routed: DataFrame, unread: Mapping[str, str]
    ) -> None:
        parts = self._parts(summaries, routed)
        failed = [
            Failure(table, text, of_table=True)
            for table, text in unread.items()
            if not self.tables[table].stopped
        ]
        failed += self._above_limit(parts.keys() - unread.keys())
        refused = {failure.table for failure in failed} | unread.keys()
        readable = {table: part for table, part in parts.items() if table not in refused}
        failed += filter(None, self._in_parallel(readable))
        self._require_no_fatal(failed)
        for failure in failed:
            sync, summary = (
                self.tables[failure.table],
                summaries.get(failure.table, TableSummary(failure.table)),
            )
            sync.stop(self.spark, failure.text, summary.records)
            _log.warning(
                "%s is stopped, and the other tables go on: %s", failure.table, failure.text
            )

    def _above_limit(self, tables: Collection[str]) -> list[Failure]:
        """Return the errors of new tables that are more than the target allows."""
        owned = {table for table, sync in self.tables.items() if sync.owns_target}
        new = [table for table in tables if table not in owned]
        limit, of = self.rules.database.max_tables, type(self.rules.database).__name__
        text = (
            f"the query has {len(owned)} tables and {len(new)} new ones, and max_tables is "
            f"{limit}: leave tables out with include= or exclude=, or pass {of}(max_tables=...)"
        )
        return [
            Failure(table, text, of_table=True) for table in above_limit(new, len(owned), limit)
        ]

    def _require_no_fatal(self, failed: Sequence[Failure]) -> None:
        fatal = [
            failure for failure in failed if self.on_table_error == "fail" or not failure.of_table
        ]
        if fatal:
            shown = "; ".join(f"{failure.table}: {failure.text}" for failure in fatal)
            raise SyncError(f"{shown}. The other tables of the micro-batch are written")

    def _parts(self, summaries: Mapping[str, TableSummary], routed: DataFrame) -> dict[str, Part]:
        """Return the records of the tables that are not stopped."""
        running = {}
        for table, summary in sorted(summaries.items()):
            sync = self.tables[table]
            if sync.stopped:
                sync.miss(self.spark, summary.records)
                _log.warning(
                    "%s is stopped and misses %s records: %s", table, sync.lost, sync.stopped
                )
            else:
                running[table] = summary
        few = (
            sum(s.records for s in running.values()) <= _FEW_RECORDS
            and sum(s.size for s in running.values()) <= _FEW_BYTES
        )
        here = (
            routed.where("summary IS NULL").drop("summary").toArrow() if few and running else None
        )
        return {
            table: Part(
                summary, routed, None if here is None else _of_table(here, table), self.topics
            )
            for table, summary in running.items()
        }

    def _in_parallel(self, parts: Mapping[str, Part]) -> list[Failure | None]:
        """Apply parts, several at a time, and return the error of each."""
        from pyspark import inheritable_thread_target

        targets = self._targets()
        with ThreadPoolExecutor(self.parallel, "sync") as pool:
            # Statements in other threads need the micro-batch's id, by which the sinks know it.
            # Each call copies Spark's local properties once: threads that share a copy would also
            # share the number of the SQL execution, and Spark 4.1 then fails in MERGE.
            futures = [
                pool.submit(
                    inheritable_thread_target(self.spark)(partial(self._apply_part, part, targets))
                )
                for part in parts.values()
            ]
            return [future.result() for future in futures]

    def _targets(self) -> dict[str, str]:
        """Return each table's target name, without stopped tables that never had a row."""
        targets = {}
        for table, sync in self.tables.items():
            if sync.owns_target or not sync.stopped:
                with suppress(TargetError):  # an error of this table alone, once it has records
                    targets[table] = sync.target_name
        return targets

    def _apply_part(self, part: Part, targets: Mapping[str, str]) -> Failure | None:
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        sync = self.tables[part.summary.table]
        try:
            self._require_own_target(sync.table, targets)
            sync.apply(self.spark, part)
        except (ChangelogError, PySparkException, Py4JError) as error:
            # The query's own error begins with the same condition.
            text = explain_error(error).removeprefix(f"[{SyncError.condition}] ")
            text = text if text.startswith("[") else violation(error) or text
            of_table = self._is_of_table(error, sync.table)
            return Failure(
                sync.table, sync.with_remedy(self.spark, part, text) if of_table else text, of_table
            )
        return None

    def _require_own_target(self, table: str, targets: Mapping[str, str]) -> None:
        owners = [other for other, sync in self.tables.items() if sync.owns_target]
        sharing = same_target(table, targets, owners) if table in targets else []
        if sharing:
            raise SyncError(
                f"the target {targets[table]!r} is that of "
                f"{' and of '.join(sorted([table, *sharing]))}: pass another template of names, "
                "such as table='{database}_{table}', or, if one of them has rows already, a "
                "name for the other in tables="
            )

    def _is_of_table(self, error: Exception, table: str) -> bool:
        """Return whether an error comes from a table's records or definition.

        Any other error, such as a broken connection, may go away.
        """
        from pyspark.errors import AnalysisException, ArithmeticException, NumberFormatException

        if isinstance(error, TargetError):
            return not isinstance(error, ConflictError | TargetMissingError) and self._is_reachable(
                table
            )
        if isinstance(error, ChangelogError):
            return isinstance(error, _OF_TABLE)
        if isinstance(
            error, AnalysisException | ArithmeticException | NumberFormatException
        ) or violation(error):
            return True
        return explain_error(error).startswith(tuple(f"[{condition}]" for condition in _CONDITIONS))

    def _is_reachable(self, table: str) -> bool:
        try:
            target = self.rules.database.target(self.rules.target_name(table))
        except TargetError:  # the name cannot be one of a table
            return True
        return target.sink(self.spark).is_reachable()


@dataclass
class KnownTopics:
    """The topics of a query, as Kafka describes them.

    Parameters
    ----------
    spark : SparkSession
    store : SchemaStore
    monitor : TopicMonitor
    address : str
        Where the query's table or database is, which is kept with the ids.
    """

    spark: SparkSession
    store: SchemaStore
    monitor: TopicMonitor = field(repr=False)
    address: str
    _seen: set[str] = field(default_factory=set)
    _batch: Batch | None = None
    _kept: QueryFacts | None = None
    _warned: bool = False
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self, topics: set[str]) -> Mapping[str, TopicDescription]:
        """Return the descriptions, and compare the topics' ids with those of earlier runs.

        The ids are compared in each micro-batch, with descriptions that are at most
        `topics.INTERVAL` seconds old, and when a topic appears.

        Raises
        ------
        TopicReplacedError
        """
        batch = running_batch(self.spark)
        with self._lock:  # tables are written at the same time
            if batch is None or (batch == self._batch and topics <= self._seen):
                return self.monitor.described
            described = self.monitor(topics - self._seen)
            if self.monitor.problem and not self._warned:
                self._warned = True
                _log.warning("%s %s", UNKNOWN_IDS, self.monitor.problem)
            self._batch, self._seen = batch, self._seen | topics | described.keys()
            kept = self._kept or self.store.read_query()
            self._kept = checked_topics(kept, batch.query, described, self.address)
            if self._kept != kept:
                self.store.write_query(self._kept)
            return described


class Failure(NamedTuple):
    """The error of a table.

    Attributes
    ----------
    table : str
    text : str
    of_table : bool
        Whether its records or definition are the reason, so that other tables can go on without it.
    """

    table: str
    text: str
    of_table: bool


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


def records_of(batch: DataFrame) -> DataFrame:
    """Return the records with the columns of `RECORD_DDL`."""
    from pyspark.sql import functions as F

    headers = RECORD_DDL.partition("headers ")[2]
    return batch.select(
        *(F.col(name).cast("binary") for name in ("key", "value")),
        "topic",
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("stamp"),
        F.col("headers").cast(headers),
    )


def in_session(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return a computed DataFrame in another session of the same Spark."""
    from pyspark.sql.classic.dataframe import DataFrame

    session: Any = spark
    plan: Any = rows
    dataset = session._jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(
        dataset.ofRows(session._jsparkSession, plan._jdf.queryExecution().analyzed()), spark
    )


def _of_table(records: pa.Table, table: str) -> pa.Table:
    return records.filter(pc.equal(records.column("table"), table))


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


def _report_ignored(spark: SparkSession, summary: TableSummary) -> None:
    """Log records without rows, and publish those that cannot be read."""
    if not summary.records:
        return
    _log.info("%s records have no rows: %s", summary.records, summary.reasons)
    batch, bad = (
        running_batch(spark),
        {name: number for name, number in summary.reasons.items() if name in BAD_RECORDS},
    )
    if batch is not None:
        publish(TableProgress(query=batch.query, table="", bad=bad))


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
    from py4j.java_gateway import is_instance_of
    from pyspark import SparkContext

    text = ""
    for java in java_causes(error):
        state = (
            java.getSqlState()
            if is_instance_of(SparkContext._gateway, java, "org.apache.spark.SparkThrowable")
            else None
        )
        if state == _NOT_ALLOWED:
            return ""
        if state and state.startswith(_STATES_OF_TABLE):
            text = " ".join(str(java.getMessage()).split())[:_MOST_TEXT]
    return text
