"""The first pass with and without columns, so that tests can compare them."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from cdc_formats import Ignored
from cdc_formats.events import Headers, KeyValue
from cdc_formats.format import Format
from cdc_formats.values.schema import columns
from normalize.core.changes import ChangeBatch, decode_block
from normalize.core.guard import GUARD, decode_summary
from normalize.core.output import decode_side_outputs
from normalize.core.records import DECODE_COUNTS
from normalize.decode.collectors import Blocks, CollectorMaker
from normalize.decode.columnar import ColumnarDecoder, ColumnarMaker, Refused, one_by_one
from normalize.decode.decode_pass import decode_pass, records_of
from normalize.decode.plan import DecodePlan
from normalize.monitoring.watch import COLUMN as COUNTS_COLUMN

Record = KeyValue | tuple[bytes | None, bytes | None, Headers]
together = partial(ColumnarDecoder.of, fewest=1, fewest_in_avro=1, native=False)
"""The decoder of many messages together, which also decodes a few."""
natively = partial(ColumnarDecoder.of, fewest=1, fewest_in_avro=1)
"""Same as `together`, with the native decoder in front of it if it is installed."""
_HEADERS = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


class Outcome(NamedTuple):
    """The result of the first pass for some records, by key group."""

    changes: dict[int, list[Any]]
    partials: dict[int, list[Any]]
    positions: dict[int, list[Any]]
    guard: list[Any]
    side_outputs: list[Any]
    counts: list[Any]


def source_of(
    format: Format,
    schema: str,
    primary_key: Sequence[str],
    metadata: Mapping[str, str] | None = None,
    **arguments: Any,
) -> DecodePlan:
    """Return the arguments of the first pass: bad records are rows, and control events, too."""
    settings = {
        "mode": "PERMISSIVE",
        "control_events": frozenset(Ignored),
        "topic": "t",
        "key_groups": 4,
        **arguments,
    }
    return DecodePlan(format, columns(schema), tuple(primary_key), metadata or {}, **settings)


def all_metadata(format: Format) -> dict[str, str]:
    return {f"meta_{name}": name for name in (*format.metadata, "offset", "timestamp")}


def batch_of(records: Sequence[Record], start: int = 0) -> pa.RecordBatch:
    """Return records of one partition as Spark's Kafka source does.

    A third element of a record is the list of its headers.
    """
    number = range(start, start + len(records))
    return pa.RecordBatch.from_pydict(
        {
            "key": pa.array([record[0] for record in records], pa.binary()),
            "value": pa.array([record[1] for record in records], pa.binary()),
            "headers": pa.array([_headers(*record[2:]) for record in records], _HEADERS),
            "partition": pa.array([0] * len(records), pa.int32()),
            "offset": pa.array(number, pa.int64()),
            "stamp": pa.array([1_600_000_000_000 + place for place in number], pa.int64()),
            "timestamp": pa.array(
                [(1_600_000_000_000 + place) * 1000 for place in number], pa.int64()
            ),
        }
    )


def _headers(headers: Headers = ()) -> Any:
    return [{"key": name, "value": value} for name, value in headers] or None


def outcome(
    plan: DecodePlan,
    records: Sequence[Record],
    *,
    columnar: ColumnarMaker,
    target: CollectorMaker = Blocks,
) -> Outcome:
    """Return the result of the first pass with a decoder: `together` or `one_by_one`."""
    notices: list[Any] = []
    result = Outcome({}, {}, {}, [], [], notices)
    for batch in decode_pass(
        iter([batch_of(records)]),
        plan=plan,
        collector=target,
        report=notices.extend,
        columnar=columnar,
    ):
        for row in batch.to_pylist():
            if row[COUNTS_COLUMN] is not None:
                row[COUNTS_COLUMN] = dict(zip(DECODE_COUNTS, row[COUNTS_COLUMN], strict=True))
            if target is Blocks:
                _add(result, plan, row)
            else:
                result.changes.setdefault(0, []).append(repr(row))
    return result


def _add(result: Outcome, plan: DecodePlan, row: dict[str, Any]) -> None:
    if row["block"] is None or row[COUNTS_COLUMN] is not None:
        result.counts.append(row[COUNTS_COLUMN])
    elif row["key_group"] == GUARD:
        result.guard.append(_seen(row["block"]))
    else:
        block = decode_block(row["block"])
        result.side_outputs.extend(
            decode_side_outputs(block.side_outputs) if block.side_outputs else []
        )
        if block.changes:
            changes: ChangeBatch = block.unpacked(plan.shape.schema)
            group = row["key_group"]
            result.changes.setdefault(group, []).extend(
                map(repr, changes.batch.to_pylist())
            )  # repr: NaN equals NaN
            result.partials.setdefault(group, []).extend(changes.partials)
            result.positions.setdefault(group, []).extend(changes.positions)


def _seen(summary: bytes) -> Any:
    seen = decode_summary(summary)
    return seen.first_stamp, [(table.names, table.topic) for table in seen.tables]


def differences(
    plan: DecodePlan,
    records: Sequence[Record],
    target: CollectorMaker = Blocks,
    *,
    columnar: ColumnarMaker = together,
) -> list[Any]:
    """Return how the results of `one_by_one` and of another decoder differ."""
    return differences_of(
        *(outcome(plan, records, columnar=each, target=target) for each in (one_by_one, columnar))
    )


def differences_of(left: Outcome, right: Outcome) -> list[Any]:
    """Return how two results differ."""
    differences: list[Any] = []
    for name, ours, theirs in zip(Outcome._fields, left, right, strict=True):
        if ours == theirs:
            continue
        if isinstance(ours, dict):
            lists = [
                (ours.get(group, []), theirs.get(group, [])) for group in sorted({*ours, *theirs})
            ]
        else:
            lists = [(ours, theirs)]
        differences += [
            (name, *pair) for each in lists for pair in zip_longest(*each) if pair[0] != pair[1]
        ]
    return differences


def odd_places(
    plan: DecodePlan,
    records: Sequence[Record],
    *,
    keyed: bool = True,
    columnar: ColumnarMaker = together,
) -> list[int]:
    """Return the indexes of the records that are decoded one by one."""
    decoder = columnar(plan, keyed=keyed)
    ((part, kafka),) = records_of(batch_of(records), plan)
    part = part._replace(numbers=np.arange(len(part.values)))
    steps = decoder.decode(part, kafka).steps
    return [index for step in steps if isinstance(step, Refused) for index in step.indexes]


def odd_share(
    plan: DecodePlan, records: Sequence[Record], *, keyed: bool = True
) -> tuple[int, int]:
    """Return how many records are decoded one by one, and how many of them are null or empty."""
    decoded_alone = odd_places(plan, records, keyed=keyed)
    return len(decoded_alone), sum(not records[place][1] for place in decoded_alone)
