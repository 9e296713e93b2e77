"""Check that the metadata values of formats are canonical (`cdc_formats.values.types`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from cdc_formats.values.schema import Column
from cdc_formats.values.types import canonical_type
from normalize.core.arrow import pack


def canonical_check(columns: Sequence[Column]) -> Callable[[Sequence[Any]], Any]:
    """Return the function that raises for values which are not canonical for their columns.

    Parameters
    ----------
    columns : sequence of Column

    Returns
    -------
    callable
        Takes the values in the order of the columns; raises an exception with the path of a wrong
        value.

    Examples
    --------
    >>> from cdc_formats import columns
    >>> canonical_check(columns("user STRING, at TIMESTAMP"))(("me", "noon"))
    Traceback (most recent call last):
    msgspec.ValidationError: Expected `int | null`, got `str` - at `$[1]`
    """
    decode = msgspec.msgpack.Decoder(
        tuple[tuple(canonical_type(column.type) | None for column in columns)]  # type: ignore[misc]
    ).decode
    # Packing raises for lone surrogates and for objects of other classes.
    return lambda values: decode(pack(tuple(values)))


_FAILURES = (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError)


def uncanonical_finder(column: Column) -> Callable[[Sequence[Any]], list[int]]:
    """Return the function from a column's values to the indexes of those not canonical.

    Examples
    --------
    >>> from cdc_formats import columns
    >>> uncanonical_finder(columns("at TIMESTAMP")[0])([1, "noon", None])
    [1]
    """
    check = canonical_check([column])
    decode = msgspec.msgpack.Decoder(list[canonical_type(column.type) | None]).decode  # type: ignore[misc]

    def is_canonical(value: Any) -> bool:
        try:
            check([value])
        except _FAILURES:
            return False
        return True

    def find(values: Sequence[Any]) -> list[int]:
        try:
            decode(pack(tuple(values)))
        except _FAILURES:
            return [index for index, value in enumerate(values) if not is_canonical(value)]
        return []

    return find
