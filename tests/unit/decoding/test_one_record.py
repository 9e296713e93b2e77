"""One record: its rows, or why not."""

import copy
import pickle
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, strategies as st

from cdc_formats import ABSENT, Event, Format
from cdc_formats.decoder import decode_one, in_record
from cdc_formats.errors import (
    DecodeError,
    FormatBugError,
    MalformedMessageError,
    SchemaRegistryError,
)
from cdc_formats.values.json_reader import (
    MOST_DIGITS,
    batch_reader,
    json_bytes,
    json_reader,
    json_text,
    read_json,
)
from cdc_formats.values.schema import absent_as_null, complete
from tests.support.error_texts import error_test, text_test


class Record(NamedTuple):
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    where: str = "orders[3]@1042"


def _raising(error: BaseException) -> object:
    raise error


def returned(raised: BaseException) -> DecodeError:
    error = decode_one("acme", _raising, raised)
    assert isinstance(error, DecodeError)
    return error


def test_a_decode_error_is_returned_without_frames() -> None:
    error = returned(MalformedMessageError("no object", "$.after", "key"))
    assert (type(error), error.reason, error.path, error.field, error.__traceback__) == (
        MalformedMessageError,
        "no object",
        "$.after",
        "key",
        None,
    )


@dataclass(frozen=True, kw_only=True)
class Acme(Format):
    """Messages whose events are what an option has."""

    identifier = "acme"
    returned: Any = ()
    suffix: str = "_old"

    def read(self, key: bytes | None, value: bytes | None) -> Any:
        return self.returned


def test_a_message_nested_too_deeply_is_malformed() -> None:
    assert type(returned(RecursionError())) is MalformedMessageError


@pytest.mark.parametrize("excerpt", [True, False])
def test_another_exception_is_a_bug_of_the_format_and_shows_data_only_on_request(
    excerpt: bool,
) -> None:
    error = returned(KeyError("user"))
    assert isinstance(error, FormatBugError)
    assert isinstance(error.__cause__, KeyError)
    assert "acme failed with KeyError: 'user' (line " in str(error)
    assert "user" not in error.bare
    shown = in_record(error, Record(), excerpt=excerpt)
    text, data = str(shown), ("user", "orders[3]@1042; it begins b'value'")
    assert [part in text for part in data] == [excerpt, excerpt]
    assert "orders[3]@1042" in text
    assert shown.__cause__ is (error.__cause__ if excerpt else None)


# --------------------------------------------------------------------------------------------------
# Absent is not null: row images, and how one completes another
def test_absent_stays_one_object_when_copied_or_pickled_and_equals_nothing_else() -> None:
    copies = (pickle.loads(pickle.dumps(ABSENT)), copy.deepcopy(ABSENT), copy.copy(ABSENT))
    assert all(each is ABSENT for each in copies)
    assert repr(ABSENT) == "ABSENT"
    assert ABSENT not in (None, "", "ABSENT", 0, False, [], {})


@pytest.mark.parametrize(
    ("image", "other", "result"),
    [
        pytest.param(
            (1, ABSENT, None),
            (1, "scooter", 3.14),
            (1, "scooter", None),
            id="absent is taken from the other, null stays",
        ),
        pytest.param((ABSENT, ABSENT), (1, None), (1, None), id="every value is absent"),
        pytest.param((1, 2), (ABSENT, ABSENT), (1, 2), id="nothing is absent"),
        pytest.param((ABSENT, 2), (ABSENT, 3), (ABSENT, 2), id="absent in both stays absent"),
        pytest.param((), (), (), id="no columns"),
    ],
)
def test_complete(image: tuple, other: tuple, result: tuple) -> None:
    assert complete(image, other) == result


# --------------------------------------------------------------------------------------------------
# The reader of JSON: numbers with all their digits, and many texts at once
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


@pytest.mark.parametrize(
    "error", [SchemaRegistryError("down"), OSError("down"), ImportError("no"), MemoryError()]
)
def test_infrastructure_errors_are_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        decode_one("acme", _raising, error)


RESULTS: list[Any] = [
    *("text", None, Event.insert({"id": 1}), [Event.insert({"id": 1}), 2]),
]
test_texts = text_test(
    __file__,
    {
        "a result is returned unchanged": lambda: decode_one(
            "acme", lambda *parts: parts, b"k", b"v"
        ),
        "a format": Acme,
        "the decoder of a format with an option": partial(
            Acme(suffix="_was").decoder,
            "id INT NOT NULL, price DECIMAL(5,2)",
            unique_key=["id"],
        ),
        "absent as NULL": partial(absent_as_null, (1, ABSENT, None)),
    },
)
test_error_texts = error_test(
    __file__,
    {
        **{
            f"read returns {returned!r}, {method}": partial(
                getattr(Acme(returned=returned).decoder("id INT", unique_key=["id"]), method),
                None,
                b"{}",
            )
            for returned in RESULTS
            for method in ("decode", "upserts")
        },
        "images of different tables": partial(complete, (1,), (1, 2)),
        "values without a json form are refused": lambda: json_bytes(1j),
    },
)
