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

from collections.abc import Mapping
from typing import Any

import msgspec

from cdc_formats.decoding.metadata import member
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import MalformedMessageError
from cdc_formats.events import Event
from cdc_formats.row_kind import RowKind
from cdc_formats.values.images import ABSENT
from cdc_formats.values.json_reader import read_object

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
        Same as `Envelope.adjust`.

    Raises
    ------
    MalformedMessageError
        When a null of the update may be an unchanged column or NULL.
    """
    source = event.message.source
    # With names only, there are no values to compare.
    if (
        event.kind is not RowKind.UPDATE_AFTER
        or rows.names_only
        or member(source, "connector") != CONNECTOR
    ):
        return
    captured = member(source, "value_capture_type")
    if captured in _WHOLE_ROWS:
        event.before = None
        return
    before = _old_values(event, text) if captured == _CHANGED_COLUMNS else None
    if before is None:
        raise MalformedMessageError(
            "an update of Spanner without its old values does not say which columns changed: "
            "create the change stream with value_capture_type='NEW_ROW' or 'OLD_AND_NEW_VALUES'",
            "$.source.value_capture_type",
        )
    after = _columns(rows, event.after)
    unchanged = {name for name, new in after.items() if new is None and before.get(name) is None}
    # Spanner never changes a primary key.
    event.before = None if keyed else _without(_columns(rows, event.before), unchanged)
    event.after = _without(after, unchanged)
    event.sparse = True


def _old_values(event: Event, text: bytes) -> Mapping[str, Any] | None:
    """Return all columns of the row before an update."""
    # A keyed reader reads only the key of a row before in JSON.
    is_json = isinstance(event.before, msgspec.Struct)
    before = read_object(text)["before"] if is_json else event.before
    return before if isinstance(before, Mapping) else None


def _columns(rows: RowConverter, image: Any) -> dict[str, Any]:
    """Return the columns that an image has."""
    if isinstance(image, Mapping):
        return dict(image)
    values = zip(rows.names, rows.raw(image), strict=True)
    return {name: value for name, value in values if value is not ABSENT}


def _without(columns: Mapping[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in columns.items() if name not in names}
