"""The text of values."""

from cdc_cli.view import text_of
from cdc_formats import columns


def test_a_float_is_shown_with_its_own_digits() -> None:
    assert text_of(columns("s STRUCT<f: FLOAT>")[0].type)([3.140000104904175]) == "{f: 3.14}"
