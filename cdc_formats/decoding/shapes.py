"""The msgspec structs of messages: the fields that a format declares, and its rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, NoneType
from typing import Any, get_args

import msgspec

from cdc_formats.values.json_reader import fields_of
from cdc_formats.values.schema import ABSENT


def fields_struct(
    names: str, *, raw: str = "", around: str = "", rename: Any = None
) -> type[msgspec.Struct]:
    """Return a struct of fields of a message, which may have any values; a missing one is None.

    Parameters
    ----------
    names : str
        The fields, separated by blanks.
    raw : str
        More fields, whose values are kept as JSON text; ``null`` if the field is missing.
    around : str
        More fields of messages that are around another one; empty text if the field is missing.
    rename : mapping, str or None
        Same as msgspec's: the names of the fields in the message.
    """
    fields: list[Any] = [(name, Any, None) for name in names.split()]
    fields += [(name, msgspec.Raw, msgspec.Raw(b"null")) for name in raw.split()]
    fields += [(name, msgspec.Raw, msgspec.Raw(b"")) for name in around.split()]
    return msgspec.defstruct("Fields", fields, rename=rename, gc=False)


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
            # The type of a struct may also accept null.
            options = (*get_args(each.type), each.type)
            inner_struct: Any = next((one for one in options if one is not NoneType), None)
            of = own[""] if "" in own else narrowed(inner_struct, own)
            default = None if each.default is msgspec.NODEFAULT else each.default
            is_struct = isinstance(of, type(msgspec.Struct))
            fields.append(
                (each.name, of, msgspec.field(default_factory=of) if is_struct else default)
            )
            renamed[each.name] = each.encode_name
    return msgspec.defstruct(struct.__name__, fields, bases=(struct,), rename=renamed, gc=False)


def row_struct(
    names: Mapping[int, str],
    types: Mapping[int, Any] = MappingProxyType({}),
    missing: Any = ABSENT,
    **options: Any,
) -> Any:
    """Return the struct of a row, with a field ``c<index>`` for each column.

    Parameters
    ----------
    names : mapping
        The names in the message by the index of the column.
    types : mapping
        The types by the index of the column; others may have any value.
    missing : Any
        The value of a missing column; ``msgspec.NODEFAULT``: it is an error.
    **options
        Those of `msgspec.defstruct`.
    """
    fields: list[Any] = [(f"c{index}", types.get(index, Any), missing) for index in names]
    rename = {f"c{index}": name for index, name in names.items()}
    return msgspec.defstruct("Row", fields, rename=rename, gc=False, **options)
