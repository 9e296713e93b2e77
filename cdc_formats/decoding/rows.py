"""Conversion of a message's row image to a row of a table, with its masks, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, repeat
from types import MappingProxyType
from typing import Any

import msgspec

from cdc_formats.errors import MissingFieldError, SchemaError, TypeConversionError
from cdc_formats.values.equality import unifier
from cdc_formats.values.extended_json import document_converter
from cdc_formats.values.json_reader import json_reader
from cdc_formats.values.masks import DROP, HMAC, REDACT, Masks
from cdc_formats.values.numbers import INTEGER_BITS
from cdc_formats.values.schema import (
    ABSENT,
    Column,
    ConversionError,
    Converter,
    Handling,
    SqlType,
    complete,
    leaves,
    quote,
    same,
)
from cdc_formats.values.text import TEXT_TYPES
from cdc_formats.values.times import EPOCH_TYPES, epoch_unit
from cdc_formats.values.types import TYPES, canonical_type, converter, placeholder_forms

# --------------------------------------------------------------------------------------------------
# Masked columns: their types in the result, and their values.
#
# ======  ==============  ==========================================================================
# mask    type            value
# ======  ==============  ==========================================================================
# hmac    STRING          the HMAC-SHA-256 of the column's canonical text in UTF-8, as 64 hexadecimal
#                         digits in lower case. Equal values have equal masks.
# redact  STRING          ``***`` for a CHAR, VARCHAR or STRING
# redact  as declared     NULL for other types; the column is nullable
# drop    none            the column is not in the result
# ======  ==============  ==========================================================================
#
# NULL stays NULL, and a column that a message leaves out stays left out. The canonical text is that
# of the declared type, however the producer encodes the value: ``true``, ``42``, the digits of a
# DECIMAL with its scale (``9.50``), ``2026-11-24``, ``2026-11-24 12:30:00.5`` (a TIMESTAMP is in UTC,
# and ends in ``Z``), the text itself. Of a BINARY, it is the bytes. -0.0 is 0.0.


def check_masks(masks: Masks, columns: Sequence[Column], unique_key: Sequence[str]) -> None:
    """Raise an error for masks that the columns cannot have.

    Parameters
    ----------
    masks : Masks
    columns : sequence of Column
        The declared columns.
    unique_key : sequence of str

    Raises
    ------
    SchemaError
    """
    types = {column.name: column.type for column in columns}
    if unused := masks.unused({"": types}):
        raise SchemaError(
            f"mask has {unused[0]!r}, which is not one of the columns: {', '.join(types)}"
        )
    for name, kind in masks.of_columns(types).pairs:
        if kind != HMAC and name in unique_key:
            raise SchemaError(
                f"mask has {kind!r} for {name!r}, which is part of the primary key: use 'hmac', "
                "which keeps different keys different"
            )
        if kind == HMAC and types[name].name not in TYPES:
            raise SchemaError(
                f"mask has 'hmac' for {name!r}, which is {types[name]}: use 'redact' or 'drop', or "
                "declare the column as STRING"
            )
    if masks and not read_columns(columns, masks):
        raise SchemaError("mask drops all columns: leave one of them")


def read_columns(columns: Sequence[Column], masks: Masks) -> tuple[Column, ...]:
    """Return the columns that are read from messages: all but those that are dropped."""
    return tuple(column for column in columns if masks.kind(column.name) != DROP)


def result_columns(columns: Sequence[Column], masks: Masks) -> tuple[Column, ...]:
    """Return the columns of the result, with the types of masked values."""
    return tuple(result_column(column, masks) for column in read_columns(columns, masks))


def result_column(column: Column, masks: Masks) -> Column:
    """Return a column with the type of its masked values."""
    kind = masks.kind(column.name)
    if kind is None:
        return column
    if kind == HMAC or column.type.name in TEXT_TYPES:
        return replace(column, type=SqlType("STRING"))
    return replace(column, nullable=True)


def masked(convert: Converter, column: Column, masks: Masks) -> Converter:
    """Return the converter of a column to its masked values.

    Parameters
    ----------
    convert : callable
        From a message's value to the canonical value of the declared type, or `ABSENT`.
    column : Column
        As declared.
    masks : Masks
    """
    kind = masks.kind(column.name)
    if kind is None:
        return convert
    if kind == HMAC:
        message_of, digest = _message_of(column.type), masks.digest
        return _if_there(convert, lambda value: digest(message_of(value)))
    assert kind in (REDACT, DROP)  # of the latter, no value is read
    constant = "***" if column.type.name in TEXT_TYPES else None
    return _if_there(convert, lambda value: constant)


def _if_there(convert: Converter, mask: Callable[[Any], Any]) -> Converter:
    def masked_value(value: Any) -> Any:
        canonical = convert(value)
        return canonical if canonical is ABSENT or canonical is None else mask(canonical)

    return masked_value


def _message_of(sql_type: SqlType) -> Callable[[Any], bytes]:
    """Return the function from a canonical value to the bytes whose HMAC is its mask."""
    if sql_type.name == "BINARY":
        return bytes
    to_text, unify = TYPES[sql_type.name].to_text, unifier(sql_type) or same
    return lambda value: to_text(unify(value)).encode()


def value_converter(column: Column, handling: Handling) -> Converter:
    """Return the function from a message's value (never None) to a column's canonical value."""
    return (document_converter if handling.json == "extended" else converter)(column.type, handling)


Image = msgspec.Struct | Mapping[str, Any]
"""A row in a message: column name to value. It is a `RowConverter.shape`, or a mapping from any
format."""


class RowConverter:
    """Converts row images of one table.

    Parameters
    ----------
    columns : sequence of Column
        The columns that are read, in the order of a row's values.
    handling : Handling or sequence of Handling
        One for all columns, or one for each (a producer that describes its columns in the message).
    unique_key : sequence of str
        The primary key's columns; only `key` needs them.
    convert : callable
        The factory of a column's converter.
    direct : sequence of bool or None
        Whether the values of each column can be converted without `convert`, as those of JSON
        messages; None: all. Only a hint for speed.
    untyped : bool
        Whether an image is a dict of all names in the message, declared or not, with the producer's
        values (`message_format.untyped_reader`).

    Attributes
    ----------
    handlings : tuple of Handling
        The handling of each column.
    results : tuple of Column
        The columns with the types of the row's values, which differ where a column is masked.
    shape : type
        A msgspec struct of the columns: a JSON reader with this shape skips undeclared columns, and
        columns missing in the image are `ABSENT`.
    key_shape : type
        `shape` with only the key's columns.
    spelled : bool
        Whether a column contains a number's original text, so that a JSON reader must keep it
        (`json_reader.json_reader`).
    """

    def __init__(
        self,
        columns: Sequence[Column],
        handling: Handling | Sequence[Handling],
        unique_key: Sequence[str] = (),
        *,
        convert: Callable[[Column, Handling], Converter] = value_converter,
        direct: Sequence[bool] | None = None,
        untyped: bool = False,
    ) -> None:
        each = [handling] * len(columns) if isinstance(handling, Handling) else handling
        self.columns = tuple(columns)
        self.handlings = tuple(each)
        self.names = tuple(column.name for column in columns)
        pairs = tuple(zip(columns, each, strict=True))
        self.results = tuple(result_column(column, how.masks) for column, how in pairs)
        self.converters = tuple(
            masked(convert(column, how), column, how.masks) for column, how in pairs
        )
        self.direct = tuple(
            may_be and how.masks.kind(column.name) is None
            for may_be, (column, how) in zip(direct or repeat(True), pairs, strict=False)
        )
        self.required = tuple(
            index for index, column in enumerate(self.results) if not column.nullable
        )
        self.unique_key = tuple(unique_key)
        self.untyped = untyped
        self.key_indices = key_indices(columns, unique_key)
        self.shape = self.image_type(range(len(self.names)))
        self.key_shape = self.image_type(self.key_indices)
        self.spelled = untyped or any(
            leaf.name in (*TEXT_TYPES, "VARIANT")
            for column in columns
            for leaf in leaves(column.type)
        )
        self._placeholders = [
            (index, forms)
            for index, (column, how) in enumerate(pairs)
            if (forms := placeholder_forms(column.type, how))
        ]
        self._absent = (ABSENT,) * len(self.names)

    @cached_property
    def read(self) -> Callable[[bytes], Any]:
        """The function from JSON text to an image."""
        return json_reader(self.shape, spelled=self.spelled)

    def image_type(self, indices: Iterable[int], prefix: str = "") -> Any:
        """Return the type of images with some columns of any values; the others are `ABSENT`.

        It is a mapping if all names in the message are needed, or if a msgspec field cannot have
        one of the names.

        Parameters
        ----------
        indices : iterable of int
            The columns.
        prefix : str
            The beginning of their names in the message.
        """
        characters = set(chain(prefix, *self.names))
        if self.untyped or characters & {'"', "\\"} or min(characters, default=" ") < " ":
            return dict[str, Any]
        return row_struct({index: prefix + self.names[index] for index in indices})

    def struct(
        self,
        indices: Sequence[int],
        names: Sequence[str],
        missing: Any = ABSENT,
        base: type[msgspec.Struct] = msgspec.Struct,
        missing_mark: str = "",
    ) -> Any:
        """Return a msgspec struct of some columns; the others are `ABSENT`.

        An integer that the producer writes as a JSON number is checked by the struct; the
        converters check all other values.

        Parameters
        ----------
        indices : sequence of int
            The columns.
        names : sequence of str
            The names of all columns in the message.
        missing : Any
            Same as in `row_struct`.
        base : type
        missing_mark : str
            Same as `Images.missing_mark`.
        """
        types = {
            index: canonical_type(column.type) | None
            for index, (column, how) in enumerate(zip(self.columns, self.handlings, strict=True))
            if column.type.name in INTEGER_BITS and how.native
        }
        absent = {f"c{at}": ABSENT for at in range(len(self.names)) if at not in indices}
        if missing_mark:
            # A mark has no value that this type accepts.
            marks = [(f"m{index}", None, None) for index in indices]
            base = msgspec.defstruct(
                "Marked",
                marks,
                bases=(base,),
                rename={f"m{index}": names[index] + missing_mark for index in indices},
                gc=False,
            )
        return row_struct(
            {index: names[index] for index in indices},
            types,
            missing,
            bases=(base,),
            namespace=absent,
            # Required fields cannot follow the optional ones of the base by position.
            kw_only=missing is msgspec.NODEFAULT,
        )

    def has_placeholder(self, image: Image) -> bool:
        """Return whether a value of an image is the unavailable-value placeholder.

        The placeholder is in a form of its column's type.
        """
        values = self.raw(image)
        return any(values[index] in forms for index, forms in self._placeholders)

    def raw(self, image: Image) -> tuple[Any, ...]:
        """Return an image's unconverted values in column order, with `ABSENT` for missing ones."""
        if isinstance(image, msgspec.Struct):
            return msgspec.structs.astuple(image)
        return tuple(map(image.get, self.names, self._absent))

    def present(self, image: Image) -> dict[str, Any]:
        """Return an image's values by the names of its columns, as a mapping that can be changed."""
        if isinstance(image, Mapping):
            return dict(image)
        return {
            name: value
            for name, value in zip(self.names, self.raw(image), strict=True)
            if value is not ABSENT
        }

    def row(self, image: Image, path: str) -> tuple[Any, ...]:
        """Convert an image.

        Parameters
        ----------
        image : Struct or mapping
            Column name to value.
        path : str
            The image's path in the message, for errors.

        Returns
        -------
        tuple
            Canonical values (`values.types`), `ABSENT` for columns that are not in the image.

        Raises
        ------
        TypeConversionError
            When a value does not fit its column.
        MissingFieldError
            When the image has none of the declared columns.
        """
        values = self.raw(image)
        if values == self._absent:
            names = (
                ""
                if isinstance(image, msgspec.Struct)
                else f"; it has {', '.join(sorted(map(str, image))) or 'none'}"
            )
            reason = f"none of the declared columns ({', '.join(self.names)}) is in the row"
            hint = ": names are case-sensitive"
            raise MissingFieldError(reason + names + hint, path, bare=reason + hint)
        return self.of_values(values, path)

    def of_values(self, values: Sequence[Any], path: str) -> tuple[Any, ...]:
        """Convert the values of an image in the order of the columns; `ABSENT` and None are kept.

        Raises
        ------
        TypeConversionError
            When a value does not fit its column.
        """
        return self._converted(range(len(self.names)), values, path)

    def before(self, image: Image, after: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        """Convert a before-image of changed columns only; take the others from the row `after`."""
        return complete(self.of_values(self.raw(image), path), after)

    def key(self, image: Image, path: str) -> tuple[Any, ...]:
        """Convert only an image's key columns, enough for a delete; missing ones are `ABSENT`."""
        return self._converted(self.key_indices, list(self.raw_key(image).values()), path)

    def raw_key(self, image: Image) -> dict[str, Any]:
        """Return an image's unconverted key columns by name, with `ABSENT` for missing ones."""
        if isinstance(image, msgspec.Struct):
            return {self.names[index]: getattr(image, f"c{index}") for index in self.key_indices}
        return {name: image.get(name, ABSENT) for name in self.unique_key}

    def require(self, row: tuple[Any, ...], image: Image, path: str, whole_rows: str = "") -> None:
        """Raise if a column that is declared NOT NULL is NULL.

        Parameters
        ----------
        row : tuple
        image : Struct or mapping
            The image from which the row was converted.
        path : str
            The image's path in the message.
        whole_rows : str
            The producer setting for whole rows (`Format.whole_rows`).

        Raises
        ------
        MissingFieldError
            When such a column is NULL or missing. Flink checks this only in its sinks.
        """
        for index in self.required:
            if row[index] is None:
                missing = (
                    f"missing: {whole_rows}"
                    if self.raw(image)[index] is ABSENT and whole_rows
                    else "null"
                )
                raise MissingFieldError(
                    f"{quote(self.names[index])} is declared NOT NULL and is {missing}",
                    f"{path}.{self.names[index]}",
                )

    def _converted(
        self, indices: Sequence[int], values: Sequence[Any], path: str
    ) -> tuple[Any, ...]:
        converted = []
        for index, value in zip(indices, values, strict=True):
            try:
                converted.append(
                    value if value is None or value is ABSENT else self.converters[index](value)
                )
            except ConversionError as error:
                raise TypeConversionError(
                    str(error), f"{path}.{self.names[index]}", bare=error.bare
                ) from None
        return tuple(converted)


def key_indices(columns: Sequence[Column], names: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the key's columns.

    Raises
    ------
    SchemaError
        When a key column is not declared, or is a VARIANT.
    """
    positions = {column.name: index for index, column in enumerate(columns)}
    missing = [name for name in names if name not in positions]
    if missing:
        near = next(
            (f": did you mean {name}?" for name in positions if name.lower() == missing[0].lower()),
            "",
        )
        raise SchemaError(
            f"primary key column {', '.join(missing)} is not declared; the columns are "
            f"{', '.join(positions)}{near}"
        )
    indices = tuple(positions[name] for name in names)
    for index in indices:
        if columns[index].type.name == "VARIANT":
            # Equal values of JSON have several texts.
            raise SchemaError(
                f"primary key column {quote(columns[index].name)} is a VARIANT, which does not "
                "identify rows: declare it as STRING"
            )
    return indices


def undeclared(columns: Sequence[Column], handling: Handling) -> list[str]:
    """Return the options required before bare messages can be read, as one sentence per column.

    Parameters
    ----------
    columns : sequence of Column
        The declared columns.
    handling : Handling
        The handling that the user declared.
    """
    options = []
    for column in columns:
        if (
            column.type.name == "DECIMAL"
            and handling.decimal is None
            and str(column.type) != "DECIMAL(20,0)"
        ):
            options.append(
                f"{column}: set decimal_handling_mode to 'precise', 'string' or 'double'"
            )
        if (
            column.type.name in EPOCH_TYPES
            and handling.time not in ("text", "isostring", "structured", None)
            and (reason := epoch_unit(column.type, handling)[1])
        ):
            options.append(f"{column}: {reason}")
    return options


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
    return msgspec.defstruct(
        "Row",
        [(f"c{index}", types.get(index, Any), missing) for index in names],
        rename={f"c{index}": name for index, name in names.items()},
        gc=False,
        **options,
    )
