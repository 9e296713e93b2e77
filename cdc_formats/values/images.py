"""Row images: the values of a row before or after a change, and the columns missing in the message.

A column that is not in an image is `ABSENT`, which is not NULL. In Canal's and Maxwell's ``old`` it
did not change. In a compressed OGG update, in a minimal row image of MySQL, and with Debezium's
unavailable-value placeholder, the value is unknown. Absent columns of a before-image have the
after-image's values; absent columns of an after-image can only be taken from the key's stored row.
"""

from __future__ import annotations

from typing import Any, Final


class Absent:
    """The type of `ABSENT`: a class and no Enum, so that no library treats it as a value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        return "ABSENT"  # the same object after pickling


ABSENT: Final = Absent()


def complete(image: tuple[Any, ...], other: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `image` with its absent columns taken from `other`.

    Parameters
    ----------
    image, other : tuple
        Two images of one row, in the order of the columns.

    Examples
    --------
    >>> complete((1, ABSENT, None), (1, "scooter", 3.14))
    (1, 'scooter', None)
    """
    return tuple(
        [theirs if ours is ABSENT else ours for ours, theirs in zip(image, other, strict=True)]
    )


def absent_as_null(image: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return `image` with NULL for its absent columns (Flink's reading of a missing field)."""
    return tuple([None if value is ABSENT else value for value in image])
