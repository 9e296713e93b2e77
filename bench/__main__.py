"""``python -m bench``: rows per second of decode, of the stage, and of the whole, from Kafka to a consumer of all row kinds.

python -m bench                                          # its own broker and topic: 1,000,000 messages over 100,000 keys
python -m bench --messages 200000 --state rocksdb
python -m bench --servers localhost:9092 --topic orders  # a topic that is there, of the same columns
python -m bench --only whole --flink --state both --format debezium-json,canal-json   # Apache Flink on the same topics beside it
python -m bench --only costs                             # where a message's CPU time goes
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from importlib.metadata import version
from typing import Any

import numpy as np

from cdc_formats import columns, get_format
from normalize.changelog_normalize import KEY_GROUPS, make_stage
from normalize.changes import Shape, decode_block
from normalize.records import Records
from normalize.stage import normalize
from normalize.targets import Blocks
from normalize.typed import Output

from .costs import costs
from .history import FORMAT_OPTIONS, SCHEMA, events, message
from .producers import PRODUCERS
from .report import report
from .topics import FORMATS
from .whole import whole

PARTS = ("decode", "stage", "whole", "costs")


def main() -> None:
    """Run what was asked for, and print it."""
    options = parse()
    print(f"machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}; Python {platform.python_version()}; "
          + ", ".join(f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "msgspec", "pandas")))  # fmt: skip
    parts = options.only or PARTS[:3]
    for name, part in zip(PARTS, (decode, stage, whole, costs), strict=True):
        if name in parts:
            part(options)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; leave with a sentence where they do not fit together."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--key-groups", type=int, default=KEY_GROUPS)
    parser.add_argument("--batch", type=int, default=250_000, help="messages in a micro-batch")
    parser.add_argument("--runs", type=int, default=3, help="of the whole, of Flink, and of each of the costs")
    parser.add_argument("--warm-up", type=int, default=1, help="runs before them that are not counted, of each")
    parser.add_argument("--format", type=_formats, default=FORMATS[:1], help=f"of the whole, with commas between: {', '.join(FORMATS)}")
    parser.add_argument("--state", choices=("heap", "rocksdb", "both"), default="heap", help="state store of the whole")
    parser.add_argument("--flink", action="store_true", help="run Flink too, on the same topics (fetches 180 MB, once; needs a JDK)")
    parser.add_argument("--servers", help="a broker that is there; default: a local one of its own")
    parser.add_argument("--topic", help="a topic that is there, with the benchmark's columns; its counts are not checked")
    parser.add_argument("--only", choices=PARTS, action="append", help="default: all but costs")
    options = parser.parse_args(arguments)
    if options.runs < 1 or options.warm_up < 1:
        parser.error("--runs and --warm-up are at least 1")
    if (options.topic is None) != (options.servers is None):
        parser.error("--servers and --topic go together: a broker that is there, and a topic of it")
    if options.topic and len(options.format) > 1:
        parser.error("--topic is of one --format")
    return options


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(FORMATS)}")
    return names


def timed(work: Any, runs: int = 5) -> list[float]:
    """Return the seconds that each run of `work` takes."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


def decode(options: argparse.Namespace) -> None:
    """Decode in pure Python, on one core, each format's own messages: as a changelog, and as what the stage reads."""
    count = min(options.messages, 100_000)
    history = list(events(count, options.keys))
    for name, settings, write, schema, key in PRODUCERS:
        messages = [write(*event) for event in history]
        decoder = get_format(name, **settings).decoder(schema, unique_key=[key])
        label = f"{name} {settings.get('value_format', '')}".strip()
        for what, run in (("changelog", decoder.decode), ("stage", decoder.upserts)):
            report(
                f"decode {label}, {what}",
                count,
                timed(lambda run=run, messages=messages: [None for each in messages if run(*each) is None]),
            )


def stage(options: argparse.Namespace) -> None:
    """Fold packed blocks into state in pure Python, on one core: what the stage's worker does to a micro-batch."""
    count = min(options.messages, options.batch)
    table = columns(SCHEMA)
    decoder = get_format("debezium-json", **FORMAT_OPTIONS).decoder(table, unique_key=["id"])
    shape, offsets = Shape(table), np.arange(count)
    target = Blocks(Output(table), options.key_groups, shape)
    decoded = [decoder.upserts(*message(*event)) for event in events(count, options.keys)]
    target.take(Records("t", 0, offsets, offsets, [], []), decoded, {})
    blocks = [(row["key_group"], decode_block(row["block"])) for batch in target.flush() for row in batch.to_pylist()]
    made = make_stage(shape, ("id",), generate_update_before=True, key_groups=options.key_groups, streaming=True)

    def fold() -> dict[int, bytes | None]:
        return {group: normalize([block], None, made, 0)[1] for group, block in blocks}

    report("stage, packed to packed", count, timed(fold), f", one core, {options.key_groups} key groups")


if __name__ == "__main__":
    main()
