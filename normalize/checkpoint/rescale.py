"""Rewrite of a query's checkpoint for another number of key groups.

It is run as ``python -m normalize.checkpoint.rescale``.

The number of key groups determines where a key's row is stored, and so is fixed for the life of a
checkpoint. This writes a new checkpoint with the same rows and another number (`rewrite`). A query
that is started from it with that number continues where it stopped.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from cdc_formats.errors import ArgumentError, ChangelogError
from normalize.connect import require_jvm
from normalize.core.guard import GUARD, with_layout
from normalize.core.packing import key_groups_of
from normalize.core.state import KeyGroup, Layout
from normalize.engines.key_groups import DDL, STATE_DDL
from normalize.worker import prepare, worker

from .read_state import find_state
from .rewrite import NewCheckpoint, check_number

_PARTS_DDL = "key_group INT, state BINARY"
_PARTS_SCHEMA = pa.schema([("key_group", pa.int32()), ("state", pa.binary())])


def rescale(
    spark: SparkSession,
    checkpoint: str,
    new_checkpoint: str,
    key_groups: int,
    shuffle_partitions: int | None = None,
) -> int:
    """Copy a query's checkpoint with a new number of key groups, and return the next batch number.

    Parameters
    ----------
    spark : SparkSession
    checkpoint : str
        The ``checkpointLocation`` of the query, which must be stopped. It is not changed.
    new_checkpoint : str
        A folder that does not exist. It is removed if an error occurs.
    key_groups : int
        The new number of key groups.
    shuffle_partitions : int or None
        The query's new ``spark.sql.shuffle.partitions``, which a checkpoint fixes as well; by
        default unchanged.

    Returns
    -------
    int
        The number of the query's next batch. A batch that was planned but not committed is also
        planned in the new checkpoint.

    Raises
    ------
    ArgumentError
        When the checkpoint cannot be rewritten: it has no state, or several stateful operators; the
        state has positions and the new number is not a multiple of the old one; the state store is
        not one of Spark's; the new folder exists; or the session is of Spark Connect.

    Notes
    -----
    All key groups are written with the same columns (`checkpoint.widest`). For the first
    ``spark.sql.streaming.minBatchesToRetain`` batches Spark's default state store warns "Error
    cleaning up files", because it looks for older versions. Ignore the warning.
    """
    require_jvm(spark, "rescale", "run python -m normalize.checkpoint.rescale with spark-submit")
    check_number("key_groups", key_groups)
    check_number("shuffle_partitions", 1 if shuffle_partitions is None else shuffle_partitions)
    stored = find_state(spark, checkpoint)
    layout = stored.layout(spark)
    if layout.with_positions and key_groups % layout.key_groups:
        raise ArgumentError(
            "the state has positions (order='source'), which cannot be merged between key groups, "
            f"and key_groups is {key_groups}: use a multiple of {layout.key_groups}"
        )
    new = NewCheckpoint(spark, stored, new_checkpoint, shuffle_partitions)
    split = partial(
        _split_pass, layout=layout, key_groups=key_groups, now_ms=time.time_ns() // 1_000_000
    )
    with new.removed_on_error():
        stored.rows(new.session).mapInArrow(split, _PARTS_DDL).write.parquet(new.parts)
        expected = (
            new.session.read.schema(_PARTS_DDL)
            .parquet(new.parts)
            .select("key_group")
            .distinct()
            .count()
        )
        new.fill(_loaded(new, replace(layout, key_groups=key_groups)), "append")
        written = new.state.rows(new.session).count()
        if written != expected:
            raise RuntimeError(
                f"Spark reads {written} key groups from the new checkpoint, but {expected} were "
                "written: please report it"
            )
    return new.next_batch


def _loaded(new: NewCheckpoint, layout: Layout) -> DataFrame:
    """Return a stream with the stage's stateful operator that only stores the parts."""
    groups = new.session.readStream.schema(_PARTS_DDL).parquet(new.parts).groupBy("key_group")
    return groups.applyInPandasWithState(
        partial(_load_group, layout=layout), DDL, STATE_DDL, "append", GroupStateTimeout.NoTimeout
    )


# --------------------------------------------------------------------------------------------------
# on the workers


def split(group: KeyGroup, key_groups: int) -> list[tuple[int, KeyGroup]]:
    """Return the new key groups of a key group's rows, as pairs of number and part.

    Parameters
    ----------
    group : KeyGroup
    key_groups : int
        The new number of key groups.
    """
    numbers = key_groups_of(group.rows.column("key").to_pylist(), key_groups)
    return [
        (int(number), KeyGroup(group.rows.filter(pa.array(numbers == number)), group.epochs))
        for number in np.unique(numbers)
    ]


def merged(parts: Sequence[KeyGroup], layout: Layout) -> KeyGroup:
    """Return one key group from parts without common keys; several parts have no positions."""
    table = pa.Table.from_batches([part.rows for part in parts], layout.schema).combine_chunks()
    return KeyGroup(table.to_batches()[0], parts[0].epochs)


def _split_pass(
    batches: Iterator[pa.RecordBatch], *, layout: Layout, key_groups: int, now_ms: int
) -> Iterator[pa.RecordBatch]:
    """Turn key groups into their parts; for ``mapInArrow``."""
    new = replace(layout, key_groups=key_groups)
    with worker():
        for batch in batches:
            for old, data in zip(
                batch.column("key_group").to_pylist(), batch.column("state"), strict=True
            ):
                if old == GUARD:
                    yield pa.RecordBatch.from_pylist(
                        [{"key_group": GUARD, "state": with_layout(data.as_py(), new)}],
                        _PARTS_SCHEMA,
                    )
                    continue
                parts = split(layout.decode(data.as_py(), now_ms), key_groups)
                rows = [{"key_group": number, "state": new.encode(part)} for number, part in parts]
                yield pa.RecordBatch.from_pylist(rows, _PARTS_SCHEMA)


def _load_group(
    key: Any, frames: Iterator[pd.DataFrame], state: GroupState, *, layout: Layout
) -> Iterator[pd.DataFrame]:
    """Store a key group's parts as one state; for ``applyInPandasWithState``."""
    prepare()
    stored = [bytes(part) for frame in frames for part in frame["state"]]
    state.update(
        (
            stored[0]
            if key[0] == GUARD
            else layout.encode(merged([layout.decode(part, 0) for part in stored], layout)),
        )
    )
    yield from ()


# --------------------------------------------------------------------------------------------------
# the command line


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m normalize.checkpoint.rescale",
        description=(
            "Write a copy of a query's checkpoint with another number of key groups. Stop the "
            "query first."
        ),
    )
    parser.add_argument("checkpoint", help="the query's checkpointLocation; it is not changed")
    parser.add_argument("new_checkpoint", help="a folder that does not exist")
    parser.add_argument(
        "--key-groups", type=int, required=True, help="the new number of key groups"
    )
    parser.add_argument(
        "--shuffle-partitions",
        type=int,
        help="the new spark.sql.shuffle.partitions; unchanged by default",
    )
    arguments = parser.parse_args()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("rescale").getOrCreate()
    try:
        batch = rescale(
            spark,
            arguments.checkpoint,
            arguments.new_checkpoint,
            arguments.key_groups,
            arguments.shuffle_partitions,
        )
    except ChangelogError as error:
        sys.exit(str(error))
    finally:
        spark.stop()
    print(
        f"Wrote {arguments.new_checkpoint}: start the query from it with "
        f"key_groups={arguments.key_groups}; the next batch is {batch}"
    )


if __name__ == "__main__":
    main()
