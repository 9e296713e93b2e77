"""Tests use public names: what they need of a room is what the room offers."""

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY

ROOMS = ("bench", "capture", "cdc_cli", "cdc_formats", "demo", "normalize", "tools")
OF_OTHERS = {"_fields", "_gateway", "_jvm", "_replace", "_repr_html_", "_written"}
"""Names that rooms have, too: of named tuples, Spark and Jupyter, and a column."""
LOWERED = "_FEW_RECORDS"
"""The limit of `sync_database` that tests of streams lower, so that Spark decodes the records of a
small micro-batch."""
TESTS = sorted((REPOSITORY / "tests").rglob("*.py"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@lru_cache(maxsize=1)
def private_names() -> frozenset[str]:
    """Return the private functions, classes, constants and attributes of all rooms."""
    names: set[str] = set()
    for room in ROOMS:
        for path in (REPOSITORY / room).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text("utf-8"))):
                if isinstance(node, ast.FunctionDef | ast.ClassDef):
                    names.add(node.name)
                elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                    names.add(node.id if isinstance(node, ast.Name) else node.attr)
    return frozenset(filter(is_private, names)) - OF_OTHERS


def uses(source: str) -> Iterator[str]:
    """Yield private names that a module imports, reads from others, or replaces by their path."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (f"{node.lineno}: import {name}" for name in filter(is_private, parts))
        elif isinstance(node, ast.Import):
            yield from (
                f"{node.lineno}: import {each.name}"
                for each in node.names
                if any(map(is_private, each.name.split(".")))
            )
        elif (
            isinstance(node, ast.Attribute)
            and node.attr in private_names()
            and not _is_own(node.value)
        ):
            yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("setattr", "getattr", "patch", "patch.object")
        ):
            texts = [
                each.value
                for each in node.args
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            ]
            yield from (
                f"{node.lineno}: {text}"
                for text in texts
                if is_private(name := text.rpartition(".")[2]) and name != LOWERED
            )


def _is_own(value: ast.expr) -> bool:
    return ast.unparse(value) in ("self", "cls", "super()")


@pytest.mark.parametrize(
    "path", TESTS, ids=lambda path: str(path.relative_to(REPOSITORY / "tests"))
)
def test_a_module_of_the_tests_uses_no_private_name(path: Path) -> None:
    assert list(uses(path.read_text("utf-8"))) == []


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from normalize.tables.writers.lake import _is_missing", ["1: import _is_missing"]),
        ("from normalize._sinks import lake", ["1: import _sinks"]),
        ("import normalize._sinks", ["1: import normalize._sinks"]),
        (
            "from pyspark.sql.types import _parse_datatype_string",
            ["1: import _parse_datatype_string"],
        ),
        ("lake._is_missing(error)", ["1: lake._is_missing"]),
        ("monkeypatch.setattr(lake, '_MISSING', 1)", ["1: _MISSING"]),
        (
            "monkeypatch.setattr('normalize.tables.writers.lake._MISSING', 1)",
            ["1: normalize.tables.writers.lake._MISSING"],
        ),
        # Columns, and names of Spark, of a module itself and of named tuples.
        *(
            (each, [])
            for each in (
                *("import normalize.__main__", "self._is_missing(error)", "row._corrupt_record"),
                *("df._jdf", "pair._replace(a=1)"),
            )
        ),
    ],
)
def test_only_private_names_of_the_rooms_are_found(source: str, found: list[str]) -> None:
    assert list(uses(source)) == found
