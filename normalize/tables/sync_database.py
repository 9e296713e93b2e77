"""`sync_database`: one streaming query and one read of Kafka for all tables of a database."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pyspark.sql import SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from cdc_formats.errors import ArgumentError
from cdc_formats.format import Format
from normalize.arguments import check_choice, check_mapping, names_of
from normalize.decode.check import check_readable
from normalize.kafka.dead_letter import DeadLetter
from normalize.spark.sessions import require_jvm

from .database import SyncDatabase
from .database_target import Database, JdbcDatabase, LakeDatabase
from .query import Query
from .resync import Resyncs
from .route import Route, Router
from .table_options import Selection, TableOptions, wrong_options


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
        micro-batch that counts what it misses. Its file says why. `cdc resync` and `resync_table`
        resume it. A record
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
    query = Query.of(
        spark,
        target,
        topic,
        format,
        format_options,
        options,
        schema_location,
        mode,
        on_new_column,
        on_truncate,
    )
    chosen = query.format
    if chosen.unknown_columns == "fail":
        raise ArgumentError(
            "unknown_columns='fail' has no effect in sync_database, whose schemas grow: pass "
            "on_new_column='fail'"
        )
    failfast = query.mode == "FAILFAST" and query.dead_letters is None
    stops_table = on_table_error == "stop_table"
    selection = Selection.of(
        names_of(include, "include"), names_of(exclude, "exclude"), tables or {}
    )
    route = Route(
        chosen,
        selection,
        failfast and not stops_table,
        query.dead_letters,
        stops_table=failfast and stops_table,
    )
    router = Router(chosen, route.selection)
    if check:
        check_readable(
            query.kafka, router.route, fail=route.fail, error_excerpt=chosen.error_excerpt
        )
    sync = SyncDatabase(
        query, target, dict(tables or {}), route, on_table_error, target.on_question, parallel
    )
    for table in sync.options:
        argument = f"tables[{table!r}]"
        with wrong_options(argument):
            job = sync.job(table)
            job.policy.check_types(chosen)
        job.load()
        job.check(argument)
    return query.records().writeStream.foreachBatch(Resyncs(sync))


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
