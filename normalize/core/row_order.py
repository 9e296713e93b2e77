"""The order of records in a DataFrame, and the error when the order of a key's records is unknown.

===========  =====================================================  ================================
order        the records of a partition of the DataFrame            the order of a key's records
===========  =====================================================  ================================
``log``      are those of one Kafka partition, in order             by offset; partitions are merged
                                                                    by timestamp
``offset``   have ``partition`` and ``offset``, in any order        the same
``row``      are in order (a stream), or in any order (bounded)     a stream: by row; bounded, and
                                                                    between partitions: by timestamp
===========  =====================================================  ================================

The order is unknown, and an error, if

- with ``offset``, there are no timestamps, and two Kafka partitions have a key;
- with ``row``, two partitions of the DataFrame (in a bounded one, two records) have a key with the
  same timestamp, or without one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.errors import ChangelogError

RowOrder = Literal["log", "offset", "row"]


class RowOrderError(ChangelogError, ValueError):
    """The order of a key's records is unknown."""

    condition = "ROW_ORDER"


_UNKNOWN = {
    "offset": (
        "two records of one key are in two Kafka partitions, and their order is unknown: add the "
        "column timestamp to the DataFrame"
    ),
    "row": "two records of one key have the same timestamp, or none, and their order is unknown: add "
    "the columns partition and offset to the DataFrame",
}


def unknown_order(row_order: RowOrder) -> RowOrderError:
    """Return the error for records of one key whose order is unknown."""
    return RowOrderError(_UNKNOWN[row_order])


def require_known_order(
    keys: Sequence[pa.Array], stamps: Sequence[Any], row_order: RowOrder
) -> None:
    """Raise an error if two partitions have a key with the same timestamp.

    If there is a timestamp of Kafka, it decides.

    Parameters
    ----------
    keys, stamps : sequence of arrays
        The packed keys and the timestamps of the changes, one array for each partition of Kafka or
        of the DataFrame.
    row_order : {"log", "offset", "row"}

    Raises
    ------
    RowOrderError
    """
    if (
        len(keys) < 2
        or row_order == "log"
        or (row_order == "offset" and any(each.any() for each in stamps))
    ):
        return
    partitions = np.repeat(np.arange(len(keys)), [len(each) for each in keys])
    changes = pa.table(
        {"key": pa.chunked_array(keys), "stamp": np.concatenate(stamps), "partition": partitions}
    )
    shared = changes.group_by(["key", "stamp"]).aggregate([("partition", "count_distinct")])
    if (pc.max(shared.column("partition_count_distinct")).as_py() or 0) > 1:
        raise unknown_order(row_order)
