"""State of a stage, made by hand."""

from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.streaming.state import GroupStateTimeout

from cdc_formats import columns
from normalize.core.order import Epoch
from normalize.core.state import KeyGroup, Layout
from tests.support.streams import run_stream

LAYOUT = Layout(2, columns("id INT, name STRING"), ("id",))

NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)

NOON_MS = int(NOON.timestamp()) * 1000


def stored_by_hand(spark, groups: dict[int, bytes], checkpoint: Path) -> None:
    """Make a checkpoint whose state has these key groups."""

    def put(key, frames, state):
        for frame in frames:
            state.update((bytes(frame["state"][0]),))
        yield from ()

    folder, ddl = f"{checkpoint}-groups", "key_group INT, state BINARY"
    Path(folder).mkdir()
    stored = pa.table(
        {"key_group": pa.array(groups, pa.int32()), "state": pa.array(groups.values(), pa.binary())}
    )
    pq.write_table(stored, f"{folder}/groups.parquet")
    grouped = spark.readStream.schema(ddl).parquet(folder).groupBy("key_group")
    query = grouped.applyInPandasWithState(
        put, "result BINARY", "state BINARY", "append", GroupStateTimeout.NoTimeout
    )
    run_stream(query, checkpoint)


def group_of(layout: Layout, *columns_of_rows: Sequence, epochs: Sequence[Epoch] = ()) -> bytes:
    arrays = [
        pa.array(values, field.type)
        for values, field in zip(columns_of_rows, layout.schema, strict=True)
    ]
    return layout.encode(
        KeyGroup(pa.RecordBatch.from_arrays(arrays, schema=layout.schema), list(epochs))
    )


def rows_of(df, *names: str) -> list[tuple]:
    return sorted(
        (tuple(row[name] for name in names or df.columns) for row in df.collect()), key=repr
    )
