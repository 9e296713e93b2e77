"""The names of all counts that queries report, and which part of a query reports them."""

from __future__ import annotations

from cdc_formats.errors import DECODE_CONDITIONS, DecodeError, PartialImageError
from cdc_formats.events import Ignored

DEAD_LETTERS = "DEAD_LETTERS"
ABSENT_COLUMNS, UNKNOWN_COLUMNS, WITHOUT_POSITION = (
    "ABSENT_COLUMNS",
    "UNKNOWN_COLUMNS",
    "WITHOUT_POSITION",
)

NATIVE_COUNTS = ("CHANGES", "SUPPRESSED_EQUAL", "DELETES_OF_UNKNOWN_KEYS")
"""Of the native engine: keys changed in a micro-batch, and those of them without a resulting row,
by reason."""
STAGE_COUNTS = (
    *NATIVE_COUNTS,
    "REDELIVERIES",
    "EXPIRED",
    PartialImageError.condition,
    DEAD_LETTERS,
)
"""Of the stage: changes read; rows equal to the stored one; deletes of keys without a row; changes
at or before the position of their key; rows expired; partial rows that could not be completed, and
those of them written as dead letters."""
WATCHED_COUNTS = (ABSENT_COLUMNS, UNKNOWN_COLUMNS, WITHOUT_POSITION)
"""Of sampled records: those that lack a declared column, and those with an undeclared one; and
changes without a position, which ``order="source"`` applies as they arrive."""
DECODE_COUNTS = (
    "RECORDS",
    *(reason.value for reason in Ignored),
    *DECODE_CONDITIONS,
    DecodeError.condition,
    DEAD_LETTERS,
    *WATCHED_COUNTS,
)
"""Of the first pass: records read; records ignored (also control events) by reason; bad records by
condition (``DECODE``: a format's own condition); bad records written as dead letters; and
`WATCHED_COUNTS`."""
ALL_COUNTS = tuple(dict.fromkeys((*DECODE_COUNTS, *STAGE_COUNTS)))
"""Of a bounded read, which decodes and folds in one pass: counts with the same name are added."""
