"""The pipeline of the documentation's page, run by ``spark-pipelines`` in its own process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pyspark
import pytest
import yaml

from normalize.spark_versions import installed_version
from tests.support import row_level_catalog
from tests.support.events import HISTORY, event, row
from tests.support.pages import PAGES, blocks
from tests.support.spark_packages import jars

PAGE = PAGES["docs/tasks/declarative-pipelines.md"]
(SPECIFICATION,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COPY = """
@dp.materialized_view(name="spark_catalog.default.orders_copy", format="parquet")
def orders_copy():
    return spark.read.table("orders").select("id", "name", "qty")
"""
"""Tables in memory end with the process."""


@pytest.mark.connect
@pytest.mark.slow(40)
@pytest.mark.skipif(installed_version() < "4.2", reason="Spark 4.1 has no AUTO CDC")
def test_the_pipeline_of_the_page_keeps_the_table(kafka: Any, tmp_path: Path) -> None:
    kafka.create_topic("shop.public.orders")
    kafka.produce("shop.public.orders", [*HISTORY, event("c", 60, None, row(3, "c", 7))])
    (tmp_path / "transformations").mkdir()
    (tmp_path / "transformations" / "orders.py").write_text(blocks(PAGE)[0].source + COPY)
    specification = yaml.safe_load(SPECIFICATION)
    specification["storage"] = f"file://{tmp_path}/storage"
    specification["configuration"] = {"shop.servers": kafka.bootstrap_servers}
    (tmp_path / "spark-pipeline.yml").write_text(yaml.safe_dump(specification))
    settings = {
        "spark.jars": ",".join([jars(), *map(str, row_level_catalog.jars())]),
        f"spark.sql.catalog.{specification['catalog']}": row_level_catalog.CLASS,
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
        "spark.sql.shuffle.partitions": 2,
        "spark.ui.enabled": False,
    }
    home = Path(pyspark.__file__).parent
    command = [home / "bin" / "spark-pipelines", "run", "--remote", "local[2]"]
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    done = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env={**os.environ, "SPARK_HOME": str(home), "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-5000:]
    rows = pq.read_table(tmp_path / "warehouse" / "orders_copy").to_pylist()
    assert sorted(map(tuple, map(dict.values, rows))) == [(1, "a", 2), (3, "c", 7)]
