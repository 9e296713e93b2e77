"""The public functions that read and write changelogs.

They are `from_kafka_changelog`, `decode_changelog` and their counterparts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from cdc_formats.errors import ArgumentError, SchemaError
from cdc_formats.format import Format
from cdc_formats.values.schema import Column, columns as to_columns
from normalize.core.arrow import frame_type
from normalize.core.key_group import Stage
from normalize.core.output import ROW_KIND, SIDE_OUTPUTS, Mode
from normalize.decode.check import check_records
from normalize.decode.columnar import decoder_of
from normalize.decode.plan import DecodePlan, RecordInput, input_of, needed_columns
from normalize.kafka.dead_letter import DeadLetter
from normalize.kafka.reader_options import (
    SINK_OPTIONS,
    check_option_names,
    only_topic,
    reader_options,
    reads_topic,
    require_servers,
    splits_partitions,
)
from normalize.kafka.topics import TopicIds, topic_descriptions

from .arguments import as_format, names_of
from .dataframe import (
    has_native_engine,
    positional,
    require_changelog,
    require_distinct,
    table_columns,
    with_text,
)
from .encode import columns_of, encode_pass, source_block
from .query import ChangelogNormalize, Request, make_options
from .spark_versions import check_kafka_source, check_session, check_version, load_kafka
from .stage_options import explain

__all__ = [
    "decode_changelog",
    "encode_changelog",
    "explain_changelog",
    "from_kafka_changelog",
    "to_kafka_changelog",
]


def from_kafka_changelog(
    spark: SparkSession,
    topic: str | Sequence[str] | re.Pattern[str] | None = None,
    *,
    format: str | Format,
    schema: str | StructType | None = None,
    primary_key: str | Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    format_options: Mapping[str, Any] | None = None,
    normalize: ChangelogNormalize | Literal[False] | None = None,
    mode: Mode | DeadLetter = "FAILFAST",
    metadata: Mapping[str, str] | Sequence[str] = (),
    changelog_mode: Literal["all", "upsert"] = "all",
    control_events: str | Sequence[str] = (),
    on_truncate: Literal["fail", "ignore"] = "fail",
    bounded: bool = False,
    observation: str | Observation | None = None,
    check: bool = True,
) -> DataFrame:
    """Return a topic of CDC messages as a changelog DataFrame.

    Parameters
    ----------
    spark : SparkSession
        A session with `spark_packages` (`local_session` starts one), and with this package
        installed on its workers.
    topic : str, sequence of str, re.Pattern or None
        One or more topics, or a pattern of names: ``re.compile("shop[.].*")``. None: one of
        ``subscribe``, ``subscribePattern`` (a Java regular expression) and ``assign`` in `options`.
    format : str or Format
        A registered identifier (``debezium-json``, ...; `cdc_formats.list_formats`), or a format.
    schema : str or StructType or None
        The table's columns, as Spark DDL or a Spark type. DDL may also use TIME, and a precision on
        TIMESTAMP. None: the driver samples the topic during this call
        (`cdc_formats.topics.inference`) and prints the columns, primary key and format options that
        it inferred. Arguments that you pass are not inferred. Pass all of them in a production job.
    primary_key : str or sequence of str
        The columns that identify a row. They may include a column of `metadata`, by the name of the
        column: ``["source.table", "id"]`` separates the rows of several tables. Otherwise a record
        of a second table is an error. A checkpoint fixes these names.
    options : mapping
        Options of Spark's Kafka source; ``kafka.bootstrap.servers`` is required. `READER_DEFAULTS`
        lists the defaults that differ from Spark's. With ``nativeDecoder`` set to false, Python
        decodes, as with the environment variable ``CDC_NATIVE=0``.
    format_options : mapping or None
        Options of the format, with Flink's names (``table_include``, ...).
    normalize : ChangelogNormalize, False or None
        The options of the keyed stage, which removes duplicates and completes rows:
        ``ChangelogNormalize(order="source")``. None: the default options. The planner adds the
        stage if the format and the arguments require it; `explain_changelog` prints the reason.
        False: the stage is never added, and the rows are as in the topic. The call then raises if
        `changelog_mode` or `primary_key` require the stage.
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"} or DeadLetter
        What happens to a record that cannot be decoded. It fails the query, or is dropped and
        counted, or becomes a row with ``_corrupt_record`` (the error's text, the record's offset,
        and the raw key and value) whose other columns are NULL. ``DeadLetter("orders.dead")``
        writes it to a Kafka topic.
    metadata : mapping or sequence of str
        Metadata columns: the column's name and the metadata,
        ``{"event_time": "source.timestamp"}``. A list of names is short for columns with the same
        names. Metadata has Flink's names: the format's (``source.timestamp``, ...), and ``topic``,
        ``partition``, ``offset``, ``timestamp``, ``timestamp-type``, ``headers``, ``header-list``.
        A row, also a ``-U``, has the metadata of the record that caused it. It is ignored when rows
        are compared (Flink compares it).
    changelog_mode : {"all", "upsert"}
        The row kinds in the result: ``all`` includes ``-U``; ``upsert`` has ``+I +U -D``.
    control_events : str or sequence of str
        Events other than row changes to include in the result: ``DDL``, ``HEARTBEAT``, ``MESSAGE``,
        ``SNAPSHOT_MARK``, ``TRANSACTION``, ``TRUNCATE`` (`on_truncate` is then ignored),
        ``OTHER_TABLE``, ``TOMBSTONE``, or ``all`` for the first six. Each is a row with
        ``_control_event`` (its type, subject and statement; the record's topic, partition, offset,
        timestamp, key and value) whose other columns are NULL. It may precede or follow the
        neighbouring rows of its micro-batch: to restore the order, compare its topic, partition and
        offset with these columns of `metadata`.
    on_truncate : {"fail", "ignore"}
        What happens when the source table is truncated, which no changelog row can express.
    bounded : bool
        Read the topic's current content once, with ``spark.read``: the same rows, without state.
    observation : str, Observation or None
        For a stream, the prefix of the observed metrics in the query's progress
        (``<prefix>_decode`` and ``<prefix>_normalize``), ``changelog`` by default. For a bounded
        read, an Observation that receives the counts of both.
    check : bool
        Whether the driver tries the broker, the login, the topic and a sample of its records during
        this call (`normalize.decode.check`). A wrong password, topic, format or type is then one
        sentence at once.

    Returns
    -------
    DataFrame
        ``row_kind`` (``+I -U +U -D``), the columns, the metadata, ``_corrupt_record`` in PERMISSIVE
        mode, and ``_control_event`` if control events are requested; streaming unless `bounded`.
        TIME columns are STRING unless declared as ``TIME(p) WITHOUT TIME ZONE``. Two VARIANT
        columns are equal if their JSON texts are.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError, MissingDependencyError
        During this call, when the arguments cannot be used, or the session's Spark or Kafka source
        has an unsupported version; the text names the fix.
    SampleError
        When no broker answers, the login is refused, or the topic does not exist or cannot be read.
    DecodeError
        When the query would fail at a sampled record.
    InferenceError
        When no schema is given, and the sample of the topic is not sufficient.

    Notes
    -----
    Rows of one key keep the order of their Kafka partition. Partitions of one micro-batch are
    merged by Kafka's timestamps. Write a stream with the keyed stage in output mode ``append``, or
    ``update`` with ``engine="native"``.

    See Also
    --------
    decode_changelog : The same for records in any DataFrame.
    """
    chosen, kafka = as_format(format, format_options), reader_options(topic, options)
    if schema is None:
        named_options = None if isinstance(format, Format) else format_options or {}
        from normalize.kafka.infer_arguments import (
            infer_arguments,
        )  # imports all formats, which takes time

        key = names_of(primary_key, "primary_key") or names_of(
            normalize.primary_key if isinstance(normalize, ChangelogNormalize) else ()
        )
        chosen, schema, primary_key, _ = infer_arguments(
            chosen, kafka, named_options=named_options, primary_key=key
        )
    if isinstance(mode, DeadLetter) and reads_topic(mode.topic, kafka):
        raise ArgumentError(
            f"{mode.topic!r} is also a topic that is read, so that dead letters would loop: choose "
            "another topic"
        )
    records = RecordInput(
        streaming=not bounded, topic=only_topic(kafka), split_partitions=splits_partitions(kafka)
    )
    request = Request.check(
        records,
        kafka,
        format=chosen,
        schema=schema,
        primary_key=primary_key,
        normalize=normalize,
        mode=mode,
        metadata=metadata,
        changelog_mode=changelog_mode,
        control_events=control_events,
        on_truncate=on_truncate,
        observation=observation,
    )
    check_version(spark)
    check_kafka_source(spark)
    stage = request.stage()
    if check:
        check_records(request.plan, kafka, keyed=stage is not None, bounded=bounded)
    if not bounded and (check or stage is not None):
        request, stage = _with_topics(request, stage, kafka)
    if "headers" in needed_columns(request.plan):
        kafka["includeHeaders"] = "true"
    check_session(spark, keyed_stream=stage is not None and not bounded)
    reader = spark.read if bounded else spark.readStream
    return request.changelog(load_kafka(reader.format("kafka").options(**kafka)), stage)


def _with_topics(
    request: Request, stage: Stage | None, kafka: Mapping[str, str]
) -> tuple[Request, Stage | None]:
    """Return the query with Kafka's descriptions of its topics, which micro-batches compare."""
    described = topic_descriptions(kafka)
    if described:
        request = replace(request, topics=TopicIds.of(kafka, described))
    if stage is not None:
        stage = replace(stage, expected=replace(stage.expected, topics=described))
    return request, stage


def decode_changelog(
    df: DataFrame,
    *,
    format: str | Format,
    schema: str | StructType,
    primary_key: str | Sequence[str] = (),
    format_options: Mapping[str, Any] | None = None,
    normalize: ChangelogNormalize | Literal[False] | None = None,
    mode: Mode | DeadLetter = "FAILFAST",
    metadata: Mapping[str, str] | Sequence[str] = (),
    changelog_mode: Literal["all", "upsert"] = "all",
    control_events: str | Sequence[str] = (),
    on_truncate: Literal["fail", "ignore"] = "fail",
    observation: str | Observation | None = None,
) -> DataFrame:
    """Return a DataFrame of CDC messages as a changelog DataFrame.

    The messages may come from anywhere: a bronze Delta table, files, Kinesis, Pulsar.
    `from_kafka_changelog` is this function on Spark's Kafka source.

    Parameters
    ----------
    df : DataFrame
        Streaming or not, with a column ``value`` (BINARY or STRING), and optionally ``key`` (BINARY
        or STRING), ``topic``, ``partition``, ``offset``, ``timestamp``, ``timestampType`` and
        ``headers``, with the names and types of Spark's Kafka source. Additional columns are
        ignored.
    format, schema, primary_key, format_options
        As in `from_kafka_changelog`; `schema` is required.
    normalize : ChangelogNormalize, False or None
        As in `from_kafka_changelog`. ``order="source"`` requires the columns ``partition`` and
        ``offset``.
    mode : {"FAILFAST", "DROPMALFORMED", "PERMISSIVE"} or DeadLetter
        As in `from_kafka_changelog`. A DeadLetter requires ``bootstrap.servers`` in its options.
    metadata : mapping or sequence of str
        As in `from_kafka_changelog`. Kafka's metadata requires the corresponding column of `df`.
    changelog_mode, control_events, on_truncate, observation
        As in `from_kafka_changelog`.

    Returns
    -------
    DataFrame
        As from `from_kafka_changelog`; streaming if `df` is.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError, MissingDependencyError
        During this call, when the arguments cannot be used; the text names the fix.
    RowOrderError
        While the query runs, when the order of two records of one key is unknown.

    Notes
    -----
    The columns of `df` decide in which order the keyed stage processes the records of a key:

    - With ``partition`` and ``offset``: by offset, in whatever order the records are in `df`. The
      records of a bronze table may therefore have been reordered or compacted. Partitions are
      merged by ``timestamp``. Without timestamps, two records of one key in two Kafka partitions of
      a micro-batch are an error.
    - Without them, a stream: in the order of the rows in each partition of `df`. A source that
      reads several files in one task may mix them: set ``maxFilesPerTrigger`` to 1, or add offsets.
      Partitions are merged by ``timestamp``. Two records of one key in two partitions of a
      micro-batch with the same timestamp, or none, are an error.
    - Without them, bounded: by ``timestamp``, which is required since the rows of a table have no
      order. Two different records of one key with the same timestamp are an error.

    Without the stage, rows keep the order of `df`.

    Without ``partition`` and ``offset``, errors name a record as ``DataFrame[partition]@row``,
    counted in its task. Without ``topic``, the records are one topic without a name. Topics that
    are deleted and created again are not detected, as they are in `from_kafka_changelog`.

    Examples
    --------
    ::

        bronze = spark.readStream.table("bronze.orders")
        decode_changelog(bronze, format="debezium-json", schema="id BIGINT, name STRING", primary_key="id")
    """
    request = Request.check(
        input_of(df),
        {},
        format=as_format(format, format_options),
        schema=schema,
        primary_key=primary_key,
        normalize=normalize,
        mode=mode,
        metadata=metadata,
        changelog_mode=changelog_mode,
        control_events=control_events,
        on_truncate=on_truncate,
        observation=observation,
    )
    check_version(df.sparkSession)
    return request.changelog(df, request.stage())


def explain_changelog(
    topic: str | Sequence[str] | re.Pattern[str],
    *,
    format: str | Format,
    primary_key: str | Sequence[str] = (),
    format_options: Mapping[str, Any] | None = None,
    normalize: ChangelogNormalize | Literal[False] | None = None,
    changelog_mode: Literal["all", "upsert"] = "all",
) -> str:
    """Return `from_kafka_changelog`'s plan with reasons, like Flink's ``EXPLAIN CHANGELOG_MODE``.

    Parameters
    ----------
    topic : str, sequence of str or re.Pattern
    format, primary_key, format_options, normalize, changelog_mode
        As in `from_kafka_changelog`.

    Returns
    -------
    str
        The steps, last first: ChangelogNormalize or why there is none, and what precedes it. The
        decoder is that of the driver, for a key of text or integers. With
        the stage, a last line says whether ``engine="native"`` could run it, and why not.

    Raises
    ------
    ArgumentError, FormatOptionError, UnknownFormatError
        When `from_kafka_changelog` would raise for these arguments.

    Examples
    --------
    >>> print(explain_changelog("orders", format="debezium-json", primary_key=["id"]))  # doctest: +ELLIPSIS
    ChangelogNormalize(key=[id], changelogMode=[+I, -U, +U, -D]): the source may deliver an event twice (source_duplicates=True); \
the state contains each key's row, changes apply in the order of arrival
    +- Exchange(hash[key group of id], key_groups=64, changelogMode=[+I, +U, -D])
       +- DropUpdateBefore(changelogMode=[+I, +U, -D]): the stage stores the previous row; a changed key is a delete and an upsert
          +- Decode(format=[debezium-json], changelogMode=[+I, -U, +U, -D]): by ...
             +- Kafka(orders)
    engine='native' is possible: on Spark 4.2, in output mode update, for rows with all columns; it serves large tables
    """
    chosen = as_format(format, format_options)
    options, plan = make_options(
        normalize, chosen, names_of(primary_key, "primary_key"), changelog_mode
    )
    topics = topic.pattern if isinstance(topic, re.Pattern) else ",".join(names_of(topic))
    # The decoder depends on the types of the key, which are not known here: of most they are these.
    key = names_of(options.primary_key)
    columns = to_columns(", ".join(f"`{name}` STRING" for name in key or ("id",)))
    decoded = DecodePlan(chosen, columns, unique_key=key, positions=options.order == "source")
    return explain(
        plan,
        options,
        format=chosen.identifier,
        source=chosen.changelog_mode,
        topic=topics,
        decoder=decoder_of(decoded, keyed=plan.normalize),
    )


def encode_changelog(
    df: DataFrame,
    *,
    format: str | Format = "changelog-json",
    format_options: Mapping[str, Any] | None = None,
    schema: str | StructType | None = None,
    primary_key: str | Sequence[str] = (),
    source: Mapping[str, str] | None = None,
    topic: str | None = None,
) -> DataFrame:
    """Return a changelog as records with ``key`` and ``value``, to be written with any sink.

    Parameters
    ----------
    df : DataFrame
        A changelog with ``row_kind``, streaming or not. Filter out rows without a row kind (corrupt
        records, control events) first.
    format : str or Format
        A format that can be written.
    format_options : mapping or None
        Options of the format. A reader with the same options (``decimal_handling_mode``, ...) reads
        the same rows.
    schema : str or StructType or None
        The columns to write, to leave out some (metadata), or to give types that Spark lacks: in a
        DataFrame a TIME can be a STRING, and a TIMESTAMP has no precision, which
        ``time_precision_mode='adaptive'`` requires. A VARIANT is written as its JSON text.
    primary_key : str or sequence of str
        The columns of the record's key, so that a key's rows stay in one Kafka partition, in order.
    source : mapping or None
        The messages' `source` block with the row's position in the source's log, for readers with
        ``order="source"``. It maps Debezium's field names (``file``, ``pos``, ``row``,
        ``server_id``, ``snapshot``, ``ts_ms``, ...) to columns (``"position.file"`` for a struct's
        field). These columns are not written as data. A TIMESTAMP is written in milliseconds.
        `capture.SOURCE` is the mapping for ``mysql-changelog``. Only debezium-json and
        changelog-json have this block.
    topic : str or None
        The topic that the records are for: formats that register their schema derive its name from
        it (``<topic>-value``).

    Returns
    -------
    DataFrame
        ``key BINARY, value BINARY``; streaming if `df` is.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError
        During this call. A value that the format cannot represent raises ``EncodeError`` when it is
        written.

    Notes
    -----
    A ``-U`` that is directly followed by the ``+U`` of its key is written as one update, with both
    images (Flink writes a delete and an insert). A single ``-U`` is written as a delete, and a
    single ``+U`` as an insert. Write a changelog without ``-U`` (``changelog_mode="upsert"``)
    therefore as upsert-kafka, or for readers that normalize by key.

    Examples
    --------
    ::

        records = encode_changelog(changes, format="debezium-json", primary_key="id")
        records.write.format("kafka").option("topic", "orders").options(**kafka).save()
    """
    require_changelog(df)
    table = _written_columns(df, schema, without=columns_of(source or {}))
    encoder = as_format(format, format_options)
    if encoder.handling.masks:
        raise ArgumentError(
            "the format's option mask is for reading: remove it, and pass it to the function that "
            "reads the messages"
        )
    for_topic = encoder.traits.for_topic
    encoder = encoder if topic is None or for_topic is None else for_topic(topic)
    written = encoder.encoder(table, unique_key=names_of(primary_key, "primary_key"))
    if source and not written.writes_source:
        raise ArgumentError(
            f"{encoder.identifier} as configured writes no `source` block: remove source=, or "
            "write debezium-json"
        )
    names = [column.name for column in table]
    require_distinct(df, names)
    rows = with_text(df, table)
    return rows.select(ROW_KIND, *positional(names), *source_block(df, source or {})).mapInArrow(
        partial(
            encode_pass,
            format=encoder,
            columns=table,
            unique_key=names_of(primary_key, "primary_key"),
        ),
        "key BINARY, value BINARY",
    )


def to_kafka_changelog(
    stream: DataFrame,
    topic: str,
    *,
    options: Mapping[str, Any],
    format: str | Format = "changelog-json",
    format_options: Mapping[str, Any] | None = None,
    schema: str | StructType | None = None,
    primary_key: str | Sequence[str] = (),
    source: Mapping[str, str] | None = None,
) -> DataStreamWriter:
    """Return the writer of a streaming changelog to a topic.

    Parameters
    ----------
    stream : DataFrame
        A streaming changelog with ``row_kind``. A bounded one is written with `encode_changelog`.
    topic : str
    options : mapping
        Options of Spark's Kafka sink; ``kafka.bootstrap.servers`` is required.
    format, format_options, schema, primary_key, source
        As in `encode_changelog`.

    Returns
    -------
    DataStreamWriter
        Set its ``checkpointLocation`` and start it. Records are written at least once.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError
        During this call. A value that the format cannot represent raises ``EncodeError`` when it is
        written.

    See Also
    --------
    encode_changelog : Describes the records, and writes a bounded changelog.
    """
    if not stream.isStreaming:
        raise ArgumentError(
            "the DataFrame is bounded, and to_kafka_changelog writes streams: use "
            "encode_changelog(df, ...).write.format('kafka').option('topic', "
            f"{topic!r}).options(...).save()"
        )
    check_option_names(options, supported=SINK_OPTIONS)
    require_servers(options)
    records = encode_changelog(
        stream,
        format=format,
        format_options=format_options,
        schema=schema,
        primary_key=primary_key,
        source=source,
        topic=topic,
    )
    sink = {**{name: str(value) for name, value in options.items()}, "topic": topic}
    writer = records.writeStream.format("kafka").options(**sink)
    return writer.outputMode("update") if has_native_engine(records) else writer


def _written_columns(
    df: DataFrame, schema: str | StructType | None, *, without: Sequence[str]
) -> tuple[Column, ...]:
    of_frame = table_columns(df.schema, without=(ROW_KIND, *SIDE_OUTPUTS, *without))
    if schema is None:
        return of_frame
    frame_types = {column.name: frame_type(column.type) for column in of_frame}
    table = table_columns(schema)
    for column in table:
        if frame_types.get(column.name) != frame_type(column.type):
            raise SchemaError(
                f"schema has {column}, but the DataFrame has "
                f"{frame_types.get(column.name, 'no such column')}"
            )
    return table
