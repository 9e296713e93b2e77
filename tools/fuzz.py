"""Feed damaged real messages to the formats; only changes, `Ignored` and `DecodeError` are allowed.

    python -m tools.fuzz              # 1,000,000 messages for every registered format
    python -m tools.fuzz --format canal-json --messages 50000 --seed 7
    CDC_TOPICS=/path/to/topics python -m tools.fuzz         # recorded topics of another folder

The messages are the tests' vectors and recorded topics. They are decoded with several sets of
options, as a changelog and for a keyed stage, with all metadata, control events, and
``validate=True``. A finding is printed as code that reproduces it, and the exit code is 1. The same
seed produces the same messages.
"""

from __future__ import annotations

import argparse
import base64
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from cdc_formats import Ignored, get_format, list_formats
from cdc_formats.decoder import Decoder
from cdc_formats.errors import DecodeError, FormatOptionError, InferenceError, SchemaError
from cdc_formats.events import KeyValue
from cdc_formats.format import Format
from cdc_formats.testing import check_record, damaged
from cdc_formats.topics.inference import infer_schema
from tests.support.paths import REPOSITORY
from tests.support.samples import recording
from tests.support.scenarios import CASES, FORMATS, REQUIRED, rejects

TOPICS = Path(os.environ.get("CDC_TOPICS") or REPOSITORY / "demo" / "topics")
MESSAGES = 1_000_000
CHUNK = 2_000
MOST_RECORDS = 500  # of one recorded topic
MOST_SECONDS = 2.0  # CPU time for one message
FROM_OTHERS, AT_RANDOM, CONTROL = 0.02, 0.03, 0.2  # shares of the messages

RECORDED = {
    "__debezium": "debezium-json",
    "canal-": "canal-json",
    "dbz19-postgres-json": "debezium-json",
    "dbz34-mariadb-json": "debezium-json",
    "dbz34-postgres-json": "debezium-json",
    "dbz34-mariadb-unwrap": "debezium-flat-json",
    "dbz34-mariadb-upsert.": "debezium-flat-json",
    "dbz34b-mariadb-upsertplain": "debezium-flat-json",
    "flink-ogg": "ogg-json",
    "maxwell-": "maxwell-json",
}
"""The format by the first characters of a recording's name."""
TABLES = ("customers", "all_types")
"""The tables to read from a topic with several tables."""
VARIATIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"error_excerpt": False},
    {"validate": True},
    {"time_zone": "Europe/Berlin"},
    {"decimal_handling_mode": "precise", "time_precision_mode": "adaptive"},
    {"decimal_handling_mode": "string", "time_precision_mode": "isostring"},
    {"decimal_handling_mode": "double", "time_precision_mode": "connect"},
    {"binary_handling_mode": "hex"},
    {"binary_handling_mode": "base64", "bigint_unsigned_handling_mode": "long"},
    {"schema_include": True},
    {"schema_include": False},
    {"database_include": ".*", "table_include": ".*"},
    {"json_null": "delete"},
    {"keyless": True},
    {"include_null_and_empty": True, "before_image_prefix": "BI_"},
    {"missing_columns": "null"},
    {"missing_columns": "unchanged"},
)
"""Sets of options; each is used with the formats that have all of its options."""


@dataclass(frozen=True)
class Subject:
    """Records, and the options and schema to read them with."""

    format: str
    options: Mapping[str, Any]
    schema: str
    primary_key: Sequence[str]
    records: Sequence[KeyValue]

    @cached_property
    def decoders(self) -> list[Callable[[], Decoder | None]]:
        """Functions that return decoders with `VARIATIONS`, the plain one first.

        A function returns None if the options do not fit the columns.
        """
        declared = {option.name for option in fields(FORMATS[self.format])}
        variations = [variation for variation in VARIATIONS if set(variation) <= declared]
        with_metadata = [
            (variation, each)
            for variation in variations
            for each in ((False,) if variation else (False, True))
        ]
        return [lru_cache(maxsize=1)(partial(self._decoder, *each)) for each in with_metadata]

    def _decoder(self, variation: Mapping[str, Any], metadata: bool) -> Decoder | None:
        try:
            format = get_format(
                self.format, **{**REQUIRED.get(self.format, {}), **self.options, **variation}
            )
            return format.decoder(
                self.schema,
                unique_key=self.primary_key,
                metadata=tuple(format.metadata) if metadata else (),
            )
        except (FormatOptionError, SchemaError):
            return None


class Finding(NamedTuple):
    """A record that breaks the contract, with code that reproduces the failure."""

    decoder: Decoder
    key: bytes | None
    value: bytes | None
    error: str

    def __str__(self) -> str:
        def shown(data: bytes | None) -> str:
            return "None" if data is None else f"b64decode({base64.b64encode(data).decode()!r})"

        format, columns = self.decoder.format, ", ".join(map(str, self.decoder.columns))
        return "\n".join(
            [
                self.error,
                "",
                "from base64 import b64decode",
                f"from {type(format).__module__} import {type(format).__name__}",
                "from cdc_formats.testing import check_record",
                f"format = {format!r}",
                f"decoder = format.decoder({columns!r}, unique_key={self.decoder.unique_key!r}, "
                f"metadata={tuple(column.name for column in self.decoder.metadata_columns)!r})",
                f"key, value = {shown(self.key)}, {shown(self.value)}",
                "check_record(decoder, key, value)",
                "format.control_event(key, value, decoder.decode(key, value))",
            ]
        )


# --------------------------------------------------------------------------------------------------
# the messages


@lru_cache(maxsize=None)
def subjects(identifier: str) -> list[Subject]:
    """Return all records that a format is tested with."""
    return [*_of_vectors(identifier), *_of_recordings(identifier)]


def _of_vectors(identifier: str) -> Iterator[Subject]:
    for scenario, name in CASES:
        if name == identifier:
            vector = scenario.vector(name)
            yield Subject(name, vector.options, vector.schema, vector.primary_key, vector.records)
    for _, reject in rejects(identifier):
        yield Subject(
            identifier,
            reject.options,
            reject.schema,
            reject.primary_key,
            [(reject.key, reject.value)],
        )


def _of_recordings(identifier: str) -> Iterator[Subject]:
    for path in sorted((TOPICS / "records").glob("*.jsonl.gz")):
        if identifier == next(
            (format for begin, format in RECORDED.items() if path.name.startswith(begin)), None
        ):
            yield from _of_recording(identifier, read_recording(path))


def _of_recording(identifier: str, records: Sequence[KeyValue]) -> Iterator[Subject]:
    try:
        inferred = [infer_schema(records, format=identifier)]
    except InferenceError as error:
        tables = [table for table in TABLES if f".{table} (" in str(error)]
        inferred = [
            infer_schema(records, format=identifier, table_include=table) for table in tables
        ]
    for each in inferred:
        yield Subject(identifier, each.format_options, each.ddl, each.primary_key, records)


def read_recording(path: Path) -> list[KeyValue]:
    """Return records that are spread evenly over a recording."""
    records = list(recording(path))
    return [
        (record.key, record.value) for record in records[:: max(len(records) // MOST_RECORDS, 1)]
    ]


@lru_cache(maxsize=None)
def _of_all_formats() -> list[bytes]:
    vectors = (scenario.vector(name) for scenario, name in CASES)
    return [value for vector in vectors for _, value in vector.records if value]


def mutated(record: KeyValue, draw: random.Random) -> KeyValue:
    """Return a record with a damaged key, a damaged value, or another value."""
    key, value = record
    kind = draw.random()
    if kind < FROM_OTHERS:
        return key, damaged(draw.choice(_of_all_formats()), draw)
    if kind < FROM_OTHERS + AT_RANDOM:
        return key, draw.randbytes(draw.randrange(60))
    if key is not None and draw.randrange(5) == 0:
        return damaged(key, draw), value
    return key, damaged(value or b"", draw)


# --------------------------------------------------------------------------------------------------
# the check


def fuzz(task: tuple[str, int, int]) -> tuple[int, str]:
    """Test a format with damaged messages; return their number and the finding or an empty text.

    Parameters
    ----------
    task : tuple of (str, int, int)
        The format's identifier, the seed, how many messages.
    """
    identifier, seed, messages = task
    draw = random.Random(seed)
    for number in range(messages):
        subject, decoder = _drawn(identifier, draw)
        key, value = mutated(draw.choice(subject.records), draw)
        error = broken(decoder, key, value, control=draw.random() < CONTROL)
        if error:
            return number + 1, str(Finding(decoder, key, value, error))
    return messages, ""


def _drawn(identifier: str, draw: random.Random) -> tuple[Subject, Decoder]:
    while True:
        subject = draw.choice(subjects(identifier))
        if decoder := draw.choice(subject.decoders)():
            return subject, decoder


def broken(
    decoder: Decoder, key: bytes | None, value: bytes | None, *, control: bool = True
) -> str:
    """Return how a record breaks the contract, or an empty text."""
    begin = time.process_time()
    try:
        check_record(decoder, key, value)
        if control:
            _check_control(decoder.format, decoder, key, value)
    except AssertionError as error:
        return str(error)
    except Exception as error:
        return f"{type(error).__name__}, which is not a DecodeError: {error}"
    seconds = time.process_time() - begin
    return _slow(decoder, key, value) if seconds > MOST_SECONDS else ""


def _slow(decoder: Decoder, key: bytes | None, value: bytes | None) -> str:
    # On a busy machine any record can be slow once: use the fastest of three runs.
    taken = []
    for _ in range(3):
        begin = time.process_time()
        check_record(decoder, key, value)
        taken.append(time.process_time() - begin)
    return f"it takes {min(taken):.1f} s" if min(taken) > MOST_SECONDS else ""


def _check_control(
    format: Format, decoder: Decoder, key: bytes | None, value: bytes | None
) -> None:
    try:
        result = decoder.decode(key, value)
        if isinstance(result, Ignored):
            format.control_event(key, value, result)
    except DecodeError:
        return


def main(arguments: Sequence[str] | None = None) -> int:
    """Fuzz the requested formats; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", choices=list_formats(), action="append", help="default: all")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="for each format")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    options = parser.parse_args(arguments)
    with multiprocessing.get_context("spawn").Pool(options.processes) as pool:
        for identifier in options.format or list_formats():
            finding = _fuzz_format(pool, identifier, options)
            if finding:
                print(f"\n{identifier} broke the contract, seed {options.seed}:\n\n{finding}")
                return 1
    return 0


def _fuzz_format(pool: Any, identifier: str, options: Any) -> str:
    chunks = -(-options.messages // CHUNK)
    sizes = [min(CHUNK, options.messages - number * CHUNK) for number in range(chunks)]
    tasks = [
        (identifier, options.seed * 1_000_003 + number, size) for number, size in enumerate(sizes)
    ]
    tried, begin, shown = 0, time.monotonic(), 0.0
    for count, finding in pool.imap_unordered(fuzz, tasks):
        tried += count
        seconds = time.monotonic() - begin
        if finding or tried == options.messages or seconds - shown > 10:
            shown = seconds
            print(f"{identifier}: {tried:,} messages, {tried / seconds:,.0f} a second", flush=True)
        if finding:
            return str(finding)
    return ""


if __name__ == "__main__":
    sys.exit(main())
