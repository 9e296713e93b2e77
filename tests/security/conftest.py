"""A secured broker, and its clients' files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from secured import LISTENERS, Secured, broker_properties, make_users

from normalize import LocalKafka


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A real broker with three listeners: SASL_SSL with SCRAM-SHA-256, SASL_SSL with PLAIN, and mTLS."""
    made = Secured.certificates(Path(tmp_path_factory.mktemp("certificates")))
    with LocalKafka(listeners=LISTENERS, properties=broker_properties(made)) as kafka:
        make_users(kafka)
        yield made._replace(kafka=kafka)
