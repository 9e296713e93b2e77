"""Options of the capture: refused ones, and no shown password."""

import pytest

from capture.options import read_options
from cdc_formats.errors import ArgumentError


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"chunk": "1"}, "no option 'chunk'"),
        ({"server-id": "9-5"}, "option 'server-id' must be a number"),
        ({"server-id": "5400"}, "requires 3 numbers"),
        ({"scan.startup.mode": "specific-offset"}, "scan.startup.specific-offset.file"),
        ({"scan.startup.mode": "newest"}, "one of initial"),
    ],
)
def test_invalid_options_raise_an_error(options: dict[str, str], reason: str) -> None:
    needed = {
        "hostname": "h",
        "username": "u",
        "password": "p",
        "database-name": "d",
        "table-name": "t",
    }
    with pytest.raises(ArgumentError, match=reason):
        read_options(needed | options)


def test_password_is_not_in_the_repr_of_options() -> None:
    texts = {
        "hostname": "h",
        "username": "u",
        "password": "s3cret",
        "Database-Name": "d",
        "TABLE-NAME": "t",
    }
    assert "s3cret" not in repr(read_options(texts))
