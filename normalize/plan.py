"""The decision whether a source needs ChangelogNormalize, and whether that generates ``-U``.

It is the rule of Flink's planner, as a pure function.

============================================  =====================  =============================
source                                        source_duplicates      the stage
============================================  =====================  =============================
upsert (``+U`` without ``-U``)                either                 if the consumer needs ``-U``,
                                                                     or duplicates are possible
changelog (``+I -U +U -D``)                   False                  no; ``-U`` is dropped if the
                                                                     consumer needs none
changelog                                     True                   yes
insert-only                                   either                 no
============================================  =====================  =============================

``source_duplicates`` is Flink's ``table.exec.source.cdc-events-duplicate``; its default is True
here and False there, since the usual CDC tools deliver at least once. ``normalize=False`` excludes
the stage. A metadata column does not keep the stage in the plan, as it does in Flink.

Source: Flink's DynamicSourceUtils (``isUpsertSource``, ``isSourceChangeEventsDuplicate``),
StreamPhysicalTableSourceScanRule, FlinkChangelogModeInferenceProgram,
ChangelogNormalizeRequirementResolver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from cdc_formats.errors import ArgumentError
from cdc_formats.events import ChangelogMode, RowKind
from normalize.stage_options import StageOptions

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
    generate_update_before : bool
        Whether it generates ``-U``.
    drop_update_before : bool
        Whether ``-U`` of the source is dropped.
    reason : str
        The reason, as text.
    mode : ChangelogMode
        The changelog mode of the resulting rows.
    """

    normalize: bool
    generate_update_before: bool
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
        return StagePlan(False, False, False, "the source only inserts", source)
    if source.contains(RowKind.UPDATE_BEFORE):
        return _of_changelog(source, primary_key, needs_before, source_duplicates, normalize)
    if not primary_key:
        raise ArgumentError(
            "the source's updates have no -U, which requires primary_key=[...]: the columns that "
            "identify the updated row"
        )
    if not normalize and needs_before:
        raise ArgumentError(
            "changelog_mode='all' requires ChangelogNormalize, which generates the -U that the "
            "format's messages lack: remove normalize=False, or pass changelog_mode='upsert'"
        )
    if normalize and source_duplicates:
        return _stage(
            needs_before, "the source may deliver an event twice (source_duplicates=True)"
        )
    if needs_before:
        return _stage(True, "the consumer needs -U, and the source has none (changelog_mode='all')")
    reason = "the consumer accepts the source's upserts by key (changelog_mode='upsert')"
    return StagePlan(False, False, False, reason if normalize else _EXCLUDED, source)


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
        return StagePlan(False, False, False, reason if normalize else _EXCLUDED, source)
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
    return StagePlan(
        True, needs_before, False, reason, CONSUMER_MODES["all" if needs_before else "upsert"]
    )


def explain(
    plan: StagePlan, options: StageOptions, *, format: str, source: ChangelogMode, topic: str
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
    lines += [f"Decode(format=[{format}], changelogMode={source})", f"Kafka({topic})"]
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
