"""Decide whether a source needs ChangelogNormalize, and whether that generates ``-U``: the rule of Flink's planner, as a pure function.

============================================  =====================  ====================================================
source                                        source_duplicates      the stage
============================================  =====================  ====================================================
upsert (``+U`` without ``-U``)                either                 if the consumer needs ``-U``, or duplicates are possible
changelog (``+I -U +U -D``)                   False                  no; ``-U`` is dropped if the consumer needs none
changelog                                     True                   yes
insert-only                                   either                 no
============================================  =====================  ====================================================

``source_duplicates`` is Flink's ``table.exec.source.cdc-events-duplicate``; its default is True here and False there, since the
usual CDC tools deliver at least once. A metadata column does not keep the stage in the plan, as it does in Flink.

Source: Flink's DynamicSourceUtils (``isUpsertSource``, ``isSourceChangeEventsDuplicate``), StreamPhysicalTableSourceScanRule,
FlinkChangelogModeInferenceProgram, ChangelogNormalizeRequirementResolver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from cdc_formats.changelog_mode import ChangelogMode
from cdc_formats.errors import ArgumentError
from cdc_formats.row_kind import RowKind

CONSUMER_MODES = {"all": ChangelogMode.all(), "upsert": ChangelogMode.upsert(key_only_deletes=False)}
"""The changelog modes that a consumer can request: with retractions, or upserts and deletes by key."""


@dataclass(frozen=True)
class Plan:
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


def make_plan(source: ChangelogMode, primary_key: Sequence[str], changelog_mode: str, source_duplicates: bool) -> Plan:
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

    Raises
    ------
    ArgumentError
        When the mode is unknown, or a required primary key is missing.
    """
    if changelog_mode not in CONSUMER_MODES:
        raise ArgumentError(f"changelog_mode is {changelog_mode!r}: use 'all' (with -U) or 'upsert' (without)")
    needs_before = changelog_mode == "all"
    if not source.contains(RowKind.UPDATE_AFTER) and not source.contains(RowKind.DELETE):
        return Plan(False, False, False, "the source only inserts", source)
    if source.contains(RowKind.UPDATE_BEFORE):
        return _of_changelog(source, primary_key, needs_before, source_duplicates)
    if not primary_key:
        raise ArgumentError("the source's updates have no -U, which requires primary_key=[...]: the columns that identify the updated row")
    if source_duplicates:
        return _stage(needs_before, "the source may deliver an event twice (source_duplicates=True)")
    if needs_before:
        return _stage(True, "the consumer needs -U, and the source has none (changelog_mode='all')")
    return Plan(
        False,
        False,
        False,
        "the consumer takes upserts by key as the source has them (changelog_mode='upsert')",
        source,
    )


def _of_changelog(source: ChangelogMode, primary_key: Sequence[str], needs_before: bool, source_duplicates: bool) -> Plan:
    if source_duplicates:
        if not primary_key:
            raise ArgumentError(
                "source_duplicates=True (the default) requires primary_key=[...] to find duplicates: pass it, or set "
                "source_duplicates=False for a table without one, whose rows and duplicates are then returned unchanged"
            )
        return _stage(needs_before, "the source may deliver an event twice (source_duplicates=True)")
    if needs_before:
        return Plan(False, False, False, "the source has -U, and delivers each event once (source_duplicates=False)", source)
    if not primary_key:
        raise ArgumentError("changelog_mode='upsert' requires primary_key=[...]: without -U only the key identifies the updated row")
    reason = "the source delivers each event once (source_duplicates=False); its -U is dropped, since the consumer needs none"
    return Plan(False, False, True, reason, CONSUMER_MODES["upsert"])


_STATE = {
    "full": "the state has each key's row",
    "compact": "the state has hashes of each key and row, and -U and -D are the event's own before-images",
}
_ORDER = {
    "arrival": "changes are taken as they arrive",
    "source": "changes at or before their key's position in the source's log are dropped",
}


def _stage(needs_before: bool, reason: str) -> Plan:
    return Plan(True, needs_before, False, reason, CONSUMER_MODES["all" if needs_before else "upsert"])


def explain(
    plan: Plan,
    *,
    format: str,
    source: ChangelogMode,
    topic: str,
    primary_key: Sequence[str],
    key_groups: int,
    order: str = "arrival",
    where: str | None = None,
    state_layout: str = "full",
) -> str:
    """Return the plan as text, like Flink's ``EXPLAIN CHANGELOG_MODE``."""
    key = ", ".join(primary_key)
    lines = []
    if plan.normalize:
        upserts = replace(source, kinds=source.kinds - {RowKind.UPDATE_BEFORE})
        lines.append(f"ChangelogNormalize(key=[{key}], changelogMode={plan.mode}): {plan.reason}; {_STATE[state_layout]}, {_ORDER[order]}")
        lines.append(f"Exchange(hash[key group of {key}], key_groups={key_groups}, changelogMode={upserts})")
        if where is not None:
            lines.append(f"Filter({where}, changelogMode={upserts}): a row that does not match is a delete to its key, and is not stored")
        if source.contains(RowKind.UPDATE_BEFORE):
            lines.append(
                f"DropUpdateBefore(changelogMode={upserts}): a keyed stage knows the row before; a changed key is a delete and an upsert"
            )
    elif plan.drop_update_before:
        lines.append(f"DropUpdateBefore(changelogMode={plan.mode}): {plan.reason}")
    else:
        lines.append(f"no ChangelogNormalize: {plan.reason}")
    lines += [f"Decode(format=[{format}], changelogMode={source})", f"Kafka({topic})"]
    return "\n".join("   " * (depth - 1) + ("+- " if depth else "") + line for depth, line in enumerate(lines))
