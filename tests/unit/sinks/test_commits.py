"""What the log of a Delta table, or an Iceberg table's snapshots, say about a query's last commit."""

import json
from typing import Any

import pytest

from normalize.tables.batches import Batch, version_of
from normalize.tables.commits import (
    Commit,
    LogEntry,
    OwnCommits,
    OwnSnapshots,
    Snapshot,
    TableState,
    whole_versions,
)

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
    assert OwnSnapshots(newest, reached).lack(KEPT, 7) is lack


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
    assert OwnSnapshots(newest, reached).lack(KEPT, 7, accepted) is lack
    # A checkpoint that was set back repeats the micro-batch.
    assert OwnSnapshots(newest, OLDER_OWN).lack(KEPT, 6, newest.sequence) is False
