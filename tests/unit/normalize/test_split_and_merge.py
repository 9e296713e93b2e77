"""Key groups are split and merged without loss."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, strategies as st

from cdc_formats import columns
from normalize.checkpoint.rescale import merged, split
from normalize.core.order import Epoch
from normalize.core.packing import key_group_of, pack
from normalize.core.state import KeyGroup, Layout


@given(
    st.sets(st.integers(0, 10_000), min_size=1, max_size=60), st.integers(1, 9), st.integers(1, 5)
)
def test_a_group_is_split_and_merged_without_loss(ids, old, times):
    layout = Layout(old, columns("id INT"), ("id",), with_positions=True)
    keys, epochs = (
        [pack((number,)) for number in sorted(ids)],
        [Epoch("t[0]", "db", 1, (0, 0), (5, 0), (5, 0))],
    )
    places = [pa.array(np.arange(len(keys)), field.type) for field in list(layout.schema)[2:]]
    rows = pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.binary()), pa.array(sorted(ids), pa.int32()), *places],
        schema=layout.schema,
    )
    parts = split(KeyGroup(rows, epochs), old * times)
    assert len({number for number, _ in parts}) == len(parts)
    for number, part in parts:
        assert len(part)
        assert {key_group_of(key, old * times) for key in part.rows.column("key").to_pylist()} == {
            number
        }
        assert part.epochs == epochs
    whole = merged([part for _, part in parts], layout)
    assert sorted(whole.rows.to_pylist(), key=lambda row: row["c0"]) == rows.to_pylist()
