"""The queries of the readers and of `ChangelogNormalize`.

This is the only module that knows the plan, the first pass and the engines.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from cdc_formats.decoding.rows import result_columns
from cdc_formats.errors import ArgumentError, SchemaError, refuse
from cdc_formats.events import Ignored
from cdc_formats.format import Format
from cdc_formats.values.schema import Column, quote
from normalize.arguments import as_mode, check_choice, metadata_columns, names_of
from normalize.core.changes import Shape
from normalize.core.guard import Expected
from normalize.core.key_group import Stage
from normalize.core.output import ROW_KIND, SIDE_OUTPUTS, Mode, Output
from normalize.core.records import DECODE_COUNTS
from normalize.dataframe import (
    positional,
    require_changelog,
    require_distinct,
    table_columns,
    with_changelog_mode,
    with_frame_types,
    with_text,
)
from normalize.decode.collectors import Blocks, CollectorMaker, SortedBlocks, TypedRows
from normalize.decode.columnar import decoder_of
from normalize.decode.decode_pass import decode_pass
from normalize.decode.last_changes import LastChanges, merged
from normalize.decode.pack_pass import pack_pass
from normalize.decode.plan import (
    KAFKA_METADATA,
    RECORD_COLUMNS,
    DecodePlan,
    RecordInput,
    records as records_of,
)
from normalize.engines.condition import filtered, require_condition
from normalize.engines.key_groups import normalize_bounded, normalize_stream
from normalize.engines.native import check_session, facts_of, normalize_native
from normalize.kafka.dead_letter import DeadLetter, destination_of
from normalize.kafka.reader_options import decodes_natively
from normalize.kafka.topics import TopicIds
from normalize.monitoring.watch import COLUMN as COUNTS_COLUMN, COUNTS_DDL, observe_counts, reporter
from normalize.stage_options import (
    NativeEngine,
    StageOptions,
    StagePlan,
    ignored_columns,
    make_plan,
    make_stage,
)

_log = logging.getLogger("normalize")
_MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
_WITH_VALUES = ("headers", "header-list", "source.properties")
"""Metadata that may have values of masked columns: the key that a row had before, the statement that
wrote it."""
_CONTROL_EVENTS = {reason.value: reason for reason in Ignored}
_ALL_CONTROL_EVENTS = frozenset(Ignored) - {Ignored.TOMBSTONE, Ignored.OTHER_TABLE}


@dataclass(frozen=True)
class Request:
    """Checked arguments: the plan of the first pass, the stage's options, and whether it is needed.

    Parameters
    ----------
    plan : DecodePlan
    options : StageOptions
    stage_plan : StagePlan
    records : RecordInput
    observation : str, Observation or None
    topics : TopicIds or None
        The ids of Kafka's topics that the workers compare; None if they are not known.
    """

    plan: DecodePlan
    options: StageOptions
    stage_plan: StagePlan
    records: RecordInput
    observation: Any
    topics: TopicIds | None = None

    @classmethod
    def check(
        cls,
        records: RecordInput,
        kafka_options: Mapping[str, str],
        *,
        format: Format,
        schema: str | StructType,
        primary_key: str | Sequence[str],
        normalize: StageOptions | bool | None,
        mode: Mode | DeadLetter,
        metadata: Mapping[str, str] | Sequence[str],
        changelog_mode: Literal["all", "upsert"],
        control_events: str | Sequence[str],
        on_truncate: Literal["fail", "ignore"],
        observation: Any,
    ) -> Request:
        """Return the request; raises on the driver when the arguments cannot be used.

        Parameters
        ----------
        records : RecordInput
        kafka_options : mapping
            The options of Spark's Kafka source; empty if the records do not come from Kafka.
        format, schema, primary_key, normalize, mode, metadata, changelog_mode, control_events,
        on_truncate, observation
            Same as `from_kafka_changelog`.

        Raises
        ------
        ArgumentError, SchemaError, FormatOptionError
        """
        check_choice("on_truncate", on_truncate, ("fail", "ignore"))
        _check_dead_letters(format, mode, records)
        requested = metadata_columns(metadata)
        _check_metadata(format, requested, records.columns)
        options, stage_plan = make_options(
            normalize,
            format,
            names_of(primary_key, "primary_key"),
            changelog_mode,
            metadata=tuple(requested),
        )
        table = table_columns(schema)
        key, key_metadata = _split_key(table, names_of(options.primary_key), requested)
        _require_stage(stage_plan, options, key_metadata)
        plan = DecodePlan(
            format=format,
            columns=table,
            unique_key=key,
            metadata=requested,
            mode="FAILFAST" if isinstance(mode, DeadLetter) else as_mode(mode, _MODES),
            dead_letters=destination_of(mode, format.identifier, kafka_options)
            if isinstance(mode, DeadLetter)
            else None,
            control_events=_control_events(control_events),
            on_truncate=on_truncate,
            topic=records.topic,
            key_groups=options.key_groups,
            drop_update_before=stage_plan.drop_update_before,
            positions=options.order == "source",
            ignored=ignored_columns(
                result_columns(table, format.handling.masks), key, names_of(options.ignore_columns)
            ),
            ignore_deletes=options.ignore_deletes,
            key_metadata=key_metadata,
            distinguished_by=_distinguished_by(format, stage_plan, requested, key_metadata),
            record_columns=records.columns,
            row_order=records.row_order,
            streaming=records.streaming,
            native=decodes_natively(kafka_options),
        )
        if plan.topic is None and plan.identity.compared and not stage_plan.normalize:
            remedy = (
                "read each topic in a separate call"
                if plan.row_order == "log"
                else "drop the column topic if there is only one"
            )
            raise ArgumentError(
                "the query may read several topics, and without ChangelogNormalize their tables "
                f"are not compared: add metadata=['topic'] to identify each row's topic, or {remedy}"
            )
        _check_order(plan, stage_plan)
        if options.native is not None:
            _check_native(plan)
        plan.decoder()  # raises here, on the driver, what the format cannot read
        _check_names(plan)
        _check_observation(observation, records.streaming)
        return cls(plan, options, stage_plan, records, observation)

    def stage(self) -> Stage | None:
        """Return the stage if the plan has one."""
        plan = self.plan
        if not self.stage_plan.normalize:
            return None
        return make_stage(
            self.options,
            plan.shape,
            plan.unique_key,
            streaming=self.records.streaming,
            mode=plan.mode,
            dead_letters=plan.dead_letters,
            key_metadata=plan.key_metadata,
            expected=Expected(
                plan.identity,
                by_source=plan.positions,
                has_positions=not plan.format.traits.positions,
                masks=plan.format.handling.masks.of_columns(
                    column.name for column in plan.columns
                ).facts,
            ),
            row_order=plan.row_order,
        )

    def changelog(self, raw: DataFrame, stage: Stage | None) -> DataFrame:
        """Return the changelog of a DataFrame of records."""
        spark, plan, observation = raw.sparkSession, self.plan, self.observation
        if self.options.native is not None:
            check_session(spark)
        _log.info(
            "%s of %s is decoded by %s",
            plan.format.identifier,
            plan.topic or "several topics",
            decoder_of(plan, keyed=stage is not None),
        )
        records, prefix = (
            records_of(raw, plan),
            observation or ("changelog" if self.records.streaming else None),
        )

        def decoded(collector: CollectorMaker, ddl: str) -> DataFrame:
            decode: Callable[..., Any] = partial(
                decode_pass,
                plan=plan,
                collector=collector,
                report=reporter(spark),
                topics=self.topics,
            )
            changes = records.mapInArrow(decode, f"{ddl}, {COUNTS_DDL}")
            if self.records.streaming:
                return observe_counts(changes, DECODE_COUNTS, f"{prefix}_decode")
            # The stage of a bounded read adds its own counts.
            return observe_counts(changes, DECODE_COUNTS, observation) if stage is None else changes

        if stage is None:
            rows = decoded(TypedRows, TypedRows.ddl(plan.output))
            return with_changelog_mode(
                with_frame_types(rows, plan.output.columns), self.stage_plan.changelog_mode
            )
        query = _Query(self.options, self.records, plan.output, decoded, prefix)
        return query.changelog(spark, stage)


def make_options(
    normalize: StageOptions | bool | None,
    format: Format,
    primary_key: tuple[str, ...],
    changelog_mode: Literal["all", "upsert"],
    *,
    metadata: tuple[str, ...] = (),
) -> tuple[StageOptions, StagePlan]:
    """Return the stage's options and the plan, for the argument `normalize` and those it completes.

    Raises
    ------
    ArgumentError
        When the arguments contradict each other, or a required primary key is missing.
    """
    if normalize is not None and normalize is not False and not isinstance(normalize, StageOptions):
        raise ArgumentError(
            f"normalize is {normalize!r}: use None, False or ChangelogNormalize(...)"
        )
    options = (normalize or StageOptions()).for_reader(primary_key, changelog_mode, metadata)
    stage_plan = make_plan(
        format.changelog_mode,
        names_of(options.primary_key),
        options.changelog_mode,
        options.source_duplicates,
        normalize=normalize is not False,
    )
    return options, stage_plan


def _check_metadata(
    format: Format, metadata: Mapping[str, str], record_columns: frozenset[str]
) -> None:
    available = {*format.metadata, *KAFKA_METADATA}
    for name in metadata.values():
        if format.handling.masks and name in _WITH_VALUES:
            raise ArgumentError(
                f"metadata has {name!r}, which may contain values of masked columns: remove it, or "
                "remove the format's option mask"
            )
        if name not in available:
            hint = ". Spark's Kafka source does not provide it" if name == "leader-epoch" else ""
            raise SchemaError(
                f"{format.identifier} has no metadata column {name!r}; it has "
                f"{', '.join(sorted(available))}{hint}"
            )
        if name not in format.metadata and RECORD_COLUMNS[name] not in record_columns:
            raise ArgumentError(
                f"metadata has {name!r}, which requires the column {RECORD_COLUMNS[name]} in the "
                f"DataFrame: add the column, or remove {name!r}"
            )


def _check_dead_letters(format: Format, mode: Mode | DeadLetter, records: RecordInput) -> None:
    # A dead letter of a masked record has only its offset.
    if format.handling.masks and isinstance(mode, DeadLetter) and records.row_order == "row":
        raise ArgumentError(
            "with the format's option mask, a dead letter has its record's offset and not its "
            "content: add the columns partition and offset to the DataFrame"
        )


def _split_key(
    columns: Sequence[Column], primary_key: tuple[str, ...], metadata: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the primary key's table columns and its metadata columns."""
    of_table = {column.name for column in columns}
    of_metadata = tuple(name for name in primary_key if name not in of_table and name in metadata)
    return tuple(name for name in primary_key if name not in of_metadata), of_metadata


def _distinguished_by(
    format: Format, stage_plan: StagePlan, metadata: Mapping[str, str], key_metadata: Sequence[str]
) -> tuple[str, ...]:
    """Return the metadata that distinguishes the rows of several tables."""
    tables = ("topic", *format.traits.table_identity)
    if not stage_plan.normalize and any(name in tables for name in metadata.values()):
        # Without a stage no rows are merged: a column that names the table is enough.
        return tables
    return tuple(metadata[name] for name in key_metadata)


def _require_stage(
    stage_plan: StagePlan, options: StageOptions, key_metadata: Sequence[str]
) -> None:
    """Raise an error for arguments that require the stage if the plan has none."""
    if stage_plan.normalize:
        return
    refuse(
        *(
            (
                True,
                f"primary_key has the metadata column {name!r}, which requires ChangelogNormalize, "
                f"and the plan does not have it: {stage_plan.reason}. Remove {name!r} from "
                "primary_key",
            )
            for name in key_metadata
        ),
        (
            options.set_options,
            f"{', '.join(options.set_options)} requires ChangelogNormalize, which the plan does not "
            f"have: {stage_plan.reason}",
        ),
    )


def _check_order(plan: DecodePlan, stage_plan: StagePlan) -> None:
    """Raise an error for a DataFrame that lacks columns which the order of its records requires."""
    orders = plan.row_order == "row" and stage_plan.normalize
    has_times = plan.streaming or "timestamp" in plan.record_columns
    refuse(
        (
            plan.format.traits.reads_key and "key" not in plan.record_columns,
            f"{plan.format.identifier} reads the record's key: add the column key to the DataFrame",
        ),
        (
            orders and plan.positions,
            "order='source' requires the columns partition and offset in the DataFrame: positions "
            "are compared in each Kafka partition",
        ),
        (
            orders and not has_times,
            "the rows of a bounded DataFrame have no order, which ChangelogNormalize requires: add "
            "the columns partition and offset, or timestamp; or pass normalize=False",
        ),
    )


def _check_native(plan: DecodePlan) -> None:
    """Raise an error for arguments that the native engine refuses."""
    refuse(
        (
            plan.permissive,
            "engine='native' and mode='PERMISSIVE' cannot be combined, since a corrupt record has "
            "no key: use DeadLetter(topic), DROPMALFORMED or FAILFAST",
        ),
        (
            plan.control_events,
            "engine='native' and control_events cannot be combined, since an event has no key: "
            "read the events in a second query, with normalize=False",
        ),
    )


def _control_events(names: str | Sequence[str]) -> frozenset[Ignored]:
    if names == "all":
        return _ALL_CONTROL_EVENTS
    unknown = [name for name in names_of(names) if name not in _CONTROL_EVENTS]
    if unknown:
        raise ArgumentError(
            f"control_events has {unknown[0]!r}: use {', '.join(_CONTROL_EVENTS)}, or 'all'"
        )
    return frozenset(_CONTROL_EVENTS[name] for name in names_of(names))


def _check_observation(observation: Any, streaming: bool) -> None:
    is_name = isinstance(observation, str)
    refuse(
        (
            not streaming and is_name,
            "observation of a bounded read must be a pyspark.sql.Observation, which returns the "
            "counts",
        ),
        (
            streaming and observation is not None and not is_name,
            "observation of a stream must be a string: the prefix of the metrics' names in the "
            "query's progress",
        ),
    )


def _check_names(plan: DecodePlan) -> None:
    # Spark ignores case in names by default: names that differ in case alone would be ambiguous.
    output = plan.output
    reserved = [ROW_KIND, *SIDE_OUTPUTS, COUNTS_COLUMN]
    names = [*reserved, *(column.name for column in (*output.columns, *output.metadata))]
    lower = [name.lower() for name in names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise SchemaError(
            f"column {', '.join(twice)} would be in the result twice: choose other names than "
            f"{', '.join(reserved)}, and rename metadata, as in metadata={{'event_time': "
            "'timestamp'}"
        )


@dataclass(frozen=True)
class _Query:
    """The query of a stage.

    Parameters
    ----------
    options : StageOptions
    records : RecordInput
    output : Output
    first_pass : callable
        Returns the batches of a collector, which have these columns as DDL.
    prefix : str or Observation
        The prefix of a stream's metrics; receives the counts of a bounded read.
    """

    options: StageOptions
    records: RecordInput
    output: Output
    first_pass: Callable[[CollectorMaker, str], DataFrame]
    prefix: Any = None

    def changelog(self, spark: SparkSession, stage: Stage) -> DataFrame:
        """Return the rows of the stage's changelog that match the condition, if there is one."""
        options, where = self.options, self.options.where
        if where is None:
            changes = self.normalized(stage)
        else:
            condition = require_condition(spark, where, stage.shape.columns, stage.shape.ignored)
            changelog = self.normalized(
                replace(stage, expected=replace(stage.expected, condition=condition))
            )
            changes = filtered(
                changelog, where, self.output, update_before=options.changelog_mode == "all"
            )
        changes = with_frame_types(changes, self.output.columns)
        return with_changelog_mode(changes, options.changelog_mode)

    def normalized(self, stage: Stage) -> DataFrame:
        """Return the stage's changelog, on the engine of the options."""
        output, metrics = self.output, f"{self.prefix}_normalize"
        if self.options.native is not None:
            return self.native(self.options.native, stage, metrics)
        if self.records.streaming:
            return normalize_stream(
                self.first_pass(Blocks, Blocks.ddl(output)), stage, output, metrics
            )
        blocks, split = (
            self.first_pass(SortedBlocks, SortedBlocks.ddl(output)),
            self.records.split_partitions,
        )
        return normalize_bounded(
            blocks, stage, output, split_partitions=split, observation=self.prefix
        )

    def native(self, engine: NativeEngine, stage: Stage, metrics: str) -> DataFrame:
        """Return the stage's changelog on the native engine."""
        records, output = self.records, self.output
        repartition = engine.repartitions(
            likely=records.split_partitions or records.topic is None or records.row_order != "log"
        )
        partitions = {name: topic.partitions for name, topic in stage.expected.topics.items()}
        collector = partial(
            LastChanges,
            row_order=stage.row_order,
            facts=facts_of(stage),
            partitions=partitions,
            merged=repartition,
        )
        last = self.first_pass(collector, LastChanges.ddl(output))
        return normalize_native(
            merged(last, output, stage.row_order) if repartition else last, stage, output, metrics
        )


@dataclass(frozen=True)
class ChangelogNormalize(StageOptions):
    """A changelog's keyed stage and options: it deduplicates, generates ``-U``, completes deletes.

    The same class is used at three places::

        from_kafka_changelog(spark, "orders", ..., primary_key="id", normalize=ChangelogNormalize(order="source"))
        decode_changelog(df, ..., primary_key="id", normalize=ChangelogNormalize(state_ttl=timedelta(days=30)))
        any_changelog.transform(ChangelogNormalize("id"))

    `from_kafka_changelog` and `decode_changelog` decide themselves whether the stage is needed
    (`explain_changelog` prints the reason). ``df.transform`` always adds it.

    Parameters
    ----------
    primary_key : str or sequence of str
        The columns that identify a row. `from_kafka_changelog` and `decode_changelog` take it from
        their own `primary_key`.
    source_duplicates : bool
        Whether the producer may deliver an event more than once (Flink's
        ``table.exec.source.cdc-events-duplicate``). If so, the stage is added to remove duplicates,
        which requires `primary_key`. False requires a reader: ``df.transform`` always adds the
        stage.
    changelog_mode : {"all", "upsert"}
        The row kinds of the result: ``all`` includes ``-U``; ``upsert`` has ``+I +U -D``.
        `from_kafka_changelog` and `decode_changelog` also have this argument: ``upsert`` in either
        place selects it.
    metadata : sequence of str
        Columns of the DataFrame that are ignored when rows are compared, and not stored: a row of
        the result has the values of the row that caused it. `from_kafka_changelog` and
        `decode_changelog` use the columns of their own `metadata`.
    order : {"arrival", "source"}
        ``source`` drops and counts a change at or before its key's position in the source's log as
        a redelivery. Redeliveries of any part of the topic, connector restarts and late deletes
        then leave no trace. It requires a reader, and a format whose messages have positions.
    key_groups : int
        The number of groups into which keys are hashed; fixed for the life of a checkpoint. More
        groups make the state of each smaller.
    delete_retention : timedelta
        How long ``order="source"`` keeps the position of a delete (processing time), so that a late
        update cannot restore the row.
    where : str, Column or None
        A Spark condition on the table's columns, which filters the result: a row that stops
        matching is deleted, and one that begins to match is inserted. The state has all rows, also
        those that do not match. The condition is fixed for the life of a checkpoint, and cannot
        read `ignore_columns`. In it, a VARIANT column is its JSON text.
    ignore_columns : sequence of str
        Columns that are ignored when rows are compared (``updated_at``): an update of these columns
        alone is dropped, and the row stays as it was last emitted.
    ignore_deletes : bool
        Whether deletes are dropped: their rows stay. An event that changes the primary key also
        leaves the old row, unless the producer writes the ``-U`` and the ``+U`` as separate
        messages (changelog-json), and the plan has no ChangelogNormalize.
    state_ttl : timedelta or None
        Forget a row this long after its last write (processing time), as in Flink: its next change
        is an ``+I``, its delete is dropped. With a TTL, an update to an equal row is emitted. It
        requires a stream.
    on_expiry : {"forget", "retract"}
        Whether a row that expires is also deleted from the result. ``retract`` makes Spark scan the
        whole state in every micro-batch.
    mini_batch : bool
        Keep only the last change of a key in a micro-batch.
    engine : {"key_groups", "native"} or NativeEngine
        What runs a stream. ``key_groups``: Python, with a state value for each group of keys; it
        supports every option. ``native``: Spark's own aggregation, with a state row for each key,
        so that a micro-batch costs what changes, and not what is stored. It requires Spark 4.2,
        keeps only the last change of a key in a micro-batch, and its result is written in output
        mode ``update``. Rows must have all columns, and rows without a row kind are refused.

    Raises
    ------
    ArgumentError
        When an option has an invalid value, requires another option or excludes it. `df.transform`
        raises it for options that require a reader, for a DataFrame without ``row_kind``, and for
        `state_ttl` and ``engine="native"`` with a DataFrame that is not a stream.
    SchemaError
        `df.transform` raises it for a VARIANT column.
    MissingDependencyError
        `df.transform` raises it for ``engine="native"`` on Spark 4.1 and older.

    Notes
    -----
    A DataFrame that is transformed has a column ``row_kind``. ``+I`` and ``+U`` are the key's
    newest row, ``-D`` deletes it. A ``-U`` directly before a ``+U`` of the same key is dropped, as
    in Flink's planner. Any other ``-U`` is a delete, so that an update of the key deletes the old
    row. Rows whose ``row_kind`` is NULL (with a ``_corrupt_record`` or a ``_control_event``) are
    returned unchanged. Rows of one key are processed in the order of their DataFrame partition.

    Write a stream with this stage in output mode ``append``, or ``update`` with
    ``engine="native"``.
    """

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the normalized changelog of `df`."""
        require_changelog(df)
        self.require_reader_options_unset()
        output, key = self._output(df), names_of(self.primary_key)
        ignored = ignored_columns(output.columns, key, names_of(self.ignore_columns))
        shape = Shape(output.columns, output.metadata, ignored=ignored, offsets=not df.isStreaming)
        stage = make_stage(self, shape, key, streaming=df.isStreaming)
        names = [column.name for column in output.all]
        require_distinct(df, names)
        rows = with_text(df, output.columns).select(ROW_KIND, *positional(names))
        if self.native is not None:
            check_session(df.sparkSession)
            if output.side_outputs:
                raise ArgumentError(
                    f"engine='native' refuses the column {output.side_outputs[0].name}, whose rows "
                    "have no key: drop it, and filter out rows without a row_kind"
                )

        def packed(collector: CollectorMaker, ddl: str) -> DataFrame:
            pack = partial(
                pack_pass,
                collector=collector,
                output=output,
                stage=stage,
                ignore_deletes=self.ignore_deletes,
            )
            return rows.mapInArrow(pack, ddl)

        prefix = "changelog" if df.isStreaming else None
        return _Query(self, RecordInput(df.isStreaming), output, packed, prefix).changelog(
            df.sparkSession, stage
        )

    def _output(self, df: DataFrame) -> Output:
        names = names_of(self.metadata)
        table = table_columns(df.schema, without=(ROW_KIND, *SIDE_OUTPUTS, *names))
        variants = [column.name for column in table if column.type.name == "VARIANT"]
        if variants:
            # The text of a VARIANT has no types other than those of JSON.
            raise SchemaError(
                f"column {quote(variants[0])} is a VARIANT, which Spark does not compare: convert "
                "it with to_json(...) before ChangelogNormalize and with parse_json(...) after it, "
                "or normalize in the call that reads the records"
            )
        metadata = {
            column.name: column
            for column in table_columns(df.schema, without=(ROW_KIND, *SIDE_OUTPUTS))
        }
        missing = [name for name in names if name not in metadata]
        if missing:
            raise ArgumentError(
                f"metadata has {missing[0]}, which is not a column of the DataFrame"
            )
        side_outputs = tuple(column for name, column in SIDE_OUTPUTS.items() if name in df.columns)
        return Output(table, tuple(metadata[name] for name in names), side_outputs)
