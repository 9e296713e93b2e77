"""`carry_over`: a checkpoint for the native engine, made of the checkpoint of a query that stopped.

The old query ran on key groups, or on the native engine with other columns or another number of
shuffle partitions. The rows that it stored become the newest rows of the new state, with the number
of its last micro-batch. So every change of a later micro-batch replaces them. What the query knew
about its table, key and topics comes along (`last_changes`: facts).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column as SparkColumn, DataFrame, functions as F

from cdc_formats.errors import ArgumentError, StateVersionError
from cdc_formats.values.lattice import holds
from cdc_formats.values.schema import Column, backquoted
from normalize.analyzed_plan import has_native_engine
from normalize.core.arrow import arrow_type, slices, spark_type
from normalize.core.guard import GUARD, stored_facts
from normalize.core.last import METADATA, table_fact
from normalize.core.output import ROW_KIND, Output
from normalize.core.state import Layout
from normalize.dataframe import table_columns
from normalize.decode.last_changes import struct_of, struct_type
from normalize.engines.native import (
    COLUMNS,
    CONDITION,
    PRIMARY_KEY,
    TOPIC_ID,
    condition_fact,
    newest_two,
)
from normalize.spark.connect import require_jvm
from normalize.worker import worker

from .read_state import find_state
from .rewrite import NewCheckpoint, check_number

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
