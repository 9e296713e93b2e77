"""A message's bytes."""

from __future__ import annotations

import json
from typing import Any


def json_bytes(message: Any) -> bytes:
    return json.dumps(message).encode()
