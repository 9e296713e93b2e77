"""DataFrames that PySpark has no function for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .plans import execution_of
from .sessions import jvm_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def rows_of(stored: DataFrame) -> DataFrame:
    """Return stored rows without their plan: ``MERGE`` refuses a nondeterministic source plan.

    Once they are computed, the new plan has their size, so that Spark broadcasts few changes and
    does not shuffle the table.
    """
    execution = jvm_of(stored.sparkSession).org.apache.spark.sql.execution
    of_rows = getattr(getattr(execution, "LogicalRDD$"), "MODULE$")
    plan = of_rows.fromDataset(execution_of(stored).toRdd(), stored._jdf, False)
    return _frame(plan, stored.sparkSession)


def in_session(spark: SparkSession, rows: DataFrame) -> DataFrame:
    """Return a computed DataFrame in another session of the same Spark."""
    return _frame(execution_of(rows).analyzed(), spark)


def _frame(plan: Any, spark: SparkSession) -> DataFrame:
    from pyspark.sql.classic.dataframe import DataFrame

    dataset = jvm_of(spark).org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(spark._jsparkSession, plan), spark)
