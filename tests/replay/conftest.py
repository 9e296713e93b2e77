"""A registry with the Avro schemas of the recorded topics."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from registry_front import RegistryFront
from topics import FOLDER


@pytest.fixture(scope="session")
def recorded_registry() -> Iterator[str]:
    """The URL of a registry with the recorded schemas, by their recorded ids."""
    recorded = json.loads((FOLDER / "records" / "avro-schemas.json").read_text("utf-8"))
    with RegistryFront(schemas={int(number): entry["schema"] for number, entry in recorded.items()}) as front:
        yield front.url
