"""The sink of docs/tasks/your-own-sink.md is written by `apply_batch` like any other."""

import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError, SchemaError
from normalize.tables.apply import apply_batch
from normalize.tables.targets import TargetError
from tests.support.pages import PAGES, blocks
from tests.support.sinking import STORY, changelog

PAGE = "docs/tasks/your-own-sink.md"


@pytest.fixture(scope="module")
def page() -> Iterator[ModuleType]:
    """The page's file, as a module."""
    module = sys.modules["sqlite_sink"] = ModuleType("sqlite_sink")
    exec(compile(blocks(PAGES[PAGE])[0].source, PAGE, "exec"), vars(module))
    yield module
    del sys.modules["sqlite_sink"]


def rows(target: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(target.path)) as connection:
        return sorted(
            connection.execute(
                "SELECT * FROM {}".format('"' + target.name.replace('"', '""') + '"')
            )
        )


def test_changes_are_applied_once_and_twice(
    spark: SparkSession, page: ModuleType, tmp_path: Path
) -> None:
    target = page.SqliteTarget(str(tmp_path / "shop.db"), 'pro"ducts')
    for _ in range(2):
        apply_batch(changelog(spark, "id INT, name STRING", STORY), target, keys="id")
        assert rows(target) == [(1, "c"), (2, "e")]
    apply_batch(
        changelog(spark, "id INT, name STRING", [("-D", 1, "c"), ("+I", 1, "f"), ("-D", 2, "e")]),
        target,
        keys="id",
    )
    assert rows(target) == [(1, "f")]


def test_new_columns_are_refused_added_or_ignored(
    spark: SparkSession, page: ModuleType, tmp_path: Path
) -> None:
    target = page.SqliteTarget(str(tmp_path / "shop.db"), "products")
    apply_batch(changelog(spark, "id INT", [("+I", 1)]), target, keys="id")
    wide = changelog(spark, "id INT, `a b` DECIMAL(9,2)", [("+U", 1, None)]).selectExpr(
        "row_kind", "id", "1.50BD AS `a b`"
    )
    with pytest.raises(
        SchemaError, match='has no column a b: run ALTER TABLE "products" ADD COLUMN "a b"'
    ):
        apply_batch(wide, target, keys="id")
    apply_batch(wide, target, keys="id", on_new_column="ignore")
    assert rows(target) == [(1,)]
    apply_batch(wide, target, keys="id", on_new_column="add")
    assert rows(target) == [(1, "1.50")]


def test_what_the_sink_does_not_have_is_refused(
    spark: SparkSession, page: ModuleType, tmp_path: Path
) -> None:
    target = page.SqliteTarget(str(tmp_path / "shop.db"), "products")
    changes = changelog(spark, "id INT, at INT", [("+I", 1, 1)])
    with pytest.raises(ArgumentError, match="scd_type=2 is not supported for SqliteTarget"):
        apply_batch(changes, target, keys="id", sequence_by="at", scd_type=2)
    with pytest.raises(TargetError, match="has no soft deletes"):
        apply_batch(changes, target, keys="id", deletes="soft")
    with pytest.raises(TargetError, match="does not exist: create it, or set create=True"):
        apply_batch(
            changes, page.SqliteTarget(str(tmp_path / "other.db"), "t"), keys="id", create=False
        )
