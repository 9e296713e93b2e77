"""`ChangelogNormalize`: the options of the keyed stage, and the stage for changelog DataFrames from any source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import ArgumentError
from cdc_formats.fold import FoldOptions
from cdc_formats.values.schema import Column
from normalize.analyzed_plan import with_changelog_mode
from normalize.core.changes import Shape
from normalize.core.guard import NOTHING_EXPECTED, Expected
from normalize.core.key_group import Stage
from normalize.core.output import ROW_KIND, SIDE_OUTPUTS, Mode, Output
from normalize.core.row_order import RowOrder
from normalize.core.state import Layout
from normalize.dataframe import positional, require_changelog, require_distinct, table_columns
from normalize.decode.dead_letter import Destination
from normalize.decode.last_changes import LastChanges
from normalize.decode.pack_pass import pack_pass
from normalize.decode.targets import Blocks, KeyedRows, TargetMaker
from normalize.decode.where import matches
from normalize.engines.bounded import normalize_bounded
from normalize.engines.key_groups import normalize_stream
from normalize.engines.native import NativeEngine, check_session, normalize_native, target_of

if TYPE_CHECKING:
    from pyspark.sql import Column as SparkColumn, DataFrame

KEY_GROUPS = 64
"""The default number of key groups; docs/operations.md explains how to choose it."""
DELETE_RETENTION = timedelta(days=7)
"""How long a delete's position is kept by default: Kafka's default retention of a topic."""
_CHOICES = {
    "changelog_mode": ("all", "upsert"),
    "order": ("arrival", "source"),
    "on_expiry": ("forget", "retract"),
}
_REFUSED_BY_NATIVE = {
    "order": "its state has no positions of the source's log",
    "state_ttl": "Spark's aggregation keeps every key",
    "ignore_columns": "it compares the newest row with the row before it, and not with the row last emitted",
    "mini_batch": "it always keeps only the last change of a key in a micro-batch",
    "key_groups": "its state has a row for each key",
}
"""The options that the native engine refuses, and the reasons."""


@dataclass(frozen=True)
class ChangelogNormalize:
    """The keyed stage of a changelog, with its options: it removes duplicates, generates ``-U`` and completes deletes.

    The same class is used at three places::

        from_kafka_changelog(spark, "orders", ..., primary_key="id", normalize=ChangelogNormalize(order="source"))
        decode_changelog(df, ..., primary_key="id", normalize=ChangelogNormalize(state_ttl=timedelta(days=30)))
        any_changelog.transform(ChangelogNormalize("id"))

    `from_kafka_changelog` and `decode_changelog` decide themselves whether the stage is needed (`explain_changelog` prints the reason).
    ``df.transform`` always adds it.

    Parameters
    ----------
    primary_key : str or sequence of str
        The columns that identify a row. `from_kafka_changelog` and `decode_changelog` take it from their own `primary_key`.
    source_duplicates : bool
        Whether the producer may deliver an event more than once (Flink's ``table.exec.source.cdc-events-duplicate``). If so, the stage is
        added to remove duplicates, which requires `primary_key`. False requires a reader: ``df.transform`` always adds the stage.
    changelog_mode : {"all", "upsert"}
        The row kinds of the result: ``all`` includes ``-U``; ``upsert`` has ``+I +U -D``. `from_kafka_changelog` and `decode_changelog`
        also have this argument: ``upsert`` in either place selects it.
    metadata : sequence of str
        Columns of the DataFrame that are ignored when rows are compared, and not stored: a row of the result has the values of the row
        that caused it. `from_kafka_changelog` and `decode_changelog` use the columns of their own `metadata`.
    order : {"arrival", "source"}
        ``source`` drops and counts a change at or before its key's position in the source's log as a redelivery. Redeliveries of any part
        of the topic, connector restarts and late deletes then leave no trace. It requires a reader, and a format whose messages have
        positions.
    key_groups : int
        The number of groups into which keys are hashed; fixed for the life of a checkpoint. More groups make the state of each smaller.
    delete_retention : timedelta
        How long ``order="source"`` keeps the position of a delete (processing time), so that a late update cannot restore the row.
    where : str, Column or None
        A Spark condition on the table's columns: a row that stops matching is deleted, and one that never matched is not stored. A row
        without a value for one of these columns (unchanged TOAST values) is an error.
    ignore_columns : sequence of str
        Columns that are ignored when rows are compared (``updated_at``): an update of these columns alone is dropped, and the row stays as
        it was last emitted.
    ignore_deletes : bool
        Whether deletes are dropped: their rows stay. An event that changes the primary key also
        leaves the old row, unless the producer writes the ``-U`` and the ``+U`` as separate messages
        (changelog-json), and the plan has no ChangelogNormalize.
    state_ttl : timedelta or None
        Forget a row this long after its last write (processing time), as in Flink: its next change is an ``+I``, its delete is dropped.
        With a TTL, an update to an equal row is emitted. It requires a stream.
    on_expiry : {"forget", "retract"}
        Whether a row that expires is also deleted from the result. ``retract`` makes Spark scan the whole state in every micro-batch.
    mini_batch : bool
        Keep only the last change of a key in a micro-batch.
    engine : {"key_groups", "native"} or NativeEngine
        What runs a stream. ``key_groups``: Python, with a state value for each group of keys; it supports every option. ``native``: Spark's
        own aggregation, with a state row for each key, so that a micro-batch costs what changes, and not what is stored. It requires Spark
        4.2, keeps only the last change of a key in a micro-batch, and its result is written in output mode ``update``. Rows must have all
        columns, and rows without a row kind are refused.

    Raises
    ------
    ArgumentError
        When an option has an invalid value, requires another option or excludes it. `df.transform` raises it for options that require a
        reader, for a DataFrame without ``row_kind``, and for `state_ttl` and ``engine="native"`` with a DataFrame that is not a stream.
    MissingDependencyError
        `df.transform` raises it for ``engine="native"`` on Spark 4.1 and older.

    Notes
    -----
    A DataFrame that is transformed has a column ``row_kind``. ``+I`` and ``+U`` are the key's newest row, ``-D`` deletes it. A ``-U``
    directly before a ``+U`` of the same key is dropped, as in Flink's planner. Any other ``-U`` is a delete, so that an update of the key
    deletes the old row. Rows whose ``row_kind`` is NULL (with a ``_corrupt_record`` or a ``_control_event``) are returned unchanged. Rows
    of one key are processed in the order of their DataFrame partition.

    Write a stream with this stage in output mode ``append``, or ``update`` with ``engine="native"``.
    """

    primary_key: str | Sequence[str] = ()
    _: KW_ONLY
    source_duplicates: bool = True
    changelog_mode: Literal["all", "upsert"] = "all"
    metadata: Sequence[str] = ()
    order: Literal["arrival", "source"] = "arrival"
    key_groups: int = KEY_GROUPS
    delete_retention: timedelta = DELETE_RETENTION
    where: str | SparkColumn | None = None
    ignore_columns: str | Sequence[str] = ()
    ignore_deletes: bool = False
    state_ttl: timedelta | None = None
    on_expiry: Literal["forget", "retract"] = "forget"
    mini_batch: bool = False
    engine: Literal["key_groups", "native"] | NativeEngine = "key_groups"

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            check_choice(name, getattr(self, name), choices)
        if not isinstance(self.engine, NativeEngine):
            check_choice("engine", self.engine, ("key_groups", "native"))
        if not isinstance(self.key_groups, int) or self.key_groups < 1:
            raise ArgumentError(f"key_groups is {self.key_groups!r}: it must be an integer of at least 1")
        if self.state_ttl is not None and (not isinstance(self.state_ttl, timedelta) or self.state_ttl < timedelta(milliseconds=1)):
            raise ArgumentError(f"state_ttl is {self.state_ttl!r}: it must be None or a datetime.timedelta of at least a millisecond")
        if not isinstance(self.delete_retention, timedelta) or self.delete_retention < timedelta(0):
            raise ArgumentError(f"delete_retention is {self.delete_retention!r}: it must be a non-negative datetime.timedelta")
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.on_expiry == "retract" and self.state_ttl is None:
            raise ArgumentError("on_expiry='retract' requires state_ttl: without it no row expires")
        if self.delete_retention != DELETE_RETENTION and self.order == "arrival":
            raise ArgumentError("delete_retention requires order='source', which keeps the positions of deletes")
        if self.native is not None and self.refused_by_native:
            raise ArgumentError(f"engine='native' cannot be combined with {self.refused_by_native[0]}. Remove one of them")

    @property
    def native(self) -> NativeEngine | None:
        """The native engine if it is chosen."""
        if isinstance(self.engine, NativeEngine):
            return self.engine
        return NativeEngine() if self.engine == "native" else None

    @property
    def refused_by_native(self) -> list[str]:
        """The options that the native engine refuses, with the reasons, as text."""
        return [f"{text}: {_REFUSED_BY_NATIVE[name]}" for name in _REFUSED_BY_NATIVE for text in self._changed(name)]

    @property
    def could_be_native(self) -> bool:
        """Whether the native engine has the rows that these options ask for."""
        # It needs no key groups, and always has mini-batches.
        return not self._changed(*(_REFUSED_BY_NATIVE.keys() - {"key_groups", "mini_batch"}))

    def __call__(self, df: DataFrame) -> DataFrame:
        """Return the normalized changelog of `df`."""
        require_changelog(df)
        self._require_reader_options_unset()
        output, key = self._output(df), names_of(self.primary_key)
        ignored = ignored_columns(output.columns, key, names_of(self.ignore_columns))
        stage = make_stage(self, Shape(output.columns, output.metadata, ignored=ignored), key, streaming=df.isStreaming)
        names = [column.name for column in output.all]
        require_distinct(df, names)
        rows = df.select(ROW_KIND, *positional(names), matches(self.where))
        if self.native is not None:
            changes = self._native(self.native, df, rows, output, stage)
        elif df.isStreaming:
            blocks = self._packed(rows, Blocks, Blocks.ddl(output), output, stage)
            changes = normalize_stream(blocks, stage, output, "changelog_normalize")
        else:
            keyed = self._packed(rows, KeyedRows, KeyedRows.ddl(output), output, stage)
            changes = normalize_bounded(keyed, stage, output, split_partitions=False)
        return with_changelog_mode(changes, self.changelog_mode)

    def _native(self, engine: NativeEngine, df: DataFrame, rows: DataFrame, output: Output, stage: Stage) -> DataFrame:
        check_session(df.sparkSession)
        if output.side_outputs:
            raise ArgumentError(
                f"engine='native' refuses the column {output.side_outputs[0].name}, whose rows have no key: drop it, and filter out rows "
                "without a row_kind"
            )
        repartition = engine.repartitions(likely=True)
        last = self._packed(rows, target_of(stage, repartition=repartition), LastChanges.ddl(output), output, stage)
        return normalize_native(last, stage, output, "changelog_normalize", repartition=repartition)

    def for_reader(
        self, primary_key: tuple[str, ...], changelog_mode: Literal["all", "upsert"], metadata: Sequence[str]
    ) -> ChangelogNormalize:
        """Return the options, completed by the arguments of `from_kafka_changelog` or `decode_changelog`.

        Parameters
        ----------
        primary_key : tuple of str
        changelog_mode : {"all", "upsert"}
        metadata : sequence of str
            The names of the metadata columns.

        Raises
        ------
        ArgumentError
            When an argument and an option contradict each other.
        """
        check_choice("changelog_mode", changelog_mode, _CHOICES["changelog_mode"])
        key = names_of(self.primary_key)
        if key and primary_key and key != primary_key:
            raise ArgumentError(
                f"primary_key is {list(primary_key)}, and ChangelogNormalize has {list(key)}: remove primary_key from ChangelogNormalize"
            )
        if self.metadata and names_of(self.metadata) != tuple(metadata):
            raise ArgumentError(
                f"metadata has the columns {list(metadata)}, and ChangelogNormalize has {list(names_of(self.metadata))}: remove metadata "
                "from ChangelogNormalize"
            )
        if self.changelog_mode == "upsert":
            changelog_mode = "upsert"
        return replace(self, primary_key=primary_key or key, changelog_mode=changelog_mode, metadata=tuple(metadata))

    @property
    def set_options(self) -> list[str]:
        """The options that are set and require the stage, as text."""
        named = self._changed("order", "engine")
        if self.where is not None:
            named.append("where")
        return named + [name for name in ("ignore_columns", "state_ttl", "mini_batch") if getattr(self, name)]

    def _changed(self, *names: str) -> list[str]:
        """Return those of the options whose values are not the defaults, as text."""
        defaults = {each.name: each.default for each in fields(self)}
        return [f"{name}={value!r}" for name in names if (value := getattr(self, name)) != defaults[name]]

    def _require_reader_options_unset(self) -> None:
        if given := self._changed("source_duplicates", "order"):
            raise ArgumentError(
                f"{given[0]} does not apply to a DataFrame that is already a changelog: remove it, or pass it to from_kafka_changelog or "
                "decode_changelog, which read the messages"
            )

    def _packed(self, rows: DataFrame, target: TargetMaker, ddl: str, output: Output, stage: Stage) -> DataFrame:
        pack = partial(pack_pass, target=target, output=output, stage=stage, ignore_deletes=self.ignore_deletes)
        return rows.mapInArrow(pack, ddl)

    def _output(self, df: DataFrame) -> Output:
        names = names_of(self.metadata)
        table = table_columns(df.schema, without=(ROW_KIND, *SIDE_OUTPUTS, *names))
        metadata = {column.name: column for column in table_columns(df.schema, without=(ROW_KIND, *SIDE_OUTPUTS))}
        missing = [name for name in names if name not in metadata]
        if missing:
            raise ArgumentError(f"metadata has {missing[0]}, which is not a column of the DataFrame")
        side_outputs = tuple(column for name, column in SIDE_OUTPUTS.items() if name in df.columns)
        return Output(table, tuple(metadata[name] for name in names), side_outputs)


def names_of(names: str | Sequence[str]) -> tuple[str, ...]:
    """Return one name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def make_stage(
    options: ChangelogNormalize,
    shape: Shape,
    unique_key: tuple[str, ...],
    *,
    streaming: bool,
    mode: Mode = "FAILFAST",
    dead_letters: Destination | None = None,
    key_metadata: tuple[str, ...] = (),
    expected: Expected = NOTHING_EXPECTED,
    row_order: RowOrder = "log",
) -> Stage:
    """Return the stage for checked options.

    Raises
    ------
    ArgumentError, SchemaError
        When the primary key is missing or has an unknown column, or an option requires a stream.
    """
    if not unique_key:
        raise ArgumentError("ChangelogNormalize requires primary_key=[...]")
    key_indices(shape.columns, unique_key)
    if options.state_ttl is not None and not streaming:
        raise ArgumentError("state_ttl requires a stream: a bounded read has no state")
    if options.native is not None and not streaming:
        raise ArgumentError("engine='native' requires a stream: a bounded read has no state")
    millisecond = timedelta(milliseconds=1)
    ttl_ms = 0 if options.state_ttl is None else options.state_ttl // millisecond
    layout = Layout(options.key_groups, shape.columns, (*unique_key, *key_metadata), ttl_ms > 0, shape.positions)
    return Stage(
        layout=layout,
        shape=shape,
        options=FoldOptions(generate_update_before=options.changelog_mode == "all", suppress_equal=ttl_ms == 0),
        mode=mode,
        dead_letters=dead_letters,
        state_ttl_ms=ttl_ms,
        retract_expired=options.on_expiry == "retract",
        mini_batch=options.mini_batch,
        delete_retention_ms=options.delete_retention // millisecond,
        expected=expected,
        row_order=row_order,
        native_possible=options.could_be_native and mode != "PERMISSIVE",
    )


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Raise an error for an argument that is not one of the choices.

    Raises
    ------
    ArgumentError
    """
    if value not in choices:
        raise ArgumentError(f"{name} is {value!r}: use {' or '.join(map(repr, choices))}")


def ignored_columns(columns: Sequence[Column], unique_key: Sequence[str], names: Sequence[str]) -> tuple[int, ...]:
    """Return the indexes of the columns that are ignored when rows are compared.

    Raises
    ------
    ArgumentError
        When one is not a column, or is part of the primary key.
    """
    known = {column.name: index for index, column in enumerate(columns)}
    for name in names:
        if name not in known or name in unique_key:
            what = "part of the primary key" if name in known else f"not one of {', '.join(known)}"
            raise ArgumentError(f"ignore_columns has {name!r}, which is {what}")
    return tuple(known[name] for name in names)
