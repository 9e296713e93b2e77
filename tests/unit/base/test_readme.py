"""What the README shows."""

import pytest

from cdc_formats import get_format
from cdc_formats.errors import DecodeError
from tests.support.paths import REPOSITORY


def test_the_error_in_the_readme_is_raised():
    decoder = get_format("debezium-json").decoder("id INT, name STRING, weight DECIMAL(10,3)")
    value = (
        b'{"before":{"id":101,"name":"scooter","weight":"3.140"},"after":{"id":101,"name":"bike",'
        b'"weight":"9.500"},"op":"u"}'
    )
    with pytest.raises(DecodeError) as raised:
        decoder.decode(None, value)
    text = str(raised.value.at(where="inventory.products[0]@1042"))
    readme = " ".join((REPOSITORY / "README.md").read_text().split())
    assert " ".join(text.split()) in readme
