"""cockroachdb-json: wrapped messages, the key in an array, column families, clocks as positions."""

from __future__ import annotations

import pytest

from cdc_formats import get_format
from cdc_formats.errors import (
    SchemaError,
)
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.samples import sample

COLUMNS = "id INT, name STRING"


def test_a_primary_key_is_needed() -> None:
    with pytest.raises(SchemaError, match="needs a primary_key"):
        get_format("cockroachdb-json").decoder(COLUMNS)


RECORDS = [
    (b"[1]", b'{"after":{"id":1,"name":"a","n":1},"updated":"1532377312562986715.0000000000"}'),
    (b"[2]", b'{"after":{"id":2,"name":"b","n":1},"updated":"1532377312562986716.0000000000"}'),
    (b"[2]", b'{"after":null,"updated":"1532377312562986717.0000000000"}'),
    (None, b'{"resolved":"1532377312562986717.0000000000"}'),
]


BARE = [
    (b"[1]", b'{"id":1,"name":"a","__crdb__":{"updated":"1532377312562986715.0000000000"}}'),
    (b"[2]", b'{"id":2,"name":"b","__crdb__":{"updated":"1532377312562986716.0000000000"}}'),
    (None, b'{"__crdb__":{"resolved":"1532377312562986717.0000000000"}}'),
]


def test_a_sample_of_bare_messages_is_detected_and_its_schema_inferred() -> None:
    assert profile_records(sample(*BARE)).format == "cockroachdb-json"
    inferred = infer_schema(BARE, format="cockroachdb-json")
    assert inferred.ddl == "id BIGINT NOT NULL, name STRING"
    assert inferred.primary_key == ("id",)
    assert "declare a column of the row that is never null as NOT NULL" in inferred.notes[0]


def test_a_sample_is_detected_and_its_schema_inferred() -> None:
    assert profile_records(sample(*RECORDS)).format == "cockroachdb-json"
    inferred = infer_schema(RECORDS, format="cockroachdb-json")
    assert inferred.primary_key == ("id",)
    assert "name STRING" in inferred.ddl
