"""JSON text to Python values and back; only this module uses the JSON library (msgspec) directly.

Numbers with a fraction or an exponent become ``decimal.Decimal``, so that no digit of a DECIMAL
column is lost. A reader of STRING columns gets a `NumberWithText` if ``str`` would not return a
number's original text. The reader is strict where Flink's (Jackson) is lenient: bytes after the
document, unescaped control characters, lone surrogates and encodings other than UTF-8 are errors
here; a byte order mark is skipped by both. The frame of a schema registry is skipped, too
(`frames`).
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec.structs import FieldInfo

from cdc_formats.errors import MalformedMessageError
from cdc_formats.values.frames import without_frame

T = TypeVar("T")
BatchReader = Callable[[Sequence[Any]], tuple[list[Any], list[int]]]
"""From many messages to the values of those that it reads, and the indexes of all others."""
MOST_DIGITS = 4_300
"""The most digits of an integer: as many as Python reads by default."""
_FRAMES = (b"\0", b"\1", b"\3")
"""The first bytes of frames."""
_BOM = b"\xef\xbb\xbf"
_FAILURES = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class NumberWithText(Decimal):
    """A number with its original text, for numbers that ``str(Decimal)`` writes differently.

    Examples are ``1e2``, ``1.0E-5`` and ``0.0000000``.
    """

    __slots__ = ("text",)
    text: str

    def __new__(cls, text: str) -> NumberWithText:
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __str__(self) -> str:
        return self.text


def _own_text(value: Any) -> msgspec.Raw:
    if isinstance(value, NumberWithText):
        return msgspec.Raw(value.text.encode())
    raise TypeError(f"{type(value).__name__} has no JSON form")


_encoder = msgspec.json.Encoder(decimal_format="number", enc_hook=_own_text)


def _decimal(text: str, of: type[Decimal] = Decimal) -> Decimal:
    try:
        return of(text)
    except InvalidOperation:
        raise ValueError("the exponent of a number is out of range") from None


def _spelled(text: str) -> Decimal:
    # str(Decimal) writes its own exponent if the text has one, and below 0.000001.
    if "e" not in text and "E" not in text and "0.000000" not in text:
        return Decimal(text)
    return _decimal(text, NumberWithText)


@lru_cache(maxsize=256)
def fields_of(struct: type[msgspec.Struct]) -> tuple[FieldInfo, ...]:
    """Return the fields of a struct; msgspec would evaluate all their types each time."""
    return msgspec.structs.fields(struct)


def json_reader(shape: type[T], *, spelled: bool = False) -> Callable[[bytes], T]:
    """Return the function from JSON text to a `shape` value (a msgspec type; ``Any``: every value).

    Parameters
    ----------
    shape : type
    spelled : bool
        Whether a number can be a `NumberWithText`, for readers that convert numbers to text.

    Raises
    ------
    MalformedMessageError
        From the returned function, when the bytes are not JSON of that shape.
    """
    decode = msgspec.json.Decoder(shape, float_hook=_spelled if spelled else _decimal).decode

    def read(text: bytes) -> T:
        data = memoryview(text)
        try:
            if data[:1] in _FRAMES:
                data = memoryview(without_frame(bytes(data)))
            return decode(data[3:] if data[:3] == _BOM else data)
        except _FAILURES as error:
            raise _malformed(error) from None

    return read


def batch_reader(shape: type[T], *, spelled: bool = False) -> BatchReader:
    """Return the function from many JSON texts to values; its caller decodes the others.

    Parameters
    ----------
    shape : type
    spelled : bool
        Same as `json_reader`.

    Returns
    -------
    callable
        Its result is a list with the values of the texts of this shape, and a list with the indexes
        of all other texts.
    """
    decode = msgspec.json.Decoder(shape, float_hook=_spelled if spelled else _decimal).decode

    def read(texts: Sequence[bytes | None]) -> tuple[list[T], list[int]]:
        values: list[T] = []
        unread: list[int] = []
        decoded, framed = map(decode, texts), False  # type: ignore[arg-type]
        while True:
            try:
                values.extend(decoded)
                return values, unread
            except (*_FAILURES, TypeError):  # TypeError: None is no text
                index = len(values) + len(unread)
                if not framed and (texts[index] or b"")[:1] in _FRAMES:
                    # The messages that follow probably are in frames, too.
                    framed = True
                    rest = [text and _behind_frame(text) for text in texts[index:]]
                    decoded = map(decode, rest)  # type: ignore[arg-type]
                else:
                    unread.append(index)

    return read


def _behind_frame(text: bytes) -> bytes:
    """Return the content of text; text that cannot be decompressed as it is: it is not JSON."""
    try:
        return without_frame(text)
    except MalformedMessageError:
        return text


def _malformed(error: Exception) -> MalformedMessageError:
    if isinstance(error, RecursionError):
        return MalformedMessageError("not JSON: nested too deeply")
    if isinstance(error, UnicodeDecodeError):
        return MalformedMessageError(
            f"not JSON: not UTF-8 ({error.reason} at byte {error.start} of a string)"
        )
    reason, _, path = str(error).partition(" - at ")
    if reason == "Integer value out of range":
        reason = f"an integer of more than {MOST_DIGITS:,} digits cannot be read"
    prefix = "" if isinstance(error, msgspec.ValidationError) else "not JSON: "
    # The name of an unknown field is data of the message.
    return MalformedMessageError(
        prefix + reason,
        path.strip("`"),
        bare="unknown field" if "unknown field" in reason else "",
    )


_read_any: Callable[[bytes], Any] = json_reader(Any, spelled=True)
read_members: Callable[[bytes], dict[str, Any]] = json_reader(dict[str, msgspec.Raw])
"""Return the members of a JSON object as texts."""


def read_json(text: bytes) -> Any:
    """Read one JSON document.

    Parameters
    ----------
    text : bytes, bytearray or memoryview
        UTF-8, with or without a byte order mark.

    Returns
    -------
    None, bool, int, Decimal, str, list or dict
        A number with a fraction or an exponent is a ``Decimal``.

    Raises
    ------
    MalformedMessageError
        When it is not one JSON document.
    """
    return _read_any(text)


def read_object(text: bytes) -> dict[str, Any]:
    """Return one JSON object.

    Parameters
    ----------
    text : bytes, bytearray or memoryview
        Same as `read_json`.

    Returns
    -------
    dict
        Its values are those of `read_json`.

    Raises
    ------
    MalformedMessageError
        When it is not JSON, or not an object.
    """
    value = _read_any(text)
    if not isinstance(value, dict):
        raise MalformedMessageError(f"expected a JSON object, got `{type(value).__name__}`", "$")
    return value


def read_part(read: Callable[[bytes], T], text: bytes, path: str) -> T:
    """Read text that is a part of a message.

    Parameters
    ----------
    read : callable
    text : bytes
    path : str
        The part's path in the message, with which the path of an error begins.

    Raises
    ------
    MalformedMessageError
    """
    try:
        return read(text)
    except MalformedMessageError as error:
        raise MalformedMessageError(error.reason, path + error.path[1:]) from None


def json_bytes(value: Any) -> bytes:
    """Return compact JSON text; a ``Decimal`` becomes a number, ``msgspec.Raw`` stays unchanged."""
    return _encoder.encode(value)


def json_text(value: Any) -> str:
    """Return compact JSON text as a string, for a STRING column with an object or array value."""
    return _encoder.encode(value).decode()


def raw_json(text: str) -> msgspec.Raw:
    """Return JSON text as a value that `json_bytes` writes unchanged."""
    return msgspec.Raw(text.encode())


# --------------------------------------------------------------------------------------------------
# the text of a VARIANT

_MOST_VARIANT_BYTES = 4 * 2**20
# Spark's parser recurses: at 999 levels, the overflow of its stack ends the executor.
_MOST_VARIANT_DEPTH = 200
# Limits of Spark's parser (Jackson's StreamReadConstraints).
_MOST_NUMBER_LENGTH, _MOST_NAME_LENGTH = 1000, 50_000
_read_variant = msgspec.json.Decoder(Any, float_hook=_spelled).decode
_LARGE_NUMBER = re.compile(r"[0-9]{300}|[eE]\+?[0-9]{3}")
_JSON_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def require_variant(text: str) -> None:
    """Raise an error for text that Spark's ``parse_json`` refuses, or reads as another value.

    Parameters
    ----------
    text : str

    Raises
    ------
    MalformedMessageError
        When it is not one JSON document, an object has two members of one name, a number is not
        finite as a DOUBLE, or the document is larger or deeper than a VARIANT can be.
    """
    data = text.encode()
    if len(data) > _MOST_VARIANT_BYTES:
        raise MalformedMessageError(
            f"JSON of more than {_MOST_VARIANT_BYTES // 2**20} MiB does not fit"
        )
    try:
        same = _encoder.encode(_read_variant(data)) == data
    except _FAILURES as error:
        raise _malformed(error) from None
    if text.count("[") + text.count("{") > _MOST_VARIANT_DEPTH:
        depth = 0
        for bracket in re.findall(r"[\[{\]}]", _JSON_STRING.sub("", text)):
            depth += 1 if bracket in "[{" else -1
            if depth > _MOST_VARIANT_DEPTH:
                raise MalformedMessageError(
                    f"JSON that is nested more than {_MOST_VARIANT_DEPTH} times does not fit"
                )
    # Compact text of the value that was read has no name twice.
    if not same or len(text) > _MOST_NAME_LENGTH or _LARGE_NUMBER.search(text):
        json.loads(text, object_pairs_hook=_check_names, parse_int=_finite, parse_float=_finite)


def _check_names(members: list[tuple[str, Any]]) -> None:
    names = [name for name, _ in members]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise MalformedMessageError(f"an object of the JSON has {ascii(twice)[:60]} twice")
    if max(map(len, names), default=0) > _MOST_NAME_LENGTH:
        raise MalformedMessageError(
            f"JSON with a name of more than {_MOST_NAME_LENGTH:,} characters does not fit"
        )


def _finite(number: str) -> None:
    if len(number) > _MOST_NUMBER_LENGTH or not math.isfinite(float(number)):
        shown = number if len(number) <= 20 else f"{number[:20]}..."
        raise MalformedMessageError(f"the number {shown} of the JSON does not fit")
