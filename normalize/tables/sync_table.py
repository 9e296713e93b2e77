"""`sync_table`: from a topic to a table, without a keyed stage.

In each micro-batch, each task decodes its records and keeps the last change of each key. Only if
there are several tasks, the changes are shuffled by key, and the last of each is kept again. They
are stored once, compared with the facts of earlier micro-batches, and written: by the functions
that `sync_database` uses for each of its tables.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import StructType

from cdc_formats.decoding.rows import check_masks
from cdc_formats.errors import ArgumentError, refuse
from cdc_formats.format import Format
from normalize.arguments import names_of
from normalize.dataframe import table_columns
from normalize.decode.check import check_records
from normalize.kafka.dead_letter import DeadLetter
from normalize.spark.sessions import require_jvm

from .database_target import MAX_COLUMNS, lake_target
from .job import TableJob
from .query import Query
from .schema import TableSchema, described_questions
from .table_options import TableOptions, require_distinct_names, wrong_options
from .targets import TableTarget


def sync_table(
    spark: SparkSession,
    topic: str | Sequence[str] | re.Pattern[str] | None = None,
    *,
    format: str | Format,
    target: TableTarget | str,
    schema_location: str,
    options: Mapping[str, Any],
    schema: str | StructType | None = None,
    primary_key: str | Sequence[str] = (),
    format_options: Mapping[str, Any] | None = None,
    table: TableOptions | None = None,
    on_truncate: Literal["fail", "ignore"] = "fail",
    mode: Literal["FAILFAST", "DROPMALFORMED"] | DeadLetter = "FAILFAST",
    check: bool = True,
) -> DataStreamWriter:
    """Return a writer that keeps a table equal to the source table that a topic describes.

    It reads the topic and writes the table without a keyed stage: a table needs only the last
    change of each key.

    Parameters
    ----------
    spark : SparkSession
        A classic session.
    topic : str, sequence of str, re.Pattern or None
        As in `from_kafka_changelog`. A record of a second table is an error.
    format : str or Format
        As in `from_kafka_changelog`.
    target : DeltaTarget, IcebergTarget, JdbcTarget, another TableTarget, or str
        The table, which is created if it is missing. A string is the name of an existing Delta or
        Iceberg table.
    schema_location : str
        A folder for the table's file: its columns and key, and the facts that must stay as they are
        (its target, the source's primary key, the tables and partitions of the topic). A restarted
        query reads the file, and it takes precedence over `schema` and `primary_key`, with a
        warning: edit it to change them while the query is stopped. One query needs a folder of its
        own.
    options : mapping
        Options of Spark's Kafka source; ``maxOffsetsPerTrigger`` bounds a micro-batch.
    schema : str or StructType or None
        The table's columns. None: inferred from a sample of the topic during this call, as in
        `from_kafka_changelog`.
    primary_key : str or sequence of str
        The columns that identify a row; required with `schema`.
    format_options : mapping or None
        Options of the format.
    table : TableOptions or None
        Its ``where``, ``select``, ``deletes``, ``deleted_column``, ``scd_type``, ``track_history``,
        ``position_column``, ``partition_by``, ``cluster_by``, ``properties`` and ``maintenance``,
        as in `sync_database`. Its other options are refused.
    on_truncate : {"fail", "ignore"}
        Whether a truncate of the source table fails the query. Its rows stay in the target.
    mode : {"FAILFAST", "DROPMALFORMED"} or DeadLetter
        What happens to a record that cannot be decoded, as in `from_kafka_changelog`.
    check : bool
        Whether the driver tries the broker, the login, the topic and a sample of its records during
        this call.

    Returns
    -------
    DataStreamWriter
        Set its ``checkpointLocation``, then start it.

    Raises
    ------
    ArgumentError, SchemaError, FormatOptionError, UnknownFormatError, MissingDependencyError,
    InferenceError, TargetError
        During this call, when the arguments or the table cannot be used.
    SampleError, DecodeError
        During this call, when the topic or a sampled record cannot be read.
    SyncError
        While the query runs: the source has another primary key, or the table another target, than
        in earlier micro-batches.
    SeveralTablesError, TopicReplacedError, PartitionsAddedError
        While the query runs: the topic has records of another table; it was deleted and created
        again; or an older change of a key may be read after a newer one that is in an added
        partition.

    Notes
    -----
    The last change of each key in a micro-batch applies: by offset, and between Kafka partitions by
    timestamp. A repeated micro-batch ends in the same rows. An event that a producer repeats in a
    later micro-batch sets its row back, until the events after it are repeated too:
    ``TableOptions(deletes="soft", position_column="position")`` drops it, and so does
    `apply_changes` behind ``ChangelogNormalize(order="source")``.

    A column that a message leaves out as unchanged keeps the table's value.

    See Also
    --------
    sync_database : The same for all tables of a database, with schemas that follow the source.
    apply_changes : Writes any changelog, also one that a query filters, joins or aggregates.
    """
    require_jvm(
        spark,
        "sync_table",
        "run this query in a classic session, or write the table with apply_changes",
    )
    of_table = target if isinstance(target, TableTarget) else lake_target(spark, target)
    query = Query.of(
        spark,
        of_table,
        topic,
        format,
        format_options,
        options,
        schema_location,
        mode,
        on_truncate=on_truncate,
    )
    # The name in the file and in errors: the last part of the target's.
    name = of_table.sql_name.replace("`", "").rstrip("/").rpartition("/")[2]
    key = names_of(primary_key, "primary_key")
    table_options = _options(table or TableOptions(), of_table, schema, key)
    table_schema = query.store.read(name)
    if table_schema is None:
        named_options = None if isinstance(format, Format) else format_options or {}
        table_schema = _declared(name, query.format, query.kafka, schema, key, named_options)
    check_masks(query.format.handling.masks, table_schema.columns, table_schema.primary_key)
    with wrong_options("table"):
        table_options.check_types(query.format)
        policy = type(of_table).policy(table_options)
    job = TableJob(
        name,
        query,
        policy,
        type(of_table),
        lambda: of_table.sql_name,
        lambda name: of_table,
        lambda option: (
            "leave it out of schema="
            if option == "exclude_columns"
            else f"pass table=TableOptions({option}=...)"
        ),
        (MAX_COLUMNS, "sync_table"),
        routed=False,
        guesses=True,
        schema=table_schema,
    )
    job.check("table")
    if check:
        check_records(job.plan(table_schema), query.kafka, keyed=True, bounded=False)
    return query.records().writeStream.foreachBatch(job)


_UNUSED = {
    "name": "pass target=",
    "schema": "pass schema= of sync_table",
    "primary_key": "pass primary_key= of sync_table",
    **dict.fromkeys(
        ("types", "columns", "exclude_columns", "shards", "shard_column"), "call sync_database"
    ),
}
"""The options of a table that `sync_table` does not use, each with what to do instead."""


def _options(
    table: TableOptions, target: TableTarget, schema: Any, key: tuple[str, ...]
) -> TableOptions:
    """Return the options of the table, with its name, columns and key.

    It raises an error for an option that `sync_table` does not use.
    """
    if not isinstance(table, TableOptions):
        raise ArgumentError(f"table is {table!r}: pass TableOptions(...)")
    refuse(
        *(
            (getattr(table, name), f"table has {name}, which sync_table does not use: {remedy}")
            for name, remedy in _UNUSED.items()
        )
    )
    return replace(table, name=target.sql_name, schema=schema, primary_key=key)


def _declared(
    name: str,
    format: Format,
    kafka: Mapping[str, str],
    schema: Any,
    key: tuple[str, ...],
    named_options: Mapping[str, Any] | None,
) -> TableSchema:
    """Return the schema of a table that has no file.

    It is the user's, or else what a sample of the topic shows.
    """
    detected, questions, comments = dict[str, Any](), dict[str, str](), dict[str, str]()
    if schema is None:
        # Imports all formats, which takes time.
        from normalize.kafka.infer_arguments import infer_arguments

        inferred, schema, key, sample = infer_arguments(
            format, kafka, named_options=named_options, primary_key=key
        )
        options = {each.name: getattr(inferred, each.name) for each in fields(inferred)}
        detected = {name: each for name, each in options.items() if each != getattr(format, name)}
        questions = described_questions(sample.columns, sample, lambda column: False)
        comments = sample.comments
    if not key:
        raise ArgumentError(
            "primary_key is missing: pass primary_key=[...], the columns that identify a row"
        )
    columns = table_columns(schema)
    names = [column.name for column in columns]
    require_distinct_names(names)
    refuse(
        *(
            (
                each not in names,
                f"primary_key has {each!r}, which is not one of the columns: {', '.join(names)}",
            )
            for each in key
        )
    )
    nullable = tuple(replace(column, nullable=column.name not in key) for column in columns)
    notes = ("as passed to sync_table, or inferred during the call",)
    return TableSchema(name, nullable, key, detected, notes, questions=questions, comments=comments)
