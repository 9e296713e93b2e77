"""Spark's daemon of Python workers, which imports what they need once, before it forks them.

After PySpark's own daemon forks a worker, the worker spends a second of CPU on its imports. Spark
ends a worker that was idle for a minute, and so the tests start hundreds of them.
"""

import pandas  # noqa: F401
import pyarrow  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import normalize.query
import normalize.tables.database
import normalize.verify.verify_table  # noqa: F401

if __name__ == "__main__":
    manager()
