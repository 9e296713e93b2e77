"""The arguments and the statement of `MergeEvery`."""

from __future__ import annotations

import pytest

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget, IcebergTarget, JdbcTarget
from normalize.sinks.databases import OneTable
from normalize.sinks.merge_every import MergeEvery
from normalize.sinks.targets import TableTarget


@pytest.mark.parametrize("interval", ["10", "10 min", "ten minutes", "-1 minutes", ""])
def test_an_interval_that_cannot_be_read_is_refused(interval: str) -> None:
    with pytest.raises(ArgumentError, match=f"the interval is '{interval}': write a number of seconds"):
        MergeEvery(DeltaTarget("/lake/t"), interval)


@pytest.mark.parametrize("target", [IcebergTarget("lake.db.t"), JdbcTarget("jdbc:postgresql://db/shop", "t")])
def test_another_kind_of_table_is_refused(target: TableTarget) -> None:
    with pytest.raises(ArgumentError, match="MergeEvery is for Delta tables, got"):
        MergeEvery(target, "10 minutes")  # type: ignore[arg-type]


def test_a_history_is_refused() -> None:
    with pytest.raises(ArgumentError, match="scd_type=2 is not supported for MergeEvery: write the history to a DeltaTarget"):
        OneTable(MergeEvery(DeltaTarget("/lake/t"), "10 minutes"), "hard", "deleted_at", 2)
