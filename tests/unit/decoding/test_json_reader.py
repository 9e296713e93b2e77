"""The reader of JSON: numbers with all their digits, and many texts at once."""

from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, strategies as st

from cdc_formats.errors import MalformedMessageError
from cdc_formats.values.json_reader import (
    MOST_DIGITS,
    batch_reader,
    json_bytes,
    json_reader,
    json_text,
    read_json,
)

Narrow = msgspec.defstruct("Narrow", [("c0", str)])


@given(
    st.lists(
        st.sampled_from(
            [b'{"c0":"x"}', b'{"c0":1}', b"{}", b"{", b"", b"\xff", b'{"c0":"\\ud800"}', None]
        ),
        max_size=40,
    )
)
def test_many_texts_are_read_as_each_one(texts: list[bytes | None]) -> None:
    values, places = batch_reader(Narrow)(texts)
    fits = [text == b'{"c0":"x"}' for text in texts]
    assert places == [index for index, fit in enumerate(fits) if not fit]
    assert values == [Narrow("x")] * sum(fits)


@pytest.mark.parametrize(
    "text",
    [
        "1e2",
        "1E2",
        "1.0E-5",
        "0.0000001",
        "0.00000000",
        "-0.0000000",
        "1.50",
        "1234567.0000000",
        "1e999999",
    ],
)
def test_a_number_keeps_its_value_and_its_text(text: str) -> None:
    number = read_json(text.encode())
    assert isinstance(number, Decimal)
    assert (number, str(number)) == (Decimal(text), text)
    assert (json_text([number]), json_bytes({"a": number})) == (
        f"[{text}]",
        b'{"a":%s}' % text.encode(),
    )


def test_values_without_a_json_form_are_refused() -> None:
    with pytest.raises(TypeError, match="complex has no JSON form"):
        json_bytes(1j)


def test_an_integer_of_too_many_digits_is_named() -> None:
    number = b"9" * (MOST_DIGITS - 1)
    assert read_json(number) == 10 ** (MOST_DIGITS - 1) - 1
    with pytest.raises(
        MalformedMessageError, match=r"more than 4,300 digits cannot be read - at `\$\.x` of"
    ):
        json_reader(Struct)(b'{"x":%b99}' % number)
    assert read_json(b"%b99.5" % number).adjusted() == MOST_DIGITS
    assert batch_reader(int)([b"1", number + b"99"]) == ([1], [1])


class Struct(msgspec.Struct):
    x: int
