"""Arrow's columns as the text that PostgreSQL's COPY reads."""

from datetime import date, datetime

import pyarrow as pa
import pytest

from normalize.tables.writers.jdbc import copy_text


def test_times_are_in_utc_and_bytes_are_hexadecimal() -> None:
    at = pa.array([0, None, 1_700_000_000_000_001], pa.timestamp("us", "Europe/Berlin"))
    table = pa.table({"at": at, "bytes": [b"\x00\xff", b"", None], "no": [None, 1.5, -2e300]})
    text = copy_text(table)
    assert text is not None
    assert text.to_pydict() == {
        "at": ["1970-01-01 00:00:00.000000+00", None, "2023-11-14 22:13:20.000001+00"],
        "bytes": ["\\x00ff", "\\x", None],
        "no": [None, "1.5", "-2e+300"],
    }


@pytest.mark.parametrize(
    ("kind", "first", "last"),
    [
        (pa.date32(), date.min, date.max),
        (pa.timestamp("us"), datetime.min, datetime.max),
        (pa.timestamp("us", "UTC"), datetime.min, datetime.max),
    ],
)
def test_only_years_of_four_digits_have_a_text(kind: pa.DataType, first: date, last: date) -> None:
    numbers = pa.int32() if kind == pa.date32() else pa.int64()
    least, greatest = pa.array([first, last], kind).cast(numbers).to_pylist()

    def text(*values: int | None) -> pa.Table | None:
        return copy_text(pa.table({"x": pa.array(values, numbers).cast(kind)}))

    known = text(least, None, greatest)
    assert known is not None
    assert [value and value[:4] for value in known["x"].to_pylist()] == ["0001", None, "9999"]
    assert text(least - 1) is None
    assert text(greatest + 1) is None
    assert text(None) is not None
