"""Select rows: the second of the four steps that decode many records together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, compress
from operator import attrgetter
from typing import Any, NamedTuple

from cdc_formats.decoding.envelope import Envelope
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.events import Ignored, RowKind
from cdc_formats.values.json_reader import BatchReader, batch_reader
from normalize.core.records import Records
from normalize.decode.plan import DecodePlan

from .messages import Messages, TableMatcher

_UPDATE_BEFORE, _UPDATE_AFTER, _DELETE = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.DELETE


class Needs(NamedTuple):
    """What a plan needs of the rows.

    Attributes
    ----------
    keyed : bool
        Whether the result is the newest row or the delete of each key; otherwise it is the topic's
        changelog.
    pairs : bool
        Whether an update has a ``-U`` and a ``+U``.
    key : bool
        Whether the key of each row is read.
    """

    keyed: bool
    pairs: bool
    key: bool

    @classmethod
    def of(cls, plan: DecodePlan, envelope: Envelope, *, keyed: bool) -> Needs:
        """Return what a plan needs."""
        # Where each ``-U`` is a message of its own, an update needs none.
        together = (
            plan.format.changelog_mode.contains(_UPDATE_BEFORE)
            and _UPDATE_BEFORE not in envelope.kinds.values()
        )
        key = keyed or plan.by_key or plan.ignore_deletes or envelope.keys.shape is not None
        return cls(keyed, pairs=together and not keyed, key=key)


class Rows(NamedTuple):
    """Rows of messages, as parallel lists.

    Attributes
    ----------
    places : list of int
        The index of the record.
    messages : list
    kinds : list of RowKind
    images : list
        The row after the change; of a delete the deleted row.
    befores : list
        The row before an update, or None.
    keys : sequence
        The record's key; empty if it is not read.
    """

    places: list[int]
    messages: list[Any]
    kinds: list[Any]
    images: list[Any]
    befores: list[Any]
    keys: Sequence[Any] = ()

    def where(self, kept: Sequence[Any]) -> Rows:
        """Return the rows whose element of `kept` is true."""
        return Rows(*(list(compress(each, kept)) for each in self))

    def without(self, refused: set[int]) -> Rows:
        """Return the rows of other records than `refused`."""
        return self.where([place not in refused for place in self.places]) if refused else self

    def places_where(self, flags: Iterable[Any]) -> set[int]:
        """Return the records of the rows whose flag is true."""
        return set(compress(self.places, flags))


class RowSelector:
    """Selects the rows of messages.

    Parameters
    ----------
    plan : DecodePlan
    envelope : Envelope
    rows : RowConverter
    needs : Needs
    matcher : TableMatcher or None
    """

    def __init__(
        self,
        plan: DecodePlan,
        envelope: Envelope,
        rows: RowConverter,
        needs: Needs,
        matcher: TableMatcher | None,
    ) -> None:
        self.envelope, self.needs, self.matcher = envelope, needs, matcher
        self.handled_reasons = plan.handled_reasons
        self.after, self.before = (
            attrgetter(field) if field else None for field in (envelope.after, envelope.before)
        )
        self.needs_before = envelope.columnar.needs_before or needs.pairs
        read_keys = envelope.keys.reader or partial(batch_reader, spelled=rows.spelled)
        self.read_key: BatchReader | None = (
            None if envelope.keys.shape is None else read_keys(envelope.keys.shape)
        )

    def select(self, records: Records, part: Messages) -> tuple[Rows, Counter[str], set[int]]:
        """Return rows, the number of ignored records by reason, and the records to decode alone."""
        rows = self._rows(records, part)
        unknown = (
            rows.places_where(kind is None for kind in rows.kinds)
            if None in rows.kinds
            else set[int]()
        )
        if part.encoding.read_befores is not None:
            rows, unread = self._with_befores(part.encoding.read_befores, records, rows)
            unknown |= unread
        rows, excluded, undecided = self._of_this_table(rows.without(unknown))
        rows, without_rows, handled = self._with_rows(rows)
        rows, uneven = self._exploded(rows)
        rows, incomplete = self._complete(rows)
        if self.needs.keyed and _UPDATE_BEFORE in rows.kinds:
            rows = rows.where([kind is not _UPDATE_BEFORE for kind in rows.kinds])
        refused = unknown | undecided | handled | uneven | incomplete
        if self.read_key is not None:
            rows, keyless = self._with_keys(self.read_key, records, rows, part.deletes)
            refused |= keyless
        return rows, excluded + without_rows, refused

    def _rows(self, records: Records, part: Messages) -> Rows:
        messages = part.messages
        kinds = self.envelope.kinds_of(messages)
        images = messages if self.after is None else list(map(self.after, messages))
        befores = (
            [None] * len(messages) if self.before is None else list(map(self.before, messages))
        )
        if self.envelope.columnar.message is not None:
            texts = records.values
            messages = [
                self.envelope.columnar.message(message, texts[place])
                for message, place in zip(messages, part.places, strict=True)
            ]
        return Rows(part.places, messages, kinds, images, befores)

    def _with_befores(
        self, read: BatchReader, records: Records, rows: Rows
    ) -> tuple[Rows, set[int]]:
        """Return rows with those before updates, and the records without either.

        The columns of the rows before are next to those of the rows after.
        """
        updates = [row for row, kind in enumerate(rows.kinds) if kind is _UPDATE_AFTER]
        images, failed = read([records.values[rows.places[row]] for row in updates])
        unread = {updates[index] for index in failed}
        befores: list[Any] = [None] * len(rows.places)
        for row, image in zip([row for row in updates if row not in unread], images, strict=True):
            befores[row] = image if self.after is None else self.after(image)
        return rows._replace(befores=befores), {rows.places[row] for row in unread}

    def _of_this_table(self, rows: Rows) -> tuple[Rows, Counter[str], set[int]]:
        """Return the rows of messages of the tables that the format's filter includes."""
        if self.matcher is None:
            return rows, Counter(), set()
        matches = self.matcher.matches(rows.messages)
        ignored = Counter({Ignored.OTHER_TABLE.value: matches.count(False)})
        undecided = rows.places_where(match is None for match in matches)
        return (rows if all(matches) else rows.where(matches)), ignored, undecided

    def _with_rows(self, rows: Rows) -> tuple[Rows, Counter[str], set[int]]:
        """Return the messages that have rows; count the others by reason, or refuse them.

        It refuses those whose reason is in `handled_reasons`: they are not only counted.
        """
        if not any(type(kind) is Ignored for kind in set(rows.kinds)):
            return rows, Counter(), set()
        handled = rows.places_where(kind in self.handled_reasons for kind in rows.kinds)
        ignored = Counter(
            kind.value
            for kind in rows.kinds
            if type(kind) is Ignored and kind not in self.handled_reasons
        )
        return rows.where([type(kind) is not Ignored for kind in rows.kinds]), ignored, handled

    def _exploded(self, rows: Rows) -> tuple[Rows, set[int]]:
        """Return a row for each element of the messages' arrays."""
        if self.envelope.images.many == "one":
            return rows, set()
        # Most messages have one row: this takes a sixth of the decoder's time less than the general
        # case below.
        if all(map(_is_single, rows.kinds, rows.images, rows.befores)):
            befores = [old[0] if old else None for old in rows.befores]
            return rows._replace(
                images=[images[0] for images in rows.images], befores=befores
            ), set()
        return self._of_arrays(rows)

    def _of_arrays(self, rows: Rows) -> tuple[Rows, set[int]]:
        """Return a row for each element of arrays of any length."""
        uneven, exploded = set(), []
        one = self.envelope.images.many == "array of one"
        for place, message, kind, images, old in zip(*rows[:5], strict=True):
            befores = old if kind is _UPDATE_AFTER else [None] * len(images or ())
            if (
                images is None
                or befores is None
                or len(befores) != len(images)
                or (one and len(images) != 1)
            ):
                uneven.add(place)
            else:
                exploded += [
                    (place, message, kind, image, before)
                    for image, before in zip(images, befores, strict=True)
                ]
        return Rows(*map(list, zip(*exploded, strict=True))) if exploded else Rows(
            [], [], [], [], []
        ), uneven

    def _complete(self, rows: Rows) -> tuple[Rows, set[int]]:
        """Return the rows of the messages that have all images which the plan needs."""
        if self.envelope.before and self.envelope.deleted == self.envelope.before:
            chosen = zip(rows.kinds, rows.images, rows.befores, strict=True)
            rows = rows._replace(
                images=[before if kind is _DELETE else image for kind, image, before in chosen]
            )
        has_key = self.envelope.keys.of_rows
        incomplete = rows.places_where(
            image is None and not (has_key and kind is _DELETE)
            for image, kind in zip(rows.images, rows.kinds, strict=True)
        )
        if self.needs_before:
            updates = zip(rows.kinds, rows.befores, strict=True)
            incomplete |= rows.places_where(
                [before is None and kind is _UPDATE_AFTER for kind, before in updates]
            )
        return rows.without(incomplete), incomplete

    def _with_keys(
        self, read: BatchReader, records: Records, rows: Rows, deletes: Sequence[int]
    ) -> tuple[Rows, set[int]]:
        """Add deletes of records without a row; read the keys of rows if rows may include them."""
        places = [*(rows.places if self.envelope.keys.of_rows else []), *deletes]
        read_keys, failed = read([records.keys[place] for place in places])
        refused = {places[index] for index in failed}
        keys = dict(
            zip([place for place in places if place not in refused], read_keys, strict=True)
        )
        rows, deleted = rows.without(refused), [place for place in deletes if place not in refused]
        nothing = self.envelope.strict_fields()
        if self.envelope.columnar.message is not None:
            nothing = self.envelope.columnar.message(nothing, None)
        images, count = [keys[place] for place in deleted], len(deleted)
        added = Rows(deleted, [nothing] * count, [_DELETE] * count, images, [None] * count)
        rows = (
            Rows(*(list(chain(*each)) for each in zip(rows, added, strict=True)))
            if deleted
            else rows
        )
        if not self.envelope.keys.of_rows:
            return rows, refused
        of_rows = [keys[place] for place in rows.places]
        pairs = zip(rows.kinds, rows.images, of_rows, strict=True)
        images = [key if kind is _DELETE else image for kind, image, key in pairs]
        return rows._replace(images=images, keys=of_rows), refused


def _is_single(kind: RowKind, images: list[Any] | None, befores: list[Any] | None) -> bool:
    """Whether a message's arrays have one row."""
    return (
        images is not None
        and len(images) == 1
        and (kind is not _UPDATE_AFTER or (befores is not None and len(befores) == 1))
    )
