"""ChangelogNormalize as Spark's own streaming aggregation, on Spark 4.2 and later.

The cost of a micro-batch depends on what changes, not on what is stored.

The first pass keeps the last change of each key (`last_changes.LastChanges`). An aggregation in
output mode ``update`` keeps the newest two rows of each key in Spark's state store, and SQL makes
the row kinds of them::

    max_by(struct(mark, row), mark, 2)

The mark is the micro-batch's number, followed by the low bits of its timestamp. It says three
things:

- What is new is on top, since the number increases.
- Two rows with the same mark are changes of one key in two tasks of one micro-batch, whose order is
  unknown: an error.
- A newest row whose mark is not the micro-batch's means that the query is not in output mode
  ``update``: an error.

Facts that must not change (`last_changes`) are groups of their own: their least and greatest values
must be equal. Those of partitions (`last.partition_facts`) may differ, unless a record is late.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column as SparkColumn, DataFrame, SparkSession, functions as F

from cdc_formats.errors import (
    ArgumentError,
    ChangelogError,
    MissingDependencyError,
    PartitionsAddedError,
    StateVersionError,
    TopicReplacedError,
)
from cdc_formats.values.schema import Column, SqlType, backquoted
from normalize.core.arrow import frame_type
from normalize.core.guard import Identity
from normalize.core.key_group import Stage
from normalize.core.last import FIRST, INVERT, METADATA, OLDER, PARTITION, TABLE, TOPIC, WIDTH
from normalize.core.order import RowOrderError
from normalize.core.output import ROW_KIND, Output
from normalize.core.records import NATIVE_COUNTS
from normalize.dataframe import NATIVE
from normalize.spark.sessions import is_connect

PRIMARY_KEY, COLUMNS, CONDITION, TOPIC_ID = (
    "primary key columns",
    "columns",
    "conditions (where=)",
    "topic id of ",
)
"""The names of the facts that are known on the driver."""
_LOW_BITS = 24
_FIRST = (4, 2)


def check_session(spark: SparkSession) -> None:
    """Raise an error for a session that cannot run the native engine.

    Raises
    ------
    ArgumentError
        When it is of Spark Connect.
    MissingDependencyError
        When Spark is older than 4.2.
    """
    if is_connect(spark):
        raise ArgumentError(
            "engine='native' is not supported on Spark Connect: use engine='key_groups', or a "
            "classic session"
        )
    if tuple(map(int, spark.version.split(".")[:2])) < _FIRST:
        raise MissingDependencyError(
            f"engine='native' requires Spark 4.2, and this is Spark {spark.version}: use "
            "engine='key_groups'"
        )


def facts_of(stage: Stage) -> dict[str, str]:
    """Return the facts about a query that are known on the driver, by name."""
    topics = {
        f"{TOPIC_ID}{name}": topic.topic_id
        for name, topic in stage.expected.topics.items()
        if topic.topic_id
    }
    # Spark compares the types of stored columns, and not their names: it would accept columns in
    # another order.
    columns = {
        PRIMARY_KEY: ", ".join(stage.layout.unique_key),
        COLUMNS: ", ".join(
            f"{backquoted(column.name)} {frame_type(column.type)}"
            for column in stage.layout.columns
        ),
    }
    expected = stage.expected
    return {**columns, CONDITION: condition_fact(expected.condition, expected.masks), **topics}


def condition_fact(condition: str, masks: Mapping[str, str]) -> str:
    """Return the fact `CONDITION`: the condition of ``where=``, followed by the masks if any."""
    # A fact of its own would be missing in the checkpoints of earlier releases, and so not compared.
    listed = ", ".join(f"{name} {mask}" for name, mask in sorted(masks.items()))
    return "; ".join(filter(None, [condition, listed and f"mask: {listed}"]))


def normalize_native(changes: DataFrame, stage: Stage, output: Output, metrics: str) -> DataFrame:
    """Return the native engine's changelog of last changes, to write in output mode ``update``.

    Parameters
    ----------
    changes : DataFrame
        The batches of `decode.last_changes.LastChanges`.
    stage : Stage
    output : Output
    metrics : str
        The name of `NATIVE_COUNTS` in the query's progress.
    """
    low_bits = F.unix_millis(F.current_timestamp()).bitwiseAND((1 << _LOW_BITS) - 1)
    groups = newest_two(changes, low_bits, output)
    metadata = [METADATA] if output.metadata else []
    last_two = [F.get("newest", index).alias(name) for index, name in enumerate(("new", "old"))]
    rows = groups.select("key", *last_two, *metadata, "least", "greatest")
    is_change, is_gone, was_there = (
        F.col("least").isNull(),
        F.col("new.row").isNull(),
        F.col("old.row").isNotNull(),
    )
    same = was_there & ~is_gone & _same(output.columns)
    counted = rows.observe(
        metrics,
        *(
            F.count_if(is_change & of).alias(name)
            for name, of in zip(
                NATIVE_COUNTS, (F.lit(True), same, is_gone & ~was_there), strict=True
            )
        ),
    )
    emitted = (
        F.when(~is_change, _changed_fact(stage.expected.identity))
        .when(
            F.col("new.mark").bitwiseAND((1 << _LOW_BITS) - 1) != low_bits,
            _raise(ArgumentError(_NOT_UPDATE)),
        )
        .when(F.col("new.mark") == F.col("old.mark"), _raise(RowOrderError(_TWO_TASKS)))
        .when(is_gone, F.when(was_there, _rows(("-D", "old"))))
        .when(~was_there, _rows(("+I", "new")))
        .when(
            ~same,
            _rows(("-U", "old"), ("+U", "new"))
            if stage.options.generate_update_before
            else _rows(("+U", "new")),
        )
    )
    changelog = counted.select(F.inline(emitted), *metadata)
    return changelog.select(ROW_KIND, "row.*", *(f"{name}.*" for name in metadata)).alias(NATIVE)


def newest_two(changes: DataFrame, low_bits: SparkColumn, output: Output) -> DataFrame:
    """Return each key's newest two rows with marks, and each fact's least and greatest value.

    Parameters
    ----------
    changes : DataFrame
        The batches of `decode.last_changes.LastChanges`.
    low_bits : Column
        The part of the mark below the micro-batch's number.
    output : Output
    """
    marked = changes.withColumn("mark", F.shiftleft("batch", _LOW_BITS).bitwiseOR(low_bits))
    newest = F.max_by(F.struct("mark", "row"), "mark", 2).alias("newest")
    # Only the newest metadata is stored: a row of the result has that of the change that caused it.
    cause = [F.max_by(METADATA, "mark").alias(METADATA)] if output.metadata else []
    return marked.groupBy("key").agg(
        newest, *cause, F.min("fact").alias("least"), F.max("fact").alias("greatest")
    )


_TWO_TASKS = (
    "two tasks of one micro-batch have changes of one key, and their order is unknown: set "
    "engine=NativeEngine(repartition=True), which repartitions changes by key"
)
_NOT_UPDATE = (
    "the newest row of a key is not of this micro-batch: write the query with "
    "outputMode('update'), and do not change the offsets in its checkpoint"
)


def _rows(*rows: tuple[str, str]) -> SparkColumn:
    return F.array(
        *(
            F.struct(F.lit(kind).alias(ROW_KIND), F.col(f"{of}.row").alias("row"))
            for kind, of in rows
        )
    )


def _raise(error: ChangelogError, *values: SparkColumn) -> SparkColumn:
    """Return a column that fails the query with an error, its first ``%s`` replaced by values."""
    parts = [F.lit(part) for part in str(error).split("%s", len(values))]
    return F.raise_error(
        F.concat(parts[0], *(each for pair in zip(values, parts[1:], strict=True) for each in pair))
    )


def _changed_fact(identity: Identity) -> SparkColumn:
    """Return a column that fails the query if a fact has two values."""
    name, values = F.decode("key", "UTF-8"), (F.col("least"), F.col("greatest"))
    other = (
        "the %s of this query and those of its checkpoint differ: (%s) and (%s). Set them back, or "
        "start from a new checkpoint"
    )
    columns = _raise(StateVersionError(other), name, *values)
    several = F.when(name == TABLE, _raise(identity.several_tables("%s", "%s"), *values))
    if identity.topics:
        several = several.when(name == TOPIC, _raise(identity.several_topics("%s", "%s"), *values))
    replaced = _raise(
        TopicReplacedError(
            "the %s was another one when the checkpoint was written (%s and %s): the topic was "
            "deleted and created again, so that the checkpoint's offsets would skip records. Start "
            "from a new checkpoint"
        ),
        name,
        *values,
    )
    late = F.when(late_record(*values), _raise(PartitionsAddedError(_LATE), name))
    changed = (
        F.when(name.isin(PRIMARY_KEY, COLUMNS, CONDITION), columns)
        .when(name.isin(TABLE, TOPIC), several)
        .when(name.startswith(PARTITION), late)
        .otherwise(replaced)
    )
    return F.when(F.col("least") != F.col("greatest"), changed)


_LATE = (
    "%s was added to the topic, and its first record was read before older ones of other "
    "partitions: an older change of a key that moved would win. Start from a new checkpoint "
    "without maxOffsetsPerTrigger, so that one micro-batch reads the partitions and orders their "
    "changes by Kafka's timestamps, or use engine='key_groups' with order='source'"
)


def late_record(least: SparkColumn, greatest: SparkColumn) -> SparkColumn:
    """Return whether a record of an older partition is late (`last.is_late`)."""

    def numbers(text: SparkColumn) -> list[SparkColumn]:
        return [F.substring(text, at, WIDTH).cast("bigint") for at in (2, 2 + WIDTH)]

    (since, read), (seen, inverted) = numbers(least), numbers(greatest)
    return (
        least.startswith(FIRST)
        & greatest.startswith(OLDER)
        & (read < seen)
        & (F.lit(INVERT) - inverted < since)
    )


def _same(columns: Sequence[Column]) -> SparkColumn:
    """Return whether the newest two rows are equal (`cdc_formats.values.equality`)."""
    new, old = (
        comparable(SqlType("STRUCT", fields=tuple(columns)), F.col(f"{name}.row"))
        for name in ("new", "old")
    )
    return new.eqNullSafe(old)


def comparable(sql_type: SqlType, value: SparkColumn) -> SparkColumn:
    """Return a column that Spark can compare: maps become their entries, in canonical order."""
    if not _has_map(sql_type):
        return value
    inner = [field.type for field in sql_type.fields]
    if sql_type.name == "ARRAY":
        return F.transform(value, lambda item: comparable(inner[0], item))
    if sql_type.name == "MAP":
        both = SqlType("STRUCT", fields=(Column("key", inner[0]), Column("value", inner[1])))
        return F.transform(F.map_entries(value), lambda entry: comparable(both, entry))
    parts = [
        comparable(field.type, value.getField(field.name)).alias(f"c{index}")
        for index, field in enumerate(sql_type.fields)
    ]
    return F.when(value.isNotNull(), F.struct(*parts))


def _has_map(sql_type: SqlType) -> bool:
    return sql_type.name == "MAP" or any(_has_map(field.type) for field in sql_type.fields)
