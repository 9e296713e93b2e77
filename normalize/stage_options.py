"""The options of the keyed stage, and the stage that they describe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import timedelta
from typing import Literal

from pyspark.sql import Column as SparkColumn

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import ArgumentError
from cdc_formats.fold import FoldOptions
from cdc_formats.values.schema import Column
from normalize.arguments import check_choice, names_of
from normalize.core.changes import Shape
from normalize.core.guard import NOTHING_EXPECTED, Expected
from normalize.core.key_group import Stage
from normalize.core.order import RowOrder
from normalize.core.output import Destination, Mode
from normalize.core.state import Layout

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
class NativeEngine:
    """The native engine of ChangelogNormalize, with its option.

    An example is ``ChangelogNormalize(engine=NativeEngine(repartition=True))``.

    Unstable: a minor release may change it without a deprecation.

    Parameters
    ----------
    repartition : bool or None
        Whether changes are repartitioned by key, so that the engine can order a key's changes that
        come from several tasks of a micro-batch. Without it, they are an error. None: only if the
        source makes them likely: ``minPartitions``, ``maxRecordsPerPartition``, several topics or a
        pattern, and any other source than Kafka.
    """

    repartition: bool | None = None

    def repartitions(self, *, likely: bool) -> bool:
        """Return whether changes are repartitioned; `likely` is the default."""
        return likely if self.repartition is None else self.repartition


@dataclass(frozen=True)
class StageOptions:
    """The options of the keyed stage, checked; `ChangelogNormalize` documents them."""

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
            raise ArgumentError(
                f"key_groups is {self.key_groups!r}: it must be an integer of at least 1"
            )
        if self.state_ttl is not None and (
            not isinstance(self.state_ttl, timedelta) or self.state_ttl < timedelta(milliseconds=1)
        ):
            raise ArgumentError(
                f"state_ttl is {self.state_ttl!r}: it must be None or a datetime.timedelta of at "
                "least a millisecond"
            )
        if not isinstance(self.delete_retention, timedelta) or self.delete_retention < timedelta(0):
            raise ArgumentError(
                f"delete_retention is {self.delete_retention!r}: it must be a non-negative "
                "datetime.timedelta"
            )
        self._check_combinations()

    def _check_combinations(self) -> None:
        if self.on_expiry == "retract" and self.state_ttl is None:
            raise ArgumentError("on_expiry='retract' requires state_ttl: without it no row expires")
        if self.delete_retention != DELETE_RETENTION and self.order == "arrival":
            raise ArgumentError(
                "delete_retention requires order='source', which keeps the positions of deletes"
            )
        if self.native is not None and self.refused_by_native:
            raise ArgumentError(
                f"engine='native' cannot be combined with {self.refused_by_native[0]}. Remove one "
                "of them"
            )

    @property
    def native(self) -> NativeEngine | None:
        """The native engine if it is chosen."""
        if isinstance(self.engine, NativeEngine):
            return self.engine
        return NativeEngine() if self.engine == "native" else None

    @property
    def refused_by_native(self) -> list[str]:
        """The options that the native engine refuses, with the reasons, as text."""
        return [
            f"{text}: {_REFUSED_BY_NATIVE[name]}"
            for name in _REFUSED_BY_NATIVE
            for text in self._changed(name)
        ]

    @property
    def could_be_native(self) -> bool:
        """Whether the native engine has the rows that these options ask for."""
        # It needs no key groups, and always has mini-batches.
        return not self._changed(*(_REFUSED_BY_NATIVE.keys() - {"key_groups", "mini_batch"}))

    def for_reader(
        self,
        primary_key: tuple[str, ...],
        changelog_mode: Literal["all", "upsert"],
        metadata: Sequence[str],
    ) -> StageOptions:
        """Return options completed by arguments of `from_kafka_changelog` or `decode_changelog`.

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
                f"primary_key is {list(primary_key)}, and ChangelogNormalize has {list(key)}: "
                "remove primary_key from ChangelogNormalize"
            )
        if self.metadata and names_of(self.metadata) != tuple(metadata):
            raise ArgumentError(
                f"metadata has the columns {list(metadata)}, and ChangelogNormalize has "
                f"{list(names_of(self.metadata))}: remove metadata from ChangelogNormalize"
            )
        if self.changelog_mode == "upsert":
            changelog_mode = "upsert"
        return replace(
            self,
            primary_key=primary_key or key,
            changelog_mode=changelog_mode,
            metadata=tuple(metadata),
        )

    @property
    def set_options(self) -> list[str]:
        """The options that are set and require the stage, as text."""
        named = self._changed("order", "engine")
        if self.where is not None:
            named.append("where")
        return named + [
            name for name in ("ignore_columns", "state_ttl", "mini_batch") if getattr(self, name)
        ]

    def _changed(self, *names: str) -> list[str]:
        """Return those of the options whose values are not the defaults, as text."""
        defaults = {each.name: each.default for each in fields(self)}
        return [
            f"{name}={value!r}"
            for name in names
            if (value := getattr(self, name)) != defaults[name]
        ]

    def require_reader_options_unset(self) -> None:
        """Raise an error for an option that requires a reader.

        Raises
        ------
        ArgumentError
        """
        if changed := self._changed("source_duplicates", "order"):
            raise ArgumentError(
                f"{changed[0]} does not apply to a DataFrame that is already a changelog: remove "
                "it, or pass it to from_kafka_changelog or decode_changelog, which read the "
                "messages"
            )


def make_stage(
    options: StageOptions,
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
    # The filter of `where` reads the row before.
    update_before = options.changelog_mode == "all" or options.where is not None
    layout = Layout(
        options.key_groups, shape.columns, (*unique_key, *key_metadata), ttl_ms > 0, shape.positions
    )
    return Stage(
        layout=layout,
        shape=shape,
        options=FoldOptions(generate_update_before=update_before, suppress_equal=ttl_ms == 0),
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


def ignored_columns(
    columns: Sequence[Column], unique_key: Sequence[str], names: Sequence[str]
) -> tuple[int, ...]:
    """Return the indexes of the columns that are ignored when rows are compared.

    Raises
    ------
    ArgumentError
        When one is not a column, or is part of the primary key.
    """
    places = {column.name: index for index, column in enumerate(columns)}
    for name in names:
        if name not in places or name in unique_key:
            what = (
                "part of the primary key" if name in places else f"not one of {', '.join(places)}"
            )
            raise ArgumentError(f"ignore_columns has {name!r}, which is {what}")
    return tuple(places[name] for name in names)
