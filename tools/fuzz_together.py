"""Decode damaged messages among sound ones together and one by one; both ways must give the same.

    python -m tools.fuzz_together     # 100,000 messages for every format in JSON
    python -m tools.fuzz_together --format canal-json --messages 1000000 --seed 7
    CDC_TOPICS=/path/to/topics python -m tools.fuzz_together      # topics of another folder

The native decoder is compared, too, if it is installed. The recorded topics are compared whole.
Then messages are drawn: they and their damages are those of
`tools.fuzz`, and one in a hundred is damaged, in every kind of plan. A difference is printed with
the smallest part of its messages that has it, and the exit code is 1. The exit code is also 1 if
too few sound messages of a format were decoded together. The same seed produces the same messages.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

from cdc_formats import get_format
from cdc_formats.errors import DecodeError, SchemaError, SeveralTablesError
from cdc_formats.events import KeyValue
from normalize.decode.collectors import Blocks, CollectorMaker, TypedRows
from normalize.decode.columnar import ColumnarMaker, one_by_one
from normalize.decode.columnar.native import native_module
from normalize.decode.plan import DecodePlan
from tests.support.both_decoders import (
    differences,
    differences_of,
    natively,
    odd_places,
    outcome,
    source_of,
    together,
)
from tests.support.replay.replaying import read_recording
from tests.support.replay.topics import Topic, topics
from tests.support.scenarios import OF_FORMAT
from tools.fuzz import Subject, mutated, subjects

FORMATS = tuple(
    name for name, case in OF_FORMAT.items() if case.together and not name.endswith("confluent")
)
"""The formats in JSON whose messages are decoded together."""
TARGETS: tuple[Any, ...] = (Blocks, TypedRows)


def recorded_source(topic: Topic, registry: str = "") -> DecodePlan:
    """Return the plan of a recorded topic.

    Parameters
    ----------
    topic : Topic
    registry : str
        The URL of the registry with its schemas; only topics in Avro need it.
    """
    format = get_format(topic.format, **topic.options_at(registry))
    return source_of(
        format, topic.schema, topic.primary_key, control_events=frozenset(), on_truncate="ignore"
    )


def compare_recorded(
    plan: DecodePlan, records: Sequence[KeyValue], columnar: ColumnarMaker = together
) -> None:
    """Compare the two ways for records of a recorded topic, in every kind of plan.

    Raises
    ------
    AssertionError
        When they differ.
    """
    for target in (Blocks, TypedRows):
        if differences(plan, records, target, columnar=columnar):
            raise AssertionError(_smallest(plan, records, target, columnar))


@dataclass
class Compared:
    """Numbers of a format's compared messages, sound ones, and sound ones decoded together."""

    messages: int = 0
    sound: int = 0
    together: int = 0

    @property
    def share(self) -> float:
        """The share of sound messages that were decoded together."""
        return self.together / max(self.sound, 1)


def compare(
    identifier: str, messages: int, seed: int, columnar: ColumnarMaker = together
) -> Compared:
    """Compare the two ways for at least this number of messages.

    Parameters
    ----------
    identifier : str
        The format.
    messages : int
    seed : int
    columnar : callable
        Returns the decoder of many messages together (`both_decoders`).

    Raises
    ------
    AssertionError
        When they differ.
    """
    draw, compared = random.Random(seed), Compared()
    sound = [
        subject
        for subject in subjects(identifier)
        if subject.primary_key and any(map(partial(_is_sound, subject), subject.records))
    ]
    while compared.messages < messages:
        subject, target, size = (
            draw.choice(sound),
            draw.choice((Blocks, Blocks, *TARGETS)),
            draw.choice((1, 20, 200)),
        )
        source = _source(subject, target, draw)
        records = [draw.choice(subject.records) for _ in range(size)]
        damaged = {place for place in range(size) if draw.random() < max(0.01, 1 / size)}
        records = [
            mutated(record, draw) if place in damaged else record
            for place, record in enumerate(records)
        ]
        if source is None or columnar(source, keyed=target.keyed) is None:
            continue
        try:
            alone = outcome(source, records, columnar=one_by_one, target=target)
        except SeveralTablesError:
            continue
        if differences_of(alone, outcome(source, records, columnar=columnar, target=target)):
            raise AssertionError(_smallest(source, records, target, columnar))
        places = odd_places(source, records, keyed=target.keyed, columnar=columnar)
        _count(compared, source, records, damaged, set(places) - damaged, keyed=target.keyed)
    return compared


def _is_sound(subject: Subject, record: KeyValue) -> bool:
    try:
        plain = subject.decoders[0]()
        return plain is not None and isinstance(plain.upserts(*record), list)
    except DecodeError:
        return False


def _source(subject: Subject, target: CollectorMaker, draw: random.Random) -> DecodePlan | None:
    """Return a plan with the subject's columns, None if its format has no such plan."""
    decoder = draw.choice(subject.decoders)()
    if decoder is None:
        return None
    metadata = {f"meta_{column.name}": column.name for column in decoder.metadata_columns}
    arguments: dict[str, Any] = (
        {"control_events": frozenset(), "on_truncate": "ignore"} if draw.random() < 0.5 else {}
    )
    arguments["positions"] = (
        not decoder.format.traits.positions and draw.random() < 0.3 and target is not TypedRows
    )
    arguments["ignore_deletes"] = draw.random() < 0.2
    arguments["drop_update_before"] = target is TypedRows and draw.random() < 0.3
    try:
        return source_of(
            decoder.format,
            ", ".join(map(str, decoder.columns)),
            decoder.unique_key,
            metadata,
            **arguments,
        )
    except SchemaError:
        return None


def _count(
    compared: Compared,
    plan: DecodePlan,
    records: Sequence[KeyValue],
    damaged: set[int],
    places: set[int],
    *,
    keyed: bool,
) -> None:
    decoder = plan.decoder()
    decode, refused = decoder.upserts if keyed else decoder.decode, 0
    for place in places:
        try:
            refused += not isinstance(decode(*records[place]), list)
        except DecodeError:
            refused += 1
    compared.messages += len(records)
    compared.sound += len(records) - len(damaged) - refused
    compared.together += len(records) - len(damaged) - len(places)


def _smallest(
    plan: DecodePlan, records: Sequence[KeyValue], target: CollectorMaker, columnar: ColumnarMaker
) -> str:
    """Return the difference of the smallest part of the records that has one."""
    differ = partial(differences, plan, target=target, columnar=columnar)
    size = len(records) // 2
    while size:
        parts = [
            [*records[:start], *records[start + size :]] for start in range(0, len(records), size)
        ]
        smaller = next((part for part in parts if part and differ(part)), None)
        records = records if smaller is None else smaller
        size = size // 2 if smaller is None else min(size, len(records) // 2)
    lines = [f"plan = {plan!r}", f"records = {list(records)!r}", f"target = {target!r}"]
    return "\n".join([*lines, *map(str, differ(records))])


def main(arguments: Sequence[str] | None = None, columnar: ColumnarMaker | None = None) -> int:
    """Compare the ways for the requested formats, or only one way; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--format", choices=FORMATS, action="append", help="default: all")
    parser.add_argument("--messages", type=int, default=100_000, help="for each format")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    ways = [together, *([natively] if native_module() else [])] if columnar is None else [columnar]
    failed = False
    for identifier, columnar in product(options.format or FORMATS, ways):
        begin = time.monotonic()
        try:
            for topic in topics():
                if topic.format == identifier and topic.primary_key:
                    records = [(record.key, record.value) for record in read_recording(topic.path)]
                    compare_recorded(recorded_source(topic), records, columnar)
            compared = compare(identifier, options.messages, options.seed, columnar)
        except AssertionError as difference:
            print(f"{identifier}, seed {options.seed}:\n\n{difference}\n", flush=True)
            failed = True
            continue
        failed |= compared.share < OF_FORMAT[identifier].together
        way = "natively" if columnar is natively else "together"
        shown = (
            f"{identifier}, {way}: {compared.messages:,} messages are the same, {compared.share:.1%} of "
            f"{compared.sound:,} sound ones not alone"
        )
        print(f"{shown}, {time.monotonic() - begin:.0f} s", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
