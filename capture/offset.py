"""A stream's offset: a log position, and the table and key that the snapshot has reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from cdc_formats.errors import StateVersionError
from cdc_formats.values.key_range import Key, KeyRange

from .server import LogPosition, ServerPosition
from .table import TableId

VERSION = 4


class TableState(NamedTuple):
    """A table of a stream; `schema` is the fingerprint of its columns and keys at the offset."""

    database: str
    name: str
    schema: str

    @property
    def id(self) -> TableId:
        return TableId(self.database, self.name)


@dataclass(frozen=True)
class Offset:
    """An offset. Its size depends on the number of tables, not on their rows.

    Attributes
    ----------
    server : str
        The identity of the server whose log this is.
    position : Position
        All emitted rows are as of this position.
    snapshot : bool
        Whether chunks remain: those of the current table after `frontier`, and all chunks of the
        later tables.
    frontier : Key or None
        The end of the current table's last chunk; None before its first chunk.
    step : int or None
        The number of key values in a chunk of the current table, if its keys are evenly
        distributed.
    tables : tuple of TableState
        In the order of their snapshots; newly added tables come last.
    work : int
        The index of the current table.
    key : str or None
        The fingerprint of the key that `frontier` belongs to; None without a frontier, and in
        version 1.
    gtids : str or None
        The transactions before `position`; None in versions 1 and 2, and if GTIDs cannot be read.
    """

    server: str
    position: LogPosition
    snapshot: bool
    frontier: Key | None
    step: int | None
    tables: tuple[TableState, ...]
    work: int = 0
    key: str | None = None
    gtids: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the offset as JSON, for Spark's checkpoint."""
        fields = asdict(self) | {
            "file": self.position.file,
            "pos": self.position.pos,
            "version": VERSION,
        }
        del fields["position"]
        frontier = list(self.frontier) if self.frontier is not None else None
        return fields | {"frontier": frontier, "tables": [list(each) for each in self.tables]}

    @classmethod
    def of_json(cls, fields: dict[str, Any], only: TableId) -> Offset:
        """Return an offset from its JSON.

        Parameters
        ----------
        only : TableId
            The table that the options name. Offsets of versions 1 to 3 do not contain it.

        Raises
        ------
        StateVersionError
            If the version is newer than `VERSION`.
        """
        if fields["version"] > VERSION:
            raise StateVersionError(
                f"the checkpoint's offset has version {fields['version']}, of a newer release; "
                f"this release reads versions up to {VERSION}: install the newer release"
            )
        frontier = tuple(fields["frontier"]) if fields["frontier"] is not None else None
        tables = fields["tables"] if "tables" in fields else [(*only, fields["schema"])]
        return cls(
            server=fields["server"],
            position=LogPosition(fields["file"], fields["pos"]),
            snapshot=fields["snapshot"],
            frontier=frontier,
            step=fields["step"],
            tables=tuple(TableState(*each) for each in tables),
            work=fields.get("work", 0),
            key=fields.get("key"),
            gtids=fields.get("gtids"),
        )

    @property
    def in_log(self) -> ServerPosition:
        return ServerPosition(self.server, self.position, self.gtids)

    def past(self, upto: Key | None) -> Offset:
        """Return the offset after a chunk of the current table; the last chunk has `upto` None."""
        if upto is not None:
            return replace(self, frontier=upto)
        if self.work + 1 == len(self.tables):
            return replace(self, frontier=None, snapshot=False)
        return replace(self, frontier=None, step=None, key=None, work=self.work + 1)

    def joined(self, tables: Sequence[TableState]) -> Offset:
        """Return the offset with further tables, whose snapshots remain."""
        if not tables or self.snapshot:
            return replace(self, tables=(*self.tables, *tables))
        return replace(
            self,
            tables=(*self.tables, *tables),
            snapshot=True,
            work=len(self.tables),
            frontier=None,
            step=None,
            key=None,
        )

    def done(self, index: int) -> KeyRange | None:
        """The range of a table's keys whose chunks are done; None if no chunk is."""
        if not self.snapshot or index < self.work:
            return KeyRange(None, None)
        return (
            KeyRange(None, self.frontier)
            if index == self.work and self.frontier is not None
            else None
        )
