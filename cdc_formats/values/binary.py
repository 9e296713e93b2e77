"""BINARY: reading and writing canonical ``bytes`` as base64, digits or Latin-1 text."""

from __future__ import annotations

import base64
import binascii
import re
from functools import partial
from typing import Any

from .schema import Converter, Handling, SqlType, ValueType, refuse

UNDECLARED_BINARY = (
    "the schema declares text: set binary_handling_mode to the connector's binary.handling.mode, "
    "or declare STRING"
)


_HEX = "0x(?:[0-9A-Fa-f]{2})*"
_NUMBERS = re.compile(r"\[(?:-?[0-9]{1,3}(?:, -?[0-9]{1,3})*)?\]")
_DIGITS = re.compile(f"{_HEX}|{_NUMBERS.pattern}")


def base64_bytes(sql_type: SqlType, value: str) -> bytes:
    """Return the bytes of base64.

    Raises
    ------
    ConversionError
        When the text is not base64; the error shows `sql_type`.
    """
    try:
        return base64.b64decode(value, validate=True)
    except ValueError:
        raise refuse(sql_type, value, "not base64") from None


def base64_text(value: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(value).decode()


def _of_numbers(value: str) -> bytes:
    """Return the bytes of ``[72, -1]``, which may be signed."""
    numbers = [int(each) for each in value[1:-1].split(", ") if each]
    if _NUMBERS.fullmatch(value) is None or not all(-128 <= each <= 255 for each in numbers):
        raise ValueError
    return bytes(each & 255 for each in numbers)


_READERS: dict[str, Converter] = {
    "hex": lambda value: binascii.unhexlify(value.removeprefix("0x")),
    "base64-url-safe": partial(base64.b64decode, altchars=b"-_", validate=True),
    "latin1": lambda value: value.encode("latin-1"),
    "latin1 or digits": lambda value: value.encode("latin-1"),
    "numbers": _of_numbers,
    # Text without the prefix has one digit: an error.
    "bytea": lambda value: binascii.unhexlify(value[2:] if value.startswith("\\x") else "0"),
}


def _converter(sql_type: SqlType, handling: Handling) -> Converter:
    read = _READERS.get(handling.binary or "", partial(base64.b64decode, validate=True))

    def convert(value: Any) -> bytes:
        if type(value) is bytes:  # not from JSON: upsert-kafka's raw
            return value
        if type(value) is str:
            if handling.binary is None:
                raise refuse(sql_type, value, UNDECLARED_BINARY)
            if handling.binary == "latin1 or digits" and _DIGITS.fullmatch(value):
                raise refuse(
                    sql_type,
                    value,
                    "text or digits? Set binary_handling_mode='hex' (Tencent DTS) or 'numbers' (Huawei "
                    "DRS), or 'latin1' if the bytes are this text",
                )
            try:
                raw: bytes = read(value)
            except ValueError:  # binascii.Error and UnicodeError are ValueErrors
                raise refuse(sql_type, value, f"not {handling.binary}") from None
            return raw
        raise refuse(sql_type, value)

    return convert


_WRITERS: dict[str, Converter] = {
    "hex": bytes.hex,
    "base64-url-safe": lambda value: base64.urlsafe_b64encode(value).decode(),
    "latin1": lambda value: value.decode("latin-1"),
    "latin1 or digits": lambda value: value.decode("latin-1"),
    "numbers": lambda value: str(list(value)),
}


def bytes_writer(sql_type: SqlType, handling: Handling, iso: bool) -> Converter:
    """Return the function from bytes to their text in messages."""
    return _WRITERS.get(handling.binary or "", base64_text)


TYPES = {
    "BINARY": ValueType(
        canonical=lambda _: bytes,
        converter=_converter,
        writer=bytes_writer,
        to_text=lambda value: f"x'{value.hex()}'",
    )
}
