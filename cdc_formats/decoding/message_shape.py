"""The msgspec structs of messages: the fields that a format declares, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from types import NoneType
from typing import Any, get_args

import msgspec
from msgspec.structs import FieldInfo


@lru_cache(maxsize=256)
def fields_of(struct: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a struct; msgspec would evaluate all their types each time."""
    return msgspec.structs.fields(struct)


def message_shape(
    fields: type[msgspec.Struct], images: Mapping[str, Any], names: Mapping[str, str]
) -> Any:
    """Return the struct of a message.

    Parameters
    ----------
    fields : type
        The struct of the fields other than the rows. It may declare the rows' fields, too, which
        then get another type.
    images : mapping
        By the names of the fields with rows, their types; a field within another is
        ``outer.inner``.
    names : mapping
        The names in the message of fields that `fields` does not declare, where they differ.
    """
    declared = {field.name for field in fields_of(fields)}
    rows: list[Any] = [
        (name, of, None) for name, of in images.items() if name.partition(".")[0] not in declared
    ]
    of_fields = narrowed(
        fields, {name: of for name, of in images.items() if name.partition(".")[0] in declared}
    )
    return msgspec.defstruct("Message", rows, bases=(of_fields,), rename=dict(names), gc=False)


def narrowed(struct: type[msgspec.Struct], types: Mapping[str, Any]) -> type[msgspec.Struct]:
    """Return a struct with other types of some fields; a nested field is ``outer.inner``."""
    by_field: dict[str, dict[str, Any]] = {}
    for name, of in types.items():
        outer, _, inner = name.partition(".")
        by_field.setdefault(outer, {})[inner] = of
    fields: list[Any] = []
    renamed = {}
    for each in fields_of(struct):
        if each.name in by_field:
            own = by_field[each.name]
            nested = None if "" in own else narrowed(_struct_of(each.type), own)
            fields.append(
                (each.name, own[""], None)
                if nested is None
                else (each.name, nested, msgspec.field(default_factory=nested))
            )
            renamed[each.name] = each.encode_name
    return msgspec.defstruct(struct.__name__, fields, bases=(struct,), rename=renamed, gc=False)


def _struct_of(type: Any) -> Any:
    """Return the struct of a type that may also accept null."""
    return next(each for each in (*get_args(type), type) if each is not NoneType)
