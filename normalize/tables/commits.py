"""The last commit of a query in a Delta or Iceberg table, and whether the table still has it.

A table can lose commits without an error: its owner restores an older version or overwrites it, a
backup of its folder takes its place, or another Spark replaces a commit on storage whose commits
are not exclusive. The query would go on, and the rows between would be missing.

After each commit, a query therefore keeps a `Commit` in its checkpoint, and so it is set back with
the checkpoint. Before the next commit, it reads what the table's log has since then: usually one
entry. A query that is killed before it keeps a commit finds it there, under its own transaction.

=====================================  =============================================================
the log has                            then
=====================================  =============================================================
only other commits (rows of another    the micro-batch is written
writer, OPTIMIZE, VACUUM, ALTER TABLE)
a RESTORE to a version without the     `CommitLostError`
query's last commit, an overwrite of
all rows by another writer
other entries than the query's own     `CommitLostError`
no entry, since it was cleaned up      the transaction in the table's state decides; without one,
                                       the micro-batch is written, with a warning
=====================================  =============================================================

A table property (`ACCEPTED`) says that its owner accepts the table as it is at a version. From then
on, the query's record in the table has another name, since Delta keeps the newest one.

An Iceberg table loses commits if somebody rolls it back, makes another snapshot the current one, or
replaces the table: their snapshots are no ancestors of the current one. Snapshots also expire.

=====================================  =============================================================
the snapshot of the last commit        then
=====================================  =============================================================
is an ancestor of the current one      the micro-batch is written
is no ancestor                         `CommitLostError`
expired, as did others of its time     the micro-batch is written, with a warning
=====================================  =============================================================

The version of an Iceberg table is the sequence number of its newest snapshot, which also increases
after a rollback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession

from normalize.spark.files import Files
from normalize.spark.micro_batch import Batch, checkpoint_file
from normalize.spark.plans import iceberg_table

from .batches import (
    ICEBERG_BATCH,
    ICEBERG_OFFSETS,
    ICEBERG_QUERY,
    BatchOrderError,
    Record,
    record_of,
    version_of,
)
from .layout import sql_literal

_log = logging.getLogger("normalize")
ACCEPTED = "changelog.accepted"
"""The property of a table whose owner accepts it at a version: ``<table id>:<version>``."""
_FOLDER = "changelog/commits"
"""The folder of a checkpoint with two files for each table, written in turns: a query that is killed
while it writes one has the other."""
_NONE = -1


class CommitLostError(BatchOrderError):
    """A table no longer has the last commit of its query; nothing is written."""


class Commit(msgspec.Struct, frozen=True):
    """A query's last commit in a table, as its checkpoint has it.

    Attributes
    ----------
    table : str
    id : str
        The id of the table: one that is created again has another.
    since : int
        The version of the table before the commit, which is one of the next entries of its log.
    record : int
        The micro-batch, as `version_of`, which the commit carries.
    turn : int
        How many commits the query has kept before.
    """

    table: str
    id: str
    since: int
    record: int
    turn: int


class Snapshot(NamedTuple):
    """A snapshot of an Iceberg table.

    Attributes
    ----------
    id : int
    sequence : int
        Its sequence number; 0 in a table of format version 1.
    parent : int or None
    record : int
        The micro-batch of the query that it carries, as `version_of`; -1 if it carries none.
    """

    id: int
    sequence: int
    parent: int | None
    record: int = _NONE


class TableState(NamedTuple):
    """The newest version of a table, and what the snapshots of an Iceberg table say about a query.

    Attributes
    ----------
    id : str
    version : int
    log : str
        The folder of Delta's log; empty for Iceberg.
    accepted : str or None
        Its property `ACCEPTED`.
    transaction : callable
        Returns the version of an application's transaction, or None.
    newest : Snapshot or None
        The query's newest one.
    reached : Snapshot or None
        The query's newest one among the ancestors of the current snapshot. Without it, the oldest
        ancestor that did not expire; None without a current snapshot.
    undo : callable
        Returns what the owner does so that the table has `newest` again.
    """

    id: str
    version: int
    log: str
    accepted: str | None
    transaction: Callable[[str], int | None]
    newest: Snapshot | None = None
    reached: Snapshot | None = None
    undo: Callable[[], str] = str

    def lack(self, kept: Commit, number: int, accepted: int = _NONE) -> bool | None:
        """Return whether an Iceberg table lost the last commit of a query; None if it is unknown.

        Parameters
        ----------
        kept : Commit
        number : int
            The number of the micro-batch to write.
        accepted : int
            The version that the table's owner accepts; -1 if there is none.
        """
        newest, reached = self.newest, self.reached
        # A checkpoint that was set back repeats the micro-batch.
        needed = kept.record if record_of(kept.record).number < number else _NONE
        if newest is not None and newest.sequence > accepted:
            needed = max(needed, newest.record)
        if reached is None or reached.record >= needed:
            return reached is None and needed > _NONE
        since = kept.since if newest is None else newest.sequence
        is_first = reached.parent is None
        if is_first and since < reached.sequence <= accepted:
            return False  # The owner replaced the table, and accepts the new one.
        is_known = is_first or reached.record > _NONE or 0 < reached.sequence <= since
        return True if is_known else None


class LogEntry(NamedTuple):
    """What an entry of a Delta table's log does to the rows of a query.

    Attributes
    ----------
    operation : str
    record : int
        The micro-batch of the query that it carries, as `version_of`; -1 if it carries none.
    restored : int or None
        The version to which it restores the table: -1 for that of a time.
    overwrites : bool
        Whether it is an overwrite of all rows that no query of this library wrote.
    """

    operation: str = ""
    record: int = _NONE
    restored: int | None = None
    overwrites: bool = False

    @classmethod
    def parse(cls, text: str, application: str) -> LogEntry:
        """Return the entry with this text, which has a JSON object in each line.

        Parameters
        ----------
        text : str
        application : str
            The name of the query's records, as in `Batch.application`.
        """
        actions = [msgspec.json.decode(line) for line in text.split("\n") if line]
        info: dict[str, Any] = next(
            (each["commitInfo"] for each in actions if "commitInfo" in each), {}
        )
        operation, given = info.get("operation", ""), info.get("operationParameters", {})
        records = {
            each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each
        }
        own = [at for name, at in records.items() if name.startswith(application)]
        of_part = given.get("predicate") or given.get("isDynamicPartitionOverwrite")
        of_all = given.get("mode") == "Overwrite" or given.get("outputMode") == "Complete"
        is_ours = any(name.startswith("changelog-") for name in records)
        version = given.get("version")
        restored = int(_NONE if version is None else version) if operation == "RESTORE" else None
        overwrites = of_all and not of_part and not is_ours
        return cls(operation, max(own, default=_NONE), restored, overwrites)


def whole_versions(
    kept: Commit,
    entries: Sequence[LogEntry | None],
    number: int,
    accepted: int = _NONE,
    stored: int | None = None,
) -> list[int]:
    """Return the versions that have the last commit of a query.

    Parameters
    ----------
    kept : Commit
    entries : sequence of LogEntry or None
        The entries after ``kept.since``; None for those that were cleaned up.
    number : int
        The number of the micro-batch to write.
    accepted : int
        The version that the table's owner accepts; -1 if there is none.
    stored : int or None
        The query's transaction in the newest version.
    """
    # The last micro-batch: -1 before the commit, and None in a version that lacks earlier ones.
    at: dict[int, int | None] = {kept.since: _NONE}
    for version, entry in enumerate(entries, kept.since + 1):
        last, later = at[version - 1], entries[version - kept.since :]
        if entry is None:
            in_all = min(kept.record, kept.record if stored is None else stored)
            last = last if None in later[:1] else in_all
        elif entry.restored is not None and (version > accepted or entry.restored > _NONE):
            last = at.get(entry.restored)
        elif entry.overwrites and version > accepted:
            last = None
        elif last is not None:
            last = max(last, entry.record)
        at[version] = last
    newer = [each.record for each in entries[max(0, accepted - kept.since) :] if each]
    # A checkpoint that was set back repeats the micro-batch.
    needed = max([*newer, kept.record if record_of(kept.record).number < number else _NONE])
    return [version for version, last in at.items() if last is not None and last >= needed]


@dataclass
class OwnCommits:
    """The commits of a running query in a table.

    Parameters
    ----------
    table : str
        The table, for errors.
    sql_name : str
    state : TableState or None
        The version that was read last.
    """

    table: str
    sql_name: str
    state: TableState | None = None
    _run: tuple[str, str | None] | None = None
    _files: Files | None = None
    _paths: tuple[str, ...] = ()
    """The two files in the checkpoint; none of a query that does not run."""
    _kept: Commit | None = None

    @property
    def _accepted(self) -> int:
        """The version that the table's owner accepts; -1 if there is none."""
        of, _, version = ((self.state and self.state.accepted) or "").partition(":")
        is_own = self.state is not None and of == self.state.id and version.isdecimal()
        return int(version) if is_own else _NONE

    def application(self, batch: Batch) -> str:
        """Return the name of the query's record in the table."""
        return batch.application + f"-{self._accepted}" * (self._accepted > _NONE)

    def record(
        self, spark: SparkSession, batch: Batch, state: TableState, *, is_stored: bool = False
    ) -> Record | None:
        """Return the table's record of a query, whose last commit it has.

        Parameters
        ----------
        spark : SparkSession
        batch : Batch
        state : TableState
        is_stored : bool
            Whether the state was read from storage just now, and not from a session's memory.

        Raises
        ------
        CommitLostError
        """
        self.state = state
        stored = state.transaction(self.application(batch))
        run = batch.query, spark.sparkContext.getLocalProperty("spark.jobGroup.id")
        if self._run != run or self._files is None:
            self._run, self._files = run, Files(spark, raw=True)
            paths = (
                checkpoint_file(spark, batch, f"{_FOLDER}/{turn}", self.sql_name) for turn in (0, 1)
            )
            self._paths = tuple(filter(None, paths))
            texts = [self._files.read(each) for each in self._paths if self._files.exists(each)]
            # A query may have been killed while it wrote one.
            commits = [msgspec.json.decode(each, type=Commit) for each in texts if each[-1:] == "}"]
            self._kept = max(commits, key=lambda each: each.turn, default=None)
        kept = self._kept
        is_last = kept and is_stored and (state.version, stored) == (kept.since + 1, kept.record)
        is_checked = kept is not None and (not is_last or kept.id != state.id)
        if kept and is_checked and (reason := self._loss(self._files, batch, kept, stored)):
            raise CommitLostError(
                f"{self.table}: micro-batch {batch.number} was not written: {reason}"
            )
        return None if stored is None else record_of(stored)

    def _loss(self, files: Files, batch: Batch, kept: Commit, stored: int | None) -> str:
        """Return why the newest version lacks the query's last commit; empty if it has it."""
        state, accepted = self.state, self._accepted
        assert state is not None
        accept = (
            f"accept the table as it is: ALTER TABLE {self.sql_name} SET TBLPROPERTIES "
            f"('{ACCEPTED}' = '{state.id}:{state.version}')"
        )
        if kept.id != state.id:
            reason = (
                f"it is not the table that this query wrote, whose id was {kept.id}. Bring that "
                f"table back. Or, if this one has the same rows, {accept}"
            )
            return reason if accepted == _NONE else ""
        if not state.log:
            return self._loss_of_snapshots(batch, kept, state, accept)
        # None for those that the log no longer has.
        entries = [
            LogEntry.parse(files.read(name), batch.application) if files.exists(name) else None
            for version in range(kept.since + 1, state.version + 1)
            for name in [f"{state.log}/{version:020}.json"]
        ]
        if None in entries and stored is None:
            _log.warning(
                "%s: its log was cleaned up, and has no transaction of this query: whether it still "
                "has the last commit of this query is not known",
                self.table,
            )
        whole = whole_versions(kept, entries, batch.number, accepted, stored)
        if whole and whole[-1] == state.version:
            return ""
        undone = entries[whole[-1] - kept.since] if whole and entries else None
        if undone is None:
            return _replaced(kept, "its log lacks")
        then = (
            "make sure that it has the source's rows"
            if undone.restored is None
            else "set the checkpoint back to the same moment"
        )
        return (
            f"its version {whole[-1] + 1} ({undone.operation}) undid commits of this query, whose "
            f"rows would be missing. Undo it: RESTORE TABLE {self.sql_name} TO VERSION AS OF "
            f"{whole[-1]}. Or {then}, and {accept}"
        )

    def _loss_of_snapshots(self, batch: Batch, kept: Commit, state: TableState, accept: str) -> str:
        """Return why the query's last commit is no ancestor of the current snapshot; else empty."""
        newest, lack = state.newest, state.lack(kept, batch.number, self._accepted)
        if lack is None:
            _log.warning(
                "%s: its snapshots expired: whether it still has the last commit of this query is "
                "not known",
                self.table,
            )
        if not lack:
            return ""
        if newest is None or newest == state.reached:
            return _replaced(kept, "its snapshots lack")
        return (
            f"its snapshot {newest.id} of micro-batch {record_of(newest.record).number} is no "
            "ancestor of the current one: a rollback undid commits of this query, whose rows would "
            f"be missing. Undo it: {state.undo()}. Or set the checkpoint back to the same moment as "
            f"the table, and {accept}"
        )

    def has(self, batch: Batch | None, version: int) -> bool:
        """Return whether a version of a Delta table is the commit of a micro-batch, read from its log.

        True without a query, whose commits have no record.
        """
        if batch is None or self.state is None or self._files is None:
            return True
        text = self._files.read(f"{self.state.log}/{version:020}.json")
        return LogEntry.parse(text, batch.application).record == version_of(batch)

    def keep(self, batch: Batch | None) -> None:
        """Keep the commit of a micro-batch, after whose `record` it was made.

        A failure is a warning: an older file is also right.
        """
        state = self.state
        if batch is None or state is None or self._files is None or not self._paths:
            return
        turn = 0 if self._kept is None else self._kept.turn + 1
        kept = Commit(self.sql_name, state.id, state.version, version_of(batch), turn)
        self._kept, path = kept, self._paths[turn % 2]
        try:
            self._files.write(path, msgspec.json.encode(kept).decode(), replace=True)
        except Exception as error:
            _log.warning("%s cannot be written: %s", path, error)


def _replaced(kept: Commit, lacks: str) -> str:
    return (
        f"{lacks} micro-batch {record_of(kept.record).number}, which this query committed after "
        f"version {kept.since}: another writer replaced the commit, or the table was set back. "
        "Bring the newest table back. Or set the checkpoint back to the same moment, or start from "
        "a new one, which reads the topic again"
    )


def iceberg_state(rows: DataFrame, batch: Batch, sql_name: str) -> TableState:
    """Return the newest version of an Iceberg table, and the snapshots of a query.

    The driver has them in memory. A read of the table's ``snapshots`` is two jobs of Spark.

    Parameters
    ----------
    rows : DataFrame
        The rows of the table.
    batch : Batch
        A micro-batch of the query.
    sql_name : str
    """
    table, catalog, branch = iceberg_table(rows)
    listed = table.snapshots()

    # Each call is a message to the JVM, and others may have committed often.
    def is_own(java: Any) -> bool:
        return bool(java.summary().get(ICEBERG_QUERY) == batch.query)

    def parsed(java: Any) -> Snapshot:
        summary, record = java.summary(), _NONE
        if is_own(java):
            number, offsets = int(summary[ICEBERG_BATCH]), summary.get(ICEBERG_OFFSETS) or ""
            record = version_of(Batch(batch.query, number, offsets))
        return Snapshot(java.snapshotId(), java.sequenceNumber(), java.parentId(), record)

    def reached_from(java: Any) -> Snapshot | None:
        while java is not None and not is_own(java):
            parent = java.parentId()
            older = None if parent is None else table.snapshot(parent)
            if older is None:
                break
            java = older
        return None if java is None else parsed(java)

    def undo() -> str:
        to = newest and newest.id
        if branch != "main":
            return f"let the branch {branch} end with snapshot {to}"
        # Others may have committed after the query.
        for entry in table.history():
            java = table.snapshot(entry.snapshotId())
            to = entry.snapshotId() if java and java.parentId() == to else to
        return f"CALL {catalog}.system.set_current_snapshot({sql_literal(sql_name)}, {to})"

    latest_first = (listed[index] for index in reversed(range(len(listed))))
    newest = next((parsed(java) for java in latest_first if is_own(java)), None)
    reached = reached_from(table.snapshot(branch))
    version = listed[len(listed) - 1].sequenceNumber() if len(listed) else 0
    records = [each.record for each in (reached, newest) if each and each.record > _NONE]
    return TableState(
        table.uuid().toString(),
        version,
        "",
        table.properties().get(ACCEPTED),
        lambda _: next(iter(records), None),
        newest,
        reached,
        undo,
    )
