"""The arguments of `MergedDeltaTarget`, and the columns of its changes."""

from __future__ import annotations

from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget
from normalize.tables.interval import ChangesSink, MergedDeltaTarget
from normalize.tables.table_spec import TableSpec


@pytest.mark.parametrize("interval", ["10", "10 min", "ten minutes", "-1 minutes", ""])
def test_an_interval_that_cannot_be_read_is_refused(interval: str) -> None:
    with pytest.raises(
        ArgumentError, match=f"merge_every is '{interval}': pass a number of seconds"
    ):
        MergedDeltaTarget("/lake/t", interval)


def test_histories_and_positions_are_refused() -> None:
    target = MergedDeltaTarget("/lake/t", "10 minutes")
    assert (target.histories, target.positions) == (False, False)


def test_the_changes_have_the_key_the_row_and_the_time_of_a_delete() -> None:
    from pyspark.sql.types import IntegerType, StringType, StructField, TimestampType

    fields = (
        StructField("id", IntegerType()),
        StructField("a`b", StringType()),
        StructField("gone", TimestampType()),
    )
    sink: Any = ChangesSink(None, DeltaTarget("t_unmerged"))  # type: ignore[arg-type]
    assert sink.layout(
        TableSpec(fields, ("id",), create=True, on_new_column="add", deleted_column="gone")
    ) == (
        "query STRING, batch BIGINT, appended_ms BIGINT, row_kind STRING, `key` struct<`id`: int>, "
        "`row` struct<`id`: int, `a``b`: string>, `deleted` struct<`gone`: timestamp>"
    )
