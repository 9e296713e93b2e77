"""One record: its rows, or why not."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from cdc_formats import Event, Format
from cdc_formats.decoder import decode_one, in_record
from cdc_formats.errors import (
    DecodeError,
    FormatBugError,
    MalformedMessageError,
    SchemaRegistryError,
)


class Record(NamedTuple):
    key: bytes | None = b"key"
    value: bytes | None = b"value"
    where: str = "orders[3]@1042"


def _raising(error: BaseException) -> object:
    raise error


def test_a_result_is_returned_unchanged() -> None:
    assert decode_one("acme", lambda *parts: parts, b"k", b"v") == (b"k", b"v")


def test_a_decode_error_is_returned_without_frames() -> None:
    error = decode_one("acme", _raising, MalformedMessageError("no object", "$.after", "key"))
    assert isinstance(error, MalformedMessageError)
    assert (error.reason, error.path, error.field) == ("no object", "$.after", "key")
    assert error.__traceback__ is None


def test_another_exception_is_a_bug_of_the_format_that_names_the_line() -> None:
    error = decode_one("acme", _raising, KeyError("user"))
    assert isinstance(error, FormatBugError)
    assert "acme failed with KeyError: 'user' (line " in str(error)
    assert "user" not in error.bare
    assert isinstance(error.__cause__, KeyError)


@dataclass(frozen=True, kw_only=True)
class Acme(Format):
    """Messages whose events are what an option has."""

    identifier = "acme"
    returned: Any = ()
    suffix: str = "_old"

    def read(self, key: bytes | None, value: bytes | None) -> Any:
        return self.returned


@pytest.mark.parametrize(
    ("returned", "named"),
    [
        ("text", "str"),
        (None, "NoneType"),
        (Event.insert({"id": 1}), "Event"),
        ([Event.insert({"id": 1}), 2], "a list with int"),
    ],
)
def test_another_result_of_read_is_a_bug_of_the_format(returned: Any, named: str) -> None:
    decoder = Acme(returned=returned).decoder("id INT", unique_key=["id"])
    for decode in (decoder.decode, decoder.upserts):
        with pytest.raises(FormatBugError, match=f"read of acme returned {named}: it must return"):
            decode(None, b"{}")


def test_a_format_and_its_decoder_show_the_options_that_differ() -> None:
    assert repr(Acme()) == "Acme()"
    decoder = Acme(suffix="_was").decoder("id INT NOT NULL, price DECIMAL(5,2)", unique_key=["id"])
    assert (
        repr(decoder) == "Acme(suffix='_was').decoder('id INT NOT NULL, price DECIMAL(5,2)', "
        "unique_key=('id',))"
    )


def test_a_message_nested_too_deeply_is_malformed() -> None:
    assert isinstance(decode_one("acme", _raising, RecursionError()), MalformedMessageError)


@pytest.mark.parametrize(
    "error", [SchemaRegistryError("down"), OSError("down"), ImportError("no"), MemoryError()]
)
def test_infrastructure_errors_are_raised(error: Exception) -> None:
    with pytest.raises(type(error)):
        decode_one("acme", _raising, error)


def test_a_located_error_shows_data_of_the_message_only_on_request() -> None:
    error = decode_one("acme", _raising, KeyError("user"))
    assert isinstance(error, DecodeError)
    shown = in_record(error, Record(), excerpt=True)
    assert "orders[3]@1042; it begins b'value'" in str(shown)
    assert shown.__cause__ is error.__cause__
    hidden = in_record(error, Record(), excerpt=False)
    assert "orders[3]@1042" in str(hidden)
    assert "user" not in str(hidden)
    assert hidden.__cause__ is None
