"""Helpers for real queries: produce records, run a query until it is idle, collect its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.sql import DataFrame


def new_topic(kafka: Any, records: list[tuple[bytes | None, bytes | None]], partitions: int = 1) -> str:
    """Create a topic with these records and return its name."""
    topic = f"t-{uuid4().hex[:12]}"
    kafka.create_topic(topic, partitions=partitions)
    kafka.produce(topic, records)
    return topic


def servers(kafka: Any, **more: Any) -> dict[str, Any]:
    """The options of a reader or writer."""
    return {"kafka.bootstrap.servers": kafka.bootstrap_servers, **more}


def debezium(op: str, before: dict | None = None, after: dict | None = None) -> bytes:
    """A Debezium message."""
    return json.dumps({"before": before, "after": after, "op": op, "source": {"table": "t", "ts_ms": 1}}).encode()


class Run:
    """The results of a query that has read all records."""

    def __init__(self, rows: list[Any], progress: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.progress = progress

    @property
    def changelog(self) -> list[str]:
        """The rows as text: ``+I(1,scooter)``."""
        return [spell(row) for row in self.rows]

    def metric(self, name: str, count: str) -> int:
        """The sum of an observed metric over the batches."""
        return sum(batch["observedMetrics"][name][count] or 0 for batch in self.progress if name in batch["observedMetrics"])


def spell(row: Any) -> str:
    """A changelog row as text, with only the table's columns."""
    values = [value for name, value in row.asDict().items() if name not in ("row_kind", "_corrupt_record")]
    return f"{row['row_kind']}({','.join(map(str, values))})"


def run_stream(df: DataFrame, checkpoint: Path) -> Run:
    """Run a stream with a checkpoint until it has read all records, and collect its rows by batch."""
    rows: list[Any] = []
    query = (
        df.writeStream.foreachBatch(lambda batch, _: rows.extend(batch.collect()))
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return Run(rows, [json.loads(batch.json) for batch in query.recentProgress])
