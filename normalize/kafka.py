"""`from_kafka_changelog`, `to_kafka_changelog` and `explain_changelog`: read and write Kafka topics as changelog DataFrames."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from cdc_formats.base import Format, Ignored
from cdc_formats.errors import ArgumentError, SchemaError
from cdc_formats.registry import get_format
from cdc_formats.schema import Column

from . import batch, plan as planner
from .arrow import spark_type
from .changelog_normalize import DELETE_RETENTION, KEY_GROUPS, check_choice, ignored_columns, make_stage, names_of
from .counts import COLUMN as COUNTS_COLUMN, counts_ddl, observed
from .dead_letter import DeadLetters
from .decode import COUNTS, KAFKA_METADATA, Mode, Source, decode_pass, needed_columns
from .encode import encode_pass
from .group import Stage
from .guard import Expected
from .notice import reporter
from .source_block import columns_of, source_block
from .stage import normalized
from .targets import Blocks, KeyedRows, Target, TypedRows
from .topics import described, subscribed
from .typed import ASIDES, ROW_KIND, positional, require_changelog, require_distinct, table_columns, without_update_before
from .where import FilterRows, filtered_blocks, matched

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame, Observation, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter
    from pyspark.sql.types import StructType

SPARK_PACKAGES = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.0.0"
"""The value of ``spark.jars.packages`` for Spark's Kafka source (Spark 4.0)."""

READER_DEFAULTS = {
    # Spark's default is "latest": a changelog that begins in the middle has updates of rows that were never inserted.
    "startingOffsets": "earliest",
    # Kafka's consumer fetches 500 records at a time by default; these values nearly double the speed of reading alone.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.receive.buffer.bytes": "4194304",
}
"""Defaults for options of Spark's Kafka source; `options` of a call override them."""

_MODES = ("FAILFAST", "DROPMALFORMED", "PERMISSIVE")
_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_CONTROL_EVENTS = {reason.value: reason for reason in Ignored}
_ALL_CONTROL_EVENTS = frozenset(Ignored) - {Ignored.TOMBSTONE, Ignored.OTHER_TABLE}
_SPLITS = ("minPartitions", "maxRecordsPerPartition")


def from_kafka_changelog(
    spark: SparkSession,
    topic: str | Sequence[str] | None = None,
    *,
    format: str | Format,
    schema: str | StructType | None = None,
    options: Mapping[str, Any],
    format_options: Mapping[str, Any] | None = None,
    topic_pattern: str | None = None,
    primary_key: str | Sequence[str] = (),
    changelog_mode: Literal["all", "upsert"] = "all",
    source_duplicates: bool = True,
    mode: Mode = "FAILFAST",
    dead_letter: str | None = None,
    dead_letter_options: Mapping[str, Any] | None = None,
    metadata: Sequence[str] = (),
    control_events: str | Sequence[str] = (),
    on_truncate: Literal["fail", "ignore"] = "fail",
    bounded: bool = False,
    key_groups: int = KEY_GROUPS,
    order: Literal["arrival", "source"] = "arrival",
    delete_retention: timedelta = DELETE_RETENTION,
    where: str | SparkColumn | None = None,
    ignore_columns: Sequence[str] = (),
    ignore_deletes: bool = False,
    state_layout: Literal["full", "compact"] = "full",
    on_wrong_before: Literal["count", "fail"] = "count",
    state_ttl: timedelta | None = None,
    on_expiry: Literal["forget", "retract"] = "forget",
    mini_batch: bool = False,
    observation: str | Observation | None = None,
) -> DataFrame:
    """Return a topic of CDC messages as a changelog DataFrame.

    Parameters
    ----------
    spark : SparkSession
        A session with the package `SPARK_PACKAGES`, and with this package installed on its workers.
    topic : str or sequence of str
        One or more topics. Alternatives: `topic_pattern`, a Java regular expression, or one of ``subscribe``, ``subscribePattern`` and
        ``assign`` in `options`.
    format : str or Format
        A registered identifier (``debezium-json``, ...; `cdc_formats.list_formats`), or a format.
    schema : str or StructType or None
        The table's columns, as Spark DDL or a Spark type. DDL may also use TIME, and a precision on TIMESTAMP. None: the driver samples
        the topic during this call (`cdc_formats.inference`) and prints the columns, primary key and format options that it inferred.
        Arguments that you pass are not inferred. Pass all of them in a production job.
    options : mapping
        Options of Spark's Kafka source; ``kafka.bootstrap.servers`` is required. `READER_DEFAULTS` lists the defaults that differ from
        Spark's.
    format_options : mapping
        Options of the format, with Flink's names (``table_include``, ...).
    primary_key : str or sequence of str
        The columns that identify a row. They may include a column of `metadata`: ``["source.table", "id"]`` separates the rows of several
        tables. Otherwise a record of a second table is an error.
    changelog_mode : {"all", "upsert"}
        The row kinds in the result: ``all`` includes ``-U``; ``upsert`` has ``+I +U -D``.
    source_duplicates : bool
        Whether the producer may deliver an event more than once (Flink's ``table.exec.source.cdc-events-duplicate``). If so, the keyed
        stage removes duplicates, which requires `primary_key`.
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"}
        What happens to a record that cannot be decoded. It fails the query, or is dropped and counted, or becomes a row with
        ``_corrupt_record`` (the error's text, the record's offset, and the raw key and value) whose other columns are NULL.
    dead_letter : str or None
        An existing topic for records that cannot be decoded, instead of `mode` (`normalize.dead_letter` describes key and headers).
        The workers write the records before they return the rows of the batch; a restarted query may write some again, with equal keys.
        The topic must accept records as large as those of the topic that is read.
    dead_letter_options : mapping
        Options of the dead-letter producer, with librdkafka's names. By default it uses the connection of `options`. If you set
        ``bootstrap.servers``, it uses none of these; if you set any ``security``, ``sasl`` or ``ssl`` option, it uses only the servers.
    metadata : sequence of str
        Metadata columns, with Flink's names: the format's (``source.timestamp``, ...), and ``topic``, ``partition``, ``offset``,
        ``timestamp``, ``timestamp-type``, ``headers``, ``header-list``. A row, also a ``-U``, has those of the record that caused it.
        They are ignored when rows are compared (Flink compares them).
    control_events : str or sequence of str
        Events other than row changes to include in the result: ``DDL``, ``HEARTBEAT``, ``MESSAGE``, ``SNAPSHOT_MARK``, ``TRANSACTION``,
        ``TRUNCATE`` (`on_truncate` is then ignored), ``OTHER_TABLE``, ``TOMBSTONE``, or ``all`` for the first six. Each is a row with
        ``_control_event`` (its type, subject and statement; the record's topic, partition, offset, timestamp, key and value) whose other
        columns are NULL. It may precede or follow the neighbouring rows of its micro-batch: to restore the order, compare its topic,
        partition and offset with these columns of `metadata`.
    on_truncate : {"fail", "ignore"}
        What happens when the source table is truncated, which no changelog row can express.
    bounded : bool
        Read the topic's current content once, with ``spark.read``: the same rows, without state.
    key_groups : int
        The number of groups into which keys are hashed; fixed for the life of a checkpoint.
    order : {"arrival", "source"}
        ``source`` drops and counts a change at or before its key's position in the source's log as a redelivery (`order`). Redeliveries of
        any part of the topic, connector restarts and late deletes then leave no trace. It requires a format whose messages have
        positions.
    delete_retention : timedelta
        How long ``order="source"`` keeps the position of a delete (processing time), so that a late update cannot restore the row.
    where : str, Column or None
        A Spark condition on the table's columns: a row that stops matching is deleted, and one that never matched is not stored. A row
        without a value for one of these columns (unchanged TOAST values) is an error.
    ignore_columns : sequence of str
        Columns that are ignored when rows are compared (``updated_at``): an update of these columns alone is dropped, and the row stays as
        it was last emitted.
    ignore_deletes : bool
        Whether deletes are dropped: their rows stay. An event that changes the primary key also leaves the old row.
    state_layout : {"full", "compact"}
        What the state stores for a key: ``full``, its row; ``compact``, hashes of key and row (and the position), at most 32 bytes.
        ``compact`` requires events with the full before-image: ``-U`` and ``-D`` are taken from the event, and one that differs from the
        row last emitted is detected. It cannot complete partial rows, and its number of key groups cannot be changed later.
    on_wrong_before : {"count", "fail"}
        What ``compact`` does when a before-image differs from the row last emitted: count it and emit the rows as in the event (an update
        without a before-image has no ``-U``), or fail.
    state_ttl : timedelta or None
        Forget a row this long after its last write (processing time), as in Flink: its next change is an ``+I``, its delete is dropped.
        With a TTL, an update to an equal row is emitted.
    on_expiry : {"forget", "retract"}
        Whether a row that expires is also deleted from the result. ``retract`` makes Spark scan the whole state in every micro-batch.
    mini_batch : bool
        Keep only the last change of a key in a micro-batch.
    observation : str, Observation or None
        For a stream, the prefix of the observed metrics in the query's progress (``<prefix>_decode`` and ``<prefix>_normalize``),
        ``changelog`` by default. For a bounded read, an Observation that receives the counts of both.

    Returns
    -------
    DataFrame
        ``row_kind`` (``+I -U +U -D``), the columns, the metadata, ``_corrupt_record`` in PERMISSIVE mode, and ``_control_event`` if
        control events are requested; streaming unless `bounded`. TIME columns are STRING.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError, MissingDependencyError
        During this call, when the arguments cannot be used; the text names the fix.
    InferenceError, SampleError
        When no schema is given, and the sample of the topic is not sufficient or cannot be read.

    Notes
    -----
    Rows of one key keep the order of their Kafka partition. Partitions of one micro-batch are merged by Kafka's timestamps.
    Write a stream with the keyed stage in output mode ``append``.
    """
    chosen, reader_options = _format(format, format_options), _reader_options(topic, topic_pattern, options)
    if schema is None:
        given = None if isinstance(format, Format) else format_options or {}
        from .sampled import sampled  # imports all formats, which takes time

        chosen, schema, primary_key = sampled(chosen, reader_options, given=given, primary_key=names_of(primary_key))
    request = _Request.check(
        format=chosen,
        schema=schema,
        options=reader_options,
        primary_key=primary_key,
        changelog_mode=changelog_mode,
        source_duplicates=source_duplicates,
        mode=mode,
        dead_letters=_dead_letters(dead_letter, dead_letter_options, reader_options, mode, chosen),
        metadata=metadata,
        control_events=_control_events(control_events),
        on_truncate=on_truncate,
        key_groups=key_groups,
        order=order,
        ignore_columns=names_of(ignore_columns),
        ignore_deletes=ignore_deletes,
        state_layout=state_layout,
    )
    stage = _stage(
        request,
        where,
        delete_retention=delete_retention,
        on_wrong_before=on_wrong_before,
        state_ttl=state_ttl,
        on_expiry=on_expiry,
        mini_batch=mini_batch,
        streaming=not bounded,
    )
    _check_observation(observation, bounded)
    reader = _Reader(spark, request, stage, where, observation)
    changes = reader.bounded() if bounded else reader.streaming()
    return changes if changelog_mode == "all" else without_update_before(changes)


def explain_changelog(
    topic: str | Sequence[str],
    *,
    format: str | Format,
    primary_key: str | Sequence[str] = (),
    format_options: Mapping[str, Any] | None = None,
    changelog_mode: Literal["all", "upsert"] = "all",
    source_duplicates: bool = True,
    key_groups: int = KEY_GROUPS,
    order: Literal["arrival", "source"] = "arrival",
    where: str | None = None,
    state_layout: Literal["full", "compact"] = "full",
) -> str:
    """Return the plan that `from_kafka_changelog` chooses, with reasons, like Flink's ``EXPLAIN CHANGELOG_MODE``.

    Examples
    --------
    >>> print(explain_changelog("orders", format="debezium-json", primary_key=["id"]))
    ChangelogNormalize(key=[id], changelogMode=[+I, -U, +U, -D]): the source may deliver an event twice (source_duplicates=True); \
the state has each key's row, changes are taken as they arrive
    +- Exchange(hash[key group of id], key_groups=64, changelogMode=[+I, +U, -D])
       +- DropUpdateBefore(changelogMode=[+I, +U, -D]): a keyed stage knows the row before; a changed key is a delete and an upsert
          +- Decode(format=[debezium-json], changelogMode=[+I, -U, +U, -D])
             +- Kafka(orders)
    """
    chosen, key = _format(format, format_options), names_of(primary_key)
    plan = planner.make_plan(chosen.changelog_mode, key, changelog_mode, source_duplicates)
    topics = topic if isinstance(topic, str) else ",".join(topic)
    return planner.explain(
        plan,
        format=chosen.identifier,
        source=chosen.changelog_mode,
        topic=topics,
        primary_key=key,
        key_groups=key_groups,
        order=order,
        where=where,
        state_layout=state_layout,
    )


def to_kafka_changelog(
    df: DataFrame,
    topic: str,
    *,
    options: Mapping[str, Any],
    format: str | Format = "changelog-json",
    format_options: Mapping[str, Any] | None = None,
    schema: str | StructType | None = None,
    primary_key: str | Sequence[str] = (),
    source: Mapping[str, str] | None = None,
) -> DataStreamWriter | None:
    """Write a changelog to a topic.

    Parameters
    ----------
    df : DataFrame
        A changelog with ``row_kind``. Filter out rows without a row kind (corrupt records, control events) first.
    topic : str
    options : mapping
        Options of Spark's Kafka sink; ``kafka.bootstrap.servers`` is required.
    format : str or Format
        A format that can be written.
    format_options : mapping
        Options of the format. A reader with the same options (``decimal_handling_mode``, ...) reads the same rows.
    schema : str or StructType or None
        The columns to write, to leave out some (metadata), or to give types that Spark lacks: in a DataFrame a TIME is a STRING, and a
        TIMESTAMP has no precision, which ``time_precision_mode='adaptive'`` requires.
    primary_key : str or sequence of str
        The columns of the Kafka key, so that a key's rows stay in one partition, in order.
    source : mapping or None
        The messages' `source` block with the row's position in the source's log, for readers with ``order="source"``. It maps Debezium's
        field names (``file``, ``pos``, ``row``, ``server_id``, ``snapshot``, ``ts_ms``, ...) to columns (``"position.file"`` for a struct's
        field). These columns are not written as data. A TIMESTAMP is written in milliseconds. `capture.SOURCE` is the mapping for
        ``mysql-changelog``. Only debezium-json and changelog-json have this block.

    Returns
    -------
    DataStreamWriter or None
        For a stream, the writer: set its ``checkpointLocation`` and start it. A bounded DataFrame is written during the call.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError
        During this call. A value that the format cannot represent raises ``EncodeError`` when it is written.

    Notes
    -----
    A ``-U`` that is directly followed by the ``+U`` of its key is written as one update, with both images (Flink writes a delete and
    an insert). A single ``-U`` is written as a delete, and a single ``+U`` as an insert. Write a changelog without ``-U``
    (``changelog_mode="upsert"``) therefore as upsert-kafka, or for readers that normalize by key. Records are written at least once.
    """
    require_changelog(df)
    table = _written_columns(df, schema, without=columns_of(source or {}))
    _require_servers(options)
    encoder = _format(format, format_options).for_topic(topic)
    written = encoder.encoder(table, unique_key=names_of(primary_key))
    if source and not written.writes_source:
        raise ArgumentError(f"{encoder.identifier} as configured writes no `source` block: remove source=, or write debezium-json")
    names = [column.name for column in table]
    require_distinct(df, names)
    records = df.select(ROW_KIND, *positional(names), *source_block(df, source or {})).mapInArrow(
        partial(encode_pass, format=encoder, columns=table, unique_key=names_of(primary_key)), "key BINARY, value BINARY"
    )
    sink = {**{name: str(value) for name, value in options.items()}, "topic": topic}
    if df.isStreaming:
        return records.writeStream.format("kafka").options(**sink)
    records.write.format("kafka").options(**sink).save()
    return None


def _written_columns(df: DataFrame, schema: str | StructType | None, *, without: Sequence[str]) -> tuple[Column, ...]:
    found = table_columns(df.schema, without=(ROW_KIND, *ASIDES, *without))
    if schema is None:
        return found
    there = {column.name: spark_type(column.type) for column in found}
    table = table_columns(schema)
    for column in table:
        if there.get(column.name) != spark_type(column.type):
            raise SchemaError(f"schema has {column}, but the DataFrame has {there.get(column.name, 'no such column')}")
    return table


# --------------------------------------------------------------------------------------------------------- the arguments


def _format(format: str | Format, options: Mapping[str, Any] | None) -> Format:
    if isinstance(format, Format):
        if options:
            raise ArgumentError(f"format_options require a format's name: pass the options to {type(format).__name__}(...) instead")
        return format
    if not isinstance(format, str):
        raise ArgumentError(f"format is {format!r}: pass an identifier such as 'debezium-json', or a Format")
    return get_format(format, **(options or {}))


def _require_servers(options: Mapping[str, Any]) -> None:
    if "kafka.bootstrap.servers" not in options:
        raise ArgumentError("options lack 'kafka.bootstrap.servers': add, for example, {'kafka.bootstrap.servers': 'localhost:9092'}")


def _reader_options(topic: str | Sequence[str] | None, pattern: str | None, options: Mapping[str, Any]) -> dict[str, str]:
    _require_servers(options)
    given = {name: str(value) for name, value in options.items()}
    if topic is not None:
        given["subscribe"] = ",".join(names_of(topic)) if "subscribe" not in given else _twice("subscribe")
    if pattern is not None:
        given["subscribePattern"] = pattern if "subscribePattern" not in given else _twice("subscribePattern")
    named = [name for name in _SUBSCRIPTIONS if given.get(name)]
    if len(named) != 1:
        got = f"got {' and '.join(named)}" if named else "got none"
        raise ArgumentError(f"pass exactly one of topic, topic_pattern and the options {', '.join(_SUBSCRIPTIONS)}; {got}")
    return {**READER_DEFAULTS, **given}


def _twice(option: str) -> str:
    raise ArgumentError(f"the topic and the option {option} cannot be combined: remove one of them")


def _dead_letters(
    topic: str | None, given: Mapping[str, Any] | None, options: Mapping[str, str], mode: str, format: Format
) -> DeadLetters | None:
    if topic is None:
        if given:
            raise ArgumentError("dead_letter_options require dead_letter: pass the topic for dead letters")
        return None
    if mode != "FAILFAST":
        raise ArgumentError(f"dead_letter={topic!r} and mode={mode!r} cannot be combined: remove one of them")
    if _reads(topic, options):
        raise ArgumentError(f"dead_letter={topic!r} is also a topic that is read, which would loop: choose another topic")
    return DeadLetters.check(topic, format.identifier, options, given or {})


def _control_events(names: str | Sequence[str]) -> frozenset[Ignored]:
    if names == "all":
        return _ALL_CONTROL_EVENTS
    unknown = [name for name in names_of(names) if name not in _CONTROL_EVENTS]
    if unknown:
        raise ArgumentError(f"control_events has {unknown[0]!r}: use {', '.join(_CONTROL_EVENTS)}, or 'all'")
    return frozenset(_CONTROL_EVENTS[name] for name in names_of(names))


def _check_observation(observation: Any, bounded: bool) -> None:
    if bounded and isinstance(observation, str):
        raise ArgumentError("observation of a bounded read must be a pyspark.sql.Observation, which returns the counts")
    if not bounded and observation is not None and not isinstance(observation, str):
        raise ArgumentError("observation of a stream must be a string: the prefix of the metrics' names in the query's progress")


def _stage(request: _Request, where: str | SparkColumn | None, **options: Any) -> Stage | None:
    source = request.source
    if not request.plan.normalize:
        asked = {
            "order='source'": source.positions,
            "where": where is not None,
            "ignore_columns": bool(source.ignored),
            "state_layout='compact'": source.compact,
            "state_ttl": options["state_ttl"] is not None,
            "mini_batch": options["mini_batch"],
        }
        given = [name for name, there in asked.items() if there]
        if given:
            raise ArgumentError(f"{', '.join(given)} requires ChangelogNormalize, which the plan does not have: {request.plan.reason}")
        return None
    return make_stage(
        source.shape,
        source.unique_key,
        generate_update_before=request.plan.generate_update_before,
        key_groups=source.key_groups,
        mode=source.mode,
        dead_letters=source.dead_letters,
        key_metadata=source.key_metadata,
        expected=Expected(
            source.identity,
            described(request.options) if options["streaming"] else {},
            by_source=source.positions,
            has_positions=not source.format.positions,
        ),
        **options,
    )


@dataclass(frozen=True)
class _Request:
    """Checked arguments: the reader's options, the first pass's source, and the plan."""

    options: dict[str, str] = field(repr=False)  # may contain a password
    source: Source
    plan: planner.Plan

    @classmethod
    def check(
        cls,
        *,
        format: Format,
        schema: str | StructType,
        options: dict[str, str],
        primary_key: str | Sequence[str],
        changelog_mode: str,
        source_duplicates: bool,
        mode: Mode,
        dead_letters: DeadLetters | None,
        metadata: Sequence[str],
        control_events: frozenset[Ignored],
        on_truncate: Literal["fail", "ignore"],
        key_groups: int,
        order: str,
        ignore_columns: tuple[str, ...],
        ignore_deletes: bool,
        state_layout: str,
    ) -> _Request:
        """Return the request; raises on the driver when the arguments cannot be used."""
        if mode not in _MODES:
            raise ArgumentError(f"mode is {mode!r}: use one of {', '.join(_MODES)}")
        check_choice("on_truncate", on_truncate, ("fail", "ignore"))
        check_choice("order", order, ("arrival", "source"))
        check_choice("state_layout", state_layout, ("full", "compact"))
        table, names = table_columns(schema), names_of(metadata)
        key, key_metadata = _split_key(table, names_of(primary_key), _metadata(format, names))
        plan = planner.make_plan(format.changelog_mode, key, changelog_mode, source_duplicates)
        if key_metadata and not plan.normalize:
            raise ArgumentError(
                f"primary_key has the metadata column {key_metadata[0]!r}, which requires ChangelogNormalize, and the plan does not have "
                f"it: {plan.reason}"
            )
        # Without a stage no rows are merged: a column that names the table is enough.
        tables = ("topic", *format.table_identity)
        row_names_table = not plan.normalize and any(name in tables for name in names)
        source = Source(
            format=format,
            columns=table,
            unique_key=key,
            metadata=names,
            mode=mode,
            dead_letters=dead_letters,
            control_events=control_events,
            on_truncate=on_truncate,
            topic=_only_topic(options),
            key_groups=key_groups,
            drop_update_before=plan.drop_update_before,
            compact=state_layout == "compact",
            positions=order == "source",
            ignored=ignored_columns(table, key, ignore_columns),
            ignore_deletes=ignore_deletes,
            key_metadata=key_metadata,
            distinguished_by=tables if row_names_table else key_metadata,
        )
        if source.topic is None and source.identity.compared and not plan.normalize:
            raise ArgumentError(
                "the query may read several topics, and without ChangelogNormalize their tables are not compared: add metadata=['topic'] "
                "to identify each row's topic, or read each topic in a separate call"
            )
        source.decoder()  # raises here, on the driver, what the format cannot read
        _check_names(source)
        return cls(options, source, plan)


def _metadata(format: Format, names: tuple[str, ...]) -> tuple[str, ...]:
    known = {*format.metadata, *KAFKA_METADATA}
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = ". Spark's Kafka source does not provide it" if unknown[0] == "leader-epoch" else ""
        raise SchemaError(f"{format.identifier} has no metadata column {unknown[0]!r}; it has {', '.join(sorted(known))}{hint}")
    return names


def _split_key(
    columns: Sequence[Column], primary_key: tuple[str, ...], metadata: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the primary key's table columns and its metadata columns."""
    of_table = {column.name for column in columns}
    of_metadata = tuple(name for name in primary_key if name not in of_table and name in metadata)
    return tuple(name for name in primary_key if name not in of_metadata), of_metadata


def _check_names(source: Source) -> None:
    # Spark ignores case in names by default: names that differ in case alone would be ambiguous.
    output = source.output
    reserved = [ROW_KIND, *ASIDES, COUNTS_COLUMN]
    names = [*reserved, *(column.name for column in (*output.columns, *output.metadata))]
    lower = [name.lower() for name in names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise SchemaError(
            f"column {', '.join(twice)} would be in the result twice: choose other names than those of the metadata and of "
            f"{', '.join(reserved)}"
        )


def _only_topic(options: Mapping[str, str]) -> str | None:
    topics = subscribed(options)
    return topics[0] if len(topics) == 1 else None


def _reads(topic: str, options: Mapping[str, str]) -> bool:
    """Return whether the query reads a topic; invalid options are left to Spark, which raises."""
    if topic in subscribed(options):
        return True
    with suppress(re.error):
        if re.fullmatch(options.get("subscribePattern") or "(?!)", topic):
            return True
    with suppress(msgspec.DecodeError):
        return topic in msgspec.json.decode(options.get("assign") or "{}", type=dict[str, Any])
    return False


# ------------------------------------------------------------------------------------------------------------ the query


@dataclass(frozen=True)
class _Reader:
    """Builds the query."""

    spark: SparkSession
    request: _Request
    stage: Stage | None
    where: str | SparkColumn | None
    observation: Any

    def streaming(self) -> DataFrame:
        """Return the stream: Kafka, decode, and the stage if the plan has one."""
        prefix = self.observation or "changelog"
        records = self._records(self.spark.readStream)
        if self.stage is None:
            return observed(self._decoded(records, TypedRows), COUNTS, f"{prefix}_decode")
        if self.where is None:
            blocks = observed(self._decoded(records, Blocks), COUNTS, f"{prefix}_decode")
        else:
            blocks = filtered_blocks(observed(self._filtered(records), COUNTS, f"{prefix}_decode"), self.request.source)
        return normalized(blocks, self.stage, self.request.source.output, f"{prefix}_normalize")

    def bounded(self) -> DataFrame:
        """Return the same rows as a bounded DataFrame, without state."""
        records = self._records(self.spark.read)
        if self.stage is None:
            return observed(self._decoded(records, TypedRows), COUNTS, self.observation)
        keyed = self._decoded(records, KeyedRows) if self.where is None else self._filtered(records)
        split = any(name in self.request.options for name in _SPLITS)
        return batch.normalized(keyed, self.stage, self.request.source.output, split_partitions=split, observation=self.observation)

    def _decoded(self, records: DataFrame, target: type[Target]) -> DataFrame:
        source = self.request.source
        decode = partial(decode_pass, source=source, target=target, report=reporter(self.spark))
        return records.mapInArrow(decode, f"{target.ddl(source.output)}, {counts_ddl(COUNTS)}")

    def _filtered(self, records: DataFrame) -> DataFrame:
        return matched(self._decoded(records, FilterRows), self.where, self.request.source.columns)

    def _records(self, reader: Any) -> DataFrame:
        from pyspark.sql import functions as F

        columns = needed_columns(self.request.source)
        options = dict(self.request.options)
        if "headers" in columns:
            options["includeHeaders"] = "true"
        raw: DataFrame = reader.format("kafka").options(**options).load()
        special = {
            "stamp": F.unix_millis("timestamp").alias("stamp"),
            "timestamp": F.unix_micros("timestamp").alias("timestamp"),
        }
        return raw.select(*(special.get(name, F.col(name)) for name in columns))
