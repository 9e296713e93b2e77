"""The rows of a micro-batch, computed once and stored while they are written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from normalize.connect import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@contextmanager
def computed(df: DataFrame) -> Iterator[DataFrame]:
    """Yield a DataFrame whose rows are computed once, now and all of them, also those of a micro-batch that is then skipped.

    Executors hold the rows. Spark computes those of a lost executor again, from the same offsets and the same version of the state.
    `localCheckpoint` would forget how, and the query would end with the executor; on Spark Connect there is nothing else.
    """
    if is_connect(df):
        yield df.localCheckpoint()
        return
    stored = df.persist()
    try:
        stored.count()
        yield _rows_of(stored)
    finally:
        stored.unpersist()


def _rows_of(stored: DataFrame) -> DataFrame:
    """Return stored rows without the plan that computed them: ``MERGE`` refuses a source with a plan that is not deterministic."""
    from pyspark.sql.classic.dataframe import DataFrame

    session: Any = stored.sparkSession
    plan: Any = stored
    rows = session._jsparkSession.internalCreateDataFrame(plan._jdf.queryExecution().toRdd(), plan._jdf.schema(), False)
    return DataFrame(rows, session)
