"""A table to write: its description (`TableTarget`), and its writer in a session (`Sink`).

========================  ================  =====================================================
targets                   sink              module
========================  ================  =====================================================
DeltaTarget               `DeltaSink`       `delta`: delta-rs, or Spark's ``MERGE INTO``
IcebergTarget             `IcebergSink`     `iceberg`: Spark's ``MERGE INTO``
JdbcTarget                `DatabaseSink`    `jdbc`: a staging table, and one transaction
a class of yours          a class of yours  docs/tasks/your-own-sink.md
========================  ================  =====================================================
"""

from __future__ import annotations

import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import ClassVar, Literal, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField

from cdc_formats.errors import ChangelogError, refuse
from normalize.spark.memory import available_memory
from normalize.spark.micro_batch import Batch

from .batches import Record
from .layout import NO_LAYOUT, Layout
from .table_options import TableOptions, TablePolicy
from .table_spec import TableSpec

_log = logging.getLogger("normalize")
TRIES = 10
Writer = Literal["spark", "delta-rs"]
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0  # seconds


class TargetError(ChangelogError, RuntimeError):
    """The target table is missing, cannot be reached, or does not support the changes."""

    condition = "TARGET"


class ConflictError(TargetError):
    """Another writer changed the table at the same time, so that nothing was written."""

    condition = "CONFLICT"


class UnavailableError(TargetError):
    """The target's server cannot write now, whatever the changes are, so that a restart can help."""

    condition = TargetError.condition


class TargetMissingError(TargetError):
    """The target table had rows of the query in earlier runs, and is missing."""


class RefusedError(TargetError):
    """A row violates a constraint of the table, so that nothing was written."""


class ArrowRows(NamedTuple):
    """The last change of each key, as in ``Sink.merge``.

    Attributes
    ----------
    table : pyarrow.Table
        ``row_kind`` and the columns, and `ABSENT_COLUMN` if there are partial rows.
    frame : callable
        Returns the same as a DataFrame.
    """

    table: pa.Table
    frame: Callable[[], DataFrame]


def most_changes(left: int | None = None) -> int:
    """Return how many bytes of changes fit into the memory that this process has left.

    A writer holds them several times.
    """
    return (available_memory() if left is None else left) // 16


class Replacement(NamedTuple):
    """How the rows of a table are replaced.

    Attributes
    ----------
    names : tuple of str
        The columns that the query writes.
    key : tuple of str
        The columns that identify a row.
    deleted_column : str or None
        The column of soft deletes.
    remove_missing : bool
        Whether rows leave whose keys the new table lacks: with soft deletes, they are marked.
    """

    names: tuple[str, ...]
    key: tuple[str, ...]
    deleted_column: str | None
    remove_missing: bool


class TableTarget(ABC):
    """The description of a table: its name and connection.

    Unstable: a minor release may change it without a deprecation.
    """

    histories: ClassVar[bool] = False
    """Whether the table can keep versions of rows (``scd_type=2``)."""
    positions: ClassVar[bool] = False
    """Whether `Sink.merge` compares positions (`TableSpec.position_column`)."""
    provider: ClassVar[str] = ""
    """The table format whose layout a new table can have (`TableSpec.layout`); empty: none."""

    @property
    def sql_name(self) -> str:
        """The name in SQL statements."""
        return str(self)

    @property
    def address(self) -> str:
        """Where the table is, without accounts and secrets.

        A query keeps it, and stops if a restart names another target.
        """
        return self.sql_name

    @classmethod
    def policy(cls, options: TableOptions, database: TableOptions | None = None) -> TablePolicy:
        """Return how such a table with these options is kept (`TablePolicy.of`).

        Raises
        ------
        ArgumentError
            As `TablePolicy.of`, and when such a table cannot be kept so.
        """
        policy = TablePolicy.of(options, database)
        name = cls.__name__
        refuse(
            (
                policy.is_history and not cls.histories,
                f"scd_type=2 is not supported for {name}: write the history to Delta or Iceberg",
            ),
            (
                policy.position_column is not None and not cls.positions,
                f"position_column is not supported for {name}, whose sink does not compare "
                "positions: remove it",
            ),
            (
                policy.layout != NO_LAYOUT and not cls.provider,
                f"partition_by, cluster_by and properties are not supported for {name}: remove "
                "them, or create the table before the query starts",
            ),
            (
                policy.maintenance is not None and not cls.provider,
                f"maintenance is not supported for {name}: remove it",
            ),
        )
        cls.check_layout(policy.layout_of(()))
        if policy.maintenance is not None:
            policy.maintenance.check(cls.provider)
        return policy

    @classmethod  # noqa: B027 - few formats refuse one
    def check_layout(cls, layout: Layout, columns: Collection[str] = ()) -> None:
        """Raise an error for what the table format does not have, or not with these columns.

        Raises
        ------
        ArgumentError
        """

    @classmethod
    def session(cls, spark: SparkSession) -> SparkSession:
        """Return the session for micro-batches that executors hold already.

        It is the user's session, or one like it.
        """
        return spark

    @classmethod  # noqa: B027 - few formats have such settings
    def tune(cls, own: SparkSession) -> None:
        """Set what saves time in a query's own session, and what the user has not set.

        Parameters
        ----------
        own : SparkSession
            That of `session`, or of the micro-batches of ``foreachBatch``. Not of Spark Connect.
        """

    def refresh(self, spark: SparkSession) -> None:  # noqa: B027 - few targets are cached
        """Let a session see the rows that another session wrote."""

    @abstractmethod
    def sink(self, spark: SparkSession) -> Sink:
        """Return what writes the table in a session."""


class Sink(ABC):
    """Writes one table in a session.

    Unstable: a minor release may change it without a deprecation.

    All methods that write may be called again with the same changes: Spark repeats a micro-batch
    after a failure. A query makes one for its run, so that it remembers what it wrote.
    """

    table: TableTarget
    written: Mapping[str, str] | None = None
    """The ``writer`` that merged the last micro-batch, and the ``reason``; None where only one can,
    or before the first."""

    @property
    def takes_arrow(self) -> bool:
        """Whether `merge_arrow` gets the changes that fit into the driver's memory."""
        return False

    def merge_arrow(self, latest: ArrowRows, spec: TableSpec) -> None:
        """Apply changes as `merge` does."""
        self.merge(latest.frame(), spec)

    @abstractmethod
    def needed(self, spec: TableSpec) -> list[str]:
        """Return the statements that create the table or add columns; empty if none is needed.

        Raises
        ------
        TargetError
            When the table cannot be reached, or is missing and may not be created.
        SchemaError
            When it lacks columns that may not be added, or does not support a column's name or
            type.
        """

    @abstractmethod
    def prepare(self, spec: TableSpec) -> TableSpec:
        """Run the statements that are needed, and return what is written."""

    @abstractmethod
    def merge(self, latest: DataFrame, spec: TableSpec) -> None:
        """Apply the last change of each key, in one commit.

        Parameters
        ----------
        latest : DataFrame
            ``row_kind`` and the columns of `spec`: a row for each key, in which ``+I`` and ``+U``
            are the key's new row, and other kinds delete it. With ``spec.partial_rows`` also the
            columns `ABSENT_COLUMN` and `BASE_COLUMN` of `merge`.
        spec : TableSpec
            Same as `prepare`.

        Raises
        ------
        ConflictError
            When another writer commits in the meantime. Nothing is written, and the caller tries
            again.
        BatchOrderError
            When the table has a later micro-batch of the query, or this one with other offsets.
        """

    def widen(self, old: StructField, new: StructField, *, in_key: bool) -> list[str]:
        """Return the statements that give a column a wider type; empty if there are none."""
        return []

    def exists(self) -> bool:
        """Return whether the table exists.

        Raises
        ------
        TargetError
            When the table cannot be reached.
        """
        return True

    def record(self, batch: Batch) -> Record | None:
        """Return the last micro-batch that the table has of a micro-batch's query.

        None if it has none, or if the sink keeps no record.
        """
        return None

    def is_reachable(self) -> bool:
        """Return whether the server answers, so that an error is one of the table."""
        return True

    def rows(self) -> DataFrame:
        """Return the table's rows; only where the target has `histories`."""
        raise NotImplementedError

    def fields(self) -> Sequence[StructField]:
        """Return the table's columns."""
        raise NotImplementedError

    def create_like(self, other: Sink) -> None:  # noqa: B027 - `prepare` creates most tables
        """Create the table with the columns of another one, if `prepare` would not."""

    def missing(self, other: Sink, key: Sequence[str], deleted_column: str | None) -> int:
        """Return how many keys of this table another one lacks, without those deleted softly."""
        raise NotImplementedError

    def replace_rows(self, other: Sink, replacement: Replacement, batch: Batch) -> None:
        """Replace all rows by those of another table, in one commit, which carries the micro-batch.

        What only this table has stays: its layout, properties and constraints, the values of other
        columns, and the times of soft deletes.

        Parameters
        ----------
        other : Sink
            Of the same kind.
        replacement : Replacement
        batch : Batch
        """
        raise NotImplementedError

    def drop(self) -> None:
        """Delete the table, if it exists."""
        raise NotImplementedError

    def conflicts(self) -> AbstractContextManager[None]:
        """Raise a conflict with another writer in the block as a `ConflictError`."""
        return nullcontext()


def repeat_conflicts(
    commit: Callable[[], None], *, pause: Callable[[float], None] = time.sleep
) -> None:
    """Call `commit` until no other writer prevents it, at most `TRIES` times.

    The pauses double, up to ten seconds. Each is shortened at random, so that two writers do not
    collide again. Each conflict is logged as information.

    Parameters
    ----------
    commit : callable
        Raises `ConflictError` if it wrote nothing and can be called again.
    pause : callable
        Waits for a number of seconds.

    Raises
    ------
    ConflictError
        When every call raised it.
    """
    for tried in range(TRIES):
        try:
            return commit()
        except ConflictError as error:
            conflict = error
            _log.info("%s: attempt %s of %s", conflict.args[0], tried + 1, TRIES)
        if tried < TRIES - 1:
            pause(min(_FIRST_PAUSE * 2**tried, _LONGEST_PAUSE) * random.uniform(0.5, 1))
    raise ConflictError(
        f"{conflict.args[0]}, in each of {TRIES} attempts: let fewer queries write this table at a "
        "time, and restart this query"
    )
