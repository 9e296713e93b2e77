"""Samples of topics: the first records of a recorded topic, and records made by hand."""

from __future__ import annotations

import ast
import base64
import gzip
import json
from typing import Any

from cdc_formats.topics.encodings import SampledRecord
from tests.support.paths import RECORDS


def recorded(name: str, most: int = 250) -> list[SampledRecord]:
    """The first records of a recorded topic."""
    with gzip.open(RECORDS / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [_record(json.loads(line)) for _, line in zip(range(most), lines, strict=False)]


def _record(line: dict[str, Any]) -> SampledRecord:
    key, value = (None if line[part] is None else base64.b64decode(line[part]) for part in ("key_base64", "value_base64"))
    headers = tuple((name, None if data is None else base64.b64decode(data)) for name, data in line["headers"])
    return SampledRecord(line["topic"], line["partition"], line["offset"], line["timestamp"], key, value, headers)


def sample(*records: tuple[bytes | None, bytes | None]) -> list[SampledRecord]:
    """Records in one partition."""
    return [SampledRecord("t", 0, offset, 1_700_000_000_000 + offset, key, value, ()) for offset, (key, value) in enumerate(records)]


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
    return {"topic": ast.literal_eval(topic), **{each.arg or "": ast.literal_eval(each.value) for each in assigned.value.keywords}}
