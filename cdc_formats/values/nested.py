"""ARRAY, MAP and STRUCT: reading and writing.

The canonical value is a list; a MAP's has ``[key, value]``, sorted by key.

Their parts have types of their own; the caller passes the converters of the parts, or the function
that returns them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from cdc_formats.errors import SchemaError

from .equality import sorted_entries
from .schema import Column, Converter, Handling, SqlType, null_or, refuse, same
from .text import TEXT_TYPES

NESTED_TYPES = ("ARRAY", "MAP", "STRUCT")


def nested_canonical(sql_type: SqlType, inner: Sequence[Any]) -> Any:
    """Return the msgspec type of canonical values; `inner` are those of the parts."""
    if sql_type.name == "ARRAY":
        return list[inner[0] | None]  # type: ignore[valid-type]
    if sql_type.name == "MAP":
        return list[tuple[inner[0], inner[1] | None]]  # type: ignore[valid-type]
    return tuple[tuple(of | None for of in inner)]  # type: ignore[misc]


def nested_to_python(sql_type: SqlType, inner: Sequence[Converter]) -> Converter:
    """Return the function from a canonical value to a ``list`` or ``dict``.

    `inner` are the functions of the parts.
    """
    names = [field.name for field in sql_type.fields]
    by_name: dict[str, Converter] = {
        "ARRAY": lambda value: [inner[0](item) for item in value],
        "MAP": lambda value: {inner[0](key): inner[1](item) for key, item in value},
        "STRUCT": lambda value: {
            name: to(item) for name, to, item in zip(names, inner, value, strict=True)
        },
    }
    return by_name[sql_type.name]


# --------------------------------------------------------------------------------------------------
# reading


def part_handling(sql_type: SqlType, part: Column, handling: Handling) -> Handling:
    """Return the handling of a part of a nested column."""
    # A schema block's handling of an array is that of its elements.
    return (
        replace(handling, placeholder=None)
        if sql_type.name == "ARRAY"
        else handling.of_part(f"{sql_type.name}.{part.name}")
    )


def nested_converter(sql_type: SqlType, of: Callable[[Column], Converter]) -> Converter:
    """Return an ARRAY, MAP or STRUCT converter; `of` gives a part's, and null becomes None.

    A MAP is an object, or an array of pairs (Connect's JsonConverter, if the keys are no strings).
    """
    inner = [null_or(of(column)) for column in sql_type.fields]
    if sql_type.name == "ARRAY":
        (element,) = inner
        return _of_kind(sql_type, list, lambda value: [element(item) for item in value])
    if sql_type.name == "MAP":
        key, item = inner
        by_text = sql_type.fields[0].type.name in TEXT_TYPES

        def entries(value: Any) -> Any:
            pairs = _pairs(value, by_text=by_text)
            if pairs is None:
                raise refuse(sql_type, value)
            return sorted_entries([key(name), item(entry)] for name, entry in pairs)

        return entries
    fields = [(column.name, to) for column, to in zip(sql_type.fields, inner, strict=True)]
    return _of_kind(sql_type, dict, lambda value: [to(value.get(name)) for name, to in fields])


def _pairs(value: Any, *, by_text: bool) -> Iterable[Any] | None:
    """Return the entries of a map in a message, None if it is none."""
    if type(value) is dict:
        return value.items()
    if by_text or type(value) is not list:
        return None
    are_pairs = all(type(each) is list and len(each) == 2 and each[0] is not None for each in value)
    return value if are_pairs else None


def _of_kind(sql_type: SqlType, kind: type, to: Converter) -> Converter:
    """Return `to`, for values of a Python type; others are refused."""

    def convert(value: Any) -> Any:
        if type(value) is kind:
            return to(value)
        raise refuse(sql_type, value)

    return convert


# --------------------------------------------------------------------------------------------------
# writing


def nested_writer(sql_type: SqlType, of: Callable[[Column], Converter | None]) -> Converter:
    """Return the function from a canonical value to a JSON value; `of` returns a part's writer.

    Raises
    ------
    SchemaError
        When the type cannot be written: a MAP's key is not a string, or a STRUCT has two fields of
        one name.
    """
    return {"ARRAY": _array_writer, "MAP": _map_writer, "STRUCT": _struct_writer}[sql_type.name](
        sql_type, of
    )


def part_writer(write: Converter | None) -> Converter:
    """Return the writer of a part, which may be None, from one that is None for `same`."""
    return same if write is None else null_or(write)


def _array_writer(sql_type: SqlType, of: Callable[[Column], Converter | None]) -> Converter:
    item = part_writer(of(sql_type.fields[0]))
    return lambda value: [item(element) for element in value]


def _map_writer(sql_type: SqlType, of: Callable[[Column], Converter | None]) -> Converter:
    key, entry = sql_type.fields
    if key.type.name not in TEXT_TYPES:
        raise SchemaError(
            f"{sql_type} cannot be written as JSON: the key of a map must be a STRING"
        )
    item = part_writer(of(entry))

    def write(value: list[Any]) -> dict[str, Any]:
        written = {name: item(of) for name, of in value}
        if None in written or len(written) != len(value):
            raise refuse(sql_type, value, "a key is NULL or occurs twice")
        return written

    return write


def _struct_writer(sql_type: SqlType, of: Callable[[Column], Converter | None]) -> Converter:
    names = [field.name for field in sql_type.fields]
    if len(set(names)) != len(names):
        raise SchemaError(
            f"{sql_type} cannot be written as JSON: two of its fields have the same name"
        )
    inner = [part_writer(of(field)) for field in sql_type.fields]
    return lambda value: {
        name: write(item) for name, write, item in zip(names, inner, value, strict=True)
    }
