"""The check of a job: what its file, a sample of its topics, and its target show before it runs.

==============================================  ==================================================
the broker, the login, a topic, a record, or a  the check ends with the error
folder that cannot be written
a table that its options do not fit, as the     an error; the check goes on with the other tables
sample shows: its key, partitions, reserved
names; and with a session of Spark its
expressions and its target
what the sample cannot decide: a type, a table  not checked, with what to do
or column that no record has, a Kafka key
unlike the primary key
==============================================  ==================================================
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pyspark.sql import SparkSession

from cdc_formats.errors import (
    ArgumentError,
    ChangelogError,
    DecodeError,
    InferenceError,
    SchemaError,
)
from cdc_formats.format import Format
from cdc_formats.topics.inference.infer import infer_schema
from normalize.arguments import as_format, names_of
from normalize.decode.check import check_readable
from normalize.kafka.dead_letter import DeadLetter
from normalize.kafka.reader_options import reader_options
from normalize.kafka.topics import describer
from normalize.monitoring.explain_error import explain_error
from normalize.session import coordinates
from normalize.tables.database import SyncDatabase
from normalize.tables.database_target import JdbcDatabase
from normalize.tables.job import require_columns
from normalize.tables.query import Query
from normalize.tables.route import Route, Router
from normalize.tables.schema import Record, TableSchema, decide, open_types, questions_text
from normalize.tables.table_options import AS_IS, Selection, TableOptions

from .job import Job

_LOCAL = re.compile(r"(?:file:/*)?(/.*)")


@dataclass(frozen=True)
class Finding:
    """A result of a check.

    Attributes
    ----------
    state : {"ok", "not checked", "error"}
    text : str
    """

    state: Literal["ok", "not checked", "error"]
    text: str

    def __str__(self) -> str:
        return f"{self.state}: {self.text}"


def check_job(job: Job, spark: SparkSession | None = None) -> Iterator[Finding]:
    """Check a job that `read_job` has read.

    Parameters
    ----------
    job : Job
    spark : SparkSession or None
        A session of the job, which checks the expressions and the targets of the tables that the
        sample has, too.

    Yields
    ------
    Finding

    Raises
    ------
    ChangelogError
        At the first part without which no table can be written.
    """
    arguments = job.arguments
    yield Finding("ok", "the file, whose questions have answers")
    coordinates(job.packages)
    format = as_format(arguments["format"], arguments["format_options"])
    for name, options in arguments["tables"].items():
        try:
            options.check_types(format)
        except (ArgumentError, SchemaError) as error:
            raise ArgumentError(f"tables.{name}: {error.args[0]}") from None
    number = len(arguments["tables"])
    yield Finding(
        "ok",
        f"the format {format.identifier}, and the types of {number} {'table' if number == 1 else 'tables'}",
    )
    samples = dict[str, list[Record]]()
    yield from _kafka(job, format, samples)
    yield from _tables(job, format, samples, None if spark is None else _synced(job, spark))
    target = arguments["target"]
    if not isinstance(target, JdbcDatabase):
        yield _folder("the target", target.name)
    yield _folder("schema_location", arguments["schema_location"])
    yield _folder("checkpoint_location", job.checkpoint_location)
    if spark is None:
        yield Finding(
            "not checked",
            "what Spark reads: settings, expressions (where, select), existing tables and files, "
            "databases. With --spark it is checked",
        )


def _kafka(job: Job, format: Format, samples: dict[str, list[Record]]) -> Iterator[Finding]:
    """Check the broker and the topics, and fill each table's sample."""
    arguments = job.arguments
    options = reader_options(arguments["topic"], arguments["options"])
    selection = Selection.of(
        names_of(arguments["include"]), names_of(arguments["exclude"]), arguments["tables"]
    )
    router, mode = Router(format, selection), arguments["mode"]
    sampled = check_readable(
        options, router.route, fail=mode == "FAILFAST", error_excerpt=format.error_excerpt
    )
    if sampled is None:
        yield Finding("not checked", "the broker, the login and the topics: see the warning")
        return
    topics = ", ".join(sampled.topics) or "no topic matches the pattern yet"
    records = [*sampled.oldest, *sampled.newest]
    yield Finding("ok", f"the broker and the login; topics: {topics}; {len(records)} records read")
    # Options of its own may name other brokers.
    dead = mode.topic if isinstance(mode, DeadLetter) and not mode.options else None
    if dead is not None and not describer(options).offsets([dead])[dead]:
        yield Finding("error", f"the topic of dead letters, {dead!r}, does not exist: create it")
    for each in records:
        with suppress(DecodeError):  # the mode decides
            routed = router.route(each.topic, each.key, each.value, each.headers)
            samples.setdefault(routed.table, []).append((each.key, each.value, each.headers))
    samples.pop("", None)


def _tables(
    job: Job, format: Format, samples: Mapping[str, Sequence[Record]], sync: SyncDatabase | None
) -> Iterator[Finding]:
    """Compare the options of the tables and of the database with the samples."""
    database, options = job.arguments["target"], job.arguments["tables"]
    for name in sorted(options.keys() - samples.keys()) if samples else ():
        yield Finding(
            "not checked", f"tables.{name}: no sampled record is of it{_similar(name, samples)}"
        )
    columns = set[str]()
    for table, records in sorted(samples.items()):
        of_table = options.get(table, TableOptions())
        try:
            schema = decide(table, records, format=format, passed_options=(), options=of_table)
            columns.update(map(str.lower, schema.names))
            yield from _table(job, format, schema, records)
            if sync is not None:
                sync.job(table).check_target(schema)
                yield Finding("ok", f"{table}: its expressions and its target")
        except InferenceError:
            continue  # it has no row yet
        except ChangelogError as error:
            yield Finding("error", f"{table}: {explain_error(error)}")
    layout = database.table_options.layout
    laid_by = [*(each.column for each in layout.partition_by), *layout.cluster_by]
    for name in laid_by if columns else ():
        if name.lower() not in columns:
            yield Finding(
                "not checked",
                f"the target is laid out by {name!r}, which no sampled table has"
                f"{_similar(name, columns)}: no table is, without all of these columns",
            )


def _synced(job: Job, spark: SparkSession) -> SyncDatabase:
    """Return the query of a job, which is not started."""
    arguments = job.arguments
    names = "target", "topic", "format", "format_options", "options", "schema_location", "mode"
    query = Query.of(spark, *(arguments[name] for name in names))
    route = Route(query.format, Selection.of((), (), arguments["tables"]), False, None)
    return SyncDatabase(query, arguments["target"], arguments["tables"], route, "fail", "guess", 1)


def _table(
    job: Job, format: Format, schema: TableSchema, records: Sequence[Record]
) -> Iterator[Finding]:
    """Compare the options of a table with its sample.

    Raises
    ------
    ChangelogError
        When it cannot be written.
    """
    table, database = schema.table, job.arguments["target"]
    options = job.arguments["tables"].get(table, TableOptions())
    policy = database.of.policy(options, database.table_options)
    require_columns(schema, policy, database.of, lambda option: f"pass tables.{table}.{option}")
    shown = infer_schema(records, format=format)
    names = [each.name for each in shown.columns]
    for option in ("types", "columns", "exclude_columns"):
        for name in names_of(getattr(options, option)):
            if name not in names:
                yield Finding(
                    "not checked",
                    f"tables.{table}.{option} has {name!r}, which no sampled record has"
                    f"{_similar(name, names)}",
                )
    if shown.primary_key and {*shown.primary_key} != {*schema.primary_key}:
        yield Finding(
            "not checked",
            f"{table}: its records name the key ({', '.join(shown.primary_key)}), and its primary "
            f"key is ({', '.join(schema.primary_key)}): changes of a row may be in several partitions",
        )
    masks = format.handling.masks.of_columns(schema.names, table)
    if questions := open_types(schema, options, masks):
        yield Finding(
            "not checked",
            f"types in {table}: {questions_text(schema.columns, questions)}. Write them, or {AS_IS}, "
            f"into tables.{table}.types (on_question is {database.on_question})",
        )


def _similar(name: str, names: Any) -> str:
    """Return a question for a name that may be misspelt."""
    near = get_close_matches(name, list(names), 1)
    return f" (is it {near[0]!r}?)" if near else ""


def _folder(name: str, location: str) -> Finding:
    """Check that a local folder, or the nearest one that exists above it, can be written."""
    local = _LOCAL.fullmatch(location)
    if local is None:
        return Finding("not checked", f"{name} {location}, which is not a folder of this machine")
    path = Path(local[1])
    existing = next(each for each in (path, *path.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ArgumentError(f"{name} {location}: {existing} is not a folder that can be written")
    return Finding("ok", f"{name} {location}")
