"""Comparison of a replay with the truth: unexplained differences and unused explanations fail."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.support.replay.differences import (
    CORRUPT,
    ROW_MISSING,
    ROW_TOO_MANY,
    Difference,
    Evidence,
    Mismatch,
)
from tests.support.replay.replaying import (
    Final,
    Recorded,
    Replay,
    as_text,
    bag_of,
    spelled,
    table_of,
)
from tests.support.replay.topics import Topic


@dataclass
class Verdict:
    """The number of compared rows, and the explained and unexplained differences."""

    rows: int
    explained: Counter[Difference] = field(default_factory=Counter)
    unexplained: list[Mismatch] = field(default_factory=list)


def judge(topic: Topic, replay: Replay, records: Sequence[Recorded]) -> Verdict:
    """Compare the result of a replay with the truth."""
    evidence = Evidence(
        {record.place: record for record in records}, replay.corrupt, topic.primary_key
    )
    changelog = spelled(
        replay.changelog, {name: column.back for name, column in topic.columns.items()}
    )
    if topic.primary_key:
        verdict = _compare(topic, evidence, table_of(changelog, topic.primary_key), _by_key(topic))
    else:
        verdict = _compare(
            topic, evidence, _numbered(topic, evidence, bag_of(changelog)), _numbered_truth(topic)
        )
    for place in replay.corrupt:
        _explain(topic, Mismatch(CORRUPT, record=evidence.records[place]), evidence, verdict)
    return verdict


def _by_key(topic: Topic) -> dict[Any, Mapping[str, Any]]:
    return {tuple(row[name] for name in topic.primary_key): row for row in topic.rows}


def _numbered_truth(topic: Topic) -> dict[Any, Mapping[str, Any]]:
    """Number equal rows of a table without a primary key."""
    seen: Counter[str] = Counter()
    numbered = {}
    for row in topic.rows:
        numbered[as_text(row), seen[as_text(row)]] = row
        seen[as_text(row)] += 1
    return numbered


def _numbered(topic: Topic, evidence: Evidence, rows: Sequence[Final]) -> dict[Any, Final]:
    """Number equal rows of the result; those that may be surplus come last."""

    def may_be_too_many(final: Final) -> bool:
        return (
            _reason(
                topic,
                Mismatch(ROW_TOO_MANY, row=final, record=evidence.records[final.place]),
                evidence,
            )
            is not None
        )

    seen: Counter[str] = Counter()
    numbered = {}
    for final in sorted(rows, key=may_be_too_many):
        numbered[as_text(final.row), seen[as_text(final.row)]] = final
        seen[as_text(final.row)] += 1
    return numbered


def _compare(
    topic: Topic,
    evidence: Evidence,
    actual: Mapping[Any, Final],
    expected: Mapping[Any, Mapping[str, Any]],
) -> Verdict:
    verdict = Verdict(len(expected))
    for key in {**expected, **actual}:
        for mismatch in _mismatches(actual.get(key), expected.get(key), evidence):
            _explain(topic, mismatch, evidence, verdict)
    return verdict


def _mismatches(
    actual: Final | None, expected: Mapping[str, Any] | None, evidence: Evidence
) -> Iterator[Mismatch]:
    record = evidence.records[actual.place] if actual else None
    if actual is None:
        yield Mismatch(ROW_MISSING, truth=expected)
    elif expected is None:
        yield Mismatch(ROW_TOO_MANY, row=actual, record=record)
    else:
        for name, value in expected.items():
            if not _same(actual.row[name], value):
                yield Mismatch(name, actual.row[name], value, actual, record)


def _same(actual: Any, truth: Any) -> bool:
    # Compared as text, so that 1, 1.0 and True differ, and 0.0 and -0.0 too.
    return repr(actual) == repr(truth)


def _reason(topic: Topic, mismatch: Mismatch, evidence: Evidence) -> Difference | None:
    candidates = (
        difference for difference in topic.differences if mismatch.what in difference.what
    )
    return next(
        (difference for difference in candidates if difference.explains(mismatch, evidence)), None
    )


def _explain(topic: Topic, mismatch: Mismatch, evidence: Evidence, verdict: Verdict) -> None:
    difference = _reason(topic, mismatch, evidence)
    if difference is None:
        verdict.unexplained.append(mismatch)
    else:
        verdict.explained[difference] += 1


def assert_truth(topic: Topic, replay: Replay, records: Sequence[Recorded]) -> Verdict:
    """Require a replay to end in the truth but for the topic's differences, which all occur."""
    verdict = judge(topic, replay, records)
    shown = "\n".join(str(mismatch)[:600] for mismatch in verdict.unexplained[:5])
    assert not verdict.unexplained, (
        f"{len(verdict.unexplained)} differences from the truth, the first:\n{shown}"
    )
    for difference in topic.differences:
        times = verdict.explained[difference]
        assert times == (difference.times or times or 1), (
            f"occurs {times} times: {', '.join(difference.what)}: {difference.reason}"
        )
    return verdict


def assert_before_images(topic: Topic, replay: Replay, records: Sequence[Recorded]) -> None:
    """Require that every decoded ``-U`` and ``-D`` has the previous row, but for the differences.

    A row may be inserted again: by a snapshot in mid-stream, or after a TRUNCATE.
    """
    evidence = Evidence({record.place: record for record in records}, {}, topic.primary_key)
    verdict, rows = Verdict(0), {}
    for kind, final in spelled(
        replay.changelog, {name: column.back for name, column in topic.columns.items()}
    ):
        key = tuple(final.row[name] for name in topic.primary_key)
        if kind in ("+I", "+U"):
            rows[key] = final
            continue
        verdict.rows += 1
        before = {name: value for name, value in final.row.items() if name not in topic.additional}
        for mismatch in _mismatches(rows.pop(key, None), before, evidence):
            _explain(topic, mismatch, evidence, verdict)
    assert verdict.rows
    assert not verdict.unexplained, verdict.unexplained[:5]
