"""How far a stream is: a position of the log, and the key up to which the snapshot is done."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from .keys import KeyRange
from .server import Place, Position
from .table import Key

VERSION = 3


@dataclass(frozen=True)
class Offset:
    """An offset; its size does not depend on the table's.

    Attributes
    ----------
    server : str
        Whose log it is.
    position : Position
        All rows are as of here.
    snapshot : bool
        Whether there are chunks to come: those after `frontier`, or all where that is None.
    frontier : Key or None
    step : int or None
        How many values of the key a chunk has, where they lie evenly.
    schema : str
        The fingerprint of the table that rows of the log are of here.
    key : str or None
        The fingerprint of the key that `frontier` is of; None in the first version.
    gtids : str or None
        The transactions before `position`; None in the first two versions, and where GTIDs cannot be read.
    """

    server: str
    position: Position
    snapshot: bool
    frontier: Key | None
    step: int | None
    schema: str
    key: str | None = None
    gtids: str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as Spark keeps it."""
        fields = asdict(self) | {"file": self.position.file, "pos": self.position.pos, "version": VERSION}
        del fields["position"]
        return fields | {"frontier": list(self.frontier) if self.frontier is not None else None}

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> Offset:
        """Read it back."""
        frontier = tuple(found["frontier"]) if found["frontier"] is not None else None
        position = Position(found["file"], found["pos"])
        key, gtids = found.get("key"), found.get("gtids")
        return cls(found["server"], position, found["snapshot"], frontier, found["step"], found["schema"], key, gtids)

    @property
    def place(self) -> Place:
        return Place(self.server, self.position, self.gtids)

    @property
    def done(self) -> KeyRange | None:
        """The keys whose chunks are done, None for none."""
        if not self.snapshot:
            return KeyRange(None, None)
        return None if self.frontier is None else KeyRange(None, self.frontier)
