"""What the log of a Delta table, or an Iceberg table's snapshots, say about a query's last commit."""

import json
from functools import partial
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from normalize.change_feed import in_order
from normalize.spark.micro_batch import Batch, digest_of
from normalize.tables.batches import Record, is_repeat, record_of, version_of
from normalize.tables.commits import (
    Commit,
    LogEntry,
    OwnCommits,
    Snapshot,
    TableState,
    whole_versions,
)
from tests.support.error_texts import error_test
from tests.support.examples import examples

NOW = Batch("q", 7, "0000000a")
OWN, OTHER = NOW.application, "changelog-another"


def record(number: int) -> int:
    return version_of(Batch("q", number, "0000000a"))


KEPT = Commit("t", "id", 10, record(6), 0)
"""The query committed micro-batch 6 after version 10."""


def entry(operation: str, *transactions: tuple[str, int], **parameters: Any) -> LogEntry:
    """An entry of a log, parsed from its text."""
    info = {"operation": operation, "operationParameters": parameters}
    lines: list[dict[str, Any]] = [{"commitInfo": info}, {"add": {"path": "\u2028"}}]
    lines += [{"txn": {"appId": name, "version": at}} for name, at in transactions]
    return LogEntry.parse("\n".join(json.dumps(each) for each in lines) + "\n", OWN)


LAST, NEXT = entry("MERGE", (OWN, record(6))), entry("MERGE", (f"{OWN}-8", record(7)))
OTHERS = entry("OPTIMIZE"), entry("MERGE", (OTHER, record(9))), entry("DELETE", predicate="id = 1")
OVERWRITE = entry("WRITE", mode="Overwrite")


def restore(version: int | None) -> LogEntry:
    return entry("RESTORE", version=version, timestamp=None)


def is_whole(
    *entries: LogEntry | None, stored: int | None = 6, accepted: int = -1, number: int = 7
) -> bool:
    """Return whether the newest version has all commits of the query."""
    transaction = None if stored is None else record(stored)
    whole = whole_versions(KEPT, entries, number, accepted, transaction)
    return KEPT.since + len(entries) in whole


@pytest.mark.parametrize(
    "entries",
    [
        [LAST],
        [LAST, *OTHERS],
        [OTHERS[0], LAST],  # another writer was faster
        [LAST, restore(11)],
        [LAST, *OTHERS, restore(12)],
        [LAST, restore(3), restore(11)],  # undone
        [LAST, restore(3), restore(12), restore(11)],
        [LAST, NEXT],  # killed before it kept its commit
        [LAST, entry("WRITE", mode="Overwrite", predicate="day = 1")],
        [LAST, entry("WRITE", mode="Overwrite", isDynamicPartitionOverwrite=True)],
        [LAST, entry("WRITE", (OTHER, record(1)), mode="Overwrite")],  # read again
        [None, *OTHERS],  # cleaned up
        [None, None, OTHERS[0], restore(12)],
    ],
)
def test_entries_that_leave_the_commits(entries: list[LogEntry | None]) -> None:
    assert is_whole(*entries)


@pytest.mark.parametrize(
    "entries",
    [
        [],
        OTHERS,  # another writer replaced it
        [LAST, restore(10)],
        [LAST, restore(3)],
        [LAST, restore(None)],  # to a timestamp
        [LAST, NEXT, restore(11)],
        [OTHERS[0], LAST, restore(11)],
        [restore(3), LAST],
        [LAST, restore(3), restore(12)],
        [LAST, OVERWRITE, *OTHERS],
        [LAST, entry("STREAMING UPDATE", outputMode="Complete")],
        [None, None, restore(11)],
    ],
)
def test_entries_that_undo_the_commits(entries: list[LogEntry | None]) -> None:
    assert not is_whole(*entries)


def test_the_transaction_decides_if_the_log_was_cleaned_up() -> None:
    entries = [None, *OTHERS]
    assert [is_whole(*entries, stored=each) for each in (5, 6, 7, None)] == [
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(
    ("entries", "accepted"),
    [
        ([LAST, OVERWRITE], True),
        ([LAST, NEXT, restore(11)], True),  # table and checkpoint were set back
        ([LAST, NEXT, restore(None)], True),
        ([LAST, restore(3)], False),  # only the table was
    ],
)
def test_version_that_the_owner_accepts(entries: list[LogEntry], accepted: bool) -> None:
    assert is_whole(*entries, accepted=10 + len(entries)) == accepted
    assert not is_whole(*entries, OVERWRITE, accepted=10 + len(entries))


def test_checkpoint_that_was_set_back_alone_is_no_lost_commit() -> None:
    assert is_whole(LAST, number=5)
    assert is_whole(LAST, restore(3), number=5) is False


@pytest.mark.parametrize(
    ("accepted", "name"),
    [
        (None, OWN),
        ("id:12", f"{OWN}-12"),
        ("another:12", OWN),  # the property of a table that was copied
        ("12", OWN),
    ],
)
def test_record_of_a_table_that_its_owner_accepts(accepted: str | None, name: str) -> None:
    commits = OwnCommits("t", "`t`", TableState("id", 13, "log", accepted, {}.get))
    assert commits.application(NOW) == name


def state_of(newest: Snapshot | None, reached: Snapshot | None) -> TableState:
    """The state of an Iceberg table."""
    return TableState("id", 13, "", None, {}.get, newest, reached)


def own(sequence: int, number: int) -> Snapshot:
    """A snapshot that carries a micro-batch."""
    return Snapshot(100 + sequence, sequence, 99 + sequence, record(number))


LAST_OWN, NEXT_OWN, OLDER_OWN = own(11, 6), own(13, 7), own(9, 5)
FIRST = Snapshot(101, 1, None)
REPLACED = Snapshot(112, 12, None)


@pytest.mark.parametrize(
    ("newest", "reached", "lack"),
    [
        (LAST_OWN, LAST_OWN, False),
        (NEXT_OWN, NEXT_OWN, False),  # killed before it kept its last commit
        (LAST_OWN, OLDER_OWN, True),
        (LAST_OWN, FIRST, True),
        (NEXT_OWN, LAST_OWN, True),  # the checkpoint was set back, too
        (OLDER_OWN, OLDER_OWN, True),  # rolled back, and then the last one expired
        (None, FIRST, True),
        (None, Snapshot(110, 10, 109), True),  # the ancestors are known up to version 10
        (None, Snapshot(112, 12, 111), None),
        (LAST_OWN, Snapshot(112, 12, 111), None),  # a tag keeps it
        (LAST_OWN, REPLACED, True),
        (LAST_OWN, None, True),
        # Format version 1 has no sequence numbers.
        (None, Snapshot(112, 0, 111), None),
        (Snapshot(111, 0, 110, record(6)), Snapshot(101, 0, None), True),
    ],
)
def test_snapshots_that_have_the_last_commit(
    newest: Snapshot | None, reached: Snapshot | None, lack: bool | None
) -> None:
    assert state_of(newest, reached).lack(KEPT, 7) is lack


@pytest.mark.parametrize(
    ("newest", "reached", "accepted", "lack"),
    [
        (NEXT_OWN, LAST_OWN, 13, False),
        (NEXT_OWN, LAST_OWN, 12, True),  # rolled back again
        (LAST_OWN, OLDER_OWN, 11, True),  # without the checkpoint
        (LAST_OWN, REPLACED, 12, False),
        (LAST_OWN, REPLACED, 11, True),
    ],
)
def test_snapshots_that_the_owner_accepts(
    newest: Snapshot, reached: Snapshot, accepted: int, lack: bool
) -> None:
    assert state_of(newest, reached).lack(KEPT, 7, accepted) is lack
    # A checkpoint that was set back repeats the micro-batch.
    assert state_of(newest, OLDER_OWN).lack(KEPT, 6, newest.sequence) is False


# --------------------------------------------------------------------------------------------------
# The record of a query's last micro-batch: what is a repetition, and what another driver
@pytest.mark.parametrize(
    ("record", "is_repeated"),
    [
        (None, False),  # a table of release 0.2.0, or of another query
        (Record(6, "0000000a"), False),
        (Record(7, "0000000a"), True),
        (Record(7), True),  # the offsets are unknown
    ],
)
def test_new_and_repeated_micro_batches(record: Record | None, is_repeated: bool) -> None:
    assert is_repeat(NOW, record, "t") == is_repeated


def test_versions_increase_with_the_number_whatever_the_offsets() -> None:
    batches = [Batch("q", number, f"{2**32 - 1 - number:08x}") for number in (0, 1, 2, 2**31 - 1)]
    versions = list(map(version_of, batches))
    assert versions == sorted(versions)
    assert versions[-1] < 2**63
    assert [record_of(version) for version in versions] == [Record(*each[1:3]) for each in batches]


def test_digest_depends_on_both_ends_of_each_source() -> None:
    ranges = [([], ["1"]), (["0"], ["1"]), (["1"], ["1"]), (["0"], ["1", None]), (["0", "1"], [])]
    assert len({digest_of(*each) for each in ranges}) == len(ranges)


# --------------------------------------------------------------------------------------------------
# The order of a change feed's rows, and the errors when it is unknown
REMOVES, ADDS = ("-U", "-D"), ("+I", "+U")


def feed(rows: list[tuple[Any, ...]], *names: str) -> pa.Table:
    """A change feed with these columns."""
    columns = zip(*rows, strict=True)
    return pa.table(dict(zip(("row_kind", *names), map(list, columns), strict=True)))


def test_each_update_is_together_and_commits_are_in_order() -> None:
    changes = feed(
        [("+U", 2, 9), ("+U", 1, 9), ("-U", 2, 9), ("-D", 1, 10), ("+I", 1, 2), ("-U", 1, 9)],
        "id",
        "version",
    )
    ordered = in_order(changes, ["id"], ["version"])
    assert list(zip(*ordered.to_pydict().values(), strict=True)) == [
        ("+I", 1, 2),
        ("-U", 1, 9),
        ("+U", 1, 9),
        ("-U", 2, 9),
        ("+U", 2, 9),
        ("-D", 1, 10),
    ]


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, str, int, int]]:
    """Each key's changes in order: kind, key, commit, and the row's number."""
    rows = []
    for key in ("a", "b", "c"):
        there = False
        for commit in sorted(draw(st.sets(st.integers(0, 5)))):
            kinds = ["-U", "+U"] if draw(st.booleans()) else ["-D", "+I"]
            kept = kinds if there and draw(st.booleans()) else kinds[:1] if there else ["+I"]
            there = kept[-1] in ADDS
            rows += [(kind, key, commit, len(rows) + place) for place, kind in enumerate(kept)]
    return rows


@settings(max_examples=examples(100))
@given(histories(), st.randoms(use_true_random=False))
def test_any_shuffle_of_a_feed_is_put_back(
    rows: list[tuple[str, str, int, int]], random: Random
) -> None:
    if not rows:
        return
    shuffled = random.sample(rows, len(rows))
    ordered = in_order(feed(shuffled, "id", "version", "n"), ["id"], ["version"])
    result = list(zip(*ordered.to_pydict().values(), strict=True))
    assert sorted(result, key=lambda row: row[1]) == rows
    assert [row[2] for row in result] == sorted(row[2] for row in rows)


TWICE = {
    kinds: feed([(kinds[0], 1, 5, 0), (kinds[1], 1, 5, 1)], "id", "version", "offset")
    for kinds in (REMOVES, ADDS, ("+I", "+I"))
}
NULLS = feed([("+I", None, 5), ("+I", 1, None)], "id", "version")


@pytest.mark.parametrize("changes", TWICE.values(), ids=str)
def test_another_column_orders_two_additions_or_two_removals(changes: pa.Table) -> None:
    assert in_order(changes, ["id"], ["version", "offset"]).equals(changes)
    assert in_order(changes, ["id", "offset"], ["version"]).num_rows == 2


test_error_texts = error_test(
    __file__,
    {
        "the micro-batch with other offsets": partial(is_repeat, NOW, Record(7, "0000000b"), "t"),
        "a later micro-batch": partial(is_repeat, NOW, Record(8), "t"),
        **{
            f"{kinds} of one key without an order": partial(in_order, changes, ["id"], ["version"])
            for kinds, changes in TWICE.items()
        },
        "a key that is NULL": partial(in_order, NULLS, ["id"], ["version"]),
        "an order that is NULL": partial(in_order, NULLS.slice(1), ["id"], ["version"]),
    },
)
