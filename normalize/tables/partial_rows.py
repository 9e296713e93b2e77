"""Partial rows: changes without unchanged columns; the table keeps its values in these columns.

A change has the column `ABSENT_COLUMN` for that. It is text with a flag for each column of the
table, in their order, and the place of the record: ``010 shop[0]@8`` lacks the second of three
columns. It is NULL for a whole row, and missing if all rows are whole.

A partial row of a key that the table does not have is an error: the table does not have the values
either.

If the key of a partial row changed, the row of the earlier key has the values (`BASE_COLUMN`). A
repeated micro-batch would find another row there. A lake's rows are therefore completed once and
stored, and a database's transaction is not repeated.
"""

from __future__ import annotations

from cdc_formats.errors import PartialImageError
from normalize.decode.last_changes import partial_row

ABSENT_COLUMN = "__absent"
BASE_COLUMN = "__base"
"""The column with the earlier key of a partial row, a struct of the key's columns; NULL for a row
whose key did not change."""


def missing_row(where: str = "") -> PartialImageError:
    """Return the error for a partial row of a key that the table does not have.

    Parameters
    ----------
    where : str
        The record.
    """
    return partial_row(
        (
            "the target does not have its key, and so cannot complete it: read the source table "
            "from a snapshot"
        ),
        where,
    )


def is_absent(index: int) -> str:
    """Return the SQL condition that a change, ``s``, lacks the column with this index.

    Examples
    --------
    >>> is_absent(1)
    "s.__absent IS NOT NULL AND substring(s.__absent, 2, 1) = '1'"
    """
    return f"s.{ABSENT_COLUMN} IS NOT NULL AND substring(s.{ABSENT_COLUMN}, {index + 1}, 1) = '1'"
