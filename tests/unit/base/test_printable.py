"""Text that is safe to print: no character of a message controls the terminal."""

import unicodedata

import pytest
from hypothesis import given, strategies as st

from cdc_formats.errors import printable


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
