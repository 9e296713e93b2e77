"""STRING, CHAR, VARCHAR and VARIANT: reading and writing.

The canonical value is ``str``; a STRING holds every JSON value as its text, a VARIANT only JSON.
Two VARIANTs are equal if their texts are.
"""

from __future__ import annotations

from typing import Any

from cdc_formats.errors import MalformedMessageError
from cdc_formats.values.json_reader import json_text, raw_json, require_variant

from .schema import Converter, Handling, SqlType, ValueType, refuse


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


def _variant_converter(sql_type: SqlType, handling: Handling) -> Converter:
    as_text = handling.json == "text"

    def convert(value: Any) -> str:
        try:
            text = value if as_text and type(value) is str else json_text(value)
            require_variant(text)
        except MalformedMessageError as error:
            raise refuse(sql_type, value, f"{error.reason}: declare STRING") from None
        except UnicodeEncodeError:
            raise refuse(sql_type, value, "a lone surrogate is not a character") from None
        return text

    return convert


TEXT_TYPES = ("STRING", "CHAR", "VARCHAR")
TYPES = {
    **dict.fromkeys(
        TEXT_TYPES, ValueType(canonical=lambda _: str, converter=_converter, writer=lambda *_: None)
    ),
    "VARIANT": ValueType(
        canonical=lambda _: str,
        converter=_variant_converter,
        writer=lambda _, handling, iso: None if handling.json == "text" else raw_json,
    ),
}
