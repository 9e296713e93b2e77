"""The text of a job file that ``cdc init`` writes, with a line for each open question."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain
from textwrap import wrap

from cdc_formats.errors import ArgumentError, printable
from cdc_formats.format import format_class
from cdc_formats.topics.declared import Question
from cdc_formats.topics.inference import ColumnEvidence
from cdc_formats.topics.profile import TableProfile, TopicProfile

from .formats import option_texts, without_marks
from .source import OF_SOURCE

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
_WIDTH, _NO_BREAK = 100, "\0"
_TIME = ("time_precision_mode",)
_OPTIONS = {
    "DECIMAL": ("decimal_handling_mode",),
    "DECIMAL(20,0)": ("decimal_handling_mode", "bigint_unsigned_handling_mode"),
    **dict.fromkeys(("TIME", "TIMESTAMP_NTZ", "INTERVAL DAY TO SECOND"), _TIME),
}
"""The modes of a connector that the values of a type depend on."""
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
            alone = [
                "    # No other job writes these tables while this one runs, also no OPTIMIZE. If one does,",
                "    # remove the line: Spark then writes them, which takes longer for few changes.",
                "    only_writer: true",
            ]
            # On a local disk, a commit that another job replaced is made again.
            name = f"    name: {json.dumps(self.lake)}"
            rest = [] if self.lake.startswith("/") else alone
            return ["target:", "  delta:", name, *rest, "packages: [delta]"]
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
    shown = {
        table.name or profile.topic: table
        for profile in profiles
        for table in profile.tables
        if table.schema is not None
    }
    tables, options = _tables(shown), list(_format_options([*shown.values()], format))
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
                *tables,
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


def _format_options(tables: Sequence[TableProfile], format: str) -> Iterator[str]:
    """Return the format's options: those that the samples show for all tables, and questions."""
    first, *others = [table.options for table in tables] or [{}]
    common = {
        name: value
        for name, value in first.items()
        if all(each.get(name) == value for each in others)
    }
    yield from (f"  {name}: {json.dumps(value)}" for name, value in common.items())
    texts = option_texts(format_class(format))
    needed = chain.from_iterable(map(_needed_options, tables))
    for option in dict.fromkeys(each for each in needed if each in texts and each not in common):
        yield from _comment(without_marks(texts[option]), "  # ")
        yield f'  {option}: "?"'


def _needed_options(table: TableProfile) -> Iterator[str]:
    """Return the options of a table's open questions, and those that the source's types need."""
    for questions in _questions(table).values():
        yield from chain.from_iterable(question.options for question in questions)
    for each in _of_source(table):
        options_asked = set(chain.from_iterable(question.options for question in each.questions))
        kind = each.column.type
        for option in _OPTIONS.get(str(kind)) or _OPTIONS.get(kind.name, ()):
            if option in options_asked or each.seen.keys() <= {"null"}:
                yield option


def _of_source(table: TableProfile) -> list[ColumnEvidence]:
    """Return the columns that have the types of the source."""
    evidence = () if table.schema is None else table.schema.evidence
    return [each for each in evidence if each.certainty == OF_SOURCE]


def _questions(table: TableProfile) -> dict[str, list[Question]]:
    decided = {each.column.name for each in _of_source(table)}
    return {} if table.schema is None else table.schema.open_questions(decided.__contains__)


def _tables(tables: Mapping[str, TableProfile]) -> list[str]:
    """Return the entry of the tables that need a decision, on the key or on types.

    A question that many columns have is written once, above the tables.
    """
    numbers, lines = dict[str, int](), list[str]()
    for name, table in tables.items():
        entry = [*_key(table), *_typed(table, numbers)]
        lines += [f"  {json.dumps(name)}:", *entry] if entry else []
    question_lines = (
        _comment(f"Question {number}: {text}", "# ") for text, number in numbers.items()
    )
    return [*chain.from_iterable(question_lines), *_entry("tables", lines)]


def _key(table: TableProfile) -> list[str]:
    if not table.primary_key:
        return [*_comment(_NO_KEY, "    # "), '    primary_key: "?"']
    of_source = table.schema is not None and table.schema.primary_key_reason == OF_SOURCE
    return [f"    primary_key: {json.dumps(table.primary_key)}"] if of_source else []


def _typed(table: TableProfile, numbers: dict[str, int]) -> list[str]:
    """Return the types of columns; `numbers` has those of the questions so far."""
    kinds = {each.column.name: str(each.column.type) for each in _of_source(table)}
    typed = [f"{json.dumps(name)}: {json.dumps(kind)}" for name, kind in kinds.items()]
    questions = _questions(table)
    if typed and not questions:
        # A line does not end within a name or a type.
        pairs = ", ".join(each.replace(" ", _NO_BREAK) for each in typed)
        wrapped = wrap(pairs, _WIDTH, break_long_words=False, break_on_hyphens=False)
        text = "\n      ".join(wrapped).replace(_NO_BREAK, " ")
        return [f"    types: {{{text}}}"]
    entry = [f"      {each}" for each in typed]
    for column in table.schema.columns if table.schema else ():
        if open_ones := questions.get(column.name):
            number = numbers.setdefault("; ".join(map(str, open_ones)), len(numbers) + 1)
            kind = printable(str(column.type))
            entry.append(f'      {json.dumps(column.name)}: "?"  # {kind}: question {number}')
    return _entry("    types", entry)


def _comment(text: str, before: str) -> list[str]:
    return wrap(
        printable(text),
        _WIDTH,
        initial_indent=before,
        subsequent_indent=before,
        break_on_hyphens=False,
    )
