"""From a row image in a message to a row: all columns of a table, compiled once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from .errors import MissingFieldError, TypeConversionError
from .images import ABSENT
from .schema import Column, quote
from .types import Handling, Unfit, converter, epoch_unit

Image = msgspec.Struct | Mapping[str, Any]
"""A row in a message: column name to value. A struct is a `RowConverter.shape`, a mapping is anyone's."""

_DECLARED_TIMES = ("TIME", "TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL DAY TO SECOND")


class RowConverter:
    """Converts row images of one table.

    Parameters
    ----------
    columns : sequence of Column
        The declared columns; a row has their order.
    handling : Handling or sequence of Handling
        One for all columns, or one for each (a producer that describes its columns in the message).

    Attributes
    ----------
    shape : type
        A msgspec struct of the columns: a JSON reader that is told to read images as this shape skips what is not
        declared, and what is not in the image is `ABSENT`.
    """

    def __init__(self, columns: Sequence[Column], handling: Handling | Sequence[Handling]) -> None:
        each = [handling] * len(columns) if isinstance(handling, Handling) else handling
        self.columns = tuple(columns)
        self.names = tuple(column.name for column in columns)
        self.converters = tuple(converter(column.type, how) for column, how in zip(columns, each, strict=True))
        self.required = tuple(index for index, column in enumerate(columns) if not column.nullable)
        self.shape = row_shape(self.names)
        self._absent = (ABSENT,) * len(self.names)

    def raw(self, image: Image) -> tuple[Any, ...]:
        """Return the unconverted values of an image in the order of the columns, `ABSENT` where there is none."""
        if isinstance(image, msgspec.Struct):
            return msgspec.structs.astuple(image)
        return tuple(map(image.get, self.names, self._absent))

    def row(self, image: Image, path: str, *, some: bool = False) -> tuple[Any, ...]:
        """Convert an image.

        Parameters
        ----------
        image : Struct or mapping
            Column name to value.
        path : str
            Where the image stands in the message, for errors.
        some : bool
            Whether the image may lack all columns (a before-image that has only what changed).

        Returns
        -------
        tuple
            Canonical values (`types`), `ABSENT` for columns that are not in the image.

        Raises
        ------
        TypeConversionError
            When a value does not fit its column.
        MissingFieldError
            When not one declared column is in the image.
        """
        values = self.raw(image)
        try:
            if ABSENT not in values:
                return tuple([None if value is None else to(value) for value, to in zip(values, self.converters, strict=True)])
        except Unfit:
            raise self._unfit(values, path) from None
        if not some and values == self._absent:
            raise self._no_column(image, path)
        return self._sparse(values, path)

    def _sparse(self, values: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        try:
            return tuple([v if v is None or v is ABSENT else to(v) for v, to in zip(values, self.converters, strict=True)])
        except Unfit:
            raise self._unfit(values, path) from None

    def values(self, image: Image, indices: Sequence[int], path: str) -> tuple[Any, ...]:
        """Convert only the columns at `indices` of an image (the key of a deleted row needs no more)."""
        raw = self.raw(image)
        try:
            return tuple([v if (v := raw[i]) is None or v is ABSENT else self.converters[i](v) for i in indices])
        except Unfit:
            raise self._unfit(raw, path) from None

    def require(self, row: tuple[Any, ...], path: str) -> None:
        """Refuse NULL in a column that is declared NOT NULL.

        Raises
        ------
        MissingFieldError
            Flink does not look at decode; its sinks do.
        """
        for index in self.required:
            if row[index] is None:
                raise MissingFieldError(f"{quote(self.names[index])} is declared NOT NULL and is null", f"{path}.{self.names[index]}")

    def _unfit(self, values: tuple[Any, ...], path: str) -> TypeConversionError:
        # A converter does not know its column: the first that fails, in order, is the one to name.
        for name, value, to in zip(self.names, values, self.converters, strict=True):
            try:
                if value is not None and value is not ABSENT:
                    to(value)
            except Unfit as error:
                return TypeConversionError(str(error), f"{path}.{name}", bare=error.bare)
        raise AssertionError("no column failed again")  # pragma: no cover - converters are pure

    def _no_column(self, image: Image, path: str) -> MissingFieldError:
        there = "" if isinstance(image, msgspec.Struct) else f"; it has {', '.join(sorted(map(str, image))) or 'none'}"
        reason, hint = (
            f"none of the declared columns ({', '.join(self.names)}) is in the row",
            ": names are case-sensitive",
        )
        return MissingFieldError(reason + there + hint, path, bare=reason + hint)


def row_shape(names: Sequence[str]) -> Any:
    """Return a msgspec struct with a field for each name, `ABSENT` by default.

    A column's name may have characters that msgspec has no field for; then images are read as they stand.
    """
    if any(char in '"\\' or char < " " for name in names for char in name):
        return dict[str, Any]
    fields = [(f"c{index}", Any, ABSENT) for index in range(len(names))]
    rename = {f"c{index}": name for index, name in enumerate(names)}
    return msgspec.defstruct("Row", fields, rename=rename, gc=False)


def undeclared(columns: Sequence[Column], handling: Handling) -> list[str]:
    """Return what has to be declared before bare messages can be read, a sentence for each column.

    Parameters
    ----------
    columns : sequence of Column
        The declared columns.
    handling : Handling
        What the user declared.
    """
    found = []
    for column in columns:
        if column.type.name == "DECIMAL" and handling.decimal is None and str(column.type) != "DECIMAL(20,0)":
            found.append(f"{column}: set decimal_handling_mode to 'precise', 'string' or 'double'")
        if column.type.name in _DECLARED_TIMES and handling.time not in ("text", "isostring", None):
            reason = epoch_unit(column.type, handling)[1]
            if reason:
                found.append(f"{column}: {reason}")
    return found
