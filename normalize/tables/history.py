"""The versions of rows (SCD type 2): which rows of a history a micro-batch adds, closes or removes.

A history has these rows of a key, as Spark's AUTO CDC:

=======================================  =================  =================
after these changes                      ``__START_AT``     ``__END_AT``
=======================================  =================  =================
an insert at 5                           5                  NULL
an update at 8                           5, 8               8, NULL
a delete at 9                            5, 8               8, 9
=======================================  =================  =================

A version lasts as long as the tracked columns stay equal, from one change of the key to the next,
and has the values of its last change: an update of other columns changes it in place. A delete ends
it, and an insert after the delete is a new version, even with equal values.

A later change may be late, and then belongs between two that were applied. Two kinds of changes
leave no version, and must be known then: an update that changes no tracked column, and a delete
without a row before it. AUTO CDC keeps them in an auxiliary table. Here they are rows of the
history that are valid at no time, so that one commit writes everything:

=======================================  =================  =================
row                                      ``__START_AT``     ``__END_AT``
=======================================  =================  =================
an update at 8 of no tracked column      8                  8
a delete at 8 without a row before it    NULL               8
=======================================  =================  =================

The row of such an update has the values *before* it, since the version has those of its last
update. So the changes of a version at 5, 8 and 9 with the values a, b and c are the rows c from 5,
a at 8 and b at 9. A change after 9 therefore reads the version alone, and a late one finds in the
stored row after it the values that the version had until there.

The stored rows of a key are the changes that they were made of: an upsert at the start, and a
delete at the end unless another version starts there. Together with those of the micro-batch, in
the order of their sequence values, they yield the rows that the history must have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import and_

from pyspark.sql import Column as SparkColumn, DataFrame, Window, WindowSpec, functions as F
from pyspark.sql.types import DataType, StructField

from cdc_formats.events import SHORT_STRINGS
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.dataframe import ChangeOrderError
from normalize.spark.plans import computed

from .latest import check, last_changes
from .merge import ADDS
from .table_spec import END_AT, START_AT, TableSpec
from .targets import Sink, TableTarget, TargetError, repeat_conflicts


@dataclass(frozen=True)
class ApplyVersions:
    """Applies micro-batches to a history of versions; for ``foreachBatch``."""

    spec: TableSpec
    sequence_by: tuple[str, ...]
    track_history: tuple[str, ...] = ()
    """The columns of which a change makes a version; empty for all."""
    one_partition: bool = False
    """Whether sequence values have the field ``partition``, which must be the same for all changes
    of a key."""

    def __call__(self, batch: DataFrame, sink: Sink) -> None:
        """Apply all changes to the history of a sink."""
        key = self.spec.primary_key
        marked = batch.withColumn(START_AT, sequence_of(batch, self.sequence_by))
        # One change of each key and sequence value.
        placed = last_changes(
            marked, [*_without_validity(self.spec), START_AT], [*key, START_AT], self.sequence_by
        )
        job = partial(check, keys=key, order_by=self.sequence_by)
        with computed(placed, job) as (changes, count):
            if count:
                repeat_conflicts(partial(self._merge, changes.select("row.*"), count, sink))

    def _merge(self, changes: DataFrame, count: int, sink: Sink) -> None:
        spec = sink.prepare(self.spec)
        columns = _without_validity(spec)
        # A tracked column may be one that the table lacks and that is ignored.
        tracked = [name for name in columns if not self.track_history or name in self.track_history]
        options: dict[str, bool] = {"few_keys": count <= _FEW, "one_partition": self.one_partition}
        # Delta cannot read yet a table that another writer is creating.
        with sink.conflicts():
            stored, key = sink.rows(), spec.primary_key
            versions = version_changes(changes, stored, key, columns, tracked, **options)
            with computed(versions, partial(_check, table=sink.table)) as (rows, number_of_rows):
                if number_of_rows:
                    sink.merge(rows, spec)


def _check(versions: DataFrame, table: TableTarget) -> int:
    """Return how many rows are written, or raise an error for one without a place."""
    unplaced = (F.col(ROW_KIND) == "+U") & F.col(START_AT).isNull()
    partitions = F.when(~F.col(ROW_KIND).isin(*SHORT_STRINGS), F.col(ROW_KIND))
    flags = F.max(unplaced).alias("unplaced"), F.max(partitions).alias("partitions")
    summary = versions.agg(F.count(F.lit(1)).alias("rows"), *flags).first()
    assert summary is not None  # an aggregate without groups is one row
    if summary["partitions"]:
        raise ChangeOrderError(
            f"the changes of a key are in the Kafka partitions {summary['partitions']}, and "
            "so their order is unknown: let the producer choose the partition by the "
            "row's key, and begin a new history, or pass scd_type=1 for this table"
        )
    if summary["unplaced"]:
        raise TargetError(
            f"{table} has rows without {START_AT}, which are at no place of the "
            "history: set it to a value before their first change, UPDATE "
            f"{table.sql_name} SET {START_AT} = ... WHERE {START_AT} IS NULL AND "
            f"{END_AT} IS NULL"
        )
    return int(summary["rows"])


def _without_validity(spec: TableSpec) -> list[str]:
    """Return the names of a version's columns that changes have."""
    return [name for name in spec.names if name not in (START_AT, END_AT)]


_FEW = 100_000
"""So many keys fit into the memory of each worker: the history is then not shuffled to find their
rows."""


def sequence_of(batch: DataFrame, sequence_by: Sequence[str]) -> SparkColumn:
    """Return the sequence value of a change: one column, or a struct of several, as in AUTO CDC."""
    columns = [F.col(backquoted(name)) for name in sequence_by]
    return columns[0] if len(columns) == 1 else F.struct(*columns)


def version_fields(batch: DataFrame, sequence_by: Sequence[str]) -> list[StructField]:
    """Return the fields ``__START_AT`` and ``__END_AT``, with the type of the sequence values."""
    kind = batch.select(sequence_of(batch, sequence_by).alias(START_AT)).schema[0].dataType
    return [StructField(START_AT, kind), StructField(END_AT, kind)]


def version_changes(
    changes: DataFrame,
    stored: DataFrame,
    keys: Sequence[str],
    columns: Sequence[str],
    tracked: Sequence[str],
    *,
    few_keys: bool,
    one_partition: bool = False,
) -> DataFrame:
    """Return the history rows that a micro-batch adds (``+I``), changes (``+U``), removes (``-D``).

    A history's row is identified by its key and by ``coalesce(__START_AT, __END_AT)``, the place of
    the change that made it.

    Parameters
    ----------
    changes : DataFrame
        ``row_kind``, the columns and ``__START_AT``, the sequence value: one row for each key and
        sequence value.
    stored : DataFrame
        The history: the columns, ``__START_AT`` and ``__END_AT``.
    keys : sequence of str
    columns : sequence of str
        The columns to write, with the keys.
    tracked : sequence of str
        Those of them of which a change makes a version.
    few_keys : bool
        Whether the keys of the micro-batch fit into memory.
    one_partition : bool
        Whether all changes of a key must have the same ``partition``, a field of their sequence
        values.

    Returns
    -------
    DataFrame
        ``row_kind``, the columns, ``__START_AT`` and ``__END_AT``. Two kinds of rows cannot be
        written. A ``+U`` whose ``__START_AT`` is NULL is a row of the history that has no place,
        since both are NULL in it. A row kind with the names of two partitions is of a key that has
        changes of both.
    """
    names = {
        name: f"k{index}" if name in keys else f"c{index}" for index, name in enumerate(columns)
    }  # cannot collide with the user's
    grouping = [names[name] for name in keys]
    new = changes.select(
        *(F.col(backquoted(name)).alias(short) for name, short in names.items()),
        F.col(START_AT).alias("at"),
        F.col(ROW_KIND).isin(*ADDS).alias("added"),
        F.when(F.lit(False), F.col(START_AT)).alias("end"),
        F.lit("new").alias("of"),
    )
    events = new.unionByName(
        _stored_events(stored, new, names, grouping, few_keys=few_keys, one_partition=one_partition)
    )

    values = {
        each.name: each.dataType for each in events.schema.fields if each.name in names.values()
    }
    compared = {short: kind for short, kind in values.items() if short not in grouping}
    tracked_values = {names[name]: values[names[name]] for name in tracked if name not in keys}
    ended = _with_versions(_placed(events, grouping, list(compared)), grouping, tracked_values)
    kind = _row_kind(compared)
    if one_partition:
        # Sequence values are compared by this field first: two partitions of a key are next to each
        # other once.
        onward = Window.partitionBy(*grouping).orderBy("at")
        partition, earlier = F.col("at.partition"), F.lag("at.partition").over(onward)
        kind = F.when(earlier != partition, F.concat(earlier, F.lit(" and "), partition)).otherwise(
            kind
        )
    shown = [
        (
            F.col(short) if short in grouping else F.when(F.col("added"), F.col(f"written.{short}"))
        ).alias(name)
        for name, short in names.items()
    ]
    return ended.select(
        kind.alias(ROW_KIND),
        *shown,
        F.col("start_at").alias(START_AT),
        F.col("end_at").alias(END_AT),
    ).where(F.col(ROW_KIND).isNotNull())


def _placed(events: DataFrame, grouping: Sequence[str], values: Sequence[str]) -> DataFrame:
    """Return one event of each key and place.

    An upsert comes after a delete, and a new one replaces a stored one.
    """
    is_new, row = F.col("of") == "new", F.struct(F.col("added"), *values)
    is_version = F.col("added") & ~is_new
    return (
        events.repartition(*grouping)
        .groupBy(*grouping, "at")
        .agg(
            F.max_by(
                F.struct(row.alias("row"), is_new.alias("new")), F.struct("added", is_new)
            ).alias("change"),
            F.max_by(row, F.when(is_version, 1)).alias("before"),
            F.max_by("end", F.when(is_version, 1)).alias("end"),
            F.max(F.col("of") == "tombstone").alias("tombstone"),
        )
        .withColumn("added", F.col("change.row.added"))
    )


def _with_versions(
    placed: DataFrame, grouping: Sequence[str], tracked: dict[str, DataType]
) -> DataFrame:
    """Return the events with the version that each begins or ends.

    ``repeats`` is true for an update that makes no version. ``written`` has the version's columns,
    and ``start_at`` and ``end_at`` its validity.
    """
    onward = Window.partitionBy(*grouping).orderBy("at")
    # Backward, so that a running aggregate finds the next event: a frame that begins at its row is
    # quadratic.
    backward = Window.partitionBy(*grouping).orderBy(F.desc("at"))
    later, not_earlier = (
        backward.rowsBetween(Window.unboundedPreceding, end) for end in (-1, Window.currentRow)
    )
    equal = F.coalesce(_equal(F.col("row"), F.col("earlier"), tracked), F.lit(False))
    return (
        _with_own_values(placed, grouping, onward)
        .withColumn("follows", F.coalesce(F.lag("added").over(onward), F.lit(False)))
        .withColumn("earlier", F.lag("row").over(onward))
        .withColumn("repeats", F.col("added") & F.col("follows") & equal)
        .withColumn("is_last", ~F.coalesce(F.lead("repeats").over(onward), F.lit(False)))
        .withColumn("next", F.min(F.when(~F.col("repeats"), F.col("at"))).over(later))
        .withColumn(
            "latest",
            F.last(F.when(F.col("is_last"), F.col("row")), ignorenulls=True).over(not_earlier),
        )
        .withColumn(
            "written", F.when(F.col("repeats"), F.col("earlier")).otherwise(F.col("latest"))
        )
        .withColumn("start_at", F.when(F.col("added"), F.col("at")))
        .withColumn(
            "end_at",
            F.when(F.col("repeats") | ~F.col("added"), F.col("at")).otherwise(F.col("next")),
        )
    )


def _row_kind(compared: dict[str, DataType]) -> SparkColumn:
    """Return what an event does to its row of the history; NULL if nothing changes."""
    same = _equal(F.col("written"), F.col("before"), compared) & F.col("end").eqNullSafe(
        F.col("end_at")
    )
    is_stored = F.col("before").isNotNull() | F.col("tombstone")
    is_row = F.col("added") | ~F.col("follows")
    unchanged = F.when(F.col("added"), F.col("before").isNotNull() & same).otherwise(
        is_row == is_stored
    )
    return (
        F.when(F.col("at").isNull(), "+U")
        .when(unchanged, None)
        .when(is_row, F.when(is_stored, "+U").otherwise("+I"))
        .otherwise("-D")
    )


def _with_own_values(placed: DataFrame, grouping: Sequence[str], onward: WindowSpec) -> DataFrame:
    """Return the events with ``row``, the values that each change has.

    Those of an update that makes no version are in the next stored row.

    The last one of a version has them in the version's row.
    """
    is_within = F.col("end").eqNullSafe(F.col("at"))
    version = F.when(F.col("before").isNotNull() & ~is_within, F.col("before"))
    stored = F.when(F.col("before").isNotNull(), F.struct("before", is_within.alias("is_within")))
    # The functions of pyspark do not have IGNORE NULLS of lead.
    following = F.expr(
        f"lead(stored) IGNORE NULLS OVER (PARTITION BY {', '.join(grouping)} ORDER BY `at`)"
    )
    own = F.when(F.col("following.is_within"), F.col("following.before")).otherwise(
        F.coalesce("version", "before")
    )
    is_stored = F.col("added") & ~F.col("change.new")
    return (
        placed.withColumn("stored", stored)
        .withColumn("following", following)
        .withColumn(
            "version",
            F.last(version, ignorenulls=True).over(
                onward.rowsBetween(Window.unboundedPreceding, Window.currentRow)
            ),
        )
        .withColumn("row", F.when(is_stored, own).otherwise(F.col("change.row")))
    )


def _stored_events(
    stored: DataFrame,
    new: DataFrame,
    names: dict[str, str],
    grouping: Sequence[str],
    *,
    few_keys: bool,
    one_partition: bool,
) -> DataFrame:
    """Return the changes that made the rows of a history and that a micro-batch can move or end."""
    first = new.groupBy(*grouping).agg(F.min("at").alias("first"))
    renamed = stored.select(
        *(F.col(backquoted(name)).alias(short) for name, short in names.items()),
        F.col(START_AT).alias("start_at"),
        F.col(END_AT).alias("end_at"),
    )
    # A version that ended before the first change of its key stays as it is.
    is_touched = (
        "end_at IS NULL OR end_at >= first"
        + " OR end_at.partition <> first.partition" * one_partition
    )
    touched = renamed.join(F.broadcast(first) if few_keys else first, [*grouping]).where(is_touched)
    start, end = F.col("start_at"), F.col("end_at")
    upsert = F.struct(
        start.alias("at"),
        F.lit(True).alias("added"),
        end.alias("end"),
        F.lit("version").alias("of"),
    )
    tombstone = F.when(start.isNull(), "tombstone").otherwise("end")
    no_end = F.when(F.lit(False), end)
    delete = F.struct(
        end.alias("at"), F.lit(False).alias("added"), no_end.alias("end"), tombstone.alias("of")
    )
    made = (
        F.when(start.isNull() & end.isNotNull(), F.array(delete))
        .when(end.isNull() | start.eqNullSafe(end), F.array(upsert))
        .otherwise(F.array(upsert, delete))
    )
    return touched.select(*names.values(), F.inline(made))


def _equal(left: SparkColumn, right: SparkColumn, kinds: dict[str, DataType]) -> SparkColumn:
    """Return whether two structs have equal fields."""

    def comparable(column: SparkColumn, kind: DataType) -> SparkColumn:
        # Spark compares neither maps nor variants.
        text = kind.simpleString()
        return (
            F.to_json(F.struct(column), {"ignoreNullFields": "false"})
            if "map<" in text or "variant" in text
            else column
        )

    fields = [
        comparable(left[name], kind).eqNullSafe(comparable(right[name], kind))
        for name, kind in kinds.items()
    ]
    return reduce(and_, fields, F.lit(True))
