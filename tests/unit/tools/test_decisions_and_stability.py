"""The pages of decisions have the same parts.

The page on versions lists the names that are marked as unstable.
"""

import inspect
import re
from datetime import date
from importlib import import_module
from pkgutil import walk_packages

import pytest

import cdc_formats
import normalize
from tests.support.paths import REPOSITORY

DECISIONS = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))
MARK = "Unstable: a minor release may change it without a deprecation."


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_a_date_figures_and_what_would_change_it(page):
    text = page.read_text("utf-8")
    assert re.findall("^## (.+)$", text, re.M) == [
        "Decision",
        "Figures",
        "Costs of the decision",
        "What would change it",
    ]
    assert date.fromisoformat(re.search(r"^Decided on (\d{4}-\d\d-\d\d)", text, re.M)[1])
    assert f"decisions/{page.name}\n" in (REPOSITORY / "mkdocs.yml").read_text("utf-8")


def test_the_page_on_versions_lists_the_names_that_are_marked_as_unstable():
    modules = [
        import_module(module.name)
        for package in (cdc_formats, normalize)
        for module in walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]
    marked = {
        name
        for module in modules
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and MARK in (inspect.getdoc(value) or "")
    }
    page = (REPOSITORY / "docs" / "stability.md").read_text("utf-8")
    rows = page.partition("## Unstable names")[2].partition("\n## ")[0]
    listed = {
        name
        for cell in re.findall(r"^\| (`.+?) \|", rows, re.M)
        for name in re.findall(r"`(\w+)`", cell)
    }
    assert marked == listed
