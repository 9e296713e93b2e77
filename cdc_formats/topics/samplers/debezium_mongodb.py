"""Samples of Debezium's messages of MongoDB, and Extended JSON as plain values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from cdc_formats.decoding.json_reader import read_json
from cdc_formats.decoding.wrappers import key_fields
from cdc_formats.errors import MalformedMessageError
from cdc_formats.events import Headers
from cdc_formats.topics.inference.observed import BASE64, DIGITS
from cdc_formats.topics.sampler import Declaration, Evidence, InspectedRecord
from cdc_formats.values.lattice import MOST_DIGITS

from .debezium import EnvelopeSampler


class DebeziumMongodbSampler(EnvelopeSampler):
    """The hooks of ``debezium-mongodb-json``."""

    marks = ("op", "source", "after", "updateDescription")
    not_asked = (DIGITS, BASE64)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return ``_id``, the primary key of every collection."""
        return Declaration(primary_key=("_id",), key_source="of every collection")

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return ``_id``, which is Extended JSON as text in the Kafka key."""
        fields = key_fields(key)
        if "id" not in fields:
            return {}
        document = str(fields["id"])
        try:
            return {"_id": read_json(document.encode())}
        except MalformedMessageError:
            return {"_id": document}

    def plain_value(self, value: Any) -> Any:
        """Return a value of Extended JSON as JSON writes it."""
        return _of_document(value)

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has a document as text, or an update's description."""
        fields = record.value.fields
        return (
            super()
            .evidence(record)
            ._replace(
                distinctive=isinstance(fields.get("after"), str) or "updateDescription" in fields
            )
        )


def _of_document(value: Any) -> Any:
    """Return a MongoDB Extended JSON value as a Python value of its kind; the value may differ."""
    if isinstance(value, list):
        return [_of_document(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if not isinstance(value, dict):
        return value
    marks = {name: part for name, part in value.items() if name.startswith("$")}
    if not marks:
        return {name: _of_document(part) for name, part in value.items()}
    name, part = next(iter(marks.items()))
    return _BSON[name](part) if name in _BSON else str(value)


def _of_number(text: Any) -> Any:
    if not isinstance(text, str) or not re.fullmatch(
        r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", text
    ):
        return str(text)  # NaN and Infinity too
    number = Decimal(text)
    # Without an exponent, because an exponent marks a double.
    return Decimal(f"{number:f}") if number.adjusted() < MOST_DIGITS else float(number)


def _of_integer(text: Any) -> Any:
    return (
        int(text) if isinstance(text, str) and re.fullmatch("[+-]?[0-9]{1,19}", text) else str(text)
    )


_AN_INSTANT = datetime(2000, 1, 1)
_BSON: Mapping[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$numberInt": _of_integer,
    "$numberLong": _of_integer,
    "$numberDouble": lambda _: 0.0,
    "$numberDecimal": _of_number,
    "$date": lambda _: _AN_INSTANT,
    "$timestamp": lambda _: _AN_INSTANT,
    "$binary": lambda _: b"",
    "$uuid": lambda _: b"",
    "$undefined": lambda _: None,
}
