"""Detects the options of an upsert-kafka topic: the formats of its key and value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from cdc_formats.topics.encodings import (
    CONFLUENT,
    JSON_BLOCK,
    JSON_NULL,
    JSON_OBJECT,
    JSON_PAYLOAD,
    JSON_VALUE,
    NULL,
    InspectedRecord,
)

_KEY_FORMATS = {JSON_OBJECT: "json", JSON_BLOCK: "json", JSON_PAYLOAD: "json", CONFLUENT: "avro-confluent"}
_REGISTRY = ("url", "basic_auth_user_info", "bearer_auth_token", "properties", "retry_seconds")
_SSL = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_key_password")


def upsert_options(records: Sequence[InspectedRecord], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the upsert-kafka options detected in a sample, without those in `given`.

    Parameters
    ----------
    records : sequence of InspectedRecord
        Records with a value.
    given : mapping
        Options of all formats; registry options also apply to upsert-kafka.
    """
    key, value = _most(each.key.encoding for each in records), _most(each.value.encoding for each in records)
    detected: dict[str, Any] = {}
    if CONFLUENT in (key, value):
        detected = {f"avro_confluent_{name}": given[name] for name in (*_REGISTRY, *_SSL) if name in given}
    if key is not None:
        detected["key_format"] = _KEY_FORMATS.get(key) or _plain_key(records)
    if value == CONFLUENT:
        detected["value_format"] = "avro-confluent"
    if _key_apart(records):
        detected["value_fields_include"] = "EXCEPT_KEY"
    if any(each.value.encoding == JSON_NULL for each in records):
        detected["json_null"] = "delete"
    changed = {name: option for name, option in detected.items() if option not in ("json", "")}
    return {name: option for name, option in changed.items() if name not in given}


def _most(encodings: Any) -> str | None:
    counted = Counter(each for each in encodings if each != NULL).most_common(1)
    return counted[0][0] if counted else None


def _plain_key(records: Sequence[InspectedRecord]) -> str:
    """Return the key format of single-value keys: ``csv`` for numbers, ``raw`` for text."""
    numbers = sum(isinstance(each.key.value, (int, Decimal)) for each in records if each.key.encoding == JSON_VALUE)
    return "csv" if 2 * numbers > len(records) else "raw"


def _key_apart(records: Sequence[InspectedRecord]) -> bool:
    """Whether no value has a column of the key."""
    both = [each for each in records if each.key.fields and each.value.fields]
    return bool(both) and not any(set(each.key.fields) & set(each.value.fields) for each in both)
