"""One-sentence errors of `read_state` for checkpoints with no micro-batch yet or with cut files."""

import shutil

import pytest

from cdc_formats.errors import ArgumentError, StateDamagedError
from normalize.checkpoint.read_state import read_state
from normalize.core.arrow import pack
from tests.support.states import LAYOUT, group_of, stored_by_hand


def test_a_checkpoint_without_a_micro_batch_and_one_with_cut_files(spark, tmp_path):
    checkpoint = tmp_path / "whole"
    stored_by_hand(spark, {0: group_of(LAYOUT, [pack((1,))], [1], ["a"], [0])}, checkpoint)
    begun, cut = tmp_path / "begun", tmp_path / "cut"
    for copy in (begun, cut):
        shutil.copytree(checkpoint, copy)
    for file in (begun / "commits").iterdir():
        file.unlink()
    with pytest.raises(ArgumentError, match="has not committed a micro-batch yet"):
        read_state(spark, str(begun))
    for file in (cut / "state").rglob("*.delta"):
        file.write_bytes(file.read_bytes()[:10])
    with pytest.raises(
        StateDamagedError,
        match=f"^.STATE_DAMAGED. Spark cannot read the state in {cut}: .*EOFException",
    ) as damaged:
        read_state(spark, str(cut))
    assert "\n" not in str(damaged.value)
