"""Detect differing columns, changes without a position, and tasks whose records are all bad.

The names of columns are compared in a sample of the records with rows. A decoder skips undeclared
columns and fills missing ones with NULL, so that each sampled record is parsed again. The sample
takes less than 2 % of the decoder's time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from cdc_formats.decoder import Decoder
from cdc_formats.errors import DecodeError, printable
from normalize.core.records import (
    ABSENT_COLUMNS,
    UNKNOWN_COLUMNS,
    WITHOUT_POSITION,
    KafkaRecord,
    Records,
)
from normalize.spark.sessions import is_connect

# --------------------------------------------------------------------------------------------------
# Notices: warnings of tasks for the user, logged once in the driver's log.
#
# A worker's log is hidden from the user of a cluster. A Spark accumulator sends a notice to the
# driver with the task's result, and the logger ``normalize`` of the driver's Python logs it as a
# warning. Under Spark Connect, which has no accumulators, the worker logs it.

LOGGER = logging.getLogger("normalize")
_MOST_SUBJECTS = 1_000
_MOST_NAMES, _MOST_CHARACTERS = 10, 60


class Notice(NamedTuple):
    """A warning.

    Attributes
    ----------
    subjects : tuple of str
        The subjects of the notice. It is logged unless all of its subjects were logged before.
    text : str
    """

    subjects: tuple[str, ...]
    text: str


Report = Callable[[list[Notice]], Any]
"""Receives the notices of a task."""


class _Shown:
    """Logs each notice once.

    Parameters
    ----------
    logged : set of str
        Subjects that were logged before. They do not count against the limit.
    """

    def __init__(self, logged: Iterable[str] = ()) -> None:
        self.logged = frozenset(logged)
        self.subjects: set[str] = set()

    def show(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            new = set(notice.subjects) - self.logged - self.subjects
            # The limit is for producers that generate column names.
            if new and len(self.subjects) < _MOST_SUBJECTS:
                self.subjects |= new
                LOGGER.warning("%s", notice.text)


log: Report = _Shown().show
"""Logs notices in this process."""

_checked: set[str] = set()
"""The subjects that `log_check` logged; later queries do not repeat them."""


def log_check(notices: list[Notice]) -> None:
    """Log the notices of a check at the call."""
    for notice in notices:
        _checked.update(notice.subjects)
        LOGGER.warning("%s", notice.text)


class _InTask:
    """The accumulator's parameter in a task: it collects notices."""

    def zero(self, value: list[Notice]) -> list[Notice]:
        return []

    def addInPlace(self, value1: list[Notice], value2: list[Notice]) -> list[Notice]:  # noqa: N802 - Spark's name
        return value1 + value2


class OnDriver(_InTask):
    """The parameter on the driver: it logs the notices of each finished task, and keeps none."""

    def __init__(self) -> None:
        self.shown = _Shown(_checked)

    def addInPlace(self, value1: list[Notice], value2: list[Notice]) -> list[Notice]:  # noqa: N802 - Spark's name
        self.shown.show(value2)
        return value1

    def __reduce__(self) -> tuple[type[_InTask], tuple[()]]:
        return _InTask, ()


def reporter(spark: SparkSession) -> Report:
    """Return the function that receives the notices of a query's tasks."""
    if is_connect(spark):
        return log
    return spark.sparkContext.accumulator(list[Notice](), OnDriver()).add  # type: ignore[arg-type] # AccumulatorParam by its methods


def shown_names(names: Sequence[str]) -> str:
    """Return a short list of names from messages, safe to print."""
    listed = ", ".join(f"`{printable(name[:_MOST_CHARACTERS])}`" for name in names[:_MOST_NAMES])
    return listed if len(names) <= _MOST_NAMES else f"{listed} and {len(names) - _MOST_NAMES} more"


_OF_COLUMNS = (ABSENT_COLUMNS, UNKNOWN_COLUMNS)

_MOST, _ONE_IN = 20, 500
_MOST_OF_SMALL, _SMALL_BYTES = 5, 1 << 16
_TEXTS = {
    ABSENT_COLUMNS: (
        "{subject}: declared but missing from {count} of {sampled} sampled records (first: "
        "{first}): {names}. These columns are NULL in the rows. Check the spelling (names are "
        "case-sensitive), and whether the table still has them"
    ),
    UNKNOWN_COLUMNS: (
        "{subject}: in {count} of {sampled} sampled records (first: {first}) but not declared: "
        "{names}. These columns are ignored; declare those that you need"
    ),
    WITHOUT_POSITION: (
        "{subject}: {count} changes have no position in the source's log (first: {first}), and are "
        "applied as they arrive: order='source' does not recognize their redelivery. If they are "
        "deletes with a null value, set ExtractNewRecordState's delete.tombstone.handling.mode to "
        "rewrite"
    ),
}


class Watch:
    """Collects the column names and bad records of one task.

    Parameters
    ----------
    decoder : Decoder
    report : callable
        Receives the notices.
    """

    def __init__(self, decoder: Decoder, report: Report) -> None:
        self.decoder, self.report = decoder, report
        self._start("")

    def _start(self, topic: str) -> None:
        self.topic = topic
        self.records = self.sampled = 0
        # By notice and column: the first record, and how many there are.
        self.columns: dict[str, dict[str, tuple[str, int]]] = {name: {} for name in _OF_COLUMNS}
        self.without_position: tuple[KafkaRecord, int] | None = None
        self.refused: Counter[str] = Counter()
        self.first_error = ""

    def see(self, records: Records, decoded: Sequence[Sequence[Any]]) -> Counter[str]:
        """Return `counts.WATCHED_COUNTS` of a sample of records of one topic.

        Parameters
        ----------
        records : Records
        decoded : sequence of sequences
            The changes of each record.
        """
        self.records += len(decoded)
        counts: Counter[str] = Counter()
        for index in sample(decoded, len(records.values[0] or b"")):
            record = records.record(index)
            try:
                differing = self.decoder.compare_names(record.key, record.value, record.headers)
            except Exception:
                # The record was decoded: only an undeclared part can fail. A sample never stops a
                # query.
                continue
            if differing is None:
                continue
            self.sampled += 1
            for name, columns in zip(_OF_COLUMNS, differing, strict=True):
                counts[name] += bool(columns)
                seen = self.columns[name]
                for column in columns:
                    first, number = seen.get(column, (record.where, 0))
                    seen[column] = first, number + 1
        return counts

    def begin(self, topic: str) -> None:
        """Start with a topic, and report the notices of the one before."""
        if topic != self.topic:
            self.report_notices()
            self._start(topic)

    def add_without_position(self, first: KafkaRecord, changes: int) -> None:
        """Add changes without a position, and their first record."""
        earliest, before = self.without_position or (first, 0)
        earlier = first.partition == earliest.partition and first.offset < earliest.offset
        self.without_position = first if earlier else earliest, before + changes

    def add_bad(self, error: DecodeError) -> None:
        """Add a bad record that is not in the result."""
        self.refused[error.condition] += 1
        self.first_error = self.first_error or str(error)

    def report_notices(self) -> None:
        """Report the notices."""
        notices = [self._of_columns(name) for name in _OF_COLUMNS if self.columns[name]]
        if self.without_position is not None:
            first, count = self.without_position
            text = _TEXTS[WITHOUT_POSITION].format(
                subject=self._subject, count=count, first=first.where
            )
            notices.append(Notice((f"{WITHOUT_POSITION} {self.topic}",), text))
        if self.refused and self.refused.total() == self.records:
            notices.append(self._of_refused())
        if notices:
            self.report(notices)

    @property
    def _subject(self) -> str:
        return f"topic {self.topic}" if self.topic else "the DataFrame"

    def _of_columns(self, name: str) -> Notice:
        columns = self.columns[name]
        text = _TEXTS[name].format(
            names=shown_names(list(columns)),
            count=max(records for _, records in columns.values()),
            sampled=self.sampled,
            subject=self._subject,
            first=next(iter(columns.values()))[0],
        )
        return Notice(tuple(f"{name} {self.topic} {column}" for column in columns), text)

    def _of_refused(self) -> Notice:
        counts = ", ".join(
            f"{condition} {count}" for condition, count in self.refused.most_common()
        )
        text = (
            f"{self._subject}: every record that a task read is bad ({self.records} of "
            f"{self.records}: {counts}), and no row was returned. Check the format, its options "
            f"and the schema. The first error: {self.first_error}"
        )
        return Notice((f"refused {self.topic}",), text)


def sample(decoded: Sequence[Sequence[Any]], size: int) -> list[int]:
    """Return the indexes of sampled records with rows, evenly spread.

    Parameters
    ----------
    decoded : sequence of sequences
        The changes of each record.
    size : int
        The approximate size of a record in bytes.
    """
    most = (
        _MOST_OF_SMALL
        if size * len(decoded) <= _SMALL_BYTES
        else max(1, min(_MOST, len(decoded) // _ONE_IN))
    )
    count = min(most, len(decoded))
    bounds = [index * len(decoded) // count for index in range(count + 1)] if count else []
    firsts = [
        next((index for index in range(start, end) if decoded[index]), None)
        for start, end in pairwise(bounds)
    ]
    return [index for index in firsts if index is not None]


# --------------------------------------------------------------------------------------------------
# Counts of a pass: separate rows, which an observed metric adds up and a filter removes.

COLUMN = "_changelog_counts"
"""The column of counts, NULL in ordinary rows; a row of counts is NULL in all other columns.

It is an array, in the order of the names. Arrow takes 0.1 ms for a struct of 24 counts, and Spark
a column for each.
"""
COUNTS_DDL = f"{COLUMN} ARRAY<BIGINT>"
"""The column of counts as Spark DDL."""
_FIELD = pa.field(COLUMN, pa.list_(pa.int64()))


def with_counts_column(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return a pass's rows with the column of counts added."""
    return batch.append_column(_FIELD, pa.nulls(batch.num_rows, _FIELD.type))


def counts_row(
    schema: pa.Schema, names: Sequence[str], counts: Mapping[str, int]
) -> pa.RecordBatch:
    """Return counts as a separate row, with the columns of `schema` and the column of counts."""
    row = pa.array([[counts[name] for name in names]], _FIELD.type)
    return pa.RecordBatch.from_arrays(
        [*(pa.nulls(1, each.type) for each in schema), row], schema=schema.append(_FIELD)
    )


def read_counts(batch: pa.RecordBatch | pa.Table, names: Sequence[str]) -> Counter[str]:
    """Return the sums of a pass's counts."""
    counts: Counter[str] = Counter()
    for values in batch.column(COLUMN).drop_null().to_pylist():
        counts.update(dict(zip(names, values, strict=True)))
    return counts


def sums(column: str, names: Sequence[str]) -> list[Column]:
    """Return the sum of each element of an array of counts, for ``observe``."""
    return [F.sum(F.col(column)[index]).alias(name) for index, name in enumerate(names)]


def observe_counts(df: DataFrame, names: Sequence[str], observation: Any) -> DataFrame:
    """Return a DataFrame without its rows of counts, which are added up as an observed metric.

    Parameters
    ----------
    df : DataFrame
    names : sequence of str
    observation : str, Observation or None
        None: no metric.
    """
    if observation is not None:
        df = df.observe(observation, *sums(COLUMN, names))
    return df.where(f"{COLUMN} IS NULL").drop(COLUMN)
