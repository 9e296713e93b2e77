"""Samples of recordings that have every form of message."""

import json
import re
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import Any

from cdc_formats.events import KeyValue

_NAMED = {"op", "type", "table", "__op", "__deleted", "op_type", "snapshot"}
"""Fields whose texts say what a message is."""
_NUMBER_OR_TIME = re.compile(r"[\d\-+:.,TZ eE/]+")
_PLACEHOLDER = re.compile("unavailable_value|X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ")


def of_each_shape(records: Iterable[KeyValue], most: int) -> list[KeyValue]:
    """Return the first records of each shape, in their order."""
    seen: Counter[Hashable] = Counter()
    kept = []
    for record in records:
        shape = tuple(map(_shape_of, record))
        seen[shape] += 1
        if seen[shape] <= most:
            kept.append(record)
    return kept


def _shape_of(data: bytes | None) -> Hashable:
    if data is None:
        return None
    try:
        return _shape(json.loads(data))
    except ValueError:
        return data[:5], len(data) // 8  # Avro: the schema's number


def _shape(value: Any, name: str = "") -> Hashable:
    """Return the field names and value kinds, which do not depend on numbers, times or words."""
    if isinstance(value, dict):
        return tuple((name, _shape(each, name)) for name, each in value.items())
    if isinstance(value, list):
        return tuple(dict.fromkeys(map(_shape, value)))
    if isinstance(value, str):
        return value if name in _NAMED or _PLACEHOLDER.search(value) else _shape_of_text(value)
    return value if value is None or isinstance(value, bool) else (type(value).__name__, value < 0)


def _shape_of_text(text: str) -> Hashable:
    return (
        re.sub(r"\d+", "9", text)
        if _NUMBER_OR_TIME.fullmatch(text)
        else (text == "", text.isascii())
    )
