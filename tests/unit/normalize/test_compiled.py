"""What a worker keeps between the tasks of the decode pass: a plan that was compiled."""

import json
import pickle
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import pyarrow as pa
import pytest

from cdc_formats import get_format
from cdc_formats.errors import ChangelogError
from normalize.decode.collectors import Blocks
from normalize.decode.columnar import ColumnarDecoder
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan
from tests.support.both_decoders import batch_of, source_of

Maxwell: Any = type(get_format("maxwell-json"))
readers: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class Counting(Maxwell):
    identifier = "counting-json"

    def reader(self, rows, keyed=False):
        readers.append(rows)
        return super().reader(rows, keyed=keyed)


def plan_of(format: Any) -> DecodePlan:
    return source_of(format, "id INT", ["id"], mode="FAILFAST", control_events=frozenset())


def messages(table: str, *ids: Any) -> pa.RecordBatch:
    values = [
        {"database": "shop", "table": table, "type": "insert", "ts": 1, "data": {"id": each}}
        for each in ids
    ]
    return batch_of([(None, json.dumps(value).encode()) for value in values])


def run(plan: DecodePlan, *batches: pa.RecordBatch) -> list[Any]:
    received = pickle.loads(pickle.dumps(plan))
    rows = decode_pass(iter(batches), plan=received, collector=Blocks, report=lambda notices: None)
    return [row for batch in rows for row in batch.to_pylist()]


def test_a_worker_compiles_a_plan_once_and_a_plan_with_other_options_again():
    plan = plan_of(Counting())
    first = run(plan, messages("a", 1))
    compiled = len(readers)
    assert compiled
    assert run(plan, messages("a", 1)) == first
    assert len(readers) == compiled
    run(plan_of(Counting(error_excerpt=False)), messages("a", 1))
    assert len(readers) > compiled


@pytest.mark.parametrize("records", [1, 100], ids=["scalar", "columnar"])
def test_tables_of_another_task_are_not_those_of_a_task(records):
    plan = plan_of(get_format("maxwell-json"))
    a, b = (messages(table, *range(records)) for table in ("a", "b"))
    assert run(plan, a)
    assert run(plan, b)
    with pytest.raises(ChangelogError, match="table"):
        run(plan, a, b)
    assert run(plan, b)
    # Two tasks of one plan at the same time: the driver decodes in threads.
    together = [
        decode_pass(iter([each] * 3), plan=plan, collector=Blocks, report=lambda notices: None)
        for each in (a, b)
    ]
    assert len(list(zip_longest(*together))) > 1


def test_a_task_that_failed_leaves_nothing():
    plan = plan_of(get_format("maxwell-json"))
    for _ in range(2):
        with pytest.raises(ChangelogError, match="INT"):
            run(plan, messages("a", "one"))
    assert run(plan, messages("b", 1))


def test_few_records_are_decoded_one_by_one():
    decoded = []

    class Decoder(ColumnarDecoder):
        def decode(self, records, kafka):
            decoded.append(len(records.values))
            return super().decode(records, kafka)

    plan = plan_of(get_format("maxwell-json"))
    for count in (1, 23, 24):
        passed = decode_pass(
            iter([messages("a", *range(count))]),
            plan=plan,
            collector=Blocks,
            report=lambda notices: None,
            columnar=Decoder.of,
        )
        assert list(passed)
    assert decoded == [24]
