"""delta-rs on tables without Spark: which it writes, what it records, and what it says of errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from normalize.tables.merge import merge_plan
from normalize.tables.targets import ConflictError, RefusedError, memory_left
from normalize.tables.writers import delta_rs

PLAN = merge_plan(["id", "name"], ["id"])
OF_READERS = ("typeWidening", "v2Checkpoint", "variantType")
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def table(folder: Path, **protocol: Any) -> DeltaTable:
    """A new table, whose protocol and properties are those of another one."""
    path = str(folder / "table")
    DeltaTable.create(path, COLUMNS, configuration=protocol.pop("configuration", None))
    if protocol:
        first = folder / "table" / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in first.read_text("utf-8").splitlines()]
        changed = [{"protocol": protocol} if "protocol" in each else each for each in actions]
        first.write_text("\n".join(map(json.dumps, changed)), "utf-8")
    return delta_rs.open_table(path, {})


def changes(*rows: tuple[str, int, str | None]) -> pa.Table:
    kinds, keys, names = zip(*rows, strict=True)
    return pa.table(
        {"row_kind": kinds, "id": pa.array(keys, pa.int64()), "name": pa.array(names, pa.string())}
    )


def rows(of: DeltaTable) -> list[tuple[int, str]]:
    return sorted(tuple(row.values()) for row in pa.table(of.to_pyarrow_table()).to_pylist())


@pytest.mark.parametrize(
    "feature",
    [
        "rowTracking",
        "domainMetadata",
        "clustering",
        "typeWidening",
        "v2Checkpoint",
        "inCommitTimestamp",
        "identityColumns",
        "allowColumnDefaults",
        "generatedColumns",
        "variantType",
        "a feature of next year",
    ],
)
def test_a_table_with_a_feature_that_no_test_proves_is_not_written(
    tmp_path: Path, feature: str
) -> None:
    of_readers = [feature] if feature in OF_READERS else []
    of = table(
        tmp_path,
        minReaderVersion=3,
        minWriterVersion=7,
        readerFeatures=of_readers,
        writerFeatures=["invariants", feature],
    )
    assert delta_rs.unsupported(of) == f"it has the feature {feature}"


def test_a_table_that_is_written_and_one_that_is_append_only(tmp_path: Path) -> None:
    for folder, configuration, reason in (
        ("a", None, ""),
        ("b", {"delta.appendOnly": "true"}, "it is append-only"),
    ):
        of = table(tmp_path / folder, configuration=configuration)
        assert delta_rs.unsupported(of) == reason


def test_a_commit_records_its_transaction_and_a_later_one_of_the_same_fails(tmp_path: Path) -> None:
    of = table(tmp_path)
    delta_rs.merge(of, PLAN, changes(("+I", 1, "a"), ("-D", 2, None)), delta_rs.Transaction("q", 7))
    frozen = delta_rs.open_table(of.table_uri, {})
    assert (rows(frozen), frozen.transaction_version("q")) == ([(1, "a")], 7)
    newer = delta_rs.open_table(of.table_uri, {})
    delta_rs.merge(newer, PLAN, changes(("+I", 2, "b")), delta_rs.Transaction("q", 8))
    # It has read 7, and other keys: only the transaction shows that another driver wrote.
    with pytest.raises(ConflictError):
        delta_rs.merge(frozen, PLAN, changes(("+I", 3, "c")), delta_rs.Transaction("q", 8))
    now = delta_rs.open_table(of.table_uri, {})
    assert rows(now) == [(1, "a"), (2, "b")]
    # Without changes there is no commit, and so no record.
    delta_rs.merge(now, PLAN, changes(("-D", 9, None)), delta_rs.Transaction("q", 9))
    assert delta_rs.open_table(of.table_uri, {}).transaction_version("q") == 8


def test_only_files_that_may_have_the_keys_are_rewritten(tmp_path: Path) -> None:
    of = table(tmp_path)
    for first in (1, 100):
        delta_rs.merge(of, PLAN, changes(("+I", first, "a"), ("+I", first + 9, "b")), None)

    def size(*keys: int, most: int = 0) -> int:
        return delta_rs.rewritten_bytes(of, "id", lambda: pa.chunked_array([keys]), most)

    assert 0 == size(50) < size(5, 11) < size(5, 105) == size(50, most=10_000)


def test_a_violated_constraint_is_named_without_values(tmp_path: Path) -> None:
    of = table(tmp_path)
    of.alter.add_constraint({"small": "id < 10"})
    with pytest.raises(RefusedError) as refused:
        delta_rs.merge(
            delta_rs.open_table(of.table_uri, {}),
            PLAN,
            changes(("+I", 77, "secret")),
            None,
            name="t",
        )
    remedy = ": correct it in its source, or drop the constraint"
    assert refused.value.args[0] == f"t: CHECK constraint small (id < 10) violated by row{remedy}"
    path = str(tmp_path / "required")
    required = pa.schema([COLUMNS[0], COLUMNS[1].with_nullable(nullable=False)])
    DeltaTable.create(path, required)
    with pytest.raises(RefusedError) as refused:
        delta_rs.merge(
            delta_rs.open_table(path, {}),
            PLAN,
            changes(("+I", 77, None), ("-D", 1, None)),
            None,
            name="t",
        )
    assert refused.value.args[0] == f"t: NOT NULL constraint violated for column: name{remedy}"


def test_pages_of_files_that_the_kernel_can_drop_are_available_memory():
    of_version_2 = "anon 900\nfile 600\ninactive_file 500\n"
    of_version_1 = "cache 600\ninactive_file 100\ntotal_inactive_file 500\n"
    for statistics in (of_version_2, of_version_1):
        assert memory_left(2000, 1600, statistics) == 900
    assert memory_left(2000, 2100, "anon 2100\n") == 0
