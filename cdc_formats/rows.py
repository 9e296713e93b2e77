"""From a row image in a message to a row: all columns of a table, compiled once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec

from .errors import MissingFieldError, SchemaError, TypeConversionError
from .handling import Converter, Handling, Unfit
from .images import ABSENT
from .json_reader import json_reader
from .placeholders import placeholder_form
from .schema import INTEGER_BITS, Column, SqlType, quote
from .times import epoch_unit
from .types import converter

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
    unique_key : sequence of str
        The primary key's columns; needed for `key` alone.
    convert : callable or None
        What makes a column's converter, where it is not `types.converter`.
    raw_text : bool
        Whether `row` leaves text in `text_columns` as it stands in an image of `exact`: whoever converts many rows at once does it
        faster.
    images : bool
        Whether before-images are read whole where else only their key is looked at.
    names_only : bool
        Whether an image is a dict of all names in the message, declared or not, with values that are not read
        (`base.Decoder.compare_names`).

    Attributes
    ----------
    text_columns : tuple of int
        The columns, none of them of the key, whose text can be converted by itself, and again: decimals in digits, dates and times.
    shape : type
        A msgspec struct of the columns: a JSON reader that is told to read images as this shape skips what is not
        declared, and what is not in the image is `ABSENT`.
    exact : type
        The same for images that have every column, and text, booleans and integers as JSON's own: only what is left needs a
        converter. A reader tries it first, and falls back to `shape` (see `message_reader`).
    key_shape : type
        `shape` of the key's columns alone.
    spelled : bool
        Whether a column shows a number's own text, so that a JSON reader has to keep it (`json_reader.json_reader`).
    has_placeholder : callable
        Whether a value of an image of `shape` or `exact` is the unavailable-value placeholder, in the form that its column has for it.
    """

    def __init__(
        self,
        columns: Sequence[Column],
        handling: Handling | Sequence[Handling],
        unique_key: Sequence[str] = (),
        *,
        convert: Callable[[Column, Handling], Converter] | None = None,
        raw_text: bool = False,
        images: bool = False,
        names_only: bool = False,
    ) -> None:
        each = [handling] * len(columns) if isinstance(handling, Handling) else handling
        self.columns = tuple(columns)
        self.names = tuple(column.name for column in columns)
        to = convert or (lambda column, how: converter(column.type, how))
        self.converters = tuple(to(column, how) for column, how in zip(columns, each, strict=True))
        self.required = tuple(index for index, column in enumerate(columns) if not column.nullable)
        self.unique_key = tuple(unique_key)
        self.images = images
        self.names_only = names_only
        self.key_indices = key_indices(columns, unique_key)
        natives = [Any if convert else _native(column.type, how) for column, how in zip(columns, each, strict=True)]
        self.shape: Any = dict[str, msgspec.Raw] if names_only else row_shape(self.names)
        self.exact = self.shape if names_only else row_shape(self.names, natives=natives)
        self.key_shape = self.shape if names_only else row_shape(self.names, only=self.key_indices)
        self._with_key = (self.exact, self.shape) if images else (self.key_shape,)
        self.spelled = any(_has_text(column.type) for column in columns)
        self.text_columns = tuple(
            index
            for index, (column, how) in enumerate(zip(columns, each, strict=True))
            if index not in self.key_indices and _is_text(column.type, how)
        )
        self._exact_row = _row_of(self.columns, self.converters, natives, self.text_columns if raw_text else ())
        forms = [placeholder_form(column.type, how) for column, how in zip(columns, each, strict=True)]
        self.has_placeholder = _has_placeholder(self.names, forms, self.shape)
        self._raw_key = attrgetter(*(f"c{index}" for index in self.key_indices)) if unique_key else None
        self._no_key = ABSENT if len(unique_key) == 1 else (ABSENT,) * len(unique_key)
        self._absent = (ABSENT,) * len(self.names)

    def raw(self, image: Image) -> tuple[Any, ...]:
        """Return the unconverted values of an image in the order of the columns, `ABSENT` where there is none."""
        if isinstance(image, msgspec.Struct):
            return msgspec.structs.astuple(image)
        return tuple(map(image.get, self.names, self._absent))

    def row(self, image: Image, path: str) -> tuple[Any, ...]:
        """Convert an image.

        Parameters
        ----------
        image : Struct or mapping
            Column name to value.
        path : str
            Where the image stands in the message, for errors.

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
        try:
            if type(image) is self.exact:
                return self._exact_row(image)
        except Unfit:
            raise self._unfit(self.raw(image), path) from None
        values = self.raw(image)
        if values == self._absent:
            raise self._no_column(image, path)
        return self.of_values(values, path)

    def of_values(self, values: Sequence[Any], path: str) -> tuple[Any, ...]:
        """Convert the values of an image in the order of the columns; `ABSENT` and None stay.

        Raises
        ------
        TypeConversionError
            When a value does not fit its column.
        """
        try:
            if ABSENT not in values:
                return tuple([None if value is None else to(value) for value, to in zip(values, self.converters, strict=True)])
            return tuple([v if v is None or v is ABSENT else to(v) for v, to in zip(values, self.converters, strict=True)])
        except Unfit:
            raise self._unfit(values, path) from None

    def before(self, image: Image, after: tuple[Any, ...], path: str) -> tuple[Any, ...]:
        """Convert a before-image that has only the columns that changed; the others are those of the row `after`."""
        values = self.raw(image)
        columns = zip(values, after, self.converters, strict=True)
        try:
            return tuple([kept if value is ABSENT else None if value is None else to(value) for value, kept, to in columns])
        except Unfit:
            raise self._unfit(values, path) from None

    def key(self, image: Image, path: str) -> tuple[Any, ...]:
        """Convert only the key's columns of an image (a deleted row needs no more), `ABSENT` where it has not got one."""
        key = self.key_indices
        if isinstance(image, msgspec.Struct):
            raw = [getattr(image, f"c{index}") for index in key]
        else:
            raw = [image.get(self.names[index], ABSENT) for index in key]
        try:
            return tuple([v if v is None or v is ABSENT else self.converters[i](v) for i, v in zip(key, raw, strict=True)])
        except Unfit:
            there = dict(zip(key, raw, strict=True))
            raise self._unfit(tuple([there.get(index) for index in range(len(self.names))]), path) from None

    def same_key(self, before: Image, after: Image) -> bool:
        """Whether two images have one key as it stands in the message; a False may still be one, spelled in two ways.

        A `before` that lacks the key has that of `after`.
        """
        raw_key = self._raw_key
        if type(before) not in self._with_key or type(after) is not self.exact or raw_key is None:
            return False
        key = raw_key(before)
        same: bool = key == raw_key(after) or key == self._no_key
        return same

    def only_key(self, values: Sequence[Any]) -> bool:
        """Whether an image, as `raw` gives it, has no column beside the key's where the table has some."""
        rest = [value for index, value in enumerate(values) if index not in self.key_indices]
        return bool(rest) and all(value is ABSENT for value in rest)

    def require(self, row: tuple[Any, ...], image: Image, path: str, whole_rows: str = "") -> None:
        """Refuse NULL in a column that is declared NOT NULL.

        Parameters
        ----------
        row : tuple
        image : Struct or mapping
            What the row was converted from.
        path : str
            Where the image stands in the message.
        whole_rows : str
            What makes the producer write whole rows (`Format.whole_rows`).

        Raises
        ------
        MissingFieldError
            Flink does not look at decode; its sinks do.
        """
        for index in self.required:
            if row[index] is None:
                missing = f"missing: {whole_rows}" if self.raw(image)[index] is ABSENT and whole_rows else "null"
                raise MissingFieldError(f"{quote(self.names[index])} is declared NOT NULL and is {missing}", f"{path}.{self.names[index]}")

    def _unfit(self, values: Sequence[Any], path: str) -> TypeConversionError:
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


def _row_of(
    columns: Sequence[Column], converters: Sequence[Converter], natives: Sequence[Any], raw: Sequence[int]
) -> Callable[[Any], tuple[Any, ...]]:
    """Return the function from an image of the shape `RowConverter.exact` to its row; in the columns `raw` text stays."""
    names = ["STRING" if index in raw else column.type.name for index, column in enumerate(columns)]
    cells = [_cell(index, name, native) for index, (name, native) in enumerate(zip(names, natives, strict=True))]
    # One expression for all columns: a loop over them costs more than what most of them need.
    row: Callable[[Any], tuple[Any, ...]] = eval(
        f"lambda image: ({''.join(f'{cell}, ' for cell in cells)})", {f"to{index}": convert for index, convert in enumerate(converters)}
    )
    return row


_PLAIN = {"STRING": "str", "CHAR": "str", "VARCHAR": "str", "BOOLEAN": "bool"}
"""Types whose canonical values are JSON's own, whatever else a producer writes in their place."""


def _cell(index: int, type_name: str, native: Any) -> str:
    if native is str or (native is not Any and type_name not in _PLAIN):
        return f"image.c{index}"
    plain = f" or type(value) is {_PLAIN[type_name]}" if type_name in _PLAIN else ""
    return f"value if (value := image.c{index}) is None{plain} else to{index}(value)"


def _is_text(sql_type: SqlType, handling: Handling) -> bool:
    """Whether text in a column is what its type says, in whatever way a producer writes the rest."""
    if sql_type.name == "DECIMAL":
        return handling.decimal in ("text", "string", "double")
    return sql_type.name in ("DATE", "TIMESTAMP_NTZ")


def _has_text(sql_type: SqlType) -> bool:
    return sql_type.name in ("STRING", "CHAR", "VARCHAR") or any(_has_text(field.type) for field in sql_type.fields)


def _has_placeholder(names: Sequence[str], forms: Sequence[Any], shape: Any) -> Callable[[Any], bool]:
    known = {index: form for index, form in enumerate(forms) if form is not None}
    if not hasattr(shape, "__struct_fields__"):  # images are dicts
        return lambda image: any(image.get(names[index]) == form for index, form in known.items())
    tests = [f"image.c{index} == form{index}" for index in known]
    found: Callable[[Any], bool] = eval(
        f"lambda image: {' or '.join(tests) or 'False'}", {f"form{index}": form for index, form in known.items()}
    )
    return found


def row_shape(names: Sequence[str], *, natives: Sequence[Any] = (), only: Sequence[int] | None = None) -> Any:
    """Return a msgspec struct with a field ``c<index>`` for each name.

    A column's name may have characters that msgspec has no field for; then images are read as they stand.

    Parameters
    ----------
    names : sequence of str
    natives : sequence of type
        The type of each field, which then must be there; without, anything is taken, and `ABSENT` is the default.
    only : sequence of int or None
        The columns that have a field; None for all.
    """
    if any(char in '"\\' or char < " " for name in names for char in name):
        return dict[str, Any]
    indices = range(len(names)) if only is None else only
    fields: list[Any] = [(f"c{index}", natives[index] | None) if natives else (f"c{index}", Any, ABSENT) for index in indices]
    return msgspec.defstruct("Row", fields, rename={f"c{index}": names[index] for index in indices}, gc=False)


def _native(sql_type: SqlType, handling: Handling) -> Any:
    """Return the type of a column's values that need no converter, ``Any`` where they do; ``bool | int`` where an int does."""
    if sql_type.name in ("STRING", "CHAR", "VARCHAR"):
        return str
    if sql_type.name == "BOOLEAN" and handling.native:
        return bool | int  # MySQL's BOOLEAN is a number
    if sql_type.name in INTEGER_BITS and handling.native:
        most = 2 ** INTEGER_BITS[sql_type.name] - 1
        return Annotated[int, msgspec.Meta(ge=-most - 1, le=most)]
    return Any


def message_reader(
    rows: RowConverter,
    base: type[msgspec.Struct],
    after: str,
    before: str = "",
    *,
    keyed: bool,
    changed_only: bool = False,
    many: bool = False,
    narrow: bool = True,
) -> Callable[[bytes], Any]:
    """Return the function from JSON text to a message that has row images in it.

    Parameters
    ----------
    rows : RowConverter
    base : type
        The message's other fields.
    after, before : str
        The fields that hold images; no `before`: there is but one.
    keyed : bool
        Whether only the key's columns of `before` will be looked at.
    changed_only : bool
        Whether `before` has only the columns that changed.
    many : bool
        Whether the fields hold arrays of images.
    narrow : bool
        Whether `RowConverter.exact` is tried first.

    Raises
    ------
    MalformedMessageError
        From the returned function.
    """

    def shape(image: Any, before_image: Any) -> Any:
        fields = [(after, image), (before, before_image)] if before else [(after, image)]
        typed = [(name, (list[of | None] if many else of) | None, None) for name, of in fields]  # type: ignore[valid-type]
        return msgspec.defstruct("Message", typed, bases=(base,), gc=False)

    exact_before = rows.key_shape if keyed and not rows.images else rows.shape if changed_only else rows.exact
    first = shape(rows.exact, exact_before) if narrow else None
    return json_reader(shape(rows.shape, rows.shape), first, spelled=rows.spelled)


def key_indices(columns: Sequence[Column], names: Sequence[str]) -> tuple[int, ...]:
    """Return where the key's columns stand among the columns.

    Raises
    ------
    SchemaError
        When one is not declared.
    """
    positions = {column.name: index for index, column in enumerate(columns)}
    missing = [name for name in names if name not in positions]
    if missing:
        raise SchemaError(f"primary key column {', '.join(missing)} is not declared; the columns are {', '.join(positions)}")
    return tuple(positions[name] for name in names)


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
