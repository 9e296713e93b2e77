"""Rewriting checkpoints with state made by hand."""

from __future__ import annotations

import pytest
from pyspark.errors import PythonException

from cdc_formats.errors import ArgumentError
from normalize.checkpoint.read_state import find_state, read_state
from normalize.checkpoint.rescale import rescale
from normalize.core.order import Epoch
from normalize.core.packing import key_group_of, pack
from normalize.core.state import Layout, read
from tests.support.states import LAYOUT, NOON_MS, group_of, rows_of, stored_by_hand


def test_positions_deletes_and_times_are_kept_when_groups_are_split(spark, tmp_path):
    layout = Layout(2, LAYOUT.columns, ("id",), with_ttl=True, with_positions=True)
    epochs = [Epoch("t[0]", "db", 3, (0, 0), (5, 0), (5, 0), since_ms=1, clock_ms=2)]
    groups = {0: [], 1: []}
    for number in range(20):
        key = pack((number,))
        name = None if number % 3 == 0 else f"n{number}"
        groups[key_group_of(key, 2)].append(
            [
                key,
                number if name else None,
                name,
                NOON_MS,
                3,
                number,
                7,
                0 if name else NOON_MS + number,
            ]
        )
    data = {
        group: group_of(layout, *zip(*rows, strict=True), epochs=epochs)
        for group, rows in groups.items()
    }
    stored_by_hand(spark, data, tmp_path / "old")
    rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), 8)
    before, after = (
        read_state(spark, str(tmp_path / name)).drop("_key_group") for name in ("old", "new")
    )
    assert rows_of(after) == rows_of(before)
    new = find_state(spark, str(tmp_path / "new")).key_groups(spark).collect()
    assert len(new) > 2
    assert all(read(bytes(group.state)).epochs == epochs for group in new)


def test_merged_positions_are_refused(spark, tmp_path):
    layout = Layout(2, LAYOUT.columns, ("id",), with_positions=True)
    empty = layout.encode(layout.empty())
    stored_by_hand(spark, {0: empty, 1: empty}, tmp_path / "old")
    with pytest.raises(ArgumentError, match="use a multiple of 2"):
        rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), 3)
    assert not (tmp_path / "new").exists()


def test_a_failure_leaves_no_new_checkpoint(spark, tmp_path):
    data = LAYOUT.encode(LAYOUT.empty())
    other = Layout(LAYOUT.key_groups, LAYOUT.columns, ("name",))
    stored_by_hand(spark, {0: data, 1: other.encode(other.empty())}, tmp_path / "old")
    with pytest.raises(PythonException, match=r"\[STATE_VERSION\].*has the primary key"):
        rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), 4)
    assert not (tmp_path / "new").exists()
