"""The checked arguments of `from_kafka_changelog` and `decode_changelog`, and the query that they describe."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from cdc_formats.base import Format, Ignored
from cdc_formats.errors import ArgumentError, SchemaError
from cdc_formats.registry import get_format
from cdc_formats.values.schema import Column
from normalize.analyzed_plan import with_changelog_mode
from normalize.changelog_normalize import ChangelogNormalize, check_choice, ignored_columns, make_stage, names_of
from normalize.core.guard import Expected
from normalize.core.key_group import Stage
from normalize.core.output import ROW_KIND, SIDE_OUTPUTS, Mode
from normalize.dataframe import table_columns
from normalize.engines.bounded import normalize_bounded
from normalize.engines.key_groups import normalize_stream
from normalize.engines.native import NativeEngine, check_session, normalize_native, target_of
from normalize.monitoring.counts import COLUMN as COUNTS_COLUMN, counts_ddl, observe_counts
from normalize.monitoring.notice import reporter
from normalize.plan import Plan, make_plan

from .dead_letter import DeadLetter, Destination
from .decode_pass import COUNTS, KAFKA_METADATA, RECORD_COLUMNS, Source, decode_pass
from .last_changes import LastChanges
from .record_input import RecordInput, records as records_of
from .targets import Blocks, KeyedRows, Target, TargetMaker, TypedRows
from .where import FilterRows, evaluate_where, filtered_blocks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

_MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
_CONTROL_EVENTS = {reason.value: reason for reason in Ignored}
_ALL_CONTROL_EVENTS = frozenset(Ignored) - {Ignored.TOMBSTONE, Ignored.OTHER_TABLE}


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """The arguments that `from_kafka_changelog` and `decode_changelog` share, as the user passed them."""

    format: Format
    schema: str | StructType
    primary_key: str | Sequence[str]
    normalize: ChangelogNormalize | bool | None
    mode: Mode | DeadLetter
    metadata: Mapping[str, str] | Sequence[str]
    changelog_mode: Literal["all", "upsert"]
    control_events: str | Sequence[str]
    on_truncate: Literal["fail", "ignore"]
    observation: Any


@dataclass(frozen=True)
class Request:
    """Checked arguments: the first pass's source, the stage's options, and the plan.

    Parameters
    ----------
    source : Source
    options : ChangelogNormalize
    plan : Plan
    records : RecordInput
    observation : str, Observation or None
    """

    source: Source
    options: ChangelogNormalize
    plan: Plan
    records: RecordInput
    observation: Any

    @classmethod
    def check(cls, given: Arguments, records: RecordInput, kafka_options: Mapping[str, str]) -> Request:
        """Return the request; raises on the driver when the arguments cannot be used.

        Parameters
        ----------
        given : Arguments
        records : RecordInput
        kafka_options : mapping
            The options of Spark's Kafka source; empty if the records do not come from Kafka.

        Raises
        ------
        ArgumentError, SchemaError, FormatOptionError
        """
        mode = given.mode
        if not isinstance(mode, DeadLetter) and mode not in _MODES:
            raise ArgumentError(f"mode is {mode!r}: use one of {', '.join(_MODES)}, or DeadLetter(topic)")
        check_choice("on_truncate", given.on_truncate, ("fail", "ignore"))
        metadata = metadata_columns(given.metadata)
        _check_metadata(given.format, metadata, records.columns)
        options, plan = make_options(
            given.normalize, given.format, names_of(given.primary_key), given.changelog_mode, metadata=tuple(metadata)
        )
        table = table_columns(given.schema)
        key, key_metadata = _split_key(table, names_of(options.primary_key), metadata)
        _require_stage(plan, options, key_metadata)
        source = Source(
            format=given.format,
            columns=table,
            unique_key=key,
            metadata=metadata,
            mode="FAILFAST" if isinstance(mode, DeadLetter) else mode,
            dead_letters=Destination.check(mode, given.format.identifier, kafka_options) if isinstance(mode, DeadLetter) else None,
            control_events=_control_events(given.control_events),
            on_truncate=given.on_truncate,
            topic=records.topic,
            key_groups=options.key_groups,
            drop_update_before=plan.drop_update_before,
            positions=options.order == "source",
            ignored=ignored_columns(table, key, names_of(options.ignore_columns)),
            ignore_deletes=options.ignore_deletes,
            key_metadata=key_metadata,
            distinguished_by=_distinguished_by(given.format, plan, metadata, key_metadata),
            record_columns=records.columns,
            row_order=records.row_order,
            streaming=records.streaming,
        )
        if source.topic is None and source.identity.compared and not plan.normalize:
            alone = "read each topic in a separate call" if source.row_order == "log" else "drop the column topic if there is only one"
            raise ArgumentError(
                "the query may read several topics, and without ChangelogNormalize their tables are not compared: add metadata=['topic'] "
                f"to identify each row's topic, or {alone}"
            )
        _check_order(source, plan)
        if options.native is not None:
            _check_native(source)
        source.decoder()  # raises here, on the driver, what the format cannot read
        _check_names(source)
        _check_observation(given.observation, records.streaming)
        return cls(source, options, plan, records, given.observation)

    def stage(self) -> Stage | None:
        """Return the stage if the plan has one."""
        source = self.source
        if not self.plan.normalize:
            return None
        return make_stage(
            self.options,
            source.shape,
            source.unique_key,
            streaming=self.records.streaming,
            mode=source.mode,
            dead_letters=source.dead_letters,
            key_metadata=source.key_metadata,
            expected=Expected(source.identity, by_source=source.positions, has_positions=not source.format.positions),
            row_order=source.row_order,
        )

    def changelog(self, raw: DataFrame, stage: Stage | None) -> DataFrame:
        """Return the changelog of a DataFrame of records."""
        if self.options.native is not None:
            check_session(raw.sparkSession)
        query = _Query(self, records_of(raw, self.source), stage)
        changes = query.streaming() if self.records.streaming else query.bounded()
        return with_changelog_mode(changes, self.plan.changelog_mode)


def as_format(format: str | Format, options: Mapping[str, Any] | None) -> Format:
    """Return the format of the arguments `format` and `format_options`.

    Raises
    ------
    ArgumentError, UnknownFormatError, FormatOptionError
    """
    if isinstance(format, Format):
        if options:
            raise ArgumentError(f"format_options require a format's name: pass the options to {type(format).__name__}(...) instead")
        return format
    if not isinstance(format, str):
        raise ArgumentError(f"format is {format!r}: pass an identifier such as 'debezium-json', or a Format")
    return get_format(format, **(options or {}))


def make_options(
    normalize: ChangelogNormalize | bool | None,
    format: Format,
    primary_key: tuple[str, ...],
    changelog_mode: Literal["all", "upsert"],
    *,
    metadata: tuple[str, ...] = (),
) -> tuple[ChangelogNormalize, Plan]:
    """Return the stage's options and the plan, for the argument `normalize` and those that it completes.

    Raises
    ------
    ArgumentError
        When the arguments contradict each other, or a required primary key is missing.
    """
    if normalize is not None and normalize is not False and not isinstance(normalize, ChangelogNormalize):
        raise ArgumentError(f"normalize is {normalize!r}: use None, False or ChangelogNormalize(...)")
    given = normalize or ChangelogNormalize()
    options = given.for_reader(primary_key, changelog_mode, metadata)
    plan = make_plan(
        format.changelog_mode,
        names_of(options.primary_key),
        options.changelog_mode,
        options.source_duplicates,
        normalize=normalize is not False,
    )
    return options, plan


def metadata_columns(metadata: Mapping[str, str] | Sequence[str]) -> dict[str, str]:
    """Return the requested metadata by the names of their columns.

    Raises
    ------
    ArgumentError
        When metadata is requested twice.
    """
    if not isinstance(metadata, Mapping):
        metadata = {name: name for name in names_of(metadata)}
    names = list(metadata.values())
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ArgumentError(f"metadata has {twice[0]!r} in two columns: remove one of them")
    return dict(metadata)


def _check_metadata(format: Format, metadata: Mapping[str, str], record_columns: frozenset[str]) -> None:
    known = {*format.metadata, *KAFKA_METADATA}
    for name in metadata.values():
        if name not in known:
            hint = ". Spark's Kafka source does not provide it" if name == "leader-epoch" else ""
            raise SchemaError(f"{format.identifier} has no metadata column {name!r}; it has {', '.join(sorted(known))}{hint}")
        if name not in format.metadata and RECORD_COLUMNS[name] not in record_columns:
            raise ArgumentError(
                f"metadata has {name!r}, which requires the column {RECORD_COLUMNS[name]} in the DataFrame: add the column, or remove "
                f"{name!r}"
            )


def _split_key(
    columns: Sequence[Column], primary_key: tuple[str, ...], metadata: Mapping[str, str]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the primary key's table columns and its metadata columns."""
    of_table = {column.name for column in columns}
    of_metadata = tuple(name for name in primary_key if name not in of_table and name in metadata)
    return tuple(name for name in primary_key if name not in of_metadata), of_metadata


def _distinguished_by(format: Format, plan: Plan, metadata: Mapping[str, str], key_metadata: Sequence[str]) -> tuple[str, ...]:
    """Return the metadata that distinguishes the rows of several tables."""
    tables = ("topic", *format.table_identity)
    if not plan.normalize and any(name in tables for name in metadata.values()):
        # Without a stage no rows are merged: a column that names the table is enough.
        return tables
    return tuple(metadata[name] for name in key_metadata)


def _require_stage(plan: Plan, options: ChangelogNormalize, key_metadata: Sequence[str]) -> None:
    """Raise an error for arguments that require the stage if the plan has none."""
    if plan.normalize:
        return
    if key_metadata:
        raise ArgumentError(
            f"primary_key has the metadata column {key_metadata[0]!r}, which requires ChangelogNormalize, and the plan does not have "
            f"it: {plan.reason}. Remove {key_metadata[0]!r} from primary_key"
        )
    if options.set_options:
        raise ArgumentError(f"{', '.join(options.set_options)} requires ChangelogNormalize, which the plan does not have: {plan.reason}")


def _check_order(source: Source, plan: Plan) -> None:
    """Raise an error for a DataFrame that lacks columns which the order of its records requires."""
    if source.format.reads_key and "key" not in source.record_columns:
        raise ArgumentError(f"{source.format.identifier} reads the record's key: add the column key to the DataFrame")
    if source.row_order != "row" or not plan.normalize:
        return
    if source.positions:
        raise ArgumentError(
            "order='source' requires the columns partition and offset in the DataFrame: positions are compared in each Kafka partition"
        )
    if not source.streaming and "timestamp" not in source.record_columns:
        raise ArgumentError(
            "the rows of a bounded DataFrame have no order, which ChangelogNormalize requires: add the columns partition and offset, or "
            "timestamp; or pass normalize=False"
        )


def _check_native(source: Source) -> None:
    """Raise an error for arguments that the native engine refuses."""
    if source.permissive:
        raise ArgumentError(
            "engine='native' and mode='PERMISSIVE' cannot be combined, since a corrupt record has no key: use DeadLetter(topic), "
            "DROPMALFORMED or FAILFAST"
        )
    if source.control_events:
        raise ArgumentError(
            "engine='native' and control_events cannot be combined, since an event has no key: read the events in a second query, with "
            "normalize=False"
        )


def _control_events(names: str | Sequence[str]) -> frozenset[Ignored]:
    if names == "all":
        return _ALL_CONTROL_EVENTS
    unknown = [name for name in names_of(names) if name not in _CONTROL_EVENTS]
    if unknown:
        raise ArgumentError(f"control_events has {unknown[0]!r}: use {', '.join(_CONTROL_EVENTS)}, or 'all'")
    return frozenset(_CONTROL_EVENTS[name] for name in names_of(names))


def _check_observation(observation: Any, streaming: bool) -> None:
    if not streaming and isinstance(observation, str):
        raise ArgumentError("observation of a bounded read must be a pyspark.sql.Observation, which returns the counts")
    if streaming and observation is not None and not isinstance(observation, str):
        raise ArgumentError("observation of a stream must be a string: the prefix of the metrics' names in the query's progress")


def _check_names(source: Source) -> None:
    # Spark ignores case in names by default: names that differ in case alone would be ambiguous.
    output = source.output
    reserved = [ROW_KIND, *SIDE_OUTPUTS, COUNTS_COLUMN]
    names = [*reserved, *(column.name for column in (*output.columns, *output.metadata))]
    lower = [name.lower() for name in names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise SchemaError(
            f"column {', '.join(twice)} would be in the result twice: choose other names than {', '.join(reserved)}, and rename metadata, "
            "as in metadata={'event_time': 'timestamp'}"
        )


@dataclass(frozen=True)
class _Query:
    """Builds the query on the columns of `decode_pass.needed_columns`."""

    request: Request
    records: DataFrame
    stage: Stage | None

    def streaming(self) -> DataFrame:
        """Return the stream: records, decode, and the stage if the plan has one."""
        prefix = self.request.observation or "changelog"
        if self.stage is None:
            return observe_counts(self._decoded_as(TypedRows), COUNTS, f"{prefix}_decode")
        if self.request.options.native is not None:
            return self._native(self.request.options.native, self.stage, prefix)
        if self.request.options.where is None:
            blocks = observe_counts(self._decoded_as(Blocks), COUNTS, f"{prefix}_decode")
        else:
            blocks = filtered_blocks(observe_counts(self._filtered(), COUNTS, f"{prefix}_decode"), self.request.source)
        return normalize_stream(blocks, self.stage, self.request.source.output, f"{prefix}_normalize")

    def bounded(self) -> DataFrame:
        """Return the same rows as a bounded DataFrame, without state."""
        observation = self.request.observation
        if self.stage is None:
            return observe_counts(self._decoded_as(TypedRows), COUNTS, observation)
        keyed = self._decoded_as(KeyedRows) if self.request.options.where is None else self._filtered()
        split = self.request.records.split_partitions
        return normalize_bounded(keyed, self.stage, self.request.source.output, split_partitions=split, observation=observation)

    def _native(self, engine: NativeEngine, stage: Stage, prefix: str) -> DataFrame:
        options, records, output = self.request.options, self.request.records, self.request.source.output
        likely = records.split_partitions or records.topic is None or records.row_order != "log"
        repartition = engine.repartitions(likely=likely)
        decoded = self._decoded(target_of(stage, repartition=repartition), LastChanges.ddl(output))
        last = observe_counts(decoded, COUNTS, f"{prefix}_decode")
        return normalize_native(last, stage, output, f"{prefix}_normalize", repartition=repartition, where=options.where)

    def _decoded(self, target: TargetMaker, ddl: str) -> DataFrame:
        source = self.request.source
        decode: Callable[..., Any] = partial(decode_pass, source=source, target=target, report=reporter(self.records.sparkSession))
        return self.records.mapInArrow(decode, f"{ddl}, {counts_ddl(COUNTS)}")

    def _decoded_as(self, target: type[Target]) -> DataFrame:
        return self._decoded(target, target.ddl(self.request.source.output))

    def _filtered(self) -> DataFrame:
        return evaluate_where(self._decoded_as(FilterRows), self.request.options.where, self.request.source.columns)
