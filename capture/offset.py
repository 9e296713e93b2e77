"""How far a stream is: a position of the log, and the table and the key up to which the snapshot is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from cdc_formats.errors import StateVersionError

from .keys import KeyRange
from .server import Place, Position
from .table import Key, TableId

VERSION = 4


class Captured(NamedTuple):
    """A table of a stream; `schema` is the fingerprint of what it is where the offset is."""

    database: str
    name: str
    schema: str

    @property
    def id(self) -> TableId:
        return TableId(self.database, self.name)


@dataclass(frozen=True)
class Offset:
    """An offset; its size depends on how many tables there are, and not on their rows.

    Attributes
    ----------
    server : str
        Whose log it is.
    position : Position
        All rows are as of here.
    snapshot : bool
        Whether there are chunks to come: of the table in work those after `frontier`, or all where that is None, and all of the tables
        after it.
    frontier : Key or None
    step : int or None
        How many values of the key a chunk of the table in work has, where they lie evenly.
    tables : tuple of Captured
        In the order of their snapshots; those that join come last.
    work : int
        The index of the table in work.
    key : str or None
        The fingerprint of the key that `frontier` is of; None where there is none, and in the first version.
    gtids : str or None
        The transactions before `position`; None in the first two versions, and where GTIDs cannot be read.
    """

    server: str
    position: Position
    snapshot: bool
    frontier: Key | None
    step: int | None
    tables: tuple[Captured, ...]
    work: int = 0
    key: str | None = None
    gtids: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark keeps it."""
        fields = asdict(self) | {"file": self.position.file, "pos": self.position.pos, "version": VERSION}
        del fields["position"]
        frontier = list(self.frontier) if self.frontier is not None else None
        return fields | {"frontier": frontier, "tables": [list(each) for each in self.tables]}

    @classmethod
    def of_json(cls, found: dict[str, Any], only: TableId) -> Offset:
        """Read it back.

        Parameters
        ----------
        only : TableId
            What the options name, which is the table of an offset of versions 1 to 3: they do not have its name.

        Raises
        ------
        StateVersionError
            When it is of a newer version.
        """
        if found["version"] > VERSION:
            raise StateVersionError(
                f"the checkpoint's offset has version {found['version']}, of a newer release: this one reads those up to {VERSION}"
            )
        frontier = tuple(found["frontier"]) if found["frontier"] is not None else None
        tables = found["tables"] if "tables" in found else [(*only, found["schema"])]
        return cls(
            server=found["server"],
            position=Position(found["file"], found["pos"]),
            snapshot=found["snapshot"],
            frontier=frontier,
            step=found["step"],
            tables=tuple(Captured(*each) for each in tables),
            work=found.get("work", 0),
            key=found.get("key"),
            gtids=found.get("gtids"),
        )

    @property
    def place(self) -> Place:
        return Place(self.server, self.position, self.gtids)

    def past(self, upto: Key | None) -> Offset:
        """Return the offset past a chunk of the table in work, which is its last where `upto` is None."""
        if upto is not None:
            return replace(self, frontier=upto)
        if self.work + 1 == len(self.tables):
            return replace(self, frontier=None, snapshot=False)
        return replace(self, frontier=None, step=None, key=None, work=self.work + 1)

    def joined(self, tables: Sequence[Captured]) -> Offset:
        """Return the offset with more tables, whose chunks are to come."""
        if not tables or self.snapshot:
            return replace(self, tables=(*self.tables, *tables))
        return replace(self, tables=(*self.tables, *tables), snapshot=True, work=len(self.tables), frontier=None, step=None, key=None)

    def done(self, index: int) -> KeyRange | None:
        """The keys of a table whose chunks are done, None for none."""
        if not self.snapshot or index < self.work:
            return KeyRange(None, None)
        return KeyRange(None, self.frontier) if index == self.work and self.frontier is not None else None
