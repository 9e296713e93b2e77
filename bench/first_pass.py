"""CPU time of the first pass in pure Python on one core: Kafka records to packed key-group blocks.

Each format is measured in turn with messages decoded one by one, together as columns
(`normalize.decode.columnar`), and by the native decoder if it is installed and knows the plan.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa

from cdc_formats import columns, get_format
from cdc_formats.errors import ChangelogError
from cdc_formats.events import KeyValue
from cdc_formats.format import Format
from normalize.decode.collectors import Blocks
from normalize.decode.columnar import ColumnarDecoder, ColumnarMaker, one_by_one
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan, needed_columns

from .history import events
from .producers import PRODUCERS, Producer
from .settings import PLAIN, settings_of, try_settings

_BATCH = 10_000  # Spark's default number of records in an Arrow batch
_together = partial(ColumnarDecoder.of, native=False)


def first_pass(options: argparse.Namespace) -> None:
    """Print the µs of CPU time a message, for each format and the settings that it supports."""
    count = min(options.messages, 100_000)
    history = list(events(count, options.keys))
    for producer in PRODUCERS:
        messages = [producer.write(*event) for event in history]
        for settings in (PLAIN, "metadata", "source"):
            source = plan_of(producer, settings, options.key_groups)
            if source is None:
                continue
            records = list(batches(source, messages))
            shown = [
                f"{name} {seconds / count * 1e6:5.2f} µs"
                for name, seconds in _fastest(source, records, options.runs).items()
            ]
            print(f"first pass {producer.label:24} {settings:8} {', '.join(shown)}", flush=True)


def plan_of(producer: Producer, settings: str, key_groups: int) -> DecodePlan | None:
    """Return the plan of a producer's topic; None if its messages do not have what it needs."""
    format: Format = get_format(producer.format, **producer.options)
    chosen = settings_of(settings, producer.format)
    try:
        try_settings(settings, producer.format)
    except ChangelogError:  # its messages have no positions
        return None
    return DecodePlan(
        format,
        columns(producer.schema),
        (producer.key,),
        chosen.metadata,
        topic="orders",
        key_groups=key_groups,
        positions=settings == "source",
    )


def batches(plan: DecodePlan, messages: Sequence[KeyValue]) -> Iterator[pa.RecordBatch]:
    """Yield messages as the record batches that Spark sends to a worker."""
    for start in range(0, len(messages), _BATCH):
        part = messages[start : start + _BATCH]
        number = range(start, start + len(part))
        all_columns = {
            "key": pa.array([key for key, _ in part], pa.binary()),
            "value": pa.array([value for _, value in part], pa.binary()),
            "partition": pa.array([0] * len(part), pa.int32()),
            "offset": pa.array(number, pa.int64()),
            "stamp": pa.array(number, pa.int64()),
            "timestamp": pa.array(number, pa.int64()),
            "headers": pa.nulls(
                len(part), pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
            ),
        }
        names = needed_columns(plan)
        yield pa.RecordBatch.from_arrays([all_columns[name] for name in names], names=names)


def _fastest(plan: DecodePlan, records: Sequence[pa.RecordBatch], runs: int) -> dict[str, float]:
    """Return the CPU seconds of the fastest run, by the name of the decoder."""
    decoders: dict[str, ColumnarMaker] = {"one by one": one_by_one}
    columnar = ColumnarDecoder.of(plan)
    if columnar is not None:
        decoders["together"] = _together
        decoders |= {} if columnar.native is None else {"native": ColumnarDecoder.of}
    fastest = dict.fromkeys(decoders, float("inf"))
    for name in [*decoders] * runs:
        begin = time.process_time()
        _run(plan, records, decoders[name])
        fastest[name] = min(fastest[name], time.process_time() - begin)
    return fastest


def _run(plan: DecodePlan, records: Sequence[pa.RecordBatch], columnar: ColumnarMaker) -> None:
    for _ in decode_pass(
        iter(records), plan=plan, collector=Blocks, report=lambda notices: None, columnar=columnar
    ):
        pass
