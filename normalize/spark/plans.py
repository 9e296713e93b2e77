"""The plan of a DataFrame of a classic session, as Spark analyzed it.

The client of Spark Connect has no plan: its server analyzes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from .sessions import active, is_connect, jvm_of, running_query

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


@dataclass(frozen=True)
class Node:
    """A node of an analyzed plan."""

    java: Any
    spark: SparkSession

    @property
    def name(self) -> str:
        """The name of its class."""
        return class_of(self.java)

    @property
    def children(self) -> list[Node]:
        """Its inputs. That of a ``foreachBatch`` DataFrame is the plan of the running query."""
        query = _running_plan(self.spark) if self.name == "LogicalRDD" else None
        if query is not None and ids(query.output()) == ids(self.java.output()):
            return [Node(query, self.spark)]
        return [Node(child, self.spark) for child in elements(self.java.children())]


def plan_of(df: DataFrame) -> Node:
    """Return the plan of a DataFrame."""
    return Node(execution_of(df).analyzed(), df.sparkSession)


def execution_of(df: DataFrame) -> Any:
    """Return Spark's object with the plans of a DataFrame."""
    return _java(df).queryExecution()


def _java(df: DataFrame) -> Any:
    return df._jdf


def partition_count(df: DataFrame) -> int:
    """Return the number of tasks that compute a DataFrame."""
    return int(execution_of(df).toRdd().getNumPartitions())


def estimated_bytes(df: DataFrame) -> int:
    """Return the size of a DataFrame as the optimizer estimates it; of computed rows, their size."""
    return int(execution_of(df).optimizedPlan().stats().sizeInBytes())


def delta_snapshot(
    table: DataFrame, name: str
) -> tuple[str, int, str, str | None, Callable[[str], int | None]]:
    """Return the newest version of a Delta table, as Spark knows it.

    Parameters
    ----------
    table : DataFrame
        The rows of the table.
    name : str
        A property.

    Returns
    -------
    (str, int, str, str or None, callable)
        The table's id, the version, the folder of the log, the property or None, and what returns
        the version of an application's transaction, or None.
    """
    relation = execution_of(table).analyzed().collectLeaves().head().relation()
    java = relation.location().getSnapshot()
    log = java.deltaLog().logPath().toString()
    value = java.metadata().configuration().get(name)

    def transaction(application: str) -> int | None:
        with active(table.sparkSession):  # Delta computes the table's state
            version = java.transactions().get(application)
        return int(version.get()) if version.isDefined() else None

    text = value.get() if value.isDefined() else None
    return java.metadata().id(), java.version(), log, text, transaction


def iceberg_table(table: DataFrame) -> tuple[Any, str, str]:
    """Return Java's object of an Iceberg table, its catalog, and the branch.

    The driver has its snapshots in memory. A read of the table's ``snapshots`` is two jobs of Spark.
    """
    relation = execution_of(table).analyzed().collectLeaves().head()
    stored = relation.table()
    return stored.table(), relation.catalog().get().name(), stored.branch() or "main"


def elements(sequence: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    return (sequence.apply(index) for index in range(sequence.length()))


def class_of(java: Any) -> str:
    """Return the name of a Java object's class, without its package."""
    return str(java.getClass().getSimpleName())


def ids(attributes: Any) -> list[int]:
    """Return the ids of attributes, which identify them in all nodes of a plan."""
    return [attribute.exprId().id() for attribute in elements(attributes)]


def _running_plan(spark: SparkSession) -> Any:
    """Return the plan of the streaming query whose ``foreachBatch`` function runs, or None."""
    query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
    query = None if query_id is None else running_query(spark, query_id)
    return None if query is None else query.lastExecution().analyzed().children().apply(0)


# --------------------------------------------------------------------------------------------------
# DataFrames that PySpark has no function for.


def rows_of(stored: DataFrame) -> DataFrame:
    """Return stored rows without their plan: ``MERGE`` refuses a nondeterministic source plan.

    Once they are computed, the new plan has their size, so that Spark broadcasts few changes and
    does not shuffle the table.
    """
    execution = jvm_of(stored.sparkSession).org.apache.spark.sql.execution
    of_rows = getattr(getattr(execution, "LogicalRDD$"), "MODULE$")
    plan = of_rows.fromDataset(execution_of(stored).toRdd(), _java(stored), False)
    return _frame(plan, stored.sparkSession)


def count(rows: DataFrame) -> int:
    """Return the number of rows: a job that reads all of them, for `computed`."""
    return rows.count()


@contextmanager
def computed(df: DataFrame, job: Callable[[DataFrame], T]) -> Iterator[tuple[DataFrame, T]]:
    """Yield a DataFrame with all rows computed now and once, and what `job` returned.

    They are computed even if the micro-batch is then skipped, and stored as `stored` does. On Spark
    Connect there is only `localCheckpoint`.

    Parameters
    ----------
    df : DataFrame
    job : callable
        The first job on the rows, which must read all of them.
    """
    if is_connect(df):
        rows = df.localCheckpoint()
        yield rows, job(rows)
        return
    with stored(df) as rows:
        result = job(rows)
        yield rows_of(rows), result


@contextmanager
def stored(df: DataFrame) -> Iterator[DataFrame]:
    """Yield a DataFrame whose rows the first action computes, all of them, and executors hold.

    Spark computes those of a lost executor again, from the same offsets and the same version of the
    state. `localCheckpoint` would forget how, and the query would end with the executor.
    """
    rows = df.persist()
    try:
        yield rows
    finally:
        rows.unpersist()


def in_session(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return a computed DataFrame in another session of the same Spark."""
    return _frame(execution_of(rows).analyzed(), spark)


def _frame(plan: Any, spark: SparkSession) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame

    dataset = jvm_of(spark).org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)


def in_utc(table: pa.Table) -> pa.Table:
    """Return rows whose times are in UTC, as in files: Spark's have the session's time zone."""
    return table.cast(pa.schema([each.with_type(_in_utc(each.type)) for each in table.schema]))


def _in_utc(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz and "UTC")
    if pa.types.is_struct(kind):
        return pa.struct([each.with_type(_in_utc(each.type)) for each in kind.fields])
    if pa.types.is_map(kind):
        return pa.map_(_in_utc(kind.key_type), _in_utc(kind.item_type))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    return kind


def arriving(df: DataFrame) -> Iterator[pa.RecordBatch]:
    """Compute a DataFrame, and yield its rows as Arrow's batches: those of a task when it ends.

    `toArrow` returns them after the last task. The batches are in no order.
    """
    from pyspark.errors.exceptions.captured import unwrap_spark_exception
    from pyspark.util import _load_from_socket

    port, secret, server = _java(df).collectAsArrowToPython()
    try:
        serializer: Any = _ArrivingBatches
        loaded: Any = _load_from_socket((port, secret), serializer())
        # Since Spark 4.2, it is a context that closes the socket.
        with loaded if hasattr(loaded, "__exit__") else nullcontext(loaded) as batches:
            yield from batches
    finally:
        with unwrap_spark_exception():
            server.getResult()  # raises the error of the job


class _ArrivingBatches:
    """Reads what ``collectAsArrowToPython`` sends: a stream of Arrow, then the order of its batches.

    Spark's own reader is private, and since Spark 4.3 it yields no batch before the last has come.
    """

    def load_stream(self, stream: Any) -> Iterator[pa.RecordBatch]:
        yield from pa.ipc.open_stream(stream)
        stream.read()  # to the end, so that the JVM does not write to a closed socket
