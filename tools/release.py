"""A release: its version, its date, and whether a tag may be published.

    python -m tools.release prepare 0.2.0     # set the version, and date the changelog
    python -m tools.release check v0.2.0      # print what the changelog says about the version,
                                              # or why the tag is not a release

`prepare` makes the commit's content; commit it, and tag the commit.
"""

from __future__ import annotations

import re
import sys
from datetime import date
from pathlib import Path

from tools.package import version

REPOSITORY = Path(__file__).parents[1]
CHANGELOG = REPOSITORY / "CHANGELOG.md"
VERSION = REPOSITORY / "cdc_formats" / "__init__.py"
UNRELEASED = "## Unreleased\n"


def sections(changelog: str) -> dict[str, str]:
    """Return the text of each section by its title: ``Unreleased``, or ``0.2.0 (2026-11-25)``."""
    parts = re.split(r"^## (.+)\n", changelog, flags=re.M)
    return {title: text.strip() for title, text in zip(parts[1::2], parts[2::2], strict=True)}


def prepared(changelog: str, new: str, day: date) -> str:
    """Return the changelog with the changes of the version under its number and date.

    Raises
    ------
    ValueError
        When there are no unreleased changes, or the version is not a later one of the form 1.2.3.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+", new):
        raise ValueError(f"{new!r} is not a version: pass one such as 0.2.0")
    if not sections(changelog).get("Unreleased"):
        raise ValueError(
            "CHANGELOG.md has no changes under '## Unreleased': there is nothing to release"
        )
    earlier = [title.partition(" ")[0] for title in sections(changelog) if title != "Unreleased"]
    if any(_number(new) <= _number(each) for each in earlier):
        raise ValueError(
            f"{new} is not later than {earlier[0]}, which CHANGELOG.md has: pass a later version"
        )
    return changelog.replace(UNRELEASED, f"## {new} ({day.isoformat()})\n", 1)


def problem(tag: str, *, declared: str, changelog: str) -> str | None:
    """Return why a tag cannot be published, None if it can."""
    if tag != f"v{declared}":
        return (
            f"the tag {tag} is not v{declared}, the version in cdc_formats/__init__.py: run `make "
            "release` and tag its commit"
        )
    newest = next(iter(sections(changelog)), "nothing")
    if not re.fullmatch(rf"{re.escape(declared)} \(\d{{4}}-\d\d-\d\d\)", newest):
        return (
            f"CHANGELOG.md begins with {newest!r}: run `make release VERSION={declared}`, and tag "
            "its commit"
        )
    return None


def main(arguments: list[str]) -> str | None:
    """Run a command; return what is wrong, None if nothing is."""
    match arguments:
        case ["prepare", new]:
            try:
                CHANGELOG.write_text(
                    prepared(CHANGELOG.read_text("utf-8"), new, date.today()), "utf-8"
                )
            except ValueError as error:
                return str(error)
            VERSION.write_text(
                re.sub(
                    '(?m)^__version__ = ".+"$', f'__version__ = "{new}"', VERSION.read_text("utf-8")
                ),
                "utf-8",
            )
            return None
        case ["check", tag]:
            changelog = CHANGELOG.read_text("utf-8")
            wrong = problem(tag, declared=version(), changelog=changelog)
            if wrong is None:
                print(next(iter(sections(changelog).values())))
            return wrong
        case _:
            return __doc__


def _number(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
