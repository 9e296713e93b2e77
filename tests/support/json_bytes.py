"""A message's bytes."""

import json
from typing import Any


def json_bytes(message: Any) -> bytes:
    return json.dumps(message).encode()
