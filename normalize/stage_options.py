"""The options of the keyed stage, the stage that they describe, and whether a source needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from datetime import timedelta
from typing import Literal

from pyspark.sql import Column as SparkColumn

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import ArgumentError, refuse
from cdc_formats.events import ChangelogMode, RowKind
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
        ttl, retention = self.state_ttl, self.delete_retention
        is_native, refused = self.native is not None, self.refused_by_native
        refuse(
            (
                not isinstance(self.key_groups, int) or self.key_groups < 1,
                f"key_groups is {self.key_groups!r}: it must be an integer of at least 1",
            ),
            (
                ttl is not None
                and (not isinstance(ttl, timedelta) or ttl < timedelta(milliseconds=1)),
                f"state_ttl is {ttl!r}: it must be None or a datetime.timedelta of at least a "
                "millisecond",
            ),
            (
                not isinstance(retention, timedelta) or retention < timedelta(0),
                f"delete_retention is {retention!r}: it must be a non-negative datetime.timedelta",
            ),
            (
                self.on_expiry == "retract" and ttl is None,
                "on_expiry='retract' requires state_ttl: without it no row expires",
            ),
            (
                retention != DELETE_RETENTION and self.order == "arrival",
                "delete_retention requires order='source', which keeps the positions of deletes",
            ),
            (
                is_native and refused,
                f"engine='native' cannot be combined with {''.join(refused[:1])}. Remove one of "
                "them",
            ),
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
        own = names_of(self.metadata)
        refuse(
            (
                key and primary_key and key != primary_key,
                f"primary_key is {list(primary_key)}, and ChangelogNormalize has {list(key)}: "
                "remove primary_key from ChangelogNormalize",
            ),
            (
                self.metadata and own != tuple(metadata),
                f"metadata has the columns {list(metadata)}, and ChangelogNormalize has "
                f"{list(own)}: remove metadata from ChangelogNormalize",
            ),
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
    refuse(
        (
            options.state_ttl is not None and not streaming,
            "state_ttl requires a stream: a bounded read has no state",
        ),
        (
            options.native is not None and not streaming,
            "engine='native' requires a stream: a bounded read has no state",
        ),
    )
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
    indexes = {column.name: index for index, column in enumerate(columns)}
    for name in names:
        if name not in indexes or name in unique_key:
            what = (
                "part of the primary key" if name in indexes else f"not one of {', '.join(indexes)}"
            )
            raise ArgumentError(f"ignore_columns has {name!r}, which is {what}")
    return tuple(indexes[name] for name in names)


# --------------------------------------------------------------------------------------------------
# The decision whether a source needs ChangelogNormalize, and whether that generates ``-U``.
#
# It is the rule of Flink's planner, as a pure function.
#
# ============================================  =====================  =============================
# source                                        source_duplicates      the stage
# ============================================  =====================  =============================
# upsert (``+U`` without ``-U``)                either                 if the consumer needs ``-U``,
#                                                                      or duplicates are possible
# changelog (``+I -U +U -D``)                   False                  no; ``-U`` is dropped if the
#                                                                      consumer needs none
# changelog                                     True                   yes
# insert-only                                   either                 no
# ============================================  =====================  =============================
#
# ``source_duplicates`` is Flink's ``table.exec.source.cdc-events-duplicate``; its default is True
# here and False there, since the usual CDC tools deliver at least once. ``normalize=False`` excludes
# the stage. A metadata column does not keep the stage in the plan, as it does in Flink.
#
# Source: Flink's DynamicSourceUtils (``isUpsertSource``, ``isSourceChangeEventsDuplicate``),
# StreamPhysicalTableSourceScanRule, FlinkChangelogModeInferenceProgram,
# ChangelogNormalizeRequirementResolver.

CONSUMER_MODES = {
    "all": ChangelogMode.all(),
    "upsert": ChangelogMode.upsert(key_only_deletes=False),
}
"""The changelog modes that a consumer can request: with retractions, or upserts and deletes by
key."""


@dataclass(frozen=True)
class StagePlan:
    """The steps between the topic and the resulting rows.

    Attributes
    ----------
    normalize : bool
        Whether the plan has a ChangelogNormalize.
    drop_update_before : bool
        Whether ``-U`` of the source is dropped.
    reason : str
        The reason, as text.
    mode : ChangelogMode
        The changelog mode of the resulting rows.
    """

    normalize: bool
    drop_update_before: bool
    reason: str
    mode: ChangelogMode

    @property
    def changelog_mode(self) -> Literal["all", "upsert"]:
        """``upsert`` if the result has updates without ``-U``."""
        return (
            "upsert"
            if self.mode.contains(RowKind.UPDATE_AFTER)
            and not self.mode.contains(RowKind.UPDATE_BEFORE)
            else "all"
        )


def make_plan(
    source: ChangelogMode,
    primary_key: Sequence[str],
    changelog_mode: str,
    source_duplicates: bool,
    *,
    normalize: bool = True,
) -> StagePlan:
    """Return the plan for a source and its consumer.

    Parameters
    ----------
    source : ChangelogMode
        The changelog mode of the format.
    primary_key : sequence of str
    changelog_mode : {"all", "upsert"}
        The changelog mode that the consumer needs.
    source_duplicates : bool
        Whether the producer may deliver an event more than once.
    normalize : bool
        False: the plan never has a ChangelogNormalize.

    Raises
    ------
    ArgumentError
        When a required primary key is missing, or the consumer needs a stage that `normalize`
        excludes.
    """
    needs_before = changelog_mode == "all"
    if not source.contains(RowKind.UPDATE_AFTER) and not source.contains(RowKind.DELETE):
        return StagePlan(False, False, "the source only inserts", source)
    if source.contains(RowKind.UPDATE_BEFORE):
        return _of_changelog(source, primary_key, needs_before, source_duplicates, normalize)
    refuse(
        (
            not primary_key,
            "the source's updates have no -U, which requires primary_key=[...]: the columns that "
            "identify the updated row",
        ),
        (
            not normalize and needs_before,
            "changelog_mode='all' requires ChangelogNormalize, which generates the -U that the "
            "format's messages lack: remove normalize=False, or pass changelog_mode='upsert'",
        ),
    )
    if normalize and source_duplicates:
        return _stage(
            needs_before, "the source may deliver an event twice (source_duplicates=True)"
        )
    if needs_before:
        return _stage(True, "the consumer needs -U, and the source has none (changelog_mode='all')")
    reason = "the consumer accepts the source's upserts by key (changelog_mode='upsert')"
    return StagePlan(False, False, reason if normalize else _EXCLUDED, source)


_EXCLUDED = "normalize=False excludes it"


def _of_changelog(
    source: ChangelogMode,
    primary_key: Sequence[str],
    needs_before: bool,
    source_duplicates: bool,
    normalize: bool,
) -> StagePlan:
    if normalize and source_duplicates:
        if not primary_key:
            raise ArgumentError(
                "removing duplicates requires primary_key=[...]: pass it, or set normalize=False "
                "for a table without one, whose rows and duplicates are then returned unchanged"
            )
        return _stage(
            needs_before, "the source may deliver an event twice (source_duplicates=True)"
        )
    if needs_before:
        reason = "the source has -U, and delivers each event once (source_duplicates=False)"
        return StagePlan(False, False, reason if normalize else _EXCLUDED, source)
    if not primary_key:
        raise ArgumentError(
            "changelog_mode='upsert' requires primary_key=[...]: without -U only the key "
            "identifies the updated row"
        )
    reason = (
        "the source delivers each event once (source_duplicates=False)"
        if normalize
        else "normalize=False excludes ChangelogNormalize"
    )
    return StagePlan(
        False,
        True,
        f"{reason}; -U is dropped, because the consumer does not need it",
        CONSUMER_MODES["upsert"],
    )


_ORDER = {
    "arrival": "changes apply in the order of arrival",
    "source": "changes at or before their key's position in the source's log are dropped",
}


_NATIVE = (
    "the state contains the newest two rows of each key, the last change of a key in a micro-batch "
    "applies (engine='native')"
)


def _stage(needs_before: bool, reason: str) -> StagePlan:
    return StagePlan(True, False, reason, CONSUMER_MODES["all" if needs_before else "upsert"])


def explain(
    plan: StagePlan,
    options: StageOptions,
    *,
    format: str,
    source: ChangelogMode,
    topic: str,
    decoder: str,
) -> str:
    """Return the plan as text, like Flink's ``EXPLAIN CHANGELOG_MODE``."""
    key = ", ".join(options.primary_key)
    lines = []
    if plan.normalize:
        upserts = replace(source, kinds=source.kinds - {RowKind.UPDATE_BEFORE})
        of_native = options.native is not None
        how = (
            _NATIVE if of_native else f"the state contains each key's row, {_ORDER[options.order]}"
        )
        mode = plan.mode
        if options.where is not None:
            lines.append(
                f"Filter({options.where}, changelogMode={mode}): a row that stops matching is "
                "deleted, one that begins to is inserted"
            )
            mode = CONSUMER_MODES["all"]
        lines.append(f"ChangelogNormalize(key=[{key}], changelogMode={mode}): {plan.reason}; {how}")
        exchange = (
            f"hash[{key}]"
            if of_native
            else f"hash[key group of {key}], key_groups={options.key_groups}"
        )
        lines.append(f"Exchange({exchange}, changelogMode={upserts})")
        if source.contains(RowKind.UPDATE_BEFORE):
            lines.append(
                f"DropUpdateBefore(changelogMode={upserts}): the stage stores the previous row; a "
                "changed key is a delete and an upsert"
            )
    elif plan.drop_update_before:
        lines.append(f"DropUpdateBefore(changelogMode={plan.mode}): {plan.reason}")
    else:
        lines.append(f"no ChangelogNormalize: {plan.reason}")
    decode = f"Decode(format=[{format}], changelogMode={source}): by {decoder}"
    lines += [decode, f"Kafka({topic})"]
    tree = [
        "   " * (depth - 1) + ("+- " if depth else "") + line for depth, line in enumerate(lines)
    ]
    return "\n".join([*tree, _engine(options)] if plan.normalize else tree)


def _engine(options: StageOptions) -> str:
    """Return whether the native engine could serve, and why not, as text."""
    if options.native is not None:
        return (
            "engine='native': write in output mode update; each micro-batch gives the last change "
            "of each key"
        )
    if options.refused_by_native:
        return f"engine='native' is not possible: it refuses {'; '.join(options.refused_by_native)}"
    return (
        "engine='native' is possible: on Spark 4.2, in output mode update, for rows with all "
        "columns; it serves large tables"
    )
