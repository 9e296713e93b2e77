"""Make changes: the last of the four steps that decode many records together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from cdc_formats.events import RowKind
from normalize.core.arrow import hashes, pack
from normalize.core.changes import ChangeBatch, ChangeColumns
from normalize.core.fold_columns import Bools, Ints
from normalize.core.records import Records
from normalize.decode.plan import DecodePlan

from .columns import ConvertedRows
from .rows import Needs

_UPDATE_AFTER = RowKind.UPDATE_AFTER


class ChangeMaker:
    """Makes the changes of converted rows.

    Parameters
    ----------
    plan : DecodePlan
    needs : Needs
    """

    def __init__(self, plan: DecodePlan, needs: Needs) -> None:
        self.needs, self.shape = needs, plan.shape
        self.drop_update_before, self.ignore_deletes = plan.drop_update_before, plan.ignore_deletes
        dropped = (
            (RowKind.DELETE, plan.ignore_deletes),
            (RowKind.UPDATE_BEFORE, plan.drop_update_before),
        )
        self.dropped = [kind for kind, drops in dropped if drops]

    def make(
        self, records: Records, converted: ConvertedRows, refused: set[int]
    ) -> ChangeColumns | None:
        """Return the changes of the rows of records not in `refused`; None if there are none."""
        places = np.array(converted.rows.places, np.int64)
        kept = np.ones(len(places), bool)
        if refused:
            kept &= ~np.isin(places, list(refused))
        for kind in self.dropped:
            kept &= np.array([each is not kind for each in converted.rows.kinds], bool)
        # An update with two changes is there twice.
        of = np.flatnonzero(kept)
        of = np.repeat(of, 1 + self._twice(converted)[of])
        if not len(of):
            return None
        first = np.append(of[1:] == of[:-1], False)
        make = self._keyed if self.needs.keyed else self._changelog
        return make(records, converted, of, first, places)

    def _twice(self, converted: ConvertedRows) -> Bools:
        """Whether each row has two changes."""
        twice = np.zeros(len(converted.removed), bool)
        if self.needs.pairs and not self.drop_update_before:
            twice |= np.array([kind is _UPDATE_AFTER for kind in converted.rows.kinds], bool)
        if self.needs.pairs or self.needs.keyed:
            # The first change of an update that changed the key removes the old key's row.
            twice[list(converted.moved)] = not self.ignore_deletes
        return twice

    def _keyed(
        self, records: Records, converted: ConvertedRows, of: Ints, first: Bools, places: Ints
    ) -> ChangeColumns:
        """Return each key's newest row or delete; of two changes, the first deletes the old key."""
        deleted = first | converted.removed[of]
        keys, moved = converted.keys, converted.moved
        packed = [
            pack(moved[row] if old else keys[row])
            for row, old in zip(of.tolist(), first.tolist(), strict=True)
        ]
        columns = [
            pa.array(packed, pa.binary()),
            pa.array(records.stamps[places[of]]),
            pa.array(deleted),
        ]
        columns += [*_taken(converted.arrays, of, first), *_taken(converted.metadata, of)]
        if self.shape.offsets:
            columns.append(pa.array(records.offsets[places[of]]))
        batch = pa.RecordBatch.from_arrays(columns, schema=self.shape.schema)
        source, of_rows = records.source, converted.positions
        positions = [(source, of_rows[row]) for row in of] if of_rows else []
        return ChangeColumns(ChangeBatch(batch, [], positions), places[of], hashes(packed))

    def _changelog(
        self, records: Records, converted: ConvertedRows, of: Ints, first: Bools, places: Ints
    ) -> ChangeColumns:
        """Return the rows of the topic's changelog; the first change of two is the row before."""
        kinds = np.array(converted.rows.kinds, np.int8)[of]
        kinds[first] = RowKind.DELETE if self.drop_update_before else RowKind.UPDATE_BEFORE
        # The columns of the rows, followed by those of the rows before updates.
        both = map(pa.concat_arrays, zip(converted.arrays, converted.befores, strict=True))
        rows = _taken([*both], np.where(first, converted.before[of], of))
        arrays = [pa.array(kinds), *rows, *_taken(converted.metadata, of)]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.shape.changelog_schema)
        return ChangeColumns(ChangeBatch(batch, [], []), places[of], hashes([]))


def _taken(
    arrays: Sequence[pa.Array], places: Ints, missing: Bools | None = None
) -> list[pa.Array]:
    """Return the values at places, null where they are missing."""
    if missing is not None and not missing.any():
        missing = None
    if (
        missing is None
        and arrays
        and len(places) == len(arrays[0])
        and np.array_equal(places, np.arange(len(places)))
    ):
        return list(arrays)
    chosen = pa.array(places, pa.int64(), mask=missing)
    return [array.take(chosen) for array in arrays]
