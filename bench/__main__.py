"""``python -m bench``: speed of decoding, first pass, stage, and whole query (Kafka to consumer).

python -m bench                       # a local broker; 1,000,000 messages over 100,000 keys
python -m bench --messages 200000 --state rocksdb
python -m bench --servers localhost:9092 --topic orders      # a topic with the same columns
# also Apache Flink, on the same topics:
python -m bench --only whole --flink --state both --format debezium-json,canal-json
# also with the settings of a production job:
python -m bench --only whole --settings plain,metadata+validate+source
# also what a user writes without this library; Iceberg beside Delta needs Spark 4.0 or 4.1:
python -m bench --only whole --by-hand --recipes "sync_table|MERGE"
python -m bench --only costs          # where a message's CPU time goes
python -m bench --only small          # what few messages cost
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from importlib.metadata import version
from itertools import product
from typing import Any

import numpy as np

from cdc_formats import columns, get_format
from cdc_formats.errors import ChangelogError
from normalize.core.changes import Shape, decode_block
from normalize.core.output import Output
from normalize.core.records import Records
from normalize.decode.collectors import Blocks
from normalize.engines.key_groups import normalize
from normalize.query import ChangelogNormalize
from normalize.stage_options import KEY_GROUPS, make_stage

from .costs import costs
from .first_pass import first_pass
from .history import FORMAT_OPTIONS, SCHEMA, events, message
from .producers import PRODUCERS
from .report import report
from .settings import MINI_BATCH, NAMES, NATIVE, try_settings
from .small import small
from .topics import FORMATS
from .whole import whole

PARTS = ("decode", "pass", "stage", "whole", "costs", "small")


def main() -> None:
    """Run the requested benchmarks and print the results."""
    options = parse()
    print(
        (
            f"machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}; Python "
            f"{platform.python_version()}; "
        )
        + ", ".join(
            f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "msgspec", "pandas")
        )
    )
    parts = options.only or PARTS[:4]
    for name, part in zip(PARTS, (decode, first_pass, stage, whole, costs, small), strict=True):
        if name in parts:
            part(options)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options; exit with an error if they cannot be combined."""
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--key-groups", type=int, default=KEY_GROUPS)
    parser.add_argument("--batch", type=int, default=250_000, help="messages in a micro-batch")
    parser.add_argument(
        "--runs", type=int, default=3, help="measured runs of each query, and of Flink"
    )
    parser.add_argument(
        "--warm-up", type=int, default=1, help="runs before them that are not measured"
    )
    parser.add_argument(
        "--format",
        type=_formats,
        default=FORMATS[:1],
        help=f"formats for the whole query, comma-separated: {', '.join(FORMATS)}",
    )
    parser.add_argument(
        "--state",
        choices=("heap", "rocksdb", "both"),
        default="heap",
        help="state store of the whole query",
    )
    parser.add_argument(
        "--flink",
        action="store_true",
        help="also run Flink on the same topics (downloads 180 MB, once; requires a JDK)",
    )
    parser.add_argument(
        "--by-hand",
        action="store_true",
        help=(
            "also run recipes without this library, and this library into the same Delta table, "
            "and Iceberg table if Spark's version has a package of it"
        ),
    )
    parser.add_argument(
        "--recipes", default="", help="only the recipes of --by-hand that match this pattern"
    )
    parser.add_argument(
        "--settings",
        type=_settings,
        default=NAMES[:1],
        help=(
            "this library's settings for the whole query and the costs, comma-separated: "
            f"{', '.join(NAMES)}, or several joined by +"
        ),
    )
    parser.add_argument("--servers", help="an existing broker; default: start a local one")
    parser.add_argument(
        "--topic", help="an existing topic with the benchmark's columns; its counts are not checked"
    )
    parser.add_argument(
        "--only", choices=PARTS, action="append", help="default: all but costs and small"
    )
    options = parser.parse_args(arguments)
    if options.runs < 1 or options.warm_up < 0:
        parser.error("--runs must be at least 1, and --warm-up at least 0")
    if (options.topic is None) != (options.servers is None):
        parser.error(
            "--servers and --topic must be given together: an existing broker and its topic"
        )
    if options.topic and len(options.format) > 1:
        parser.error("--topic requires exactly one --format")
    if options.by_hand and ("debezium-json" not in options.format or options.topic):
        parser.error(
            "--by-hand requires --format debezium-json, and a topic that the benchmark writes: "
            "remove --topic"
        )
    if "costs" in (options.only or ()) and any(
        {NATIVE, MINI_BATCH} & set(each.split("+")) for each in options.settings
    ):
        parser.error(
            "--only costs measures the steps of key groups that keep every change: remove "
            f"{NATIVE} and {MINI_BATCH} from --settings"
        )
    for settings, format in product(options.settings, options.format):
        try:
            try_settings(settings, format)
        except ChangelogError as error:
            parser.error(
                f"--settings {settings} cannot be combined with --format {format}: {error}"
            )
    return options


def _settings(text: str) -> tuple[str, ...]:
    for name in text.replace("+", ",").split(","):
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(NAMES)}")
    return tuple(text.split(","))


def _formats(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in FORMATS:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(FORMATS)}")
    return names


def timed(work: Any) -> list[float]:
    """Return the seconds of each of five runs of `work`."""
    seconds = []
    for _ in range(5):
        begin = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - begin)
    return seconds


def decode(options: argparse.Namespace) -> None:
    """Measure pure Python decoding of each format on one core, as a changelog and for the stage."""
    count = min(options.messages, 100_000)
    history = list(events(count, options.keys))
    for producer in PRODUCERS:
        messages = [producer.write(*event) for event in history]
        decoder = get_format(producer.format, **producer.options).decoder(
            producer.schema, unique_key=[producer.key]
        )
        for what, run in (("changelog", decoder.decode), ("stage", decoder.upserts)):
            report(
                f"decode {producer.label}, {what}",
                count,
                timed(
                    lambda run=run, messages=messages: [
                        None for each in messages if run(*each) is None
                    ]
                ),
            )


def stage(options: argparse.Namespace) -> None:
    """Measure the folding of packed blocks into state in pure Python on one core.

    The stage does the same for a micro-batch.
    """
    count = min(options.messages, options.batch)
    table = columns(SCHEMA)
    decoder = get_format("debezium-json", **FORMAT_OPTIONS).decoder(table, unique_key=["id"])
    shape, offsets = Shape(table), np.arange(count)
    target = Blocks(Output(table), options.key_groups, shape)
    decoded = [decoder.upserts(*message(*event)) for event in events(count, options.keys)]
    target.take(Records("t", 0, offsets, offsets, [], []), decoded)
    blocks = [
        (row["key_group"], decode_block(row["block"]))
        for batch in target.flush()
        for row in batch.to_pylist()
    ]
    made = make_stage(
        ChangelogNormalize(key_groups=options.key_groups), shape, ("id",), streaming=True
    )

    def fold() -> dict[int, bytes | None]:
        return {group: normalize([block], None, made, 0)[1] for group, block in blocks}

    report(
        "stage, packed to packed",
        count,
        timed(fold),
        f", one core, {options.key_groups} key groups",
    )


if __name__ == "__main__":
    main()
