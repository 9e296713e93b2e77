"""One table of `sync_database` or `sync_table`.

It has the table's schema, its target, and what happens to its records in a micro-batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import pyarrow as pa

from cdc_formats.decoding.masking import check_masks, result_columns
from cdc_formats.errors import (
    DECODE_CONDITIONS,
    ArgumentError,
    DecodeError,
    PartialImageError,
    SchemaError,
    printable,
)
from cdc_formats.events import Ignored
from cdc_formats.format import Format
from cdc_formats.topics.client import TopicDescription
from cdc_formats.values.masks import Masks
from cdc_formats.values.schema import Column, SqlType, quote
from normalize.analyzed_plan import elements, require_of_row
from normalize.arguments import names_of
from normalize.core.arrow import spark_ddl
from normalize.core.counts import WITHOUT_POSITION
from normalize.core.guard import Expected, Identity
from normalize.core.output import ROW_KIND, Destination, Mode
from normalize.decode.decode_pass import header_lists
from normalize.decode.last_changes import partial_row
from normalize.decode.plan import DecodePlan
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.notice import shown_names
from normalize.monitoring.table_progress import TableProgress, publish

from .arrow_rows import ArrowRows
from .batches import is_repeat, running_batch
from .changes import (
    FACT,
    PLACE,
    ArrowChanges,
    ChangeOptions,
    PassFacts,
    PassResult,
    changes_here,
    changes_on_spark,
    collected_changes,
    written_fields,
)
from .database_target import Database, OneTable, require_scd_type, table_name
from .facts import (
    GuardFacts,
    TableFacts,
    checked_facts,
    checked_guard,
    require_few_columns,
    require_same_options,
    require_same_positions,
)
from .history import ApplyVersions, version_fields
from .interval import require_merged
from .latest import stored
from .layout import NO_LAYOUT, Layout
from .merge import ADDS
from .partial_rows import ABSENT_COLUMN, BASE_COLUMN, is_absent
from .policy import (
    DELETED_AT,
    soft_delete_column,
    with_arrow_deletion_times,
    with_deletion_times,
)
from .route import Router, TableSummary
from .schema import (
    Record,
    TableSchema,
    decide_merged,
    extend,
    how_to_widen,
    ignored_arguments,
    new_columns,
    wider_column,
    with_options,
)
from .schema_store import SchemaStore
from .table_options import AS_IS, Selection, SyncError, TableOptions
from .table_spec import END_AT, START_AT, TableSpec
from .targets import Sink, TableTarget, TargetMissingError, Written, repeat_conflicts
from .writers.delta_writer import most_changes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructField

_log = logging.getLogger("normalize")
BAD_RECORDS = (*DECODE_CONDITIONS, DecodeError.condition)
_NOT_APPLIED = (*BAD_RECORDS, Ignored.TRUNCATE.value)
ROUTED_COLUMNS = frozenset({"key", "value", "topic", "partition", "offset", "timestamp", "headers"})
"""The columns of Kafka's records that a table's records have."""


@dataclass(frozen=True)
class Rules:
    """The arguments of `sync_database` that all tables share.

    Parameters
    ----------
    format : Format
    passed_options : frozenset of str
        The format options that the user passed.
    database : Database
    tables : mapping
        The options of single tables.
    store : SchemaStore
    on_new_column : {"add", "ignore", "fail"}
    on_truncate : {"fail", "ignore"}
    mode : {"FAILFAST", "DROPMALFORMED"}
    dead_letters : Destination or None
    user_session : SparkSession
        The session of the call, which sees the rows of a micro-batch after it.
    """

    format: Format
    passed_options: frozenset[str]
    database: Database
    tables: Mapping[str, TableOptions]
    store: SchemaStore
    on_new_column: Literal["add", "ignore", "fail"]
    on_truncate: Literal["fail", "ignore"]
    mode: Mode
    dead_letters: Destination | None
    user_session: SparkSession

    def check(self, argument: str) -> None:
        """Raise an error if a table has options that cannot be used.

        Parameters
        ----------
        argument : str
            The user's argument with the options, where ``{}`` is the table.
        """
        for table in self.tables:
            try:
                self.deleted_column(table)
                self.scd_type(table)
                self.track_history(table)
                self.position_column(table)
                self.layout(table)
                self.options(table).check_types(self.format)
            except (ArgumentError, SchemaError) as error:
                name = argument.format(repr(table))
                raise ArgumentError(f"{name} has wrong options: {error.args[0]}") from None

    def options(self, table: str) -> TableOptions:
        """Return the options of a table."""
        return self.tables.get(table, TableOptions())

    def target_name(self, table: str) -> str:
        """Return the name of a table's target."""
        return self.options(table).name or table_name(self.database.table, table)

    def scd_type(self, table: str) -> int:
        """Return 1 for a table with the rows of the source, 2 for a history.

        Raises
        ------
        ArgumentError
            When the target cannot be a history.
        """
        kind = self.options(table).scd_type or self.database.scd_type
        require_scd_type(kind, self.options(table).deletes or self.database.deletes)
        if kind == 2 and not self.database.of.histories:
            of = self.database.of.__name__
            raise ArgumentError(
                f"scd_type=2 is not supported for {of}: write the history to Delta or Iceberg"
            )
        return kind

    def track_history(self, table: str) -> tuple[str, ...]:
        """Return the columns of which a change makes a version of a history; empty for all.

        Raises
        ------
        ArgumentError
            When the table is not a history.
        """
        names = names_of(self.options(table).track_history)
        if names and self.scd_type(table) != 2:
            raise ArgumentError(
                "track_history requires scd_type=2: pass it too, or remove track_history"
            )
        return names

    def deleted_column(self, table: str) -> str | None:
        """Return the column of a table's soft deletes, or None for hard deletes.

        Raises
        ------
        ArgumentError
            When an option is unknown, or has no effect.
        """
        options, database = self.options(table), self.database
        deletes = options.deletes or database.deletes
        default = database.deleted_column if deletes == database.deletes else DELETED_AT
        return soft_delete_column(deletes, options.deleted_column or default)

    def position_column(self, table: str) -> str | None:
        """Return the column with the position of a row's last change, or None.

        Raises
        ------
        ArgumentError
            When the target, or another option, would lose positions.
        """
        options, of = self.options(table), self.database.of
        name, deleted = options.position_column, self.deleted_column(table)
        if name is None:
            return None
        is_history = self.scd_type(table) == 2
        wrong = {
            (
                "scd_type=2 and position_column cannot be combined, since a history has a row for "
                "each change: remove one of them"
            ): is_history,
            (
                "position_column requires deletes='soft', which keeps the positions of deleted "
                "rows: pass both, or remove it"
            ): deleted is None,
            "where and position_column cannot be combined, since a row that does not match has no "
            "position: write the condition into a view": options.where is not None,
            f"deleted_column and position_column are both {name!r}: pass another name": name.lower()
            == (deleted or "").lower(),
            (
                f"position_column is not supported for {of.__name__}, whose sink does not compare "
                "positions: remove it"
            ): not of.positions,
        }
        for text, is_wrong in wrong.items():
            if is_wrong:
                raise ArgumentError(text)
        return name

    def layout(self, table: str, columns: Collection[str] = ()) -> Layout:
        """Return the layout of a table with these columns, if it is created.

        Raises
        ------
        ArgumentError
            When the target cannot have it.
        """
        of, layout = self.database.of, self.options(table).layout
        if layout != NO_LAYOUT and not of.provider:
            raise ArgumentError(
                f"partition_by, cluster_by and properties are not supported for {of.__name__}: "
                "remove them, or create the table before the query starts"
            )
        layout = layout.or_of(self.database.layout, columns)
        layout.check(of.provider)
        return layout


@dataclass
class Part:
    """The records of one table in a micro-batch.

    Parameters
    ----------
    summary : TableSummary
    routed : DataFrame
        All routed records.
    here : pyarrow.Table or None
        The table's records, if there are few; None: they are read from `routed`.
    topics : mapping
        Kafka's descriptions of the query's topics.
    alone : bool
        Whether `routed` only has records of this table, which the pass has to compare
        (`sync_table`).
    """

    summary: TableSummary
    routed: DataFrame
    here: pa.Table | None
    topics: Callable[[set[str]], Mapping[str, TopicDescription]]
    alone: bool = False

    def samples(self, shard_of: Callable[[str, Record], str] | None) -> dict[str, list[Record]]:
        """Return each shard's records from which a schema is inferred, in the order of the topic.

        Parameters
        ----------
        shard_of : callable or None
            Returns the shard of a topic's record; None: there is only one.
        """
        table = self.here if self.here is not None else self.records().where("sample").toArrow()
        ordered = table.sort_by(
            [
                ("stamp", "ascending"),
                ("topic", "ascending"),
                ("partition", "ascending"),
                ("offset", "ascending"),
            ]
        )
        headers = header_lists(ordered.column("headers").combine_chunks())
        records = list(
            zip(
                ordered.column("key").to_pylist(),
                ordered.column("value").to_pylist(),
                headers,
                strict=True,
            )
        )
        if shard_of is None:
            return {self.summary.table: records}
        samples = dict[str, list[Record]]()
        for topic, record in zip(ordered.column("topic").to_pylist(), records, strict=True):
            samples.setdefault(shard_of(topic, record), []).append(record)
        return samples

    def records(self) -> DataFrame:
        """Return the table's records."""
        from pyspark.sql import functions as F

        return (
            self.routed if self.alone else self.routed.where(F.col("table") == self.summary.table)
        )


@dataclass
class TableSync:
    """Synchronizes one table.

    Parameters
    ----------
    table : str
        The source table.
    rules : Rules
    schema : TableSchema or None
        None until the table's first micro-batch.
    records : int
        The records that were applied since the query started.
    lost : int
        The records that were not, because the table is stopped.
    """

    table: str
    rules: Rules
    schema: TableSchema | None = None
    records: int = 0
    lost: int = 0
    _ignored: set[str] = field(default_factory=set)
    _unused_masks: set[str] = field(default_factory=set)
    _asked: set[str] = field(default_factory=set)
    _prepared: TableSchema | None = None
    _started: bool = False
    _usable: tuple[Column, ...] | None = None
    _schema_changes: int = 0

    def load(self) -> None:
        """Read the table's file."""
        self.schema = self.rules.store.read(self.table)

    @property
    def target_name(self) -> str:
        """The name of the target that has its rows, or will have them.

        Raises
        ------
        TargetError
            When the name cannot be computed.
        """
        kept = "" if self.schema is None else self.schema.facts.target
        return kept or self.rules.target_name(self.table)

    @property
    def owns_target(self) -> bool:
        """Whether its target may have rows of it."""
        return self.schema is not None and bool(self.schema.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of its columns; empty until its first micro-batch."""
        return () if self.schema is None else tuple(each.name for each in self.schema.columns)

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics of its records."""
        return () if self.schema is None else self.schema.facts.topics

    @property
    def stopped(self) -> str:
        """Why the table is stopped; empty while it is synchronized."""
        return "" if self.schema is None else self.schema.stopped

    def stop(self, spark: SparkSession, reason: str, records: int) -> None:
        """Stop the table, also after a restart, before it applied so many records."""
        self._keep(replace(self.schema or TableSchema(self.table), stopped=reason))
        self.miss(spark, records)

    def miss(self, spark: SparkSession, records: int) -> None:
        """Count records that are not applied, because the table is stopped."""
        self.lost += records
        self._publish(spark, missed=records, stopped=True)

    def apply(self, spark: SparkSession, part: Part) -> None:
        """Apply the table's records of a micro-batch to its target."""
        started = time.monotonic()
        target = self.rules.database.target(self.rules.target_name(self.table))
        schema = self._schema_of(spark, part, target)
        if schema is None:
            return
        self.require_usable(spark, schema)
        self._ask(schema)
        source = self.source(schema)
        options = self._change_options(schema, source, part)
        result = self._apply(
            spark,
            part,
            source,
            options,
            partial(self._write, spark, part=part, source=source, target=target, options=options),
        )
        records = result.counts.get("RECORDS") or 0
        self._warn_of(result.counts)
        self.records += records
        if records:
            self._publish_applied(spark, records, result, target.written)
        _log.info(
            "%s: %s records applied in %.1f s", self.table, records, time.monotonic() - started
        )

    def _apply(
        self,
        spark: SparkSession,
        part: Part,
        source: DecodePlan,
        options: ChangeOptions,
        write: Callable[[DataFrame | ArrowChanges, PassResult], None],
    ) -> PassResult:
        """Compute and write the changes of a micro-batch, and return the result of the pass."""
        records = part.records()
        collected: ArrowChanges | None = None
        if part.here is not None:
            collected = changes_here(part.here, source, options)
        elif self._takes_arrow(spark, options):
            collected = collected_changes(records, source, options, most_changes())
        if collected is not None:
            write(collected, collected.result)
            return collected.result
        changes = changes_on_spark(records, source, options)
        with _partial_rows_again(), stored(changes.rows) as kept:
            rows, result = changes.finish(kept)
            if not result.moved:
                write(rows, result)
                return result
        changes = changes_on_spark(records, source, options, in_one_task=True)
        with stored(changes.rows) as kept:
            rows, result = changes.finish(kept)
            write(rows, result)
        return result

    def _takes_arrow(self, spark: SparkSession, options: ChangeOptions) -> bool:
        """Return whether the changes may be collected on the driver as Arrow's columns."""
        typed = options.every or self.rules.options(self.table).where is not None
        target = self.rules.database.target(self.rules.target_name(self.table))
        return not typed and target.sink(spark).takes_arrow

    def _write(
        self,
        spark: SparkSession,
        rows: DataFrame | ArrowChanges,
        result: PassResult,
        *,
        part: Part,
        source: DecodePlan,
        target: TableTarget,
        options: ChangeOptions,
    ) -> None:
        """Write the changes of a micro-batch, which contradict no fact."""
        facts = result.facts
        guard = self._checked_guard(spark, part, source, facts)
        if part.alone:
            topics = {each.topic for each in facts.partitions}
            self._with_facts(
                self._required_schema,
                TableSummary(self.table, topics=topics, source_keys=facts.source_keys),
            )
        schema = self._required_schema
        if result.rows:
            self._require_target(target.sink(spark), target)
        if result.rows and options.every:
            self._merge_versions(self._where(_frame(spark, rows)), target, schema)
        elif result.rows:
            self._merge(spark, rows, target, schema, written_fields(source, options))
        if result.rows:
            target.refresh(self.rules.user_session)
        written = schema.facts.written or bool(result.rows)
        # After the rows: until they are written, the micro-batch is compared with the state before
        # it.
        kept = msgspec.structs.replace(schema.facts, guard=guard, written=written)
        if kept != schema.facts:
            self._keep(replace(schema, facts=kept))

    def _checked_guard(
        self, spark: SparkSession, part: Part, source: DecodePlan, facts: PassFacts
    ) -> GuardFacts:
        """Return the guard's facts after a micro-batch."""
        kept, batch = self._required_schema.facts.guard, running_batch(spark)
        topics = {each.topic for each in facts.partitions}
        described = {topic: each for topic, each in part.topics(topics).items() if topic in topics}
        # Records of `sync_database` are routed by their table.
        expected = Expected(source.identity if part.alone else Identity(), described)
        if batch is None:
            checked_guard(GuardFacts(), facts.partitions, expected, query="", batch=0)
            return kept
        return checked_guard(
            kept, facts.partitions, expected, query=batch.query, batch=batch.number
        )

    @property
    def _required_schema(self) -> TableSchema:
        assert self.schema is not None  # of a table that is applied
        return self.schema

    def with_remedy(self, spark: SparkSession, part: Part, text: str) -> str:
        """Return the text of an error.

        For a value that does not fit its column, it includes the statements that widen the column.
        """
        if self.schema is None:
            return text
        columns = wider_column(text, self.schema, partial(self._samples, part), self.rules.format)
        if columns is None or self._masks(self.schema).kind(columns[0].name) is not None:
            return text
        target = self.rules.database.target(self.rules.target_name(self.table))
        return (
            f"{text}. "
            f"{how_to_widen(spark, target, columns, self.schema, self.rules.store.file(self.table))}"
        )

    def _warn_of(self, counts: Mapping[str, int]) -> None:
        """Warn of records that were not applied, and of changes without a position."""
        dropped = {name: counts[name] for name in _NOT_APPLIED if counts.get(name)}
        if dropped:
            _log.warning(
                "%s: %s",
                self.table,
                ", ".join(
                    f"{number} records not applied ({name})" for name, number in dropped.items()
                ),
            )
        if counts.get(WITHOUT_POSITION):
            text = (
                "%s: %s changes have no position in the source's log, and replace their rows as "
                "they arrive"
            )
            _log.warning(text, self.table, counts[WITHOUT_POSITION])

    def _publish_applied(
        self, spark: SparkSession, records: int, result: PassResult, written: Written | None
    ) -> None:
        bad = {name: result.counts[name] for name in BAD_RECORDS if result.counts.get(name)}
        now = time.time()
        lag = {
            of: now - stamp / 1000
            for of, stamp in zip(("oldest", "newest"), result.stamps, strict=True)
        }
        self._publish(
            spark,
            records=records,
            rows=result.rows,
            bad=bad,
            lag=lag,
            **({} if written is None else written._asdict()),
        )

    def _publish(self, spark: SparkSession, **progress: Any) -> None:
        batch = running_batch(spark)
        if batch is not None:
            publish(
                TableProgress(
                    query=batch.query,
                    table=self.table,
                    batch=batch.number,
                    schema_changes=self._schema_changes,
                    open_questions=0
                    if self.schema is None
                    else len(self._open_questions(self.schema)),
                    **progress,
                )
            )
            self._schema_changes = 0

    # ----------------------------------------------------------------------------------------------
    # the schema

    def _open_questions(self, schema: TableSchema) -> dict[str, str]:
        """Return the questions on columns whose types are guesses, without those of masked ones."""
        options, masks = self.rules.options(self.table), self._masks(schema)
        return {
            name: text
            for name, text in schema.questions.items()
            if not options.decides(name) and masks.kind(name) is None
        }

    def _ask(self, schema: TableSchema) -> None:
        """Warn once in a run of columns whose types are guesses."""
        questions = self._open_questions(schema)
        new = [
            f"{column} ({questions[column.name]})"
            for column in schema.columns
            if column.name in questions and column.name not in self._asked
        ]
        self._asked.update(questions)
        if new:
            alone = isinstance(self.rules.database, OneTable)
            _log.warning(
                "%s: the types of these columns are guesses: %s. If one is right, %sdelete its "
                "question in %s. Otherwise pass its type in %s, and start anew, without the table, "
                "this file and the checkpoint",
                self.table,
                printable("; ".join(new)),
                "" if alone else f"write {AS_IS!r} for it into types= of tables=, or ",
                self.rules.store.file(self.table),
                "schema=" if alone else "types= of tables=",
            )

    def _schema_of(
        self, spark: SparkSession, part: Part, target: TableTarget
    ) -> TableSchema | None:
        """Return the schema for a micro-batch; None for deletes in a table that never had a row."""
        schema = self.schema
        if schema is None or not schema.columns:
            options = self.rules.options(self.table)
            if not part.summary.rows and not options.declared:
                self._require_missing(spark, target)
                return None
            schema = decide_merged(
                self.table,
                self._samples(part),
                format=self.rules.format,
                passed_options=self.rules.passed_options,
                options=options,
            )
            self._require_few_columns(schema, () if options.declared else schema.columns)
            self.require_usable(spark, schema)
            schema = self._with_facts(schema, part.summary)
            self._schema_changes += 1
            self._say(f"new table, {schema.described()}")
        else:
            schema = self._with_facts(schema, part.summary)
        return self._extended(spark, schema, part)

    def _with_facts(self, schema: TableSchema, summary: TableSummary) -> TableSchema:
        """Return the schema with the facts of a micro-batch, which are kept."""
        rules = self.rules
        seen = TableFacts(
            rules.target_name(self.table),
            tuple(summary.source_keys),
            tuple(summary.topics),
            masks=self._masks(schema).facts,
            position_column=rules.position_column(self.table) or "",
            options=self._kept_options,
        )
        user_key = bool(names_of(rules.options(self.table).primary_key))
        facts = checked_facts(
            schema.facts,
            seen,
            schema.primary_key,
            user_key=user_key,
            file=rules.store.file(self.table),
            columns=[column.name for column in schema.columns],
        )
        checked = replace(schema, facts=facts)
        if checked != self.schema:
            self._keep(checked)
        return checked

    @property
    def _kept_options(self) -> dict[str, str]:
        """The options that decide which rows the target has."""
        rules, options = self.rules, self.rules.options(self.table)
        return {
            "where": " ".join((options.where or "").split()),
            "deleted_column": rules.deleted_column(self.table) or "",
            "shard_column": options.shard_column or "",
        }

    def _require_few_columns(self, schema: TableSchema, new: Sequence[Column]) -> None:
        database = self.rules.database
        require_few_columns(
            [column.name for column in schema.columns],
            [column.name for column in new],
            database.max_columns,
            type(database).__name__,
        )

    def check(self, spark: SparkSession, argument: str) -> None:
        """Check the table's options with the columns that are known when the query is defined.

        A warning names the file if its columns or key differ from the options'.

        Parameters
        ----------
        spark : SparkSession
        argument : str
            The user's argument with the options, for errors.

        Raises
        ------
        ArgumentError
        """
        options, kept = self.rules.options(self.table), self.schema
        key = names_of(options.primary_key)
        if self.stopped:
            return
        if kept is not None and kept.columns:
            ignored = ignored_arguments(kept, options.declared, key)
            if ignored:
                _log.warning(
                    "%s: %s. The table's file decides: to change the table, edit %s while the "
                    "query is stopped",
                    self.table,
                    "; ".join(ignored),
                    self.rules.store.file(self.table),
                )
        else:
            written = (column for column in options.declared if options.writes(column.name))
            kept = TableSchema(self.table, tuple(written), key)
        position, positions = self.rules.position_column(self.table), kept.facts.position_column
        if positions and position is None:
            _log.warning(
                "%s: position_column is not set, and its rows have positions in %r: rows that "
                "change get the position NULL, and their next redelivery is applied",
                self.table,
                positions,
            )
        try:
            file = self.rules.store.file(self.table)
            require_same_positions(positions, position or "", file)
            require_same_options(kept.facts.options, self._kept_options, file)
            self.require_usable(spark, kept)
        except (ArgumentError, SyncError) as error:
            raise ArgumentError(f"{argument} has wrong options: {error.args[0]}") from None

    def require_usable(self, spark: SparkSession, schema: TableSchema) -> None:
        """Raise an error if the table's options cannot be used with its columns.

        This runs before the schema is kept, so that the remedy works. Of a table whose columns are
        not known yet, the schema has those of the key alone.

        Raises
        ------
        SyncError
            When a source column has a name that is used here.
        ArgumentError
            When `TableOptions.track_history` has another column, or `where` is not a condition.
        """
        if schema.columns and schema.columns == self._usable:
            return
        self._require_free_names(schema)
        self._require_tracked(schema)
        self._require_layout(schema)
        self._require_condition(spark, schema)
        self._usable = schema.columns

    def _require_free_names(self, schema: TableSchema) -> None:
        rules, table = self.rules, self.table
        reserved = (ROW_KIND, ABSENT_COLUMN, BASE_COLUMN, PLACE, FACT)
        versions = (START_AT, END_AT) if rules.scd_type(table) == 2 else ()
        own = [
            *((name, "a column of the query", "exclude_columns") for name in reserved),
            *((name, "a column of a history", "exclude_columns") for name in versions),
            (rules.position_column(table), "position_column", "position_column"),
            (rules.deleted_column(table), "deleted_column", "deleted_column"),
            (rules.options(table).shard_column, "shard_column", "shard_column"),
        ]
        for name, what, option in own:
            if name is not None:
                _require_free(name, schema, what, self._remedy(option))

    def _remedy(self, option: str) -> str:
        """Return what to pass so that a source column may have its name."""
        if not isinstance(self.rules.database, OneTable):
            return f"pass tables={{{self.table!r}: TableOptions({option}=...)}}"
        if option == "exclude_columns":
            return "leave it out of schema="
        return f"pass table=TableOptions({option}=...)"

    def _require_tracked(self, schema: TableSchema) -> None:
        names = [column.name for column in schema.columns]
        unknown = [name for name in self.rules.track_history(self.table) if name not in names]
        if unknown and names:
            raise ArgumentError(
                f"track_history has {unknown[0]!r}, which is not one of its columns: "
                f"{', '.join(names)}"
            )

    def _require_layout(self, schema: TableSchema) -> None:
        rules, table = self.rules, self.table
        shard = rules.options(table).shard_column
        added = (rules.deleted_column(table), rules.position_column(table), shard)
        names = [*(column.name for column in schema.columns), *filter(None, added)]
        if schema.columns:
            rules.layout(table, names).require_columns(names, rules.database.of.provider)

    def _require_condition(self, spark: SparkSession, schema: TableSchema) -> None:
        from pyspark.errors import AnalysisException, ParseException
        from pyspark.sql import functions as F

        where = self.rules.options(self.table).where
        if where is None:
            return
        shard = self._shard_column(schema)
        columns = schema.columns and result_columns(schema.columns, self._masks(schema))
        ddl = spark_ddl([*columns, *([] if shard is None else [shard])])
        try:
            rows = spark.createDataFrame([], ddl).where(F.expr(where))
            require_of_row(rows, F.expr(where))
        except AnalysisException as error:
            # Of a table whose columns are unknown, only the syntax can be checked.
            if schema.columns or isinstance(error, ParseException):
                raise ArgumentError(
                    f"where is not a condition on its columns: {str(error).strip().splitlines()[0]}"
                ) from None

    def _require_missing(self, spark: SparkSession, target: TableTarget) -> None:
        """Raise an error if an unknown table's deletes may affect rows: its key type is unknown."""
        spec = TableSpec((), (), create=True, on_new_column="add")
        if not target.sink(spark).needed(spec):
            raise SyncError(
                "its first records are deletes, from which no schema can be inferred, and "
                f"{target} exists: pass tables={{{self.table!r}: TableOptions(schema=..., "
                "primary_key=[...])}"
            )

    def _extended(self, spark: SparkSession, schema: TableSchema, part: Part) -> TableSchema:
        """Return the schema with a micro-batch's new columns, so that no value of them is lost."""
        options, rules = self.rules.options(self.table), self.rules
        new = [
            name
            for name in new_columns(schema, part.summary.names, options)
            if name not in self._ignored
        ]
        if not new:
            return schema
        if rules.on_new_column == "fail":
            raise SyncError(
                f"it has the new columns {shown_names(new)}, and on_new_column is 'fail': pass "
                "'add', or use exclude_columns"
            )
        if rules.on_new_column == "ignore":
            self._ignored.update(new)
            self._say(f"the new columns {shown_names(new)} are ignored (on_new_column='ignore')")
            return schema
        extended = extend(
            schema,
            new,
            self._samples(part),
            format=with_options(rules.format, schema),
            options=options,
        )
        self._require_few_columns(extended, extended.columns[len(schema.columns) :])
        self.require_usable(spark, extended)
        masks = self._masks(extended).facts
        extended = replace(extended, facts=msgspec.structs.replace(extended.facts, masks=masks))
        self._keep(extended)
        self._schema_changes += 1
        self._say(
            "new columns, "
            f"{', '.join(str(column) for column in extended.columns if column.name in new)}"
        )
        return extended

    def _samples(self, part: Part) -> dict[str, list[Record]]:
        if self.rules.options(self.table).shards is None:
            return part.samples(None)
        router = Router(self.rules.format, Selection())

        def shard_of(topic: str, record: Record) -> str:
            return router.route(topic, *record).table

        return part.samples(shard_of)

    def _keep(self, schema: TableSchema) -> None:
        """Write the table's file, unless another driver is ahead of this one.

        Raises
        ------
        BatchOrderError
        """
        batch = running_batch(self.rules.user_session)
        if batch is not None and schema.facts.written:
            target = self.rules.database.target(schema.facts.target)
            is_repeat(batch, target.sink(self.rules.user_session).record(batch), target)
        self.rules.store.write(schema)
        self.schema = schema

    def _say(self, text: str) -> None:
        _log.warning(
            "%s: %s. Edit %s to change it", self.table, text, self.rules.store.file(self.table)
        )

    # ----------------------------------------------------------------------------------------------
    # the changes

    def _shard_column(self, schema: TableSchema) -> Column | None:
        """Return the column with the name of a row's source table, if it is part of the key."""
        name = self.rules.options(self.table).shard_column
        if name is None:
            return None
        return Column(name, SqlType("STRING"), nullable=False)

    def _change_options(self, schema: TableSchema, source: DecodePlan, part: Part) -> ChangeOptions:
        """Return which changes are computed, and what they have."""
        position, ids = self.rules.position_column(self.table), dict[str, str]()
        if position is not None and not source.positions:
            ids = {name: topic.topic_id for name, topic in part.topics(part.summary.topics).items()}
        return ChangeOptions(
            self._shard_column(schema), self.rules.scd_type(self.table) == 2, position, ids
        )

    def _masks(self, schema: TableSchema) -> Masks:
        """Return the masks of the table's columns, and warn of those for columns it does not have."""
        masks, columns = self.rules.format.masks, tuple(column.name for column in schema.columns)
        unused = masks.unused({self.table: columns})
        unused = [
            name
            for name in masks.naming(self.table)
            if name in unused and name not in self._unused_masks
        ]
        if unused:
            self._unused_masks.update(unused)
            _log.warning(
                "%s: mask has %s, which is not one of its columns: %s. If it is misspelt, the "
                "column is written without a mask",
                self.table,
                shown_names(unused),
                shown_names(columns),
            )
        return masks.of_columns(columns, self.table)

    def source(self, schema: TableSchema) -> DecodePlan:
        """Return the arguments of the decode pass."""
        rules, options = self.rules, self.rules.options(self.table)
        masks = self._masks(schema)
        format = with_options(rules.format, schema)
        if rules.format.masks:
            format = replace(format, mask=masks)
            check_masks(masks, schema.columns, schema.primary_key)
        # A format that reads null values has a topic for each table.
        parts = (
            ()
            if options.shard_column is None or format.reads_tombstones
            else tuple(format.table_identity)
        )
        return DecodePlan(
            format=format,
            columns=schema.columns,
            unique_key=schema.primary_key,
            metadata=dict(zip(parts, parts, strict=True)),
            distinguished_by=() if options.shards is None else (*format.table_identity, "topic"),
            mode=rules.mode,
            dead_letters=rules.dead_letters,
            on_truncate=rules.on_truncate,
            positions=options.position_column is not None and not format.positions,
            record_columns=ROUTED_COLUMNS,
            completes_moved=True,
        )

    def _where(self, changes: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        where = self.rules.options(self.table).where
        if where is None:
            return changes
        # As in ChangelogNormalize: a row that no longer matches is deleted.
        kept = F.col(ROW_KIND).isin(*ADDS) & F.coalesce(F.expr(where), F.lit(False))
        if ABSENT_COLUMN in changes.columns:
            _require_columns_of(where, changes)
        return changes.withColumn(ROW_KIND, F.when(kept, "+U").otherwise("-D"))

    # ----------------------------------------------------------------------------------------------
    # the target

    def _merge(
        self,
        spark: SparkSession,
        rows: DataFrame | ArrowChanges,
        target: TableTarget,
        schema: TableSchema,
        fields: tuple[StructField, ...],
    ) -> None:
        from pyspark.sql import functions as F
        from pyspark.sql.types import BinaryType, StructField, TimestampType

        deleted, position = (
            self.rules.deleted_column(self.table),
            self.rules.position_column(self.table),
        )
        if deleted is not None:
            fields = (*fields, StructField(deleted, TimestampType()))
        # The position of an earlier change would drop changes that are newer than the row.
        unknown = schema.facts.position_column if position is None else ""
        if unknown:
            fields = (*fields, StructField(unknown, BinaryType()))
            # Soft deletes write it too, which needs no comparison with NULL.
            position = unknown if deleted is not None and target.positions else None
        where = self.rules.options(self.table).where

        @cache
        def frame() -> DataFrame:
            changes = self._where(_frame(spark, rows))
            if deleted is not None:
                changes = with_deletion_times(changes, deleted)
            return changes.withColumn(unknown, F.lit(None).cast("binary")) if unknown else changes

        in_arrow = where is None and not unknown
        table = rows.table() if isinstance(rows, ArrowChanges) and in_arrow else None
        if table is not None and deleted is not None:
            table = with_arrow_deletion_times(table, deleted)
        changes = frame() if table is None else ArrowRows(table, frame)
        names = table.column_names if table is not None else frame().columns
        partial_rows = ABSENT_COLUMN in names
        spec = TableSpec(
            fields,
            self._key(schema),
            create=True,
            on_new_column="add",
            deleted_column=deleted,
            partial_rows=partial_rows,
            position_column=position,
            layout=self.rules.layout(self.table, [each.name for each in fields]),
        )
        repeat_conflicts(partial(self._commit, spark, changes, target, spec, schema))

    def _merge_versions(self, changes: DataFrame, target: TableTarget, schema: TableSchema) -> None:
        tracked = self.rules.track_history(self.table)
        fields = tuple(each for each in changes.schema.fields if each.name not in (ROW_KIND, PLACE))
        spec = TableSpec(
            (*fields, *version_fields(changes, (PLACE,))),
            self._key(schema),
            create=True,
            on_new_column="add",
            versions=True,
            layout=self.rules.layout(self.table, [each.name for each in fields]),
        )
        ApplyVersions(target, spec, (PLACE,), tracked, one_partition=True)(changes, 0)

    def _require_target(self, sink: Sink, target: TableTarget) -> None:
        """Raise an error if the target had rows in earlier runs, and is missing.

        Raises
        ------
        TargetMissingError
        """
        is_started, self._started = self._started, True
        if not is_started and self._required_schema.facts.written and not sink.exists():
            raise TargetMissingError(
                f"{target} is missing, and this query wrote rows into it: a new table would have only "
                "the rows from now on. Restore it, or mount its storage again; or delete "
                f"{self.rules.store.file(self.table)}, and read its topics again in a query with a "
                "new checkpoint"
            )

    def _key(self, schema: TableSchema) -> tuple[str, ...]:
        shard = self._shard_column(schema)
        return schema.primary_key if shard is None else (*schema.primary_key, shard.name)

    def _commit(
        self,
        spark: SparkSession,
        changes: DataFrame | ArrowRows,
        target: TableTarget,
        spec: TableSpec,
        schema: TableSchema,
    ) -> None:
        sink, batch = target.sink(spark), running_batch(spark)
        if self._prepared is None:
            require_merged(spark, target)
        if self._prepared != schema:
            sink.prepare(spec)
            self._prepared = schema
        if isinstance(changes, ArrowRows):
            sink.merge_arrow(changes, spec)
            return
        sink.merge(
            changes,
            spec,
            None if batch is None else partial(self.rules.store.keep_rows, self.table, batch),
        )


def _frame(spark: SparkSession, rows: DataFrame | ArrowChanges) -> DataFrame:
    return rows.frame(spark) if isinstance(rows, ArrowChanges) else rows


@contextmanager
def _partial_rows_again() -> Iterator[None]:
    """Suppress the error for a row that lacks columns.

    One task then completes the row if its key changed, and otherwise raises the error again.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if not explain_error(error).startswith(f"[{PartialImageError.condition}]"):
            raise


def _require_columns_of(where: str, changes: DataFrame) -> None:
    """Raise an error for a partial row without a column that a condition reads.

    The table cannot complete it: it does not have a row for which the condition was not true.
    """
    from pyspark.sql import functions as F

    filtered: Any = changes.where(where)
    read = {
        attribute.name()
        for attribute in elements(
            filtered._jdf.queryExecution().analyzed().condition().references().toSeq()
        )
    }
    names = [name for name in changes.columns if name not in (ROW_KIND, ABSENT_COLUMN, BASE_COLUMN)]
    for index, name in enumerate(names):
        lost = (
            changes.alias("s").where(F.col(ROW_KIND).isin(*ADDS)).where(is_absent(index)).first()
            if name in read
            else None
        )
        if lost is not None:
            raise partial_row(
                f"where reads its column {quote(name)}: use another condition",
                lost[ABSENT_COLUMN].split()[1],
            )


def _require_free(column: str, schema: TableSchema, what: str, remedy: str) -> None:
    """Raise an error if the source has a column with the name of one that is added to the table."""
    names = {*schema.names, *schema.primary_key}
    taken = [name for name in names if name.lower() == column.lower()]
    if taken:
        raise SyncError(f"its column {quote(taken[0])} has the name of {what}: {remedy}")
