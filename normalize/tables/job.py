"""The job of one table: its records of a micro-batch become rows of its target.

Three steps, in this order:

1. decide the schema: that of the table's file, or of its first records, and the columns that are
   new (`schema.next_schema`)
2. change the table: create it, or add columns (`Sink.prepare`)
3. write the changes: the last of each key, or every version (`Sink.merge`)

`sync_table` runs one job, and `sync_database` one for each table that its router finds.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import BinaryType, StructField

from cdc_formats.decoding.rows import check_masks, result_columns
from cdc_formats.errors import (
    DECODE_CONDITIONS,
    DecodeError,
    PartialImageError,
    refuse,
)
from cdc_formats.events import Ignored
from cdc_formats.values.masks import Masks
from cdc_formats.values.schema import Column, quote
from normalize.arguments import names_of
from normalize.core.arrow import spark_ddl
from normalize.core.guard import Expected, Identity
from normalize.core.output import ROW_KIND
from normalize.core.records import WITHOUT_POSITION, header_lists
from normalize.decode.columnar import decoder_of
from normalize.decode.plan import DecodePlan
from normalize.kafka.reader_options import decodes_natively
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.progress import DECODERS, PROOFS, TableProgress, publish
from normalize.monitoring.watch import Notice, log, shown_names
from normalize.spark.micro_batch import one_batch, running_batch
from normalize.spark.packed import batches_in
from normalize.spark.plans import in_session
from normalize.spark.sessions import java_error_types

from .batches import is_repeat, show_in_checkpoint
from .changes import (
    PLACE,
    SUMMARY,
    ArrowChanges,
    PassSummary,
    TableDecoder,
    table_changes,
)
from .expressions import (
    check_expressions,
    computed_fields,
    selected,
    with_arrow_deletion_times,
    with_deletion_times,
)
from .facts import (
    GuardFacts,
    Proof,
    TableFacts,
    checked_facts,
    checked_guard,
    require_same_options,
)
from .history import ApplyVersions, version_fields
from .layout import in_lower
from .maintenance import maintained
from .merge import ABSENT_COLUMN, BASE_COLUMN
from .query import Query, records_of
from .route import Router, TableSummary
from .schema import (
    Record,
    TableSchema,
    ignored_arguments,
    next_schema,
    open_types,
    questions_text,
    spark_field,
    wider_column,
    with_options,
)
from .table_options import (
    AS_IS,
    OpenQuestionError,
    Selection,
    SyncError,
    TablePolicy,
    wrong_options,
)
from .table_spec import END_AT, START_AT, TableSpec, with_comments
from .targets import (
    ArrowRows,
    Replacement,
    Sink,
    TableTarget,
    TargetMissingError,
    most_changes,
    repeat_conflicts,
)

_log = logging.getLogger("normalize")
BAD_RECORDS = (*DECODE_CONDITIONS, DecodeError.condition)
_NOT_APPLIED = (*BAD_RECORDS, Ignored.TRUNCATE.value)
ROUTED_COLUMNS = frozenset({"key", "value", "topic", "partition", "offset", "timestamp", "headers"})
"""The columns of Kafka's records that a table's records have."""


@dataclass
class TableRecords:
    """The records of one table in a micro-batch.

    Parameters
    ----------
    rows : DataFrame or pyarrow.Table
        The columns of `RECORD_DDL`. A router's have those of `ROUTED_DDL`; if they are few, they are
        on the driver, with the columns of `RECORD_DDL`.
    summary : TableSummary
        What a router found of them; without a router only the name of the table.
    decoded : bool
        Whether tasks decoded them by `TableJob.decoder`, and the rows are their changes.
    """

    rows: DataFrame | pa.Table
    summary: TableSummary
    decoded: bool = False


@dataclass
class TableJob:
    """Keeps one table equal to its source; for ``foreachBatch``, or called by a router.

    Parameters
    ----------
    table : str
        The source table.
    query : Query
    policy : TablePolicy
    of : type
        The class of its target.
    target_name : callable
        Returns the name of its target; raises `TargetError` when there is none.
    target : callable
        Returns the target with a name.
    remedy : callable
        Returns what to pass so that an option of the table has another value.
    max_columns : (int, str)
        Same as in `next_schema`.
    routed : bool
        Whether a router chose its records, which then are all of this table.
    guesses : bool
        Whether columns are written whose types are guesses.
    schema : TableSchema
        Without columns until the table's first micro-batch.
    decoder : TableDecoder or None
        What decoded the last micro-batch of a router.
    records : int
        The records that were applied since the query started.
    lost : int
        The records that were not, because the table is stopped.
    """

    table: str
    query: Query = field(repr=False)
    policy: TablePolicy
    of: type[TableTarget]
    target_name: Callable[[], str] = field(repr=False)
    target: Callable[[str], TableTarget] = field(repr=False)
    remedy: Callable[[str], str] = field(repr=False)
    max_columns: tuple[int, str]
    routed: bool
    guesses: bool
    schema: TableSchema
    decoder: TableDecoder | None = field(default=None, repr=False)
    records: int = 0
    lost: int = 0
    _ignored: set[str] = field(default_factory=set)
    _maintained: float = field(default_factory=time.monotonic, repr=False)
    _prepared: tuple[Column, ...] = ()
    _started: bool = False
    _usable: tuple[Column, ...] | None = None
    _schema_changes: int = 0
    _sinks: dict[str, Sink] = field(default_factory=dict, repr=False)
    _noted: DecodePlan | None = field(default=None, repr=False)
    _verifier: Verifier | None = field(default=None, repr=False)

    def load(self) -> None:
        """Read the table's file."""
        self.schema = self.query.store.read(self.table) or TableSchema(self.table)

    @property
    def kept_target_name(self) -> str:
        """The name of the target that has its rows, or will have them.

        Raises
        ------
        TargetError
            When the name cannot be computed.
        """
        return self.schema.facts.target or self.target_name()

    @property
    def owns_target(self) -> bool:
        """Whether its target may have rows of it."""
        return bool(self.schema.columns)

    def stop(self, reason: str, records: int) -> None:
        """Stop the table, also after a restart, before it applied so many records."""
        self._keep(msgspec.structs.replace(self.schema, stopped=reason))
        self.miss(records)

    def miss(self, records: int) -> None:
        """Count records that are not applied, because the table is stopped."""
        self.lost += records
        self._publish(missed=records, stopped=True)

    def __call__(self, batch: DataFrame, number: int) -> None:
        """Apply a micro-batch whose records are all of this table.

        Raises
        ------
        SyncError
            Same as in `sync_table`; for an error of Java, of which py4j shows the whole trace; and for a
            row that its table cannot complete.
        """
        with one_batch(batch.sparkSession):
            records = in_session(self.query.spark, records_of(batch))
            try:
                self.apply(TableRecords(records, TableSummary(self.table)))
            except java_error_types(PartialImageError) as error:
                raise SyncError(f"{self.table}: {explain_error(error)}") from None
            self.maintain()
            self._verifier = verify_part([self], self._verifier)

    def maintain(self) -> None:
        """Maintain the target, if it is due."""
        options = self.policy.maintenance
        if options is not None and self.owns_target and not self.schema.stopped:
            target = self.target(self.kept_target_name)
            self._maintained = maintained(self.query.spark, target, options, self._maintained)

    def keep_proof(self, verified: Proof, verifying: Proof, different: int, text: str) -> None:
        """Keep how far the table is compared with its source, and show it.

        Parameters
        ----------
        verified, verifying : Proof
            Same as in `TableFacts`.
        different : int
            The keys that are known to differ.
        text : str
            The same for ``cdc status``.
        """
        schema = self.schema.with_facts(verified=verified, verifying=verifying)
        if schema != self.schema:
            self._keep(schema)
        if (batch := running_batch(self.query.spark)) is not None:
            show_in_checkpoint(self.query.spark, batch, PROOFS, self.table, progress=text)
            gauges = {"table_differences": float(different)}
            if verified.at:
                at = datetime.fromisoformat(verified.at).timestamp()
                gauges["table_verified_timestamp_seconds"] = at
            publish(TableProgress(query=batch.query, table=self.table, proof=gauges))

    def apply(self, records: TableRecords) -> None:
        """Apply the table's records of a micro-batch to its target."""
        started = time.monotonic()
        sink = self.sink(self.target_name())
        if not self._decide_schema(records, sink):
            return
        of_tasks = self.decoder if records.decoded else None
        decoder = of_tasks or self._decoder(records.summary)
        typed = decoder.every or self.policy.is_computed or isinstance(records.rows, pa.Table)
        most_bytes = None if typed or not sink.takes_arrow else most_changes()
        with (
            nullcontext(decoder.changes(records.rows))
            if records.decoded
            else table_changes(records.rows, decoder, most_bytes)
        ) as (rows, result):
            facts = self._checked(result, decoder.plan)
            if result.rows:
                columns = self._write(rows, decoder, sink)
                facts = msgspec.structs.replace(facts, written=True, columns=columns)
            # After the rows: until then, the micro-batch is compared with the state before it.
            if facts != self.schema.facts:
                self._keep(msgspec.structs.replace(self.schema, facts=facts))
        if self.routed:
            self.decoder = decoder.with_seen(records.summary)
        self._report(result, sink.written, time.monotonic() - started)

    def _decoder(self, summary: TableSummary) -> TableDecoder:
        """Return what decodes a micro-batch, whose columns the table's schema has."""
        plan, spark = self.plan(self.schema), self.query.spark
        if plan != self._noted:
            self._noted, text = plan, decoder_of(plan)
            _log.info("%s is decoded by %s", self.table, text)
            show_in_checkpoint(spark, running_batch(spark), DECODERS, self.table, decoder=text)
        ids = dict[str, str]()
        if self.policy.position_column is not None and not plan.positions:
            described = self.query.topics(summary.topics)
            ids = {name: topic.topic_id for name, topic in described.items()}
        decoder = self._decoder_of(plan, ids)
        return decoder if self.decoder is None else decoder.with_seen(self.decoder)

    def _decoder_of(self, plan: DecodePlan, topic_ids: Mapping[str, str]) -> TableDecoder:
        policy, names = self.policy, (column.name for column in plan.columns)
        shard, position = policy.shard, policy.position_column
        return TableDecoder(
            plan, shard, policy.is_history, position, topic_ids, names=frozenset(names)
        )

    def decodes(self, summary: TableSummary) -> bool:
        """Return whether the decoder is that of the table's schema, and tasks decoded all by it."""
        decoder, schema = self.decoder, self.schema
        return (
            decoder is not None
            and not summary.undecoded
            and summary.topics <= decoder.topics
            and (decoder.plan.columns, decoder.plan.unique_key)
            == (schema.columns, schema.primary_key)
        )

    def sink(self, name: str) -> Sink:
        """Return what writes the target with a name, or a table beside it, in this run."""
        if name not in self._sinks:
            self._sinks[name] = self.target(name).sink(self.query.spark)
        return self._sinks[name]

    # ----------------------------------------------------------------------------------------------
    # decide the schema

    def _decide_schema(self, records: TableRecords, sink: Sink) -> bool:
        """Keep the schema for a micro-batch; False for deletes in a table that never had a row.

        What it depends on is compared with what is kept, and kept with it.
        """
        before, summary = self.schema if self.owns_target else None, records.summary
        if before is None and not summary.rows and not self.policy.declared:
            if not sink.needed(TableSpec((), ())):
                # The deletes may affect rows of the table, whose type of the key is unknown.
                raise SyncError(
                    "its first records are deletes, from which no schema can be inferred, and "
                    f"{sink.table} exists: pass tables={{{self.table!r}: TableOptions(schema=..., "
                    "primary_key=[...])}"
                )
            return False
        if before is not None:
            # A contradiction is an error before a new column is.
            before = self._with_facts(before, summary.source_keys, summary.topics)
        schema, ignored = next_schema(
            self.table,
            before,
            summary.names - self._ignored,
            partial(self._samples, records),
            format=self.query.format,
            passed_options=self.query.passed_options,
            options=self.policy,
            on_new_column=self.query.on_new_column,
            max_columns=self.max_columns,
        )
        self._require_answers(schema, () if before is None else before.names)
        self.require_usable(schema)
        added = schema.columns if before is None else schema.columns[len(before.columns) :]
        if before is None:
            schema = self._with_facts(schema, summary.source_keys, summary.topics)
            self._say(f"new table, {schema.described()}")
        elif added:
            masks = self._masks(schema).facts
            schema = schema.with_facts(masks=masks)
            self._keep(schema)
            self._say(f"new columns, {', '.join(map(str, added))}")
        self._schema_changes += bool(added)
        if ignored:
            self._ignored.update(ignored)
            self._say(
                f"the new columns {shown_names(ignored)} are ignored (on_new_column='ignore')"
            )
        self._ask(schema)
        return True

    def _with_facts(
        self, schema: TableSchema, source_keys: Collection[tuple[str, ...]], topics: Collection[str]
    ) -> TableSchema:
        """Return the schema with the facts of a micro-batch, which are kept."""
        seen = TableFacts(
            self.target_name(),
            tuple(source_keys),
            tuple(topics),
            masks=self._masks(schema).facts,
            position_column=self.policy.position_column or "",
            options=self.policy.facts,
        )
        facts = checked_facts(
            schema.facts,
            seen,
            schema.primary_key,
            user_key=bool(names_of(self.policy.primary_key)),
            file=self.query.store.file(self.table),
            columns=schema.names,
        )
        checked = msgspec.structs.replace(schema, facts=facts)
        if checked != self.schema:
            self._keep(checked)
        return checked

    def _samples(self, records: TableRecords) -> dict[str, list[Record]]:
        """Return each shard's records from which a schema is inferred, in the order of the topic."""
        if records.decoded:
            return {}
        table = records.rows
        if not isinstance(table, pa.Table):
            values = table.where("sample").select("ipc").toArrow()
            table = pa.Table.from_batches(batches_in(values.column(0)))
        ordered = table.sort_by(
            [(name, "ascending") for name in ("stamp", "topic", "partition", "offset")]
        )
        headers = header_lists(ordered.column("headers").combine_chunks())
        keys, values, topics = (
            ordered.column(name).to_pylist() for name in ("key", "value", "topic")
        )
        router = None if self.policy.shards is None else Router(self.query.format, Selection())
        samples = dict[str, list[Record]]()
        for topic, *parts in zip(topics, keys, values, headers, strict=True):
            record = tuple(parts)
            shard = self.table if router is None else router.route(topic, *record).table
            samples.setdefault(shard, []).append(record)
        return samples

    def _keep(self, schema: TableSchema) -> None:
        """Write the table's file, unless another driver is ahead of this one.

        Raises
        ------
        BatchOrderError
        """
        batch = running_batch(self.query.spark)
        if batch is not None and schema.facts.written:
            is_repeat(batch, self.sink(schema.facts.target).record(batch), schema.facts.target)
        self.query.store.write(schema)
        self.schema = schema

    def _say(self, text: str) -> None:
        _log.warning(
            "%s: %s. Edit %s to change it", self.table, text, self.query.store.file(self.table)
        )

    def _open_questions(self, schema: TableSchema, known: Collection[str] = ()) -> dict[str, str]:
        return open_types(schema, self.policy, self._masks(schema), known)

    def _require_answers(self, schema: TableSchema, known: Collection[str]) -> None:
        """Raise an error for the questions on new columns.

        Raises
        ------
        OpenQuestionError
        """
        questions = {} if self.guesses else self._open_questions(schema, known)
        if questions:
            raise OpenQuestionError(
                "its messages do not show the types of columns, "
                f"{questions_text(schema.columns, questions)}: {self.remedy('types')} with the type "
                f"of each, or {AS_IS!r} if the type shown is right"
            )

    def _ask(self, schema: TableSchema) -> None:
        """Warn of columns whose types are guesses: once in a process, however often the query starts."""
        file, questions = self.query.store.file(self.table), self._open_questions(schema)
        right = f"write {AS_IS!r} for it into types= of tables=, or " if self.routed else ""
        text = (
            f"{self.table}: the types of {shown_names([*questions])} are guesses, and {file} has the "
            f"questions. If one is right, {right}delete its question. Otherwise pass its type in "
            f"{'types= of tables=' if self.routed else 'schema='}, and start anew, without the "
            "table, this file and the checkpoint"
        )
        log([Notice(tuple(f"{file} {name}" for name in questions), text)])

    def with_remedy(self, records: TableRecords, text: str) -> str:
        """Return the text of an error.

        For a value that does not fit its column, it includes the statements that widen the column.
        """
        samples = partial(self._samples, records)
        columns = wider_column(text, self.schema, samples, self.query.format)
        if columns is None or self._masks(self.schema).kind(columns[0].name) is not None:
            return text
        (column, wide), sink = columns, self.sink(self.target_name())
        in_key = column.name in self.schema.primary_key
        statements = sink.widen(spark_field(column), spark_field(wide), in_key=in_key)
        then = (
            f"run {'; '.join(statements)}"
            if statements
            else f"convert the column of {sink.table}, whose format has no statement for it"
        )
        file = self.query.store.file(self.table)
        return (
            f"{text}. To widen the column, write {str(wide)!r} into {file}, {then}, and restart the "
            "query"
        )

    # ----------------------------------------------------------------------------------------------
    # check what the user says

    def check(self, argument: str) -> None:
        """Check the table's options with the columns that are known when the query is defined.

        A warning names the file if its columns or key differ from the options'.

        Parameters
        ----------
        argument : str
            The user's argument with the options, for errors.

        Raises
        ------
        ArgumentError
        """
        policy, kept = self.policy, self.schema
        key, file = names_of(policy.primary_key), self.query.store.file(self.table)
        if kept.stopped:
            return
        if kept.columns:
            ignored = ignored_arguments(kept, policy.declared, key)
            if ignored:
                _log.warning(
                    "%s: %s. The table's file decides: to change the table, edit %s while the "
                    "query is stopped",
                    self.table,
                    "; ".join(ignored),
                    file,
                )
        else:
            written = (column for column in policy.declared if policy.writes(column.name))
            kept = TableSchema(self.table, tuple(written), key)
        position, positions = policy.position_column, kept.facts.position_column
        if positions and position is None:
            _log.warning(
                "%s: position_column is not set, and its rows have positions in %r: rows that "
                "change get the position NULL, and their next redelivery is applied",
                self.table,
                positions,
            )
        with wrong_options(argument):
            seen = TableFacts(position_column=position or "", options=policy.facts)
            require_same_options(kept.facts, seen, file)
            self.require_usable(kept)

    def require_usable(self, schema: TableSchema) -> None:
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
        policy = self.policy
        require_columns(schema, policy, self.of, self.remedy)
        if policy.is_computed:
            columns = schema.columns and result_columns(schema.columns, self._masks(schema))
            shard = [] if policy.shard is None or not columns else [policy.shard]
            rows = self.query.spark.createDataFrame([], spark_ddl([*columns, *shard]))
            check_expressions(rows, policy.where, policy.select, self._key(schema))
        self._usable = schema.columns

    def check_target(self, schema: TableSchema) -> None:
        """Raise an error if the target cannot have a schema; the table is not created.

        Raises
        ------
        ChangelogError
        """
        self.require_usable(schema)
        self.sink(self.target_name()).needed(
            self.required_columns(self._fields(schema), self._key(schema))
        )

    # ----------------------------------------------------------------------------------------------
    # the changes

    def _masks(self, schema: TableSchema) -> Masks:
        """Return the masks of the table's columns, and warn of those for columns it does not have."""
        masks, columns = self.query.format.handling.masks, schema.names
        unused = {*masks.unused({self.table: columns})}.intersection(masks.naming(self.table))
        if unused:
            file, names = self.query.store.file(self.table), sorted(unused)
            text = (
                f"{self.table}: mask has {shown_names(names)}, which is not one of its columns: "
                f"{shown_names(columns)}. If it is misspelt, the column is written without a mask"
            )
            log([Notice(tuple(f"{file} mask {name}" for name in names), text)])
        return masks.of_columns(columns, self.table)

    def plan(self, schema: TableSchema) -> DecodePlan:
        """Return the arguments of the decode pass."""
        query, policy, masks = self.query, self.policy, self._masks(schema)
        format = with_options(query.format, schema)
        if query.format.handling.masks:
            format = replace(format, mask=masks)
            check_masks(masks, schema.columns, schema.primary_key)
        # A format that reads null values has a topic for each table.
        by_name = policy.shard_column is not None and not format.traits.reads_tombstones
        parts = tuple(format.traits.table_identity) if by_name else ()
        return DecodePlan(
            format=format,
            columns=schema.columns,
            unique_key=schema.primary_key,
            metadata=dict(zip(parts, parts, strict=True)),
            distinguished_by=()
            if policy.shards is None
            else (*format.traits.table_identity, "topic"),
            mode=query.mode,
            dead_letters=query.dead_letters,
            on_truncate=query.on_truncate,
            positions=policy.position_column is not None and not format.traits.positions,
            record_columns=ROUTED_COLUMNS,
            completes_moved=True,
            native=decodes_natively(query.kafka),
        )

    def _checked(self, seen: PassSummary, plan: DecodePlan) -> TableFacts:
        """Return the table's facts after a micro-batch, whose records contradict nothing kept."""
        topics = {each.topic for each in seen.partitions}
        described = self.query.topics(topics)
        expected = Expected(
            Identity() if self.routed else plan.identity,
            {topic: each for topic, each in described.items() if topic in topics},
        )
        batch, kept = running_batch(self.query.spark), self.schema.facts.guard
        if batch is None:
            # No query reads the records: they are compared with each other.
            checked_guard(GuardFacts(), seen.partitions, expected, query="", batch=0)
        else:
            number = batch.number
            kept = checked_guard(kept, seen.partitions, expected, query=batch.query, batch=number)
        if not self.routed:
            self._with_facts(self.schema, seen.source_keys, topics)
        return msgspec.structs.replace(self.schema.facts, guard=kept)

    # ----------------------------------------------------------------------------------------------
    # change the table, and write the changes

    def _write(
        self,
        rows: DataFrame | ArrowChanges,
        decoder: TableDecoder,
        sink: Sink,
    ) -> tuple[str, ...]:
        """Write the changes, and return the columns of the target that have them.

        Raises
        ------
        TargetMissingError
            When the target had rows in earlier runs, and is missing.
        """
        is_started, self._started = self._started, True
        if not is_started and self.schema.facts.written and not sink.exists():
            raise TargetMissingError(
                f"{sink.table} is missing, and this query wrote rows into it: a new table would have "
                "only the rows from now on. Restore it, or mount its storage again; or delete "
                f"{self.query.store.file(self.table)}, and read its topics again in a query with a "
                "new checkpoint"
            )
        if decoder.every:
            changes = self._selected(rows)
            fields = with_comments(
                (each for each in changes.schema.fields if each.name not in (ROW_KIND, PLACE)),
                self.schema.comments,
            )
            validity = version_fields(changes, (PLACE,))
            spec = replace(
                TableSpec.of(self.policy, fields, self._key(self.schema), validity=validity),
                written=self.schema.facts.columns,
            )
            history = ApplyVersions(spec, (PLACE,), self.policy.track_history, one_partition=True)
            history(changes, sink)
        else:
            spec = self._write_last(rows, sink, decoder.written_fields)
        sink.table.refresh(self.query.user_session)
        return tuple(spec.names)

    def _write_last(
        self,
        rows: DataFrame | ArrowChanges,
        sink: Sink,
        fields: tuple[StructField, ...],
    ) -> TableSpec:
        """Write the last change of each key."""
        deleted, position = self.policy.deleted_column, self.policy.position_column
        # The position of an earlier change would drop changes that are newer than the row.
        unknown = self.schema.facts.position_column if position is None else ""
        if unknown:
            fields = (*fields, StructField(unknown, BinaryType()))
            # Soft deletes write it too, which needs no comparison with NULL.
            position = unknown if deleted is not None and sink.table.positions else None

        if self.policy.select:
            fields = computed_fields(self._selected(rows), fields, self.policy.select)
        fields = with_comments(fields, self.schema.comments)

        @cache
        def frame() -> DataFrame:
            changes = self._selected(rows)
            if deleted is not None:
                changes = with_deletion_times(changes, deleted)
            return changes.withColumn(unknown, F.lit(None).cast("binary")) if unknown else changes

        in_arrow = not self.policy.is_computed and not unknown
        table = rows.table() if isinstance(rows, ArrowChanges) and in_arrow else None
        if table is not None and deleted is not None:
            table = with_arrow_deletion_times(table, deleted)
        spec = replace(
            TableSpec.of(self.policy, fields, self._key(self.schema)),
            partial_rows=ABSENT_COLUMN
            in (frame().columns if table is None else table.column_names),
            position_column=position,
            written=self.schema.facts.columns,
        )

        def commit() -> None:
            """Change the table if its columns are new here, and merge the changes."""
            if self._prepared != self.schema.columns:
                sink.prepare(spec)
                self._prepared = self.schema.columns
            try:
                if table is None:
                    sink.merge(frame(), spec)
                else:
                    sink.merge_arrow(ArrowRows(table, frame), spec)
            except AnalysisException:
                sink.prepare(spec)  # raises the error of a column that the table lost meanwhile
                raise

        repeat_conflicts(commit)
        return spec

    def _selected(self, rows: DataFrame | ArrowChanges) -> DataFrame:
        frame = rows.frame(self.query.spark) if isinstance(rows, ArrowChanges) else rows
        return selected(frame, self.policy.where, self.policy.select)

    def replacement(self, schema: TableSchema, *, remove_missing: bool) -> Replacement:
        """Return how the rows of its target are replaced by those of another table."""
        policy, written = self.policy, [field.name for field in self._fields(schema)]
        added = filter(None, (policy.deleted_column, schema.facts.position_column))
        names = tuple(dict.fromkeys([*written, *policy.select, *added]))
        return Replacement(names, self._key(schema), policy.deleted_column, remove_missing)

    def _fields(self, schema: TableSchema) -> tuple[StructField, ...]:
        """Return the columns of the source that are written, with the position."""
        return self._decoder_of(self.plan(schema), {}).written_fields

    def required_columns(self, fields: Iterable[StructField], key: tuple[str, ...]) -> TableSpec:
        """Return the columns that its target requires, of which it may lack some."""
        columns, policy = tuple(fields), self.policy
        layout = policy.layout_of([each.name for each in columns])
        return TableSpec(columns, key, deleted_column=policy.deleted_column, layout=layout)

    def _key(self, schema: TableSchema) -> tuple[str, ...]:
        shard = self.policy.shard_column
        return schema.primary_key if shard is None else (*schema.primary_key, shard)

    # ----------------------------------------------------------------------------------------------
    # report

    def _report(
        self, result: PassSummary, written: Mapping[str, str] | None, seconds: float
    ) -> None:
        """Warn of records that were not applied, and publish what was."""
        counts, records, torn = result.counts, result.counts.get("RECORDS") or 0, result.torn
        dropped = [name for name in _NOT_APPLIED if counts.get(name)]
        if dropped:
            shown = (f"{counts[name]} records not applied ({name})" for name in dropped)
            _log.warning("%s: %s", self.table, ", ".join(shown))
        if number := counts.get(WITHOUT_POSITION):
            _log.warning(
                "%s: %s changes have no position in the source's log, and replace their rows as "
                "they arrive",
                self.table,
                number,
            )
        if torn and self.policy.position_column is None:
            has_positions = self.query.format.traits.positions
            remedy = "" if has_positions else f", or {self.remedy('position_column')}"
            text = (
                f"{self.table}: {torn} keys have records in several Kafka partitions, which only "
                "their timestamps order: their rows may be older than the source's. Let the "
                f"producer use the primary key as the Kafka key{remedy}"
            )
            log([Notice((f"{self.query.store.file(self.table)} torn",), text)])
        self.records += records
        if records:
            now, stamps = time.time(), zip(("oldest", "newest"), result.stamps, strict=False)
            self._publish(
                records=records,
                rows=result.rows,
                bad={name: counts[name] for name in dropped if name in BAD_RECORDS},
                lag={of: now - stamp / 1000 for of, stamp in stamps},
                torn=torn,
                **(written or {}),
            )
        _log.info("%s: %s records applied in %.1f s", self.table, records, seconds)

    def _publish(self, **progress: Any) -> None:
        if (batch := running_batch(self.query.spark)) is not None:
            publish(
                TableProgress(
                    query=batch.query,
                    table=self.table,
                    batch=batch.number,
                    schema_changes=self._schema_changes,
                    open_questions=len(self._open_questions(self.schema)) * self.owns_target,
                    **progress,
                )
            )
            self._schema_changes = 0


Verifier = Callable[[Collection[TableJob]], None]
"""What compares parts of tables with their sources."""


def verify_part(jobs: Collection[TableJob], verifier: Verifier | None) -> Verifier | None:
    """Compare parts of the tables after a micro-batch, if their options say so.

    `verifier` is what compared them before. Returned is what does so now.
    """
    options = next((each.policy.verify for each in jobs if each.policy.verify), None)
    if options is not None:
        verifier = verifier or options.verifier()
        verifier(jobs)
    return verifier


def require_columns(
    schema: TableSchema,
    policy: TablePolicy,
    of: type[TableTarget],
    remedy: Callable[[str], str],
) -> None:
    """Raise an error if a table's options cannot be used with its columns.

    Raises
    ------
    SyncError
        When the source has a column with the name of one that the table gets.
    ArgumentError
        When a history or a layout has a column that is not written.
    """
    of_query = (ROW_KIND, ABSENT_COLUMN, BASE_COLUMN, PLACE, SUMMARY)
    of_history = (START_AT, END_AT) if policy.is_history else ()
    own = [
        *((name, "a column of the query", "exclude_columns") for name in of_query),
        *((name, "a column of a history", "exclude_columns") for name in of_history),
        (policy.position_column, "position_column", "position_column"),
        (policy.deleted_column, "deleted_column", "deleted_column"),
        (policy.shard_column, "shard_column", "shard_column"),
    ]
    names = {name.lower(): name for name in {*schema.names, *schema.primary_key, *policy.select}}
    refuse(
        *(
            (
                name.lower() in names,
                f"its column {quote(names.get(name.lower(), name))} has the name of {what}: "
                f"{remedy(option)}",
            )
            for name, what, option in own
            if name is not None
        ),
        error=SyncError,
    )
    if not schema.columns:
        return
    lower = in_lower(schema.names)
    written = [*schema.names, *(name for name in policy.select if name.lower() not in lower)]
    refuse(
        *(
            (
                name not in written,
                f"track_history has {name!r}, which is not one of its columns: {', '.join(written)}",
            )
            for name in policy.track_history
        )
    )
    written += filter(None, (policy.deleted_column, policy.position_column, policy.shard_column))
    layout = policy.layout_of(written)
    layout.require_columns(written)
    of.check_layout(layout, written)
