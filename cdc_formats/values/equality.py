"""Equality of values in keys and rows, used everywhere between a message and the changelog.

It is Spark SQL's ``<=>``, and the equality of Spark's ``groupBy``, joins and ``MERGE``:

================  =======================================================
values            equal
================  =======================================================
NULL              NULL equals NULL
FLOAT, DOUBLE     NaN equals NaN, for all bit patterns; -0.0 equals 0.0
ARRAY, STRUCT     element by element
MAP               the same entries, in any order (Spark compares no maps)
VARIANT           the same JSON text, blanks and order of names included (Spark
                  compares no variants)
all others        when their canonical values (`types`) are
================  =======================================================

An equal row is suppressed, and equal keys identify the same row. Emitted rows keep the message's
values unchanged.

Flink has two equalities. Its generated equaliser compares two rows in binary form by their bytes
(NaN equals NaN, -0.0 does not equal 0.0), and any other two by Java's ``==`` (NaN does not equal
NaN, -0.0 equals 0.0). Which one applies to a row depends on the state backend.

Source: Flink's EqualiserCodeGenerator; Spark SQL's reference, "NaN Semantics", and
NormalizeFloatingNumbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import copysign, nan
from operator import itemgetter
from typing import Any

from .numbers import FLOAT_TYPES
from .schema import Column, SqlType, same

Unify = Callable[[Any], Any]


def equal(left: Any, right: Any) -> bool:
    """Return whether two canonical values, or two rows of them, are equal.

    Examples
    --------
    >>> equal((1, float("nan"), [0.0]), (1, float("nan"), [-0.0]))
    True
    """
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (left != left and right != right)
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)


def unifier(sql_type: SqlType) -> Unify | None:
    """Return the function from a value to a representative of all equal values, or None.

    None means that each value is only equal to itself.

    Representatives are equal exactly if their bytes are (`normalize.core.arrow`), so that they
    can be hashed and looked up. None and `images.ABSENT` are kept.
    """
    if sql_type.name in FLOAT_TYPES:
        return _unified_float
    inner = [unifier(field.type) for field in sql_type.fields]
    if not any(inner):
        return None
    each = [to or same for to in inner]
    if sql_type.name == "ARRAY":
        return lambda value: [each[0](item) for item in value] if type(value) is list else value
    if sql_type.name == "MAP":
        return lambda value: (
            [_unified(entry, each) for entry in value] if type(value) is list else value
        )
    return lambda value: _unified(value, each) if type(value) is list else value


def row_unifier(columns: Sequence[Column]) -> Callable[[Sequence[Any]], tuple[Any, ...]] | None:
    """Return `unifier` for a row or key of these columns; None if no column needs it."""
    each = [unifier(column.type) for column in columns]
    if not any(each):
        return None
    unifiers = [to or same for to in each]
    return lambda values: tuple(_unified(values, unifiers))


def key_getter(
    columns: Sequence[Column], indices: Sequence[int]
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """Return a function from a row to its key at these indices; equal keys give the same tuple."""
    pick = picker(indices)
    unify = row_unifier([columns[index] for index in indices])
    return pick if unify is None else lambda row: unify(pick(row))


def sorted_entries(entries: Iterable[list[Any]]) -> list[list[Any]]:
    """Return a map's entries in canonical order, independent of their order in the message."""
    listed = list(entries)
    of_text = all(type(entry[0]) is str for entry in listed)
    return sorted(listed, key=itemgetter(0) if of_text else lambda entry: _order(entry[0]))


def picker(indices: Sequence[int]) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from a row to the tuple of its values at these indices."""
    if len(indices) == 1:
        (only,) = indices
        return lambda row: (row[only],)
    return itemgetter(*indices) if indices else lambda row: ()


def _unified(values: Iterable[Any], each: Sequence[Unify]) -> list[Any]:
    return [to(value) for to, value in zip(each, values, strict=True)]


def _unified_float(value: Any) -> Any:
    if type(value) is not float:
        return value
    return nan if value != value else value + 0.0  # -0.0 + 0.0 is 0.0


def _order(value: Any) -> Any:
    # Python cannot order None or NaN, and treats -0.0 and 0.0 as equal.
    if type(value) is float:
        return (1, 1, 0.0, 0.0) if value != value else (1, 0, value, copysign(1.0, value))
    if type(value) is list:
        return (1, [_order(item) for item in value])
    return (0,) if value is None else (1, value)
