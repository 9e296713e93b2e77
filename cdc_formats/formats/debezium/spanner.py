"""Updates of Debezium's Spanner connector, which have only the columns that changed.

A change stream with ``value_capture_type='OLD_AND_NEW_VALUES'``, the default, has the old and the
new value of each column that an update changed. The connector writes null for all others. A column
that is null in both images is therefore `ABSENT`: its value is in the key's stored row.

========================  ==========================================================================
value_capture_type        an update's images
========================  ==========================================================================
OLD_AND_NEW_VALUES        both have the changed columns
NEW_ROW                   ``after`` is whole; ``before`` has the key, and is not used
NEW_ROW_AND_OLD_VALUES    ``after`` is whole; ``before`` has the changed columns, and is not used
NEW_VALUES                refused: a null in ``after`` is NULL or unchanged
========================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cdc_formats.decoding.images import ABSENT
from cdc_formats.decoding.json_reader import read_object
from cdc_formats.decoding.metadata import member
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import MalformedMessageError
from cdc_formats.events import Event
from cdc_formats.row_kind import RowKind

CONNECTOR = "spanner"
_CHANGED_COLUMNS = "OLD_AND_NEW_VALUES"
_WHOLE_ROWS = ("NEW_ROW", "NEW_ROW_AND_OLD_VALUES")


def mark_unchanged(rows: RowConverter, event: Event, text: bytes, index: int, keyed: bool) -> None:
    """Remove the columns that an update of Spanner did not change from its images.

    Parameters
    ----------
    rows : RowConverter
        The declared columns.
    event : Event
        An event of any connector; only Spanner's updates are changed.
    text : bytes
        The text of the message, if it is JSON.
    index, keyed
        As of `Envelope.adjust`.

    Raises
    ------
    MalformedMessageError
        When a null of the update may be an unchanged column or NULL.
    """
    source = event.message.source
    # Names have no values to compare.
    of_spanner = event.kind is RowKind.UPDATE_AFTER and member(source, "connector") == CONNECTOR
    if not of_spanner or rows.names_only:
        return
    captured = member(source, "value_capture_type")
    if captured in _WHOLE_ROWS:
        event.before = None
        return
    # A keyed reader reads only the key of a row before in JSON.
    before = event.before
    if isinstance(before, msgspec.Struct):
        before = read_object(text)["before"]
    if captured != _CHANGED_COLUMNS or not isinstance(before, Mapping):
        raise MalformedMessageError(
            "an update of Spanner without its old values does not say which columns changed: "
            "create the change stream with value_capture_type='NEW_ROW' or 'OLD_AND_NEW_VALUES'",
            "$.source.value_capture_type",
        )
    after = dict(_items(rows, event.after))
    changed = {name for name in {*after, *before} if (after.get(name), before.get(name)) != _NULLS}
    event.after = {name: value for name, value in after.items() if name in changed}
    # Spanner never changes a primary key.
    old = () if keyed else _items(rows, event.before)
    event.before = {name: value for name, value in old if name in changed} or None
    event.sparse = True


_NULLS = (None, None)


def _items(rows: RowConverter, image: Any) -> Iterable[tuple[str, Any]]:
    """Return the columns of an image that it has."""
    if isinstance(image, Mapping):
        return image.items()
    values = zip(rows.names, rows.raw(image), strict=True)
    return [(name, value) for name, value in values if value is not ABSENT]
