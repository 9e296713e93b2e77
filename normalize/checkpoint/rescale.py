"""Rewrite a query's checkpoint for another number of key groups: ``python -m normalize.checkpoint.rescale``.

The number of key groups determines where a key's row is stored, and so is fixed for the life of a checkpoint. This writes a new checkpoint
with the same rows and another number. A query that is started from it with that number continues where it stopped, with the same query id
and the next batch number. Sinks identify batches by them (a file sink skips a batch number that it already has).

A query of one batch stores the rows, with the stage's stateful operator and so with Spark's state store. Its files are only renamed: the
first version becomes the one that the next batch loads.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from cdc_formats.errors import ArgumentError, ChangelogError
from normalize.connect import require_jvm
from normalize.core.guard import GUARD, with_layout
from normalize.core.packing import key_groups_of
from normalize.core.state import KeyGroup, Layout
from normalize.engines.key_groups import DDL, STATE_DDL
from normalize.worker import keep_archives, worker

from .read_state import Files, StoredState, find_state

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.state import GroupState

_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STORES = "org.apache.spark.sql.execution.streaming.state."
_FIRST_VERSION = {
    f"{_STORES}HDFSBackedStateStoreProvider": ("1.delta", "{}.snapshot"),
    f"{_STORES}RocksDBStateStoreProvider": ("1.zip", "{}.zip"),
}
"""For each state store: the file of a partition's first version, and that of a later self-contained version."""
_OF_THE_LOADER = {
    # A version must be one file, not a log of changes.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # A row is a whole key group.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32",
}
_PARTS_DDL = "key_group INT, state BINARY"
_PARTS_SCHEMA = pa.schema([("key_group", pa.int32()), ("state", pa.binary())])
_LOGS = ("state", "offsets", "commits")


def rescale(spark: SparkSession, checkpoint: str, new_checkpoint: str, key_groups: int, shuffle_partitions: int | None = None) -> int:
    """Write a copy of a query's checkpoint with another number of key groups, and return the next batch number.

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
        The query's new ``spark.sql.shuffle.partitions``, which a checkpoint fixes as well; by default unchanged.

    Returns
    -------
    int
        The number of the query's next batch. A batch that was planned but not committed is also planned in the new checkpoint.

    Raises
    ------
    ArgumentError
        When the checkpoint cannot be rewritten: it has no state, or several stateful operators; the state is compact; the state has
        positions and the new number is not a multiple of the old one; the state store is not one of Spark's; the new folder exists; or
        the session is of Spark Connect.

    Notes
    -----
    All key groups are written with the same columns (`checkpoint.widest`). For the first ``spark.sql.streaming.minBatchesToRetain`` batches
    Spark's default state store warns "Error cleaning up files", because it looks for older versions. Ignore the warning.
    """
    require_jvm(spark, "rescale", "run python -m normalize.checkpoint.rescale with spark-submit")
    _check_number("key_groups", key_groups)
    _check_number("shuffle_partitions", 1 if shuffle_partitions is None else shuffle_partitions)
    files = Files(spark)
    if files.exists(new_checkpoint):
        raise ArgumentError(f"{new_checkpoint} exists: choose a folder that does not")
    stored = find_state(spark, checkpoint)
    if stored.operator_id != 0 or files.names(f"{checkpoint}/state") != ["0"]:
        raise ArgumentError(
            f"the query in {checkpoint} has several stateful operators, which rescale does not support: start from a new checkpoint"
        )
    layout = stored.layout(spark)
    _check_layout(layout, key_groups)
    conf = _conf(files.read(f"{checkpoint}/offsets/{stored.batch_id}"))
    if conf[_PROVIDER] not in _FIRST_VERSION:
        raise ArgumentError(f"{checkpoint} uses the state store {conf[_PROVIDER]}: rescale supports only Spark's own state stores")
    conf[_PARTITIONS] = str(shuffle_partitions or conf[_PARTITIONS])
    try:
        _Rescaled(spark, files, stored, new_checkpoint, conf).write(layout, key_groups)
    except BaseException:
        files.remove(new_checkpoint)
        raise
    return stored.batch_id + 1


def _check_number(name: str, number: int) -> None:
    if not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{name} is {number!r}: it must be an integer of at least 1")


def _check_layout(layout: Layout, key_groups: int) -> None:
    if layout.compact:
        raise ArgumentError(
            "the state is compact, and its stored key hashes do not determine new key groups: start the query from a new checkpoint"
        )
    if layout.with_positions and key_groups % layout.key_groups:
        raise ArgumentError(
            f"the state has positions (order='source'), which cannot be merged between key groups, and key_groups is {key_groups}: use a "
            f"multiple of {layout.key_groups}"
        )


class _Rescaled:
    """The new checkpoint while it is written."""

    def __init__(self, spark: SparkSession, files: Files, stored: StoredState, path: str, conf: dict[str, str]) -> None:
        self.spark, self.files, self.stored, self.path, self.conf = spark, files, stored, path, conf

    def write(self, layout: Layout, key_groups: int) -> None:
        session = _session(self.spark, {**self.conf, **_OF_THE_LOADER})
        parts = f"{self.path}/parts"
        split = partial(_split_pass, layout=layout, key_groups=key_groups, now_ms=time.time_ns() // 1_000_000)
        self.stored.rows(session).mapInArrow(split, _PARTS_DDL).write.parquet(parts)
        self._load(session, parts, replace(layout, key_groups=key_groups))
        self._rename_versions()
        expected = session.read.schema(_PARTS_DDL).parquet(parts).select("key_group").distinct().count()
        for name in ("parts", "metadata", "sources", "offsets", "commits"):
            self.files.remove(f"{self.path}/{name}")
        self._take_over()
        written = StoredState(self.path, 0, int(self.conf[_PARTITIONS]), self.stored.batch_id).rows(session).count()
        if written != expected:
            raise RuntimeError(f"Spark reads {written} key groups from the new checkpoint, but {expected} were written: please report it")

    def _load(self, session: SparkSession, parts: str, layout: Layout) -> None:
        from pyspark.sql.streaming.state import GroupStateTimeout

        groups = session.readStream.schema(_PARTS_DDL).parquet(parts).groupBy("key_group")
        loaded = groups.applyInPandasWithState(partial(_load_group, layout=layout), DDL, STATE_DDL, "append", GroupStateTimeout.NoTimeout)
        query = loaded.writeStream.format("noop").option("checkpointLocation", self.path).trigger(availableNow=True).start()
        query.awaitTermination()

    def _rename_versions(self) -> None:
        first, later = _FIRST_VERSION[self.conf[_PROVIDER]]
        version = self.stored.batch_id + 1
        for partition in range(int(self.conf[_PARTITIONS])) if version > 1 else ():
            folder = f"{self.path}/state/0/{partition}"
            self.files.rename(f"{folder}/{first}", f"{folder}/{later.format(version)}")

    def _take_over(self) -> None:
        """Copy the query's metadata and last batches; the offsets come last, since a query starts from them."""
        old, last = self.stored.checkpoint, self.stored.batch_id
        for name in self.files.names(old):
            if name not in _LOGS:
                self.files.copy(f"{old}/{name}", f"{self.path}/{name}")
        self.files.copy(f"{old}/commits/{last}", f"{self.path}/commits/{last}")
        # A restarted query also reads the offsets before its last ones.
        planned = [int(name) for name in self.files.names(f"{old}/offsets") if name.isdigit() and int(name) >= last - 1]
        for batch in sorted(planned):
            self.files.write(f"{self.path}/offsets/{batch}", _with_conf(self.files.read(f"{old}/offsets/{batch}"), self.conf))


def _session(spark: SparkSession, conf: dict[str, str]) -> SparkSession:
    """Return a copy of a session with these settings changed."""
    from pyspark.sql import SparkSession as Session

    session = Session(spark.sparkContext, spark._jsparkSession.cloneSession())
    for name, value in conf.items():
        session.conf.set(name, value)
    return session


def _conf(offsets: str) -> dict[str, str]:
    """Return the settings in an entry of the offset log: a version, a line of JSON, and a line for each source."""
    conf: dict[str, str] = json.loads(offsets.split("\n")[1])["conf"]
    return conf


def _with_conf(offsets: str, conf: dict[str, str]) -> str:
    version, header, *sources = offsets.split("\n")
    return "\n".join([version, json.dumps({**json.loads(header), "conf": conf}, separators=(",", ":")), *sources])


# ------------------------------------------------------------------------------------------------------- on the workers


def split(group: KeyGroup, key_groups: int) -> list[tuple[int, KeyGroup]]:
    """Return the new key groups of a key group's rows, as pairs of number and part.

    Parameters
    ----------
    group : KeyGroup
    key_groups : int
        The new number of key groups.
    """
    numbers = key_groups_of(group.rows.column("key").to_pylist(), key_groups)
    return [(int(number), KeyGroup(group.rows.filter(pa.array(numbers == number)), group.epochs)) for number in np.unique(numbers)]


def merged(parts: Sequence[KeyGroup], layout: Layout) -> KeyGroup:
    """Return one key group from parts without common keys; several parts have no positions."""
    table = pa.Table.from_batches([part.rows for part in parts], layout.schema).combine_chunks()
    return KeyGroup(table.to_batches()[0], parts[0].epochs)


def _split_pass(batches: Iterator[pa.RecordBatch], *, layout: Layout, key_groups: int, now_ms: int) -> Iterator[pa.RecordBatch]:
    """Turn key groups into their parts; for ``mapInArrow``."""
    new = replace(layout, key_groups=key_groups)
    with worker():
        for batch in batches:
            for old, data in zip(batch.column("key_group").to_pylist(), batch.column("state"), strict=True):
                if old == GUARD:
                    yield pa.RecordBatch.from_pylist([{"key_group": GUARD, "state": with_layout(data.as_py(), new)}], _PARTS_SCHEMA)
                    continue
                parts = split(layout.decode(data.as_py(), now_ms), key_groups)
                rows = [{"key_group": number, "state": new.encode(part)} for number, part in parts]
                yield pa.RecordBatch.from_pylist(rows, _PARTS_SCHEMA)


def _load_group(key: Any, frames: Iterator[pd.DataFrame], state: GroupState, *, layout: Layout) -> Iterator[pd.DataFrame]:
    """Store a key group's parts as one state; for ``applyInPandasWithState``."""
    keep_archives()
    stored = [bytes(part) for frame in frames for part in frame["state"]]
    state.update((stored[0] if key[0] == GUARD else layout.encode(merged([layout.decode(part, 0) for part in stored], layout)),))
    yield from ()


# ------------------------------------------------------------------------------------------------------ the command line


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        prog="python -m normalize.checkpoint.rescale",
        description="Write a copy of a query's checkpoint with another number of key groups. Stop the query first.",
    )
    parser.add_argument("checkpoint", help="the query's checkpointLocation; it is not changed")
    parser.add_argument("new_checkpoint", help="a folder that does not exist")
    parser.add_argument("--key-groups", type=int, required=True, help="the new number of key groups")
    parser.add_argument("--shuffle-partitions", type=int, help="the new spark.sql.shuffle.partitions; unchanged by default")
    arguments = parser.parse_args()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = SparkSession.builder.appName("rescale").getOrCreate()
    try:
        batch = rescale(spark, arguments.checkpoint, arguments.new_checkpoint, arguments.key_groups, arguments.shuffle_partitions)
    except ChangelogError as error:
        sys.exit(str(error))
    finally:
        spark.stop()
    print(f"Wrote {arguments.new_checkpoint}: start the query from it with key_groups={arguments.key_groups}; the next batch is {batch}")


if __name__ == "__main__":
    main()
