"""The call that a profile suggests reads the topic."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_formats.topics.kafka import profile_topic
from tests.support.paths import RECORDS


def executed(call: str, spark: Any) -> Any:
    """The rows of a call with `spark` as the session, read in one batch for speed."""
    names: dict[str, Any] = {"spark": spark}
    exec(compile(f"{call.removesuffix(')')}    bounded=True,\n)", "call", "exec"), names)
    return names["changes"]


@pytest.mark.parametrize(
    ("name", "table", "kinds"),
    [
        ("flink-upsert.tags", None, {"+I", "-U", "+U", "-D"}),
        ("dbz34-mariadb-json.inventory.order_lines", None, {"+I", "-U", "+U", "-D"}),
        ("dbz34-mariadb-upsert.inventory.dbz_signal", None, {"+I"}),
        ("maxwell-mariadb", "inventory.customers", {"+I", "-U", "+U", "-D"}),
    ],
)
def test_the_call_reads_the_topic(spark: Any, kafka: Any, name: str, table: str | None, kinds: set[str]) -> None:
    topic = f"called-{name}"
    kafka.load_recording(RECORDS / f"{name}.jsonl.gz", topic)
    profile = profile_topic(kafka.bootstrap_servers, topic, sample=20_000, progress=False)
    changes = executed(profile.call(table), spark)
    rows = changes.collect()
    assert {row["row_kind"] for row in rows} == kinds
    declared = next(each for each in profile.tables if table in (None, each.name))
    assert declared.schema is not None
    assert changes.columns == ["row_kind", *(column.name for column in declared.schema.columns)]
    assert sum(row["row_kind"] == "+I" for row in rows) > 10
