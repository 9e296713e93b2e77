"""STRING, CHAR and VARCHAR: reading and writing.

The canonical value is ``str``; a STRING holds every JSON value as its text.
"""

from __future__ import annotations

from typing import Any

from cdc_formats.decoding.json_reader import json_text

from .handling import Converter, Handling, refuse
from .schema import SqlType
from .value_type import ValueType


def _converter(sql_type: SqlType, handling: Handling) -> Converter:
    def convert(value: Any) -> str:
        if type(value) is str:
            # JSON text is well-formed, but a custom format can return a lone surrogate, which Arrow
            # and Spark cannot encode.
            try:
                value.isascii() or value.encode()
            except UnicodeEncodeError:
                raise refuse(sql_type, value, "a lone surrogate is not a character") from None
            return value
        if type(value) is bool:
            return "true" if value else "false"
        if type(value) in (list, dict):
            return json_text(value)
        if type(value) is int and abs(value) >= 10**4000:
            raise refuse(sql_type, value)
        return str(value)

    return convert


def _writer(sql_type: SqlType, handling: Handling, iso: bool) -> None:
    return None


_TEXT = ValueType(canonical=lambda _: str, converter=_converter, writer=_writer)
TYPES = {"STRING": _TEXT, "CHAR": _TEXT, "VARCHAR": _TEXT}
TEXT_TYPES = tuple(TYPES)
