"""Check that the metadata values of external formats are canonical (`cdc_formats.types`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from cdc_formats.schema import INTEGER_BITS, Column, SqlType

from .packing import pack

_TYPES: dict[str, Any] = {
    "BOOLEAN": bool,
    "FLOAT": float,
    "DOUBLE": float,
    "STRING": str,
    "CHAR": str,
    "VARCHAR": str,
    "BINARY": bytes,
    "DATE": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "TIME": Annotated[int, Meta(ge=0, lt=86_400_000_000)],
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMP_NTZ", "INTERVAL DAY TO SECOND"), Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]),
    **{name: Annotated[int, Meta(ge=-(2**bits), le=2**bits - 1)] for name, bits in INTEGER_BITS.items()},
}


def canonical_check(columns: Sequence[Column]) -> Callable[[Sequence[Any]], Any]:
    """Return the function that raises for values which are not canonical for their columns.

    Parameters
    ----------
    columns : sequence of Column

    Returns
    -------
    callable
        Takes the values in the order of the columns; raises an exception with the path of a wrong value.

    Examples
    --------
    >>> from cdc_formats import columns
    >>> canonical_check(columns("user STRING, at TIMESTAMP"))(("me", "noon"))
    Traceback (most recent call last):
    msgspec.ValidationError: Expected `int | null`, got `str` - at `$[1]`
    """
    decode = msgspec.msgpack.Decoder(tuple[tuple(_type(column.type) | None for column in columns)]).decode  # type: ignore[misc]
    # Packing raises for lone surrogates and for objects of other classes.
    return lambda values: decode(pack(tuple(values)))


def _type(sql_type: SqlType) -> Any:
    inner: list[Any] = [_type(field.type) for field in sql_type.fields]
    if sql_type.name == "DECIMAL":
        precision, scale = sql_type.precision or 10, sql_type.scale or 0
        whole = f"[0-9]{{1,{precision - scale}}}" if precision > scale else "0"
        fraction = rf"\.[0-9]{{{scale}}}" if scale else ""
        return Annotated[str, Meta(pattern=rf"^-?{whole}{fraction}\Z")]
    if sql_type.name == "ARRAY":
        return list[inner[0] | None]  # type: ignore[valid-type]
    if sql_type.name == "MAP":
        return list[tuple[inner[0], inner[1] | None]]  # type: ignore[valid-type]
    if sql_type.name == "STRUCT":
        return tuple[tuple(of | None for of in inner)]  # type: ignore[misc]
    return _TYPES[sql_type.name]
