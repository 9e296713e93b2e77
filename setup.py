"""What setup.cfg cannot say: the project's links, and the README with links that work outside of the repository.

Both are made from one setting, ``repository`` in the section ``[project]`` of setup.cfg. Without it, the package has no links.
"""

from __future__ import annotations

import re
from configparser import ConfigParser
from pathlib import Path

HERE = Path(__file__).parent
PAGES = {"Source": "", "Documentation": "/tree/main/docs", "Changelog": "/blob/main/CHANGELOG.md", "Issues": "/issues"}


def repository() -> str:
    """Return the repository's address, "" if the owner has not set it."""
    settings = ConfigParser()
    settings.read(HERE / "setup.cfg", encoding="utf-8")
    return settings["project"]["repository"].rstrip("/")


def version() -> str:
    """Return `cdc_formats.__version__`."""
    return re.findall('^__version__ = "(.+)"$', (HERE / "cdc_formats" / "__init__.py").read_text("utf-8"), re.M)[0]


def absolute_links(markdown: str, address: str, tag: str) -> str:
    """Return a page of the repository whose links lead to the files at a tag; without an address, the page itself."""
    if not address:
        return markdown
    return re.sub(
        r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)]+)\)",
        lambda link: f"{link[1]}{link[2]}({address}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})",
        markdown,
    )


def links(address: str) -> dict[str, str]:
    """Return the project's links by their title; none without an address."""
    return {title: address + path for title, path in PAGES.items()} if address else {}


if __name__ == "__main__":
    from setuptools import setup

    setup(
        long_description=absolute_links((HERE / "README.md").read_text("utf-8"), repository(), f"v{version()}"),
        project_urls=links(repository()),
    )
