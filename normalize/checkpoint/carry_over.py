"""`carry_over`: a checkpoint for the native engine, made of the checkpoint of a query that stopped.

The old query ran on key groups, or on the native engine with other columns or another number of
shuffle partitions. The rows that it stored become the newest rows of the new state, with the number
of its last micro-batch. So every change of a later micro-batch replaces them. What the query knew
about its table, key and topics comes along (`last_changes`: facts).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import pyarrow as pa
from pyspark.sql import Column as SparkColumn, DataFrame, SparkSession, functions as F

from cdc_formats.errors import ArgumentError, StateVersionError
from cdc_formats.values.schema import Column, backquoted
from cdc_formats.values.types import holds
from normalize.core.arrow import arrow_type, slices, spark_type
from normalize.core.guard import GUARD, stored_facts
from normalize.core.last import METADATA, table_fact
from normalize.core.output import ROW_KIND, Output
from normalize.core.state import Layout
from normalize.dataframe import has_native_engine, table_columns
from normalize.decode.last_changes import struct_of, struct_type
from normalize.engines.native import (
    COLUMNS,
    CONDITION,
    PRIMARY_KEY,
    TOPIC_ID,
    condition_fact,
    newest_two,
)
from normalize.spark.files import Files
from normalize.spark.sessions import copy_of, require_jvm
from normalize.worker import worker

from .read_state import StoredState, find_state

# --------------------------------------------------------------------------------------------------
# Writing a checkpoint from which a query goes on where another query's checkpoint stopped.
#
# A query of one batch stores the new state, with the same stateful operator and so with Spark's state
# store. Its files are only renamed: the first version becomes the one that the next batch loads.
# Query id, sources, offsets and batch numbers are those of the old checkpoint. Sinks identify batches
# by them (a file sink skips a batch number that it already has).

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
        self.session = copy_of(spark)
        for name, value in {**self.conf, **_OF_THE_LOADER}.items():
            self.session.conf.set(name, value)

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


def _conf(offsets: str) -> dict[str, str]:
    """Return the settings of an offset log entry: a version, a JSON line, and a line per source."""
    conf: dict[str, str] = json.loads(offsets.split("\n")[1])["conf"]
    return conf


def _with_conf(offsets: str, conf: dict[str, str]) -> str:
    version, header, *sources = offsets.split("\n")
    return "\n".join(
        [version, json.dumps({**json.loads(header), "conf": conf}, separators=(",", ":")), *sources]
    )


_NOW_MS = 0
"""The time of the last write is not carried over."""


def carry_over(
    changes: DataFrame,
    checkpoint: str,
    new_checkpoint: str,
    *,
    metadata: Sequence[str] = (),
    shuffle_partitions: int | None = None,
) -> int:
    """Write a checkpoint from which a native-engine changelog continues where an old query stopped.

    The old query ran on key groups, or on the native engine with other columns or another number of
    shuffle partitions. No row is lost, and none is emitted twice. The next batch has the next
    number, and the query keeps its id.

    Unstable: a minor release may change it without a deprecation.

    Parameters
    ----------
    changes : DataFrame
        The stream that will be started from the new checkpoint, as `from_kafka_changelog` returns
        it with ``engine="native"``.
    checkpoint : str
        The ``checkpointLocation`` of the old query, which must be stopped. It is not changed.
    new_checkpoint : str
        A folder that does not exist. It is removed if an error occurs.
    metadata : sequence of str
        The metadata columns of `changes`.
    shuffle_partitions : int or None
        The new ``spark.sql.shuffle.partitions``, which a checkpoint fixes; by default as in the old
        checkpoint.

    Returns
    -------
    int
        The number of the next batch. A batch that was planned but not committed is also planned in
        the new checkpoint.

    Raises
    ------
    ArgumentError
        When `changes` is not on the native engine; when the old checkpoint has no state, or several
        stateful operators; its state has positions; the state store is not one of Spark's; the new
        folder exists; or the session is of Spark Connect.
    StateVersionError
        When a column has a type that cannot hold the stored values.

    Notes
    -----
    A column that the old query did not have is NULL in the stored rows: a key has its value from
    its next change on. A column that `changes` does not have is dropped. Rows that had a TTL no
    longer expire.
    """
    spark = changes.sparkSession
    require_jvm(spark, "carry_over", "use a classic session")
    check_number("shuffle_partitions", 1 if shuffle_partitions is None else shuffle_partitions)
    if not has_native_engine(changes):
        raise ArgumentError(
            "carry_over requires a changelog on the native engine: pass what from_kafka_changelog "
            "returns with normalize=ChangelogNormalize(engine='native')"
        )
    output = _output(changes, metadata)
    stored = find_state(spark, checkpoint, native=True)
    # Reading the layout is a pass over the whole state.
    layout = None if stored.is_native(spark) else stored.layout(spark)
    if layout is not None and layout.with_positions:
        raise ArgumentError(
            "the state has positions (order='source'), which the native engine does not have: "
            "start the query with engine='native' from a new checkpoint"
        )
    new = NewCheckpoint(spark, stored, new_checkpoint, shuffle_partitions)
    with new.removed_on_error():
        parts = (
            _native_parts(new, output) if layout is None else _key_group_parts(new, output, layout)
        )
        parts.withColumn("batch", F.lit(stored.batch_id).cast("long")).write.parquet(new.parts)
        expected = new.session.read.schema(_parts_ddl(output)).parquet(new.parts).count()
        new.fill(_loaded(new, output))
        written = new.state.source(new.session).count()
        if written != expected:
            raise RuntimeError(
                f"Spark reads {written} keys from the new checkpoint, but {expected} were written: "
                "please report it"
            )
    return new.next_batch


def _output(changes: DataFrame, metadata: Sequence[str]) -> Output:
    unknown = [name for name in metadata if name not in changes.columns]
    if unknown:
        raise ArgumentError(
            f"metadata has {unknown[0]}, which is not a column of the changelog: it has "
            f"{', '.join(changes.columns[1:])}"
        )
    columns = {column.name: column for column in table_columns(changes.schema, [ROW_KIND])}
    return Output(
        tuple(column for name, column in columns.items() if name not in metadata),
        tuple(columns[name] for name in metadata),
    )


def _parts_ddl(output: Output) -> str:
    return f"key BINARY, row {spark_type(struct_type(output.columns))}, fact STRING"


def _key_group_parts(new: NewCheckpoint, output: Output, layout: Layout) -> DataFrame:
    """Return the rows of a key-group query, and its facts."""
    rows = partial(
        _rows_pass,
        layout=Layout(
            layout.key_groups, output.columns, layout.unique_key, with_ttl=layout.with_ttl
        ),
    )
    return new.stored.rows(new.session).mapInArrow(rows, _parts_ddl(output))


def _native_parts(new: NewCheckpoint, output: Output) -> DataFrame:
    """Return the newest rows of a query on the native engine, and its facts."""
    state = new.stored.newest(new.session)
    before = {column.name: column for column in table_columns(state.select("row.*").schema)}
    fields = [_field(column, before.get(column.name)) for column in output.columns]
    rows = F.when(F.col("row").isNotNull(), F.struct(*fields)).cast(
        spark_type(struct_type(output.columns))
    )
    # The new query states its columns itself.
    return state.where(F.col("fact").isNull() | (F.col("key") != F.lit(COLUMNS.encode()))).select(
        "key", rows.alias("row"), "fact"
    )


def _field(column: Column, before: Column | None) -> SparkColumn:
    if before is None:
        return F.lit(None).cast(spark_type(column.type)).alias(column.name)
    if not holds(column.type, before.type):
        raise StateVersionError(
            f"column {column.name} is {column.type}, and the checkpoint has {before.type}: choose "
            "a type that holds its values, or start from a new checkpoint"
        )
    return F.col(f"row.{backquoted(column.name)}").cast(spark_type(column.type)).alias(column.name)


def _loaded(new: NewCheckpoint, output: Output) -> DataFrame:
    """Return a stream with the native engine's aggregation that only stores the parts."""
    # Columns that are read from files are nullable, as those of the first pass are. Spark compares
    # that, too.
    parts = new.session.readStream.schema(f"{_parts_ddl(output)}, batch BIGINT").parquet(new.parts)
    if output.metadata:
        parts = parts.withColumn(
            METADATA, F.lit(None).cast(spark_type(struct_type(output.metadata)))
        )
    return newest_two(parts, F.lit(0), output)


# --------------------------------------------------------------------------------------------------
# on the workers


def _rows_pass(batches: Iterator[pa.RecordBatch], *, layout: Layout) -> Iterator[pa.RecordBatch]:
    """Turn key groups into rows by key, and the guard into facts; for ``mapInArrow``."""
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("row", arrow_type(struct_type(layout.columns))),
            ("fact", pa.string()),
        ]
    )
    with worker():
        for batch in batches:
            for group, data in zip(
                batch.column("key_group").to_pylist(),
                batch.column("state").to_pylist(),
                strict=True,
            ):
                if group == GUARD:
                    facts = _facts(data, layout)
                    names, values = [name.encode() for name in facts], list(facts.values())
                    yield pa.RecordBatch.from_arrays(
                        [names, pa.nulls(len(facts), schema.field("row").type), values],
                        schema=schema,
                    )
                    continue
                rows = layout.decode(data, _NOW_MS).rows
                row = struct_of(layout.columns, rows, "c")
                yield from slices(
                    pa.RecordBatch.from_arrays(
                        [rows.column("key"), row, pa.nulls(len(row), pa.string())], schema=schema
                    )
                )


def _facts(guard: bytes, layout: Layout) -> dict[str, str]:
    tables, topic_ids, condition, masks = stored_facts(guard)
    return {
        PRIMARY_KEY: ", ".join(layout.unique_key),
        **({} if condition is None else {CONDITION: condition_fact(condition, masks)}),
        **dict(map(table_fact, tables)),
        **{f"{TOPIC_ID}{name}": topic_id for name, topic_id in topic_ids.items()},
    }
