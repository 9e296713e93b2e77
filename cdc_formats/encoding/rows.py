"""Rows as JSON objects: the inverse of `decoding.rows`."""

from __future__ import annotations

from collections.abc import Sequence
from operator import ne
from typing import Any

from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import EncodeError
from cdc_formats.values.handling import ConversionError, Handling
from cdc_formats.values.numbers import FLOAT_TYPES
from cdc_formats.values.schema import Column, SqlType
from cdc_formats.values.types import writer


class RowWriter:
    """Writes the rows of one table as JSON objects: the inverse of `decoding.rows.RowConverter`.

    Parameters
    ----------
    columns : sequence of Column
        The columns, in the order of a row's values.
    handling : Handling or sequence of Handling
        One for all columns, or one for each.
    unique_key : sequence of str
        The columns that `key` writes.
    iso : bool
        As in `types.writer`.
    excerpt : bool
        Whether an error shows the invalid value (`Format.error_excerpt`).

    Raises
    ------
    SchemaError
        When the key is not declared, or a column's type cannot be written.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        handling: Handling | Sequence[Handling],
        unique_key: Sequence[str] = (),
        *,
        iso: bool = False,
        excerpt: bool = True,
    ) -> None:
        each = [handling] * len(columns) if isinstance(handling, Handling) else handling
        self.names = tuple(column.name for column in columns)
        self.writers = tuple(
            writer(column.type, how, iso=iso) for column, how in zip(columns, each, strict=True)
        )
        self.key_names = tuple(unique_key)
        self.key_indices = key_indices(columns, unique_key)
        self.excerpt = excerpt
        self._differ = tuple(
            _differ_by_sign if _has_float(column.type) else ne for column in columns
        )

    def image(self, row: Sequence[Any], path: str = "$") -> dict[str, Any]:
        """Return a row as an object, for `json_reader.json_bytes`.

        Parameters
        ----------
        row : sequence
            Canonical values, or None.
        path : str
            The object's path in the message, for errors.

        Raises
        ------
        EncodeError
            When a value cannot be written so that it is read as the same value.
        """
        try:
            return {
                name: value if write is None or value is None else write(value)
                for name, write, value in zip(self.names, self.writers, row, strict=True)
            }
        except ConversionError:
            raise self._unfit(row, path) from None

    def changed(
        self, before: Sequence[Any], row: Sequence[Any], path: str = "$.old"
    ) -> dict[str, Any]:
        """Return an object of `before` columns that differ in `row` (``old`` in Canal and Maxwell).

        Raises
        ------
        EncodeError
            As `image`.
        """
        columns = zip(self.names, self.writers, self._differ, before, row, strict=True)
        try:
            return {
                name: was if write is None or was is None else write(was)
                for name, write, differ, was, now in columns
                if differ(was, now)
            }
        except ConversionError:
            raise self._unfit(before, path) from None

    def key(self, row: Sequence[Any]) -> dict[str, Any] | None:
        """Return the key's columns of a row as an object, or None if there is no key.

        Raises
        ------
        EncodeError
            As `image`.
        """
        if not self.key_indices:
            return None
        try:
            return {self.names[i]: self._written(i, row[i]) for i in self.key_indices}
        except ConversionError:
            raise self._unfit(row, "$") from None

    def _written(self, index: int, value: Any) -> Any:
        write = self.writers[index]
        return value if write is None or value is None else write(value)

    def _unfit(self, row: Sequence[Any], path: str) -> EncodeError:
        # As in RowConverter._unfit: name the first column that fails.
        for index, (name, value) in enumerate(zip(self.names, row, strict=True)):
            try:
                self._written(index, value)
            except ConversionError as error:
                reason = str(error) if self.excerpt or not error.bare else error.bare
                return EncodeError(f"{reason} - at `{path}.{name}`")
        raise AssertionError("no column failed again")  # pragma: no cover - writers are pure


def _has_float(sql_type: SqlType) -> bool:
    return sql_type.name in FLOAT_TYPES or any(_has_float(field.type) for field in sql_type.fields)


def _differ_by_sign(was: Any, now: Any) -> bool:
    # 0.0 and -0.0 are equal, but written differently.
    return repr(was) != repr(now)
