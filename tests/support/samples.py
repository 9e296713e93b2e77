"""Samples of topics: the first records of a recorded topic, and records made by hand."""

import ast
import base64
import gzip
import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from cdc_formats.topics.sampler import SampledRecord
from tests.support.paths import RECORDS


def recorded(name: str, most: int | None = 250) -> list[SampledRecord]:
    """The first records of a recorded topic."""
    return list(islice(recording(RECORDS / f"{name}.jsonl.gz"), most))


def recording(path: Path) -> Iterator[SampledRecord]:
    """The records of a recorded topic, in the order of the file."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(_record, map(json.loads, lines))


def _record(line: dict[str, Any]) -> SampledRecord:
    key, value = (
        None if line[part] is None else base64.b64decode(line[part])
        for part in ("key_base64", "value_base64")
    )
    headers = tuple(
        (name, None if data is None else base64.b64decode(data)) for name, data in line["headers"]
    )
    return SampledRecord(
        line["topic"], line["partition"], line["offset"], line["timestamp"], key, value, headers
    )


def sample(*records: tuple[bytes | None, bytes | None]) -> list[SampledRecord]:
    """Records in one partition."""
    return [
        SampledRecord("t", 0, offset, 1_700_000_000_000 + offset, key, value, ())
        for offset, (key, value) in enumerate(records)
    ]


def messages(*values: Any, key: bytes | None = b'{"id": 1}') -> list[SampledRecord]:
    """Records with these values as JSON."""
    return sample(*((key, json.dumps(value).encode()) for value in values))


def call_of(text: str) -> dict[str, Any]:
    """The parsed arguments of a call; the rest of the text must be one import."""
    module = ast.parse(text)
    assert [type(node) for node in module.body] == [ast.ImportFrom, ast.Assign]
    (assigned,) = [node for node in module.body if isinstance(node, ast.Assign)]
    assert isinstance(assigned.value, ast.Call)
    first, topic = assigned.value.args
    assert isinstance(first, ast.Name)
    return {
        "topic": ast.literal_eval(topic),
        **{each.arg or "": ast.literal_eval(each.value) for each in assigned.value.keywords},
    }
