"""`from_kafka_changelog`, `to_kafka_changelog`, `explain_changelog`: a Kafka topic as a changelog DataFrame, and back."""

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
"""What ``spark.jars.packages`` needs for Spark's Kafka source, for Spark 4.0."""

READER_DEFAULTS = {
    # Spark's default is "latest": a changelog that begins in the middle has updates of rows that nobody has seen.
    "startingOffsets": "earliest",
    # Kafka's consumer asks for 500 records at a time by default; these nearly double the speed of reading alone.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.receive.buffer.bytes": "4194304",
}
"""Options of Spark's Kafka source that differ from its own defaults; an option given by the user wins."""

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
    """Read a topic of CDC messages as a changelog.

    Parameters
    ----------
    spark : SparkSession
        With the package `SPARK_PACKAGES`, and this package on its workers.
    topic : str or sequence of str
        One topic or several; or `topic_pattern`, a Java regular expression; or ``subscribe``, ``subscribePattern`` or ``assign`` in
        `options`.
    format : str or Format
        A registered identifier (``debezium-json``, ...; `cdc_formats.list_formats`), or a format.
    schema : str or StructType or None
        The table's columns: Spark DDL (a precision on TIMESTAMP, and TIME, are understood too), or Spark's type. None: the topic is
        sampled here, on the driver, and what was inferred is printed (`cdc_formats.inference`): the columns, the primary key and the
        format's options, as far as they are not given. Pin them in a job that is to last.
    options : mapping
        Of Spark's Kafka source, passed through; ``kafka.bootstrap.servers`` is required. `READER_DEFAULTS` are ours.
    format_options : mapping
        Of the format, with Flink's names (``table_include``, ...).
    primary_key : str or sequence of str
        The columns that identify a row. A column of `metadata` can be one of them: ``["source.table", "id"]`` keeps the rows of several
        tables apart. Without that, records of a second table are an error.
    changelog_mode : {"all", "upsert"}
        What you need: ``all`` has ``-U``; ``upsert`` has ``+I +U -D``.
    source_duplicates : bool
        Whether the producer may deliver an event more than once (Flink's ``table.exec.source.cdc-events-duplicate``). If so the stage
        removes what it has seen, and needs `primary_key`.
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"}
        A record that cannot be decoded fails the query, is dropped and counted, or becomes a row with ``_corrupt_record`` (the
        error's text, the place, and the raw key and value) whose other columns are NULL.
    dead_letter : str or None
        A topic that records which cannot be decoded are written to, by the workers, instead of `mode` (`normalize.dead_letter`: their
        key and headers). They are there before the rows of their batch are handed on; a query that is started again may write some
        again, with equal keys. The topic must be there, and take records as large as those of the topic read.
    dead_letter_options : mapping
        Of the producer of dead letters, with librdkafka's names. By default it connects as `options` say; where they name
        ``bootstrap.servers`` nothing of that is taken, where they name anything of ``security``, ``sasl`` or ``ssl`` only the servers.
    metadata : sequence of str
        Metadata columns, with Flink's names: the format's (``source.timestamp``, ...), and ``topic``, ``partition``, ``offset``,
        ``timestamp``, ``timestamp-type``, ``headers``, ``header-list``. A row has those of the record that caused it, a ``-U`` too;
        they take no part in whether two rows are equal (in Flink they do).
    control_events : str or sequence of str
        What a topic says besides rows, and is to be delivered too: ``DDL``, ``HEARTBEAT``, ``MESSAGE``, ``SNAPSHOT_MARK``,
        ``TRANSACTION``, ``TRUNCATE`` (for which `on_truncate` then has no say), ``OTHER_TABLE``, ``TOMBSTONE``, or ``all`` for the first
        six. Each is a row with ``_control_event`` (its type, what it is about, its statement; the record's place, timestamp, key
        and value) whose other columns are NULL. In a micro-batch it may come before or after the rows around it: its topic,
        partition and offset tell its place (compare them with these columns of `metadata`).
    on_truncate : {"fail", "ignore"}
        What a truncated source table does: no row of a changelog says it.
    bounded : bool
        Read what is there now, once, with ``spark.read``: the same rows, without state.
    key_groups : int
        Into how many groups the keys are hashed; fixed for the life of a checkpoint.
    order : {"arrival", "source"}
        ``source``: a change at or before its key's position in the source's log is a redelivery, dropped and counted (`order`), so that
        redeliveries of any part of the topic, restarts of the connector and late deletes leave no trace. For formats whose messages have
        positions; an error that says why for others.
    delete_retention : timedelta
        How long, with ``order="source"``, the position of a delete is kept (processing time), so that a late update cannot bring the
        row back.
    where : str, Column or None
        A condition on the table's columns, as Spark has it: a row that stops matching is deleted, and one that never matched is not
        stored. A row in which the producer left out one of its columns (unchanged TOAST values) is an error.
    ignore_columns : sequence of str
        Columns in which a difference alone is no change (``updated_at``): such an update gives nothing, and the row stays as it was last
        emitted.
    ignore_deletes : bool
        Whether deletes are left out: their rows stay. An event that changes the primary key leaves the old row, too.
    state_layout : {"full", "compact"}
        What is stored of a key: ``full``, its row; ``compact``, hashes of key and row (and the position), at most 32 bytes. ``compact``
        is for sources whose events carry the full before-image: ``-U`` and ``-D`` are the event's own, and one that is not what was last
        emitted is detected. Rows that lack columns cannot be completed, and the number of key groups cannot be changed later.
    on_wrong_before : {"count", "fail"}
        What ``compact`` does about a before-image that is not what was last emitted: count it, and give the rows as the event says them
        (an update without a before-image gives no ``-U``), or fail.
    state_ttl : timedelta or None
        Forget a row this long after its last write (processing time), as Flink: its next change is an ``+I``, its delete is dropped.
        With it an equal row is not suppressed.
    on_expiry : {"forget", "retract"}
        Whether a row that expires is deleted from the result too: then Spark looks through the whole state in every micro-batch.
    mini_batch : bool
        Keep only the last change of a key in a micro-batch.
    observation : str, Observation or None
        Prefix of the observed metrics of a stream, ``changelog`` by default (``<prefix>_decode`` and ``<prefix>_normalize`` in the
        query's progress); for a bounded read an Observation, which gets the counts of both.

    Returns
    -------
    DataFrame
        ``row_kind`` (``+I -U +U -D``), the columns, the metadata, ``_corrupt_record`` in PERMISSIVE mode, and ``_control_event`` where
        control events are asked for; streaming unless `bounded`. TIME columns are STRING.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError, MissingDependencyError
        Here, at the call, when the arguments cannot be used; the text names the fix.
    InferenceError, SampleError
        When there is no schema, and the topic's sample says too little or cannot be read.

    Notes
    -----
    Rows of one key come in the order of its Kafka partition. Partitions of one micro-batch are merged by Kafka's timestamps.
    A stream with the stage is to be written in output mode ``append``.
    """
    chosen, reader_options = _format(format, format_options), _reader_options(topic, topic_pattern, options)
    if schema is None:
        given = None if isinstance(format, Format) else format_options or {}
        from .sampled import sampled  # loads formats and inference, which only those who ask have to wait for

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
    """Return the plan that `from_kafka_changelog` would choose, and why, after Flink's ``EXPLAIN CHANGELOG_MODE``.

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
        With ``row_kind``. Rows without a row kind (corrupt records, control events) are to be filtered out before.
    topic : str
    options : mapping
        Of Spark's Kafka sink; ``kafka.bootstrap.servers`` is required.
    format : str or Format
        One that can be written.
    format_options : mapping
        Of the format: values are written as they say (``decimal_handling_mode``, ...), so that a reader with the same options reads
        the same rows.
    schema : str or StructType or None
        The columns to write, where not all are wanted (metadata), or the DataFrame's types do not say all: a TIME is STRING there, and
        a TIMESTAMP has no precision, which ``time_precision_mode='adaptive'`` needs.
    primary_key : str or sequence of str
        The columns that the Kafka key is made of, so that a key's rows stay in one partition, in order.
    source : mapping or None
        The messages' block ``source``, which says where in its source's log a row stands, for readers with ``order="source"``: names
        of its fields as Debezium's (``file``, ``pos``, ``row``, ``server_id``, ``snapshot``, ``ts_ms``, ...), each with the column that
        it is (``"position.file"`` for a field of one). These columns are no data: they are not in the row. A TIMESTAMP is written in
        milliseconds. `capture.SOURCE` is that of ``mysql-changelog``. debezium-json and changelog-json have such a block.

    Returns
    -------
    DataStreamWriter or None
        For a stream, the writer: give it a ``checkpointLocation`` and start it. A bounded DataFrame is written at once.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError
        Here, at the call. A value that the format cannot hold is an ``EncodeError`` when it is written, never another value.

    Notes
    -----
    A ``-U`` that is directly followed by the ``+U`` of its key is written as one update, with both images (Flink writes a delete and
    an insert). Alone, a ``-U`` is written as a delete and a ``+U`` as an insert: a changelog without ``-U``
    (``changelog_mode="upsert"``) is therefore for upsert-kafka, or for readers that normalise by key. Kafka is written at least once.
    """
    require_changelog(df)
    table = _written_columns(df, schema, without=columns_of(source or {}))
    _require_servers(options)
    encoder = _format(format, format_options).for_topic(topic)
    written = encoder.encoder(table, unique_key=names_of(primary_key))
    if source and not written.writes_source:
        raise ArgumentError(f"{encoder.identifier} as configured writes no block `source`: leave source= out, or write debezium-json")
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
            raise SchemaError(f"schema has {column}, and the DataFrame has {there.get(column.name, 'no such column')}")
    return table


# --------------------------------------------------------------------------------------------------------- the arguments


def _format(format: str | Format, options: Mapping[str, Any] | None) -> Format:
    if isinstance(format, Format):
        if options:
            raise ArgumentError(f"format_options go with a format's name; give them to the format itself: {type(format).__name__}(...)")
        return format
    if not isinstance(format, str):
        raise ArgumentError(f"format is {format!r}; it is an identifier such as 'debezium-json', or a Format")
    return get_format(format, **(options or {}))


def _require_servers(options: Mapping[str, Any]) -> None:
    if "kafka.bootstrap.servers" not in options:
        raise ArgumentError("options lack 'kafka.bootstrap.servers', for example {'kafka.bootstrap.servers': 'localhost:9092'}")


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
        raise ArgumentError(f"name what to read once: topic, topic_pattern, or an option of {', '.join(_SUBSCRIPTIONS)}; {got}")
    return {**READER_DEFAULTS, **given}


def _twice(option: str) -> str:
    raise ArgumentError(f"the topic is given, and the option {option} too: give one of them")


def _dead_letters(
    topic: str | None, given: Mapping[str, Any] | None, options: Mapping[str, str], mode: str, format: Format
) -> DeadLetters | None:
    if topic is None:
        if given:
            raise ArgumentError("dead_letter_options are those of dead_letter, and there is none")
        return None
    if mode != "FAILFAST":
        raise ArgumentError(f"a bad record goes to dead_letter={topic!r}, so that mode={mode!r} has no say: leave one of them out")
    if _reads(topic, options):
        raise ArgumentError(f"dead_letter={topic!r} is read too: a dead letter would come back for ever")
    return DeadLetters.check(topic, format.identifier, options, given or {})


def _control_events(names: str | Sequence[str]) -> frozenset[Ignored]:
    if names == "all":
        return _ALL_CONTROL_EVENTS
    unknown = [name for name in names_of(names) if name not in _CONTROL_EVENTS]
    if unknown:
        raise ArgumentError(f"control_events has {unknown[0]!r}; there are {', '.join(_CONTROL_EVENTS)}, or 'all'")
    return frozenset(_CONTROL_EVENTS[name] for name in names_of(names))


def _check_observation(observation: Any, bounded: bool) -> None:
    if bounded and isinstance(observation, str):
        raise ArgumentError("observation of a bounded read is a pyspark.sql.Observation: only that can be asked for its counts")
    if not bounded and observation is not None and not isinstance(observation, str):
        raise ArgumentError("observation of a stream is the prefix of its metrics' names, which stand in the query's progress")


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
            raise ArgumentError(f"{', '.join(given)} is for ChangelogNormalize, and the plan has none: {request.plan.reason}")
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
    """Checked arguments: what is read, what the first pass has to know, and the plan."""

    options: dict[str, str] = field(repr=False)  # a password may be among them
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
        """Refuse what cannot be used, here on the driver."""
        if mode not in _MODES:
            raise ArgumentError(f"mode is {mode!r}; it is one of {', '.join(_MODES)}")
        check_choice("on_truncate", on_truncate, ("fail", "ignore"))
        check_choice("order", order, ("arrival", "source"))
        check_choice("state_layout", state_layout, ("full", "compact"))
        table, names = table_columns(schema), names_of(metadata)
        key, key_metadata = _split_key(table, names_of(primary_key), _metadata(format, names))
        plan = planner.make_plan(format.changelog_mode, key, changelog_mode, source_duplicates)
        if key_metadata and not plan.normalize:
            raise ArgumentError(f"primary_key has the metadata column {key_metadata[0]!r}, and no stage merges rows by key: {plan.reason}")
        # Without a stage no rows are merged: it is enough that each row names its table.
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
                "several topics may be read, and without a stage their tables are not compared: add metadata=['topic'], so that each row "
                "names its topic, or read each topic with a call of its own"
            )
        source.decoder()  # what the format cannot read is refused here, not on a worker
        _check_names(source)
        return cls(options, source, plan)


def _metadata(format: Format, names: tuple[str, ...]) -> tuple[str, ...]:
    known = {*format.metadata, *KAFKA_METADATA}
    unknown = [name for name in names if name not in known]
    if unknown:
        hint = ". Spark's Kafka source does not tell it" if unknown[0] == "leader-epoch" else ""
        raise SchemaError(f"{format.identifier} has no metadata column {unknown[0]!r}; it has {', '.join(sorted(known))}{hint}")
    return names


def _split_key(
    columns: Sequence[Column], primary_key: tuple[str, ...], metadata: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of the primary key that are the table's, and those that are metadata."""
    of_table = {column.name for column in columns}
    of_metadata = tuple(name for name in primary_key if name not in of_table and name in metadata)
    return tuple(name for name in primary_key if name not in of_metadata), of_metadata


def _check_names(source: Source) -> None:
    # Spark compares names without case by default: two that differ in case alone could not be told apart.
    output = source.output
    reserved = [ROW_KIND, *ASIDES, COUNTS_COLUMN]
    names = [*reserved, *(column.name for column in (*output.columns, *output.metadata))]
    lower = [name.lower() for name in names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise SchemaError(
            f"column {', '.join(twice)} would stand in the result twice: of the schema, the metadata, and "
            f"{', '.join(reserved)}, rename what is yours"
        )


def _only_topic(options: Mapping[str, str]) -> str | None:
    topics = subscribed(options)
    return topics[0] if len(topics) == 1 else None


def _reads(topic: str, options: Mapping[str, str]) -> bool:
    """Return whether a topic is among those that are read; what these options cannot mean is for Spark to refuse."""
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
    """Puts a query together."""

    spark: SparkSession
    request: _Request
    stage: Stage | None
    where: str | SparkColumn | None
    observation: Any

    def streaming(self) -> DataFrame:
        """Kafka, decode, and the stage if the plan has one."""
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
        """The same without state."""
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
