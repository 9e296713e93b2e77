"""The docstrings of the public names: every parameter, result and unit is described."""

import inspect
import re
import unicodedata
from enum import Enum

import pytest
from hypothesis import given, strategies as st

import capture
from cdc_formats import Decoder, Format, get_format
from cdc_formats.errors import DecodeError, printable
from tests.support.paths import REPOSITORY
from tests.support.public_names import PUBLIC

MADE_ELSEWHERE = (
    Decoder,
    Format,
)  # Format.decoder makes the one; users write the other, and MessageFormat describes its options
CALLABLES = {
    name: value
    for name, value in {**PUBLIC, "capture.register": capture.register}.items()
    if callable(value)
    and value not in MADE_ELSEWHERE
    and not (inspect.isclass(value) and issubclass(value, Enum))
}
DURATION = re.compile("(^|_)(timeout|lag|pause|delay|wait|interval|retention|ttl|age)(_|$)")


def described(docstring: str) -> list[str]:
    """Return the parameters and attributes that a numpydoc docstring describes.

    They are described alone, or several in one line.
    """
    sections = re.findall(
        r"^(?:Parameters|Attributes)\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", docstring, re.M | re.S
    )
    lines = [
        line.split(" : ")[0]
        for section in sections
        for line in section.splitlines()
        if line[:1].strip()
    ]
    return [name.strip(" *") for line in lines for name in line.split(",")]


@pytest.mark.parametrize("name", CALLABLES)
def test_parameters_and_results_are_described_and_durations_have_a_unit(name):
    value, docstring = CALLABLES[name], inspect.getdoc(CALLABLES[name]) or ""
    documented, signature = described(docstring), inspect.signature(value)
    assert [each for each in signature.parameters if each not in documented] == []
    assert len(documented) == len(set(documented))
    assert [
        each.name
        for each in signature.parameters.values()
        if DURATION.search(each.name)
        and not each.name.endswith("_seconds")
        and "timedelta" not in str(each.annotation)
    ] == []
    assert (
        not inspect.isfunction(value)
        or signature.return_annotation in (None, "None")
        or re.search(r"^Returns\n-+$", docstring, re.M)
        or docstring.startswith(("Return ", "Apply ", "Register "))
    )


# --------------------------------------------------------------------------------------------------
# What the README shows
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


# --------------------------------------------------------------------------------------------------
# Text that is safe to print: no character of a message controls the terminal
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        pytest.param("\x1b[2J\x1b]0;owned\x07", r"\x1b[2J\x1b]0;owned\x07", id="ANSI"),
        pytest.param("\x9b31m", r"\x9b31m", id="C1"),
        pytest.param("a\r\nb\tc\x00\x7f", r"a\r\nb\tc\x00\x7f", id="C0 and DEL"),
        pytest.param(
            "\u202egnp.exe\u2066\u2069\u200e", r"\u202egnp.exe\u2066\u2069\u200e", id="direction"
        ),
        pytest.param("\u2028\u2029\x85", r"\u2028\u2029\x85", id="line separators"),
        pytest.param("\ud800", r"\ud800", id="half of a surrogate"),
        pytest.param("\U000e0041\ufeff\u200b", r"\U000e0041\ufeff\u200b", id="invisible"),
        pytest.param(
            "日本語 café 😀 [bold]<b>\\", "日本語 café 😀 [bold]<b>\\", id="the rest stays"
        ),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters() | st.characters(categories=["Cc", "Cf", "Cs", "Zl", "Zp"])))
def test_printable_text_is_one_line_without_control_characters(text: str) -> None:
    shown = printable(text)
    assert len(f"{shown}|".splitlines()) == 1
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cs", "Zl", "Zp"}
    assert {unicodedata.bidirectional(character) for character in shown}.isdisjoint(
        {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    )
    assert printable(shown) == shown
    shown.encode()
