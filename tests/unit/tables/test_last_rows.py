"""The last change of each key as Arrow's columns, in the order of arrival."""

from random import Random
from typing import Any

import pyarrow as pa

from normalize.tables.latest import check_rows, last_rows
from tests.support.error_texts import error_test
from tests.support.sinking import random_changelog

_SCHEMA = pa.schema(
    [("row_kind", pa.string()), ("example", pa.int32()), ("id", pa.int64())]
).append(pa.field("value", pa.int64()))
_KEYS = ("example", "id")


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], _SCHEMA
    )


def test_the_last_change_agrees_with_a_dict_also_if_held_rows_are_reduced() -> None:
    random, rows, last = Random(1), [], {}
    for example in range(3_000):
        for kind, key, value in random_changelog(Random(example), 20, {}):
            rows.append((kind, example % 50, key, value))
            last[example % 50, key] = value if kind in ("+I", "+U") else None
    assert len(rows) > 65_536
    batches, at = [], 0
    while at < len(rows):
        size = random.randrange(1, 9_000)
        batches.append(batch_of(rows[at : at + size]))
        at += size
    found = pa.Table.from_batches(last_rows(batches, keys=_KEYS))
    assert {
        (row["example"], row["id"]): row["value"] if row["row_kind"] in ("+I", "+U") else None
        for row in found.to_pylist()
    } == last
    assert len(found) == len(last)
    check_rows(found, _KEYS)


test_error_texts = error_test(
    __file__,
    {
        **{
            f"an unknown last change is an error, {number}": lambda tasks=tasks: check_rows(
                pa.Table.from_batches(
                    [each for task in tasks for each in last_rows([batch_of(task)], keys=_KEYS)]
                ),
                _KEYS,
            )
            for number, tasks in enumerate(
                [
                    [[(None, 1, 1, 1), ("+I", 1, 1, 2)]],
                    [[("?", 1, 1, 1), ("+U", 1, 1, 1)]],
                    [[("+I", 1, None, 1)]],
                    [[("+I", 1, 1, 1)], [("-D", 1, 1, 1)]],
                ],
                1,
            )
        },
    },
)
