"""Writing a checkpoint from which a query goes on where another query's checkpoint stopped.

A query of one batch stores the new state, with the same stateful operator and so with Spark's state
store. Its files are only renamed: the first version becomes the one that the next batch loads.
Query id, sources, offsets and batch numbers are those of the old checkpoint. Sinks identify batches
by them (a file sink skips a batch number that it already has).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError
from normalize.spark.files import Files
from normalize.spark.sessions import copy_of

from .read_state import StoredState

_PARTITIONS = "spark.sql.shuffle.partitions"
_PROVIDER = "spark.sql.streaming.stateStore.providerClass"
_STORES = "org.apache.spark.sql.execution.streaming.state."
_FIRST_VERSION = {
    f"{_STORES}HDFSBackedStateStoreProvider": ("1.delta", "{}.snapshot"),
    f"{_STORES}RocksDBStateStoreProvider": ("1.zip", "{}.zip"),
}
"""For each state store: the file of a partition's first version, and that of a later self-contained
version."""
_OF_THE_LOADER = {
    # A version must be one file, not a log of changes.
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    # A row may be a whole key group.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "32",
}
_LOGS = ("state", "offsets", "commits")


class NewCheckpoint:
    """A checkpoint with new state, which otherwise continues an old one.

    Parameters
    ----------
    spark : SparkSession
    stored : StoredState
        The state of the old checkpoint, which is not changed.
    path : str
        A folder that does not exist.
    shuffle_partitions : int or None
        The query's new ``spark.sql.shuffle.partitions``; None: as in the old checkpoint.

    Attributes
    ----------
    session : SparkSession
        A session with the settings of the old query, in which the new state is made.

    Raises
    ------
    ArgumentError
        When the folder exists, the query has several stateful operators, or its state store is not
        one of Spark's.
    """

    def __init__(
        self, spark: SparkSession, stored: StoredState, path: str, shuffle_partitions: int | None
    ) -> None:
        self.stored, self.path, self.files = stored, path, Files(spark)
        old = stored.checkpoint
        if self.files.exists(path):
            raise ArgumentError(f"{path} exists: choose a folder that does not")
        if stored.operator_id != 0 or _visible(self.files.names(f"{old}/state")) != ["0"]:
            raise ArgumentError(
                f"the query in {old} has several stateful operators, which cannot be rewritten: "
                "start from a new checkpoint"
            )
        self.conf = _conf(self.files.read(f"{old}/offsets/{stored.batch_id}"))
        if self.conf[_PROVIDER] not in _FIRST_VERSION:
            raise ArgumentError(
                f"{old} uses the state store {self.conf[_PROVIDER]}, which cannot be rewritten: "
                "only Spark's own state stores can"
            )
        self.conf[_PARTITIONS] = str(shuffle_partitions or self.conf[_PARTITIONS])
        self.session = _session(spark, {**self.conf, **_OF_THE_LOADER})

    @property
    def parts(self) -> str:
        """The folder of the rows of which the state is made, inside the new checkpoint."""
        return f"{self.path}/parts"

    @property
    def next_batch(self) -> int:
        """The number of the query's next batch."""
        return self.stored.batch_id + 1

    @property
    def state(self) -> StoredState:
        """The new state."""
        return StoredState(self.path, 0, int(self.conf[_PARTITIONS]), self.stored.batch_id)

    @contextmanager
    def removed_on_error(self) -> Iterator[None]:
        """Remove the new checkpoint if the body fails."""
        try:
            yield
        except BaseException:
            self.files.remove(self.path)
            raise

    def fill(self, stateful: DataFrame) -> None:
        """Store the state of a stateful stream that reads `parts`.

        It then takes over the rest of the old checkpoint.
        """
        writer = (
            stateful.writeStream.format("noop")
            .outputMode("update")
            .option("checkpointLocation", self.path)
        )
        writer.trigger(availableNow=True).start().awaitTermination()
        self._rename_versions()
        for name in ("parts", "metadata", "sources", "offsets", "commits"):
            self.files.remove(f"{self.path}/{name}")
        self._take_over()

    def _rename_versions(self) -> None:
        first, later = _FIRST_VERSION[self.conf[_PROVIDER]]
        for partition in range(int(self.conf[_PARTITIONS])) if self.next_batch > 1 else ():
            folder = f"{self.path}/state/0/{partition}"
            self.files.rename(f"{folder}/{first}", f"{folder}/{later.format(self.next_batch)}")

    def _take_over(self) -> None:
        """Copy the query's metadata and last batches.

        The offsets come last, since a query starts from them.
        """
        old, last = self.stored.checkpoint, self.stored.batch_id
        for name in _visible(self.files.names(old)):
            if name not in _LOGS:
                self.files.copy(f"{old}/{name}", f"{self.path}/{name}")
        self.files.copy(f"{old}/commits/{last}", f"{self.path}/commits/{last}")
        # A restarted query also reads the offsets before its last ones.
        planned = [
            int(name)
            for name in _visible(self.files.names(f"{old}/offsets"))
            if name.isdigit() and int(name) >= last - 1
        ]
        for batch in sorted(planned):
            self.files.write(
                f"{self.path}/offsets/{batch}",
                _with_conf(self.files.read(f"{old}/offsets/{batch}"), self.conf),
            )


def _visible(names: list[str]) -> list[str]:
    """Return the names of files that Spark does not hide."""
    return [name for name in names if name[0] not in "._"]


def check_number(name: str, number: int) -> None:
    """Raise an `ArgumentError` unless an argument is a positive integer."""
    if not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{name} is {number!r}: it must be an integer of at least 1")


def _session(spark: SparkSession, conf: dict[str, str]) -> SparkSession:
    """Return a copy of a session with these settings changed."""
    session = copy_of(spark)
    for name, value in conf.items():
        session.conf.set(name, value)
    return session


def _conf(offsets: str) -> dict[str, str]:
    """Return the settings of an offset log entry: a version, a JSON line, and a line per source."""
    conf: dict[str, str] = json.loads(offsets.split("\n")[1])["conf"]
    return conf


def _with_conf(offsets: str, conf: dict[str, str]) -> str:
    version, header, *sources = offsets.split("\n")
    return "\n".join(
        [version, json.dumps({**json.loads(header), "conf": conf}, separators=(",", ":")), *sources]
    )
