"""Detects the options of an upsert-kafka topic: its key and value formats, and the column of a single-value key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from .encodings import CONFLUENT, JSON_BLOCK, JSON_NULL, JSON_OBJECT, JSON_VALUE
from .read import Looked

UPSERT = "upsert-kafka"
_KEY_FORMATS = {JSON_OBJECT: "json", JSON_BLOCK: "json", CONFLUENT: "avro-confluent"}
_REGISTRY = ("url", "basic_auth_user_info", "bearer_auth_token", "properties", "retry_seconds")
_SSL = ("ssl_ca_location", "ssl_certificate_location", "ssl_key_location", "ssl_key_password")


def upsert_options(records: Sequence[Looked], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the upsert-kafka options detected in a sample, without those in `given`.

    Parameters
    ----------
    records : sequence of Looked
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


def key_column(records: Sequence[Looked]) -> str | None:
    """Return the column that equals a single-value key in every record, None if no column does.

    Parameters
    ----------
    records : sequence of Looked
    """
    found: list[set[str]] = []
    for each in records:
        key = each.key.value
        if each.value.fields and not each.key.fields and key is not None:
            found.append({name for name, value in each.value.fields.items() if _spelled(value) in (_spelled(key), key)})
    common = set.intersection(*found) if found else set()
    first = next((each.value.fields for each in records if each.value.fields), {})
    return next((name for name in first if name in common), None)


def _most(encodings: Any) -> str | None:
    counted = Counter(each for each in encodings if each != "null").most_common(1)
    return counted[0][0] if counted else None


def _plain_key(records: Sequence[Looked]) -> str:
    """Return the key format of single-value keys: ``csv`` for numbers, ``raw`` for text."""
    numbers = sum(isinstance(each.key.value, (int, Decimal)) for each in records if each.key.encoding == JSON_VALUE)
    return "csv" if 2 * numbers > len(records) else "raw"


def _key_apart(records: Sequence[Looked]) -> bool:
    """Whether no value has a column of the key."""
    both = [each for each in records if each.key.fields and each.value.fields]
    return bool(both) and not any(set(each.key.fields) & set(each.value.fields) for each in both)


def _spelled(value: Any) -> str | None:
    return None if value is None else str(value)
