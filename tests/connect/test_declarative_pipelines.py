"""The pipeline of the documentation's page: it is run twice, against a server of its own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql.connect.session import SparkSession

from normalize.spark_versions import installed_version
from tests.support import row_level_catalog
from tests.support.events import A2, HISTORY, event, row
from tests.support.pages import PAGES, blocks
from tests.support.servers.connect_server import ConnectServer
from tests.support.spark_packages import jars

PAGE = PAGES["docs/tasks/declarative-pipelines.md"]
(SPECIFICATION,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
TOPIC, TABLE = "shop.public.orders", "lakehouse.shop.orders"


@pytest.mark.connect
@pytest.mark.slow(40)
@pytest.mark.skipif(installed_version() < "4.2", reason="Spark 4.1 has no AUTO CDC")
def test_the_pipeline_of_the_page_keeps_the_table(kafka: Any, tmp_path: Path) -> None:
    kafka.create_topic(TOPIC)
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(blocks(PAGE)[0].source)
    specification = yaml.safe_load(SPECIFICATION)
    specification["storage"] = f"file://{tmp_path}/storage"
    specification["configuration"] = {"shop.servers": kafka.bootstrap_servers}
    (tmp_path / "spark-pipeline.yml").write_text(yaml.safe_dump(specification))
    settings = {
        "spark.master": "local[2]",
        "spark.jars": ",".join([jars(), *map(str, row_level_catalog.jars())]),
        "spark.sql.catalog.lakehouse": row_level_catalog.CLASS,
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": False,
    }
    with ConnectServer(settings) as server:
        session = SparkSession.builder.remote(server.url).create()
        try:
            table = session.read.table(TABLE).select("id", "name", "qty")
            kafka.produce(TOPIC, HISTORY)
            run(tmp_path, server.url)
            assert list(map(tuple, table.collect())) == [(1, "a", 2)]
            kafka.produce(TOPIC, [event("c", 60, None, row(3, "c", 7)), event("d", 70, A2, None)])
            run(tmp_path, server.url)
            assert list(map(tuple, table.collect())) == [(3, "c", 7)]
        finally:
            session.stop()


def run(folder: Path, server: str) -> None:
    """Run the pipeline until it has read the topic."""
    done = subprocess.run(
        [sys.executable, "-m", "pyspark.pipelines.cli", "run"],
        cwd=folder,
        env={**os.environ, "SPARK_REMOTE": server},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
