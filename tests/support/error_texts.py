"""Whole texts as users read them, in files next to the unit tests.

Errors are in `error_texts.txt`, other results in `texts.txt`. `ERROR_TEXTS=write pytest FILE` writes
those of a file of tests. Read the difference in the review.
"""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Cases = Mapping[str, Callable[[], object]]


def error_test(file: str, cases: Cases) -> Callable[[str], None]:
    """Return a test of the class and the sentence of the error that each call raises."""
    return _test(Path(file), "error_texts.txt", cases, _error_of)


def text_test(file: str, cases: Cases) -> Callable[[str], None]:
    """Return a test of the text of what each call returns."""
    return _test(Path(file), "texts.txt", cases, lambda call: str(call()))


def _error_of(call: Callable[[], object]) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        call()
    return f"{type(caught.value).__name__}: {caught.value}"


def _test(
    path: Path, name: str, cases: Cases, text_of: Callable[[Callable[[], object]], str]
) -> Callable[[str], None]:
    golden = path.with_name(name)

    @pytest.mark.parametrize("case", cases)
    def test(case: str) -> None:
        text = text_of(cases[case])
        sections = _read(golden)
        if os.environ.get("ERROR_TEXTS") == "write":
            kept = sections.get(path.stem, {}) | {case: text}
            sections[path.stem] = {each: kept[each] for each in cases if each in kept}
            modules = {each.stem for each in path.parent.glob("test_*.py")}
            _write(golden, {name: sections[name] for name in sorted(modules & {*sections})})
            return
        assert [*sections.get(path.stem, {})] == [*cases]
        assert sections[path.stem][case] == text

    return test


def _read(golden: Path) -> dict[str, dict[str, str]]:
    """Return the texts of a file: a line for each test file, a line for each case, and its text."""
    sections: dict[str, dict[str, str]] = {}
    for part in golden.read_text("utf-8").split("\n# ")[1:] if golden.exists() else ():
        name, *cases = part.rstrip("\n").split("\n\n")
        texts = (each.partition("\n") for each in cases)
        sections[name] = {case: text[4:].replace("\n    ", "\n") for case, _, text in texts}
    return sections


def _write(golden: Path, sections: Mapping[str, Mapping[str, str]]) -> None:
    parts = [
        f"\n# {name}\n"
        + "".join(
            f"\n{case}\n    {text.replace(chr(10), chr(10) + '    ')}\n"
            for case, text in texts.items()
        )
        for name, texts in sections.items()
    ]
    golden.write_text("".join(parts), "utf-8")
