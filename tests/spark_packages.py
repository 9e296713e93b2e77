"""The jars of the tests' Spark session; ``python tests/spark_packages.py --fetch`` fetches them beforehand.

Ivy has one cache for all processes and no lock on it: test processes that begin side by side must find it filled.
"""

from __future__ import annotations

import argparse

from normalize.kafka import SPARK_PACKAGES
from normalize.sinks.tables import SINK_PACKAGES

PACKAGES = ",".join([SPARK_PACKAGES, *SINK_PACKAGES.values()])


def main() -> None:
    """Start a Spark session with the jars, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fetch", action="store_true", required=True, help="fetch the jars into Ivy's cache")
    parser.parse_args()
    from pyspark.sql import SparkSession

    settings = {"spark.jars.packages": PACKAGES, "spark.ui.enabled": "false", "spark.log.level": "ERROR"}
    SparkSession.builder.master("local[1]").config(map=settings).getOrCreate().stop()


if __name__ == "__main__":
    main()
