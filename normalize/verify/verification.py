"""The result of a comparison: `Verification`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc_formats.errors import printable
from cdc_formats.values.schema import backquoted

Kind = Literal["missing", "extra", "different", "duplicate"]
KINDS: tuple[Kind, ...] = ("missing", "extra", "different", "duplicate")


@dataclass(frozen=True)
class Difference:
    """A key whose rows differ.

    Attributes
    ----------
    kind : str
        ``missing``: only the source has the key. ``extra``: only the target has it. ``duplicate``:
        the target has several rows of it. ``different``: both have one row, and some columns
        differ.
    key : tuple of (str, str or None)
        Names and values of the key columns, as text. Binary values are hexadecimal digits.
    columns : tuple of str
        The columns that differ, if the kind is ``different``.
    """

    kind: Kind
    key: tuple[tuple[str, str | None], ...]
    columns: tuple[str, ...] = ()

    def __str__(self) -> str:
        key = ", ".join(
            f"{backquoted(printable(name))} = {'NULL' if value is None else printable(value)}"
            for name, value in self.key
        )
        columns = (
            f": {', '.join(backquoted(printable(name)) for name in self.columns)}"
            if self.columns
            else ""
        )
        return f"{self.kind}  {key}{columns}"


@dataclass(frozen=True)
class Verification:
    """What a comparison of a target table with its source table found.

    Attributes
    ----------
    source, target : str
        The names of the tables.
    position : str
        The position in the source's log at which the whole source table was read. For PostgreSQL it
        is ``FIRST to LAST`` if transactions committed or ran at the start of the snapshot, and
        ``about LAST`` for a standby.
    source_rows, target_rows : int
        The rows that were read first. For a source that is being written they can differ although
        the tables are equal.
    columns : tuple of str
        The columns that were compared, with the source's names.
    not_compared : tuple of str
        The excluded columns, and those that only the target has.
    counts : mapping of str to int
        The number of keys of each kind of `Difference`.
    unsettled : int
        Keys that differed, but whose source rows changed too often, so that they may be equal.
    differences : tuple of Difference
        The differences, up to the limit of the call.
    rechecked : int
        The keys that differed in the first comparison and were compared again.
    rechecked_position : str or None
        The position at which they were compared last.
    repaired : int
        The keys that differed and were merged into the target, or that a signal named.
    is_complete : bool
        False if more keys differed than are compared again. The counts of differences are then the
        least possible ones.
    seconds : float
    """

    source: str
    target: str
    position: str
    source_rows: int
    target_rows: int
    columns: tuple[str, ...]
    not_compared: tuple[str, ...]
    counts: Mapping[Kind, int]
    unsettled: int
    differences: tuple[Difference, ...]
    rechecked: int
    rechecked_position: str | None
    repaired: int
    is_complete: bool
    seconds: float

    @property
    def equal(self) -> bool | None:
        """True if equal, False if any key differs, None if unknown because keys are unsettled."""
        if any(self.counts.values()):
            return False
        return None if self.unsettled or not self.is_complete else True

    def __bool__(self) -> bool:
        """Return whether the tables are known to be equal, for ``assert verify_table(...)``."""
        return self.equal is True

    def __str__(self) -> str:
        result = {True: "equal", False: "NOT equal", None: "not known"}[self.equal]
        lines = [f"{result}: {self.target} and {self.source} at {self.position}"]
        lines += [f"  {name:<15}  {text}" for name, text in self._summary().items() if text]
        lines += [f"    {difference}" for difference in self.differences]
        differing = sum(self.counts.values())
        if differing > len(self.differences) > 0:
            lines.append(f"    and {differing - len(self.differences):,} more")
        lines.append(f"  took             {self.seconds:.1f} s")
        return "\n".join(lines)

    def _summary(self) -> dict[str, str]:
        """Return the lines of the text; empty ones are not shown."""
        at = f", last at {self.rechecked_position}" if self.rechecked_position else ""
        least = "" if self.is_complete else "at least "
        incomplete = (
            "too many keys differed at first: wait until the target has caught up, and verify again"
        )
        return {
            "rows": f"{self.source_rows:,} in the source, {self.target_rows:,} in the target",
            "columns": f"{len(self.columns)} compared",
            "not compared": ", ".join(backquoted(printable(name)) for name in self.not_compared),
            "compared again": _keys(self.rechecked, f", because they differed at first{at}"),
            "repaired": _keys(self.repaired),
            "differences": ", ".join(
                f"{least}{count:,} {kind}" for kind, count in self.counts.items() if count
            ),
            "unsettled": _keys(
                self.unsettled,
                " differ, and their source rows keep changing: pause the writes, or wait longer",
            ),
            "incomplete": "" if self.is_complete or self.equal is False else incomplete,
        }


def _keys(count: int, remark: str = "") -> str:
    return f"{count:,} keys{remark}" if count else ""
