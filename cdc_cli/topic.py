"""A topic: its records, read by assignment, and its columns and key, declared or inferred.

It is read from any position, to its end or continuously, without a consumer group and commits.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

import typer

from cdc_formats.decoding.rows import result_columns
from cdc_formats.errors import ArgumentError, KafkaUnavailableError
from cdc_formats.format import Format
from cdc_formats.topics.client import KafkaReader
from cdc_formats.topics.inference import InferredSchema, infer_schema
from cdc_formats.topics.kafka import key_values, sample_topic
from cdc_formats.topics.profile import profile_records
from cdc_formats.topics.profile.profile import candidates, choose
from cdc_formats.topics.profile.terminal import shortened
from cdc_formats.topics.sampler import SampledRecord, inspect_all
from cdc_formats.values.schema import Column, SqlType, columns as to_columns, quote

from .arguments import Connection, names
from .terminal import ReadProgress, print_message, status_line
from .view import text_of

_REMEDY = "check -b and the connection properties; -v prints details"


@dataclass(frozen=True)
class Start:
    """Where reading starts in each partition.

    Parameters
    ----------
    offset : int
        An offset; if negative, counted from the end: -10 is the last ten records.
    timestamp_ms : int or None
        Start at the first record of this time or later, in milliseconds since 1970-01-01 UTC. None:
        start at `offset`.
    end : bool
        Whether to read new records only.
    """

    offset: int = 0
    timestamp_ms: int | None = None
    end: bool = False

    @classmethod
    def parse(cls, text: str) -> Start:
        """Parse ``beginning``, ``end``, an offset, ``-N`` (last N), or an ISO 8601 time with zone.

        Raises
        ------
        typer.BadParameter

        Examples
        --------
        >>> Start.parse("-10"), Start.parse("2026-11-21T10:00:00Z").timestamp_ms
        (Start(offset=-10, timestamp_ms=None, end=False), 1795255200000)
        """
        if text in ("beginning", "end"):
            return cls(end=text == "end")
        if text.removeprefix("-").isdecimal():
            return cls(int(text))
        try:
            # Python 3.10 reads neither Z nor a fraction of another length.
            spelled = re.sub(
                r"\.(\d{1,6})(?!\d)",
                lambda fraction: f".{fraction[1]:0<6}",
                re.sub(r"Z$", "+00:00", text),
            )
            moment = datetime.fromisoformat(spelled)
        except ValueError:
            raise typer.BadParameter(
                f"{text!r} is not a position: use beginning, end, an offset, -N, or a time such as "
                "2026-11-21T10:00:00Z"
            ) from None
        if moment.tzinfo is None:
            raise typer.BadParameter(
                f"{text!r} has no time zone: append Z for UTC, or an offset such as +01:00"
            )
        return cls(timestamp_ms=round(moment.timestamp() * 1000))

    def among(self, low: int, high: int) -> int:
        """Return the start offset in a partition's range `low` (included) to `high` (excluded)."""
        if self.end:
            return high
        return min(max(self.offset if self.offset >= 0 else high + self.offset, low), high)


class Topic:
    """A topic, open for reading.

    Parameters
    ----------
    connection : Connection
    name : str
    partitions : sequence of int
        The partitions to read; empty: all.

    Raises
    ------
    UnknownTopicError
        When the topic does not exist, or the user may not see it.
    LoginRefusedError, TlsError
        When Kafka refuses the login or the certificate.
    KafkaUnavailableError
        When no broker answers in time.
    SampleError
        When Kafka refuses access to the topic.
    ArgumentError
        When the topic does not have a partition, or a client property is not valid.
    MissingDependencyError
        When ``confluent-kafka`` is not installed.
    """

    def __init__(self, connection: Connection, name: str, partitions: Sequence[int] = ()) -> None:
        self.connection, self.name = connection, name
        self._lost = self._waits = False
        seconds = connection.timeout_seconds
        config = {**connection.client_config(self._hear), "auto.offset.reset": "error"}
        self._reader = KafkaReader(connection.servers, config, remedy=_REMEDY)
        try:
            every = self._reader.partitions(name, seconds)
            missing = sorted(set(partitions) - set(every))
            if missing:
                raise ArgumentError(
                    f"{name} has no partition {', '.join(map(str, missing))}; it has "
                    f"{', '.join(map(str, every))}"
                )
            self.ranges = {
                partition: self._reader.offsets(name, partition, seconds)
                for partition in sorted(partitions or every)
            }
        except BaseException:
            self._reader.close()
            raise

    def __enter__(self) -> Topic:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._reader.close()

    def _hear(self, error: Any) -> None:
        self._lost = self._lost or error.name() == "_ALL_BROKERS_DOWN"

    def batches(self, start: Start, *, follow: bool) -> Iterator[list[SampledRecord]]:
        """Return the records in batches, one every few tenths of a second; a batch may be empty.

        Parameters
        ----------
        start : Start
        follow : bool
            Whether to continue after the end that the topic had at the start.

        Raises
        ------
        KafkaUnavailableError
            When no record arrives in time although there are more.
        UnknownTopicError, SampleError
        """
        begins, ends = (
            self._begins(start),
            {partition: high for partition, (_, high) in self.ranges.items()},
        )
        if self.connection.verbose:
            print_message(
                "reading "
                + ", ".join(
                    f"{self.name}[{partition}]@{offset}" for partition, offset in begins.items()
                )
            )
        waited_since = time.monotonic()
        left = _Left(begins, ends)
        progress = ReadProgress(self.name, left.total)
        for batch in self._reader.batches(self.name, begins, None if follow else ends):
            is_late = time.monotonic() - waited_since > self.connection.timeout_seconds
            if batch or (follow and is_late):
                waited_since = time.monotonic()
            if follow:
                self._say_that_it_waits(is_answered=bool(batch), is_late=is_late)
            elif is_late and not batch:
                raise KafkaUnavailableError(
                    f"no record of {self.name} arrived for {self.connection.timeout_seconds:g} s, "
                    "although there are more: check the brokers, or raise --timeout"
                )
            yield batch
            if batch:
                progress.show(left.done(batch))
            else:  # the last offsets of a compacted topic may have no record
                progress.remove()

    def _say_that_it_waits(self, *, is_answered: bool, is_late: bool) -> None:
        """Print once that no broker answers, until one does.

        The client reports a lost broker, but not always: after a time without records, one is asked.
        """
        if is_late and not is_answered:
            is_answered = self._is_answered()
            self._lost = not is_answered
        if self._lost and not self._waits and not is_answered:
            print_message("no Kafka broker answers: waiting for one", "yellow")
        self._waits = (self._waits or self._lost) and not is_answered
        self._lost = False

    def _is_answered(self) -> bool:
        try:
            # Ctrl-C waits for this call.
            self._reader.partitions(self.name, min(2.0, self.connection.timeout_seconds))
        except KafkaUnavailableError:
            return False
        return True

    def _begins(self, start: Start) -> dict[int, int]:
        if start.timestamp_ms is None:
            return {
                partition: start.among(low, high) for partition, (low, high) in self.ranges.items()
            }
        offsets = self._reader.offsets_at(
            self.name, self.ranges, start.timestamp_ms, self.connection.timeout_seconds
        )
        return {
            partition: offsets.get(partition, high) for partition, (_, high) in self.ranges.items()
        }


class _Left:
    """Counts the offsets that a read has passed on its way to the ends of a topic.

    These are the ends that the topic had at the start.
    """

    def __init__(self, begins: Mapping[int, int], ends: Mapping[int, int]) -> None:
        self._at = {partition: min(begin, ends[partition]) for partition, begin in begins.items()}
        self._ends = ends
        self.total = self._left()

    def done(self, batch: Sequence[SampledRecord]) -> int:
        """Return the number of offsets passed when a batch is read."""
        self._at |= {
            each.partition: min(each.offset + 1, self._ends[each.partition]) for each in batch
        }
        return self.total - self._left()

    def _left(self) -> int:
        return sum(self._ends[partition] - offset for partition, offset in self._at.items())


def check_topic(connection: Connection, topic: str) -> None:
    """Check that a topic exists and can be read; Ctrl-C ends the check at once.

    Raises
    ------
    UnknownTopicError, KafkaUnavailableError, SampleError, ArgumentError, MissingDependencyError
        As `Topic`.
    """
    with Topic(connection, topic):
        pass


# --------------------------------------------------------------------------------------------------
# The columns and key of a topic.

_TABLE = "table"
SAMPLE = 1000
"""The default sample size, in records."""


class TopicSchema(NamedTuple):
    """The format, columns and key that records are decoded with.

    Attributes
    ----------
    format : Format
    columns : tuple of Column
    primary_key : tuple of str
        Empty: not known.
    """

    format: Format
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


@dataclass(frozen=True)
class SeveralTables:
    """The tables of one topic, whose rows are shown as text with the table's name.

    Parameters
    ----------
    format : Format
    tables : mapping of str to TopicSchema
    """

    format: Format
    tables: Mapping[str, TopicSchema]

    @property
    def columns(self) -> tuple[Column, ...]:
        """``table``, and all columns of all tables."""
        names = dict.fromkeys(
            column.name
            for table in self.tables.values()
            for column in result_columns(table.columns, table.format.handling.masks)
        )
        return tuple(Column(name, SqlType("STRING")) for name in (_TABLE, *names))

    @property
    def primary_key(self) -> tuple[str, ...]:
        """Empty: the tables have keys of their own."""
        return ()

    def row_of(self, name: str) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        """Return the function from a table's row to the row that is shown."""
        table = self.tables[name]
        columns = result_columns(table.columns, table.format.handling.masks)
        indexes = {column.name: index for index, column in enumerate(columns)}
        texts = [text_of(column.type) for column in columns]
        shown = [indexes.get(column.name) for column in self.columns[1:]]

        def row(values: tuple[Any, ...]) -> tuple[Any, ...]:
            return (
                name,
                *("" if index is None else texts[index](values[index]) for index in shown),
            )

        return row


def several_tables(
    topic: str, format: Format, records: Sequence[SampledRecord]
) -> SeveralTables | None:
    """Return the tables of a sample, and print their names; None if it has only one.

    Parameters
    ----------
    topic : str
    format : Format
    records : sequence of SampledRecord
    """
    with status_line("inferring the columns of each table from a sample"):
        profile = profile_records(records, topic=topic, format=format)
    schemas = {
        each.name: TopicSchema(
            replace(format, **each.options), each.schema.columns, each.schema.primary_key
        )
        for each in profile.tables
        if each.schema is not None
    }
    if len(schemas) < 2:
        return None
    print_message(
        f"{topic} has {len(schemas)} tables ({shortened(list(schemas))}), each with the columns that a "
        "sample shows; -o table_include=NAME shows one",
        "dim",
    )
    return SeveralTables(format, schemas)


def table_of(
    format: Format,
    named_options: Iterable[str],
    *,
    schema: str,
    primary_key: str,
    sample: Callable[[], list[SampledRecord]],
) -> TopicSchema:
    """Return the declared table, or infer it from a sample and print it on standard error.

    Parameters
    ----------
    format : Format
    named_options : iterable of str
        The names of the options that the user set. A sample does not override them.
    schema : str
        DDL; empty: inferred, together with the format options that are not given.
    primary_key : str
        Comma-separated names; empty: the sample's key, if it has one.
    sample : callable
        Takes a sample; called only if the table is inferred.

    Raises
    ------
    SchemaError
    InferenceError
        When the sample does not determine the columns.
    """
    if schema:
        return TopicSchema(format, to_columns(schema), names(primary_key))
    with status_line("inferring the columns from a sample"):
        sampled = infer_schema(key_values(sample()), format=format, primary_key=names(primary_key))
    inferred = sampled.options_besides(named_options)
    print_message(_pasteable(sampled, inferred), "dim")
    return TopicSchema(replace(format, **inferred), sampled.columns, sampled.primary_key)


def other_format(format: Format, records: Sequence[SampledRecord]) -> str:
    """Return what the records look like, if that is another format."""
    inspected = inspect_all(records)
    best, reason = choose(candidates(inspected, {}), inspected)
    if best is None or best.identifier == format.identifier:
        return ""
    return f". The records look like {best.identifier}: {reason}"


def sample_of_topic(broker: Connection, topic: str, sample: int) -> list[SampledRecord]:
    """Return a sample of a topic's records."""
    check_topic(broker, topic)
    return sample_topic(
        broker.servers,
        topic,
        sample=sample,
        config=broker.client_config(),
        timeout_seconds=broker.timeout_seconds,
    )


def detected_format(
    topic: str, records: Sequence[SampledRecord], options: Mapping[str, str]
) -> Format:
    """Return the format that a sample shows, and print it on standard error.

    Parameters
    ----------
    topic : str
        For the error.
    records : sequence of SampledRecord
    options : mapping
        Format options by name; each tried format gets those that it has.

    Raises
    ------
    ArgumentError
        When no format reads most of the sample.
    FormatOptionError, SchemaRegistryError
    """
    with status_line("detecting the format from a sample"):
        inspected = inspect_all(records)
        best, reason = choose(candidates(inspected, options), inspected)
    if best is None or best.format is None:
        raise ArgumentError(
            f"the format of {topic} is not known: {reason}. Pass -f, or see `cdc profile {topic}`"
        )
    print_message(f"detected -f {best.identifier}: {reason}", "dim")
    return best.format


def _pasteable(schema: InferredSchema, format_options: Mapping[str, Any]) -> str:
    """Return the inferred table as options to paste, with notes for the user."""
    options = [
        f"--schema {shlex.quote(schema.ddl)}",
        *(
            [f"--primary-key {shlex.quote(','.join(schema.primary_key))}"]
            if schema.primary_key
            else []
        ),
        *(f"-o {shlex.quote(f'{name}={value}')}" for name, value in format_options.items()),
    ]
    return "\n".join(
        [
            f"inferred from {schema.records:,} records, {schema.rows:,} rows; to declare it, pass",
            *(f"  {each}" for each in options),
            *(
                f"  {', '.join(map(quote, columns))}: {note}"
                for note, columns in schema.noted_columns.items()
            ),
            *(f"  {note}" for note in schema.notes),
        ]
    )
