"""Formats with masks, and the masks of values."""

import hashlib
import hmac
from random import Random
from typing import Any

from cdc_formats import Column, Format, get_format
from cdc_formats.values.types import TYPES

KEY = "a key of at least sixteen bytes"
KEY_ENV = "MASK_KEY"
"""The environment variable that tests set to `KEY`."""


def hashed(text: str | bytes) -> str:
    data = text if isinstance(text, bytes) else text.encode()
    return hmac.new(KEY.encode(), data, hashlib.sha256).hexdigest()


def masked(mask: Any, identifier: str = "debezium-json", **options: Any) -> Format:
    hashes = "hmac" in dict(mask).values()
    key = {"mask_key_env": KEY_ENV} if hashes else {}
    return get_format(identifier, mask=mask, **key, **options)


def kinds_of(table: tuple[Column, ...], key: list[str], random: Random) -> dict[str, str]:
    """Return a mask for most columns that a format with columns by name can have."""
    kinds = {}
    for column in table:
        choices = ["hmac"] if column.name in key else ["hmac", "redact", "drop", ""]
        kind = random.choice(choices)
        kinds[column.name] = "redact" if kind == "hmac" and column.type.name not in TYPES else kind
    dropped = [name for name, kind in kinds.items() if kind == "drop"]
    if len(dropped) == len(table):
        del kinds[dropped[0]]
    return {name: kind for name, kind in kinds.items() if kind}
