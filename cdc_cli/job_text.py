"""The text of a job file that ``cdc init`` writes, with a line for each open question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from textwrap import wrap
from typing import Any

from cdc_formats.errors import ArgumentError, printable
from cdc_formats.registry import format_class
from cdc_formats.topics.encodings import Question
from cdc_formats.topics.profile import TableProfile, TopicProfile

from .formats import option_texts, without_marks

_HEAD = (
    "# yaml-language-server: $schema=job.schema.json\n"
    "# `cdc schema > job.schema.json` writes the file by which an editor explains the options.\n"
    "# The options are those of normalize.sync_database. A text env:NAME is the value of an "
    "environment variable."
)
_OPEN = (
    '# Each "?" is a question that the messages do not answer. `cdc run` refuses the file until it '
    "is replaced",
    "# by the type of the source's column, or by the option's value; or by as_is, if the type after "
    "it is right,",
    "# or no column needs the option.",
)
_WIDTH = 100
_NO_KEY = "Its messages do not name a primary key: write the columns that identify a row."


class TargetKind(str, Enum):
    """The kinds of target tables."""

    DELTA = "delta"
    ICEBERG = "iceberg"
    JDBC = "jdbc"


@dataclass(frozen=True)
class JobTarget:
    """Where a job writes.

    Parameters
    ----------
    kind : TargetKind
    lake : str
        The folder of Delta's tables or of Iceberg's warehouse, and of the schemas and the
        checkpoint; without a slash at its end.
    url : str
        The JDBC URL of a database.

    Raises
    ------
    ArgumentError
        When `url` and `kind` do not fit.
    """

    kind: TargetKind
    lake: str
    url: str = ""

    def __post_init__(self) -> None:
        if (self.kind is TargetKind.JDBC) != self.url.startswith("jdbc:"):
            raise ArgumentError(
                "--target jdbc requires --url jdbc:postgresql://host/database (or mysql, mariadb), "
                "and other targets have none"
            )

    def lines(self) -> list[str]:
        """Return the entries of the file."""
        if self.kind is TargetKind.DELTA:
            return [
                "target:",
                "  delta:",
                f"    name: {json.dumps(self.lake)}",
                "    # No other job writes these tables while this one runs, also no OPTIMIZE. If one does,",
                "    # remove the line: Spark then writes them, which takes longer for few changes.",
                "    only_writer: true",
                "packages: [delta]",
            ]
        if self.kind is TargetKind.JDBC:
            return [
                "target:",
                "  jdbc:",
                f"    url: {json.dumps(self.url)}",
                '    user: "?"',
                "    password: env:TARGET_PASSWORD",
                f"packages: [{self.url.split(':')[1]}]",
            ]
        return [
            "target:",
            "  iceberg: {name: lake.shop}  # the catalog of the settings below, and a namespace",
            '# Iceberg needs Spark 4.0 or 4.1: pip install "pyspark==4.1.*"',
            "packages: [iceberg]",
            "spark:",
            "  # A catalog in a folder. For Hive, REST, Glue and others see Iceberg's page on Spark's",
            "  # configuration.",
            "  spark.sql.catalog.lake: org.apache.iceberg.spark.SparkCatalog",
            "  spark.sql.catalog.lake.type: hadoop",
            f"  spark.sql.catalog.lake.warehouse: {json.dumps(self.lake)}",
        ]


def job_text(profiles: Sequence[TopicProfile], properties: Sequence[str], target: JobTarget) -> str:
    """Return a job file for topics.

    Parameters
    ----------
    profiles : sequence of TopicProfile
        One for each topic.
    properties : sequence of str
        The names of the connection's properties besides the servers; the file asks for their
        values.
    target : JobTarget

    Raises
    ------
    ArgumentError
        When a topic has no known format, or the topics have several.
    """
    format = _common_format(profiles)
    tables = list(chain.from_iterable(map(_tables, profiles)))
    options = list(_format_options(profiles, format))
    return (
        "\n".join(
            [
                _HEAD,
                *(_OPEN if has_questions("\n".join([*options, *target.lines(), *tables])) else ()),
                f"topic: {json.dumps([each.topic for each in profiles])}",
                f"format: {format}",
                *_entry("format_options", options),
                "options:",
                f"  kafka.bootstrap.servers: {json.dumps(profiles[0].servers)}",
                "  maxOffsetsPerTrigger: 100000",
                *(
                    f"  # {name} was passed to cdc: write Spark's option for it, kafka.*"
                    for name in properties
                ),
                *target.lines(),
                f"schema_location: {json.dumps(f'{target.lake}/_schemas')}",
                f"checkpoint_location: {json.dumps(f'{target.lake}/_checkpoint')}",
                "trigger: {processing_time: 10 seconds}",
                "restart: {limit: 10}",
                *_entry("tables", tables),
            ]
        )
        + "\n"
    )


def has_questions(text: str) -> int:
    """Return the number of open questions in the text of a job file."""
    return text.count(': "?"')


def _entry(name: str, lines: Sequence[str]) -> list[str]:
    return [f"{name}:", *lines] if lines else []


def _common_format(profiles: Sequence[TopicProfile]) -> str:
    for each in profiles:
        if each.format is None:
            raise ArgumentError(
                f"the format of {each.topic} is not known: see `cdc profile {each.topic}`"
            )
    formats = [each.format for each in profiles if each.format is not None]
    if len(set(formats)) > 1:
        shown = ", ".join(f"{each.topic}: {each.format}" for each in profiles)
        raise ArgumentError(
            f"a job has one format, and the topics have several ({shown}): write a file for each"
        )
    return formats[0]


def _format_options(profiles: Sequence[TopicProfile], format: str) -> Iterator[str]:
    """Return the format's options: those that the samples show for all tables, and questions."""
    tables = [table for each in profiles for table in each.tables if table.schema is not None]
    common = _common_options([table.options for table in tables])
    yield from (f"  {name}: {json.dumps(value)}" for name, value in common.items())
    texts = option_texts(format_class(format))
    needed = (
        option
        for table in tables
        for question in chain.from_iterable(_questions(table).values())
        for option in question.options
    )
    for option in dict.fromkeys(each for each in needed if each not in common):
        yield from _comment(without_marks(texts.get(option, "")), "  # ")
        yield f'  {option}: "?"'


def _common_options(of_tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    first, *others = of_tables or [{}]
    return {
        name: value
        for name, value in first.items()
        if all(each.get(name) == value for each in others)
    }


def _questions(table: TableProfile) -> dict[str, list[Question]]:
    return {} if table.schema is None else table.schema.open_questions(lambda column: False)


def _tables(profile: TopicProfile) -> Iterator[str]:
    """Return the entries of tables that need a decision, on the key or on types."""
    for table in profile.tables:
        questions = _questions(table)
        if table.schema is None or (table.primary_key and not questions):
            continue
        yield f"  {json.dumps(table.name or profile.topic)}:"
        if not table.primary_key:
            yield from _comment(_NO_KEY, "    # ")
            yield '    primary_key: "?"'
        if questions:
            yield "    types:"
        types = {column.name: column.type for column in table.schema.columns}
        for text, columns in _by_text(questions).items():
            yield from _comment(text, "      # ")
            yield from (
                f'      {json.dumps(each)}: "?"  # {printable(str(types[each]))}'
                for each in columns
            )


def _by_text(questions: Mapping[str, Sequence[Question]]) -> dict[str, list[str]]:
    """Return the columns by their questions, of which many columns have the same."""
    columns: dict[str, list[str]] = {}
    for column, of_column in questions.items():
        columns.setdefault("; ".join(map(str, of_column)), []).append(column)
    return columns


def _comment(text: str, before: str) -> list[str]:
    return wrap(
        printable(text),
        _WIDTH,
        initial_indent=before,
        subsequent_indent=before,
        break_on_hyphens=False,
    )
