"""Messages that look like a format's and are of something else are errors that name it, alone and together."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdc_formats import get_format
from cdc_formats.errors import DecodeError, InferenceError
from cdc_formats.topics.inference import infer_schema
from normalize.decode.targets import TypedRows
from tests.support.both_decoders import differences, source_of

METADATA: tuple[dict[str, str], ...] = ({}, {"all": "source.properties"})


def cell(value: object) -> dict[str, object]:
    return {"value": value, "deletion_ts": None, "set": True}


def of_cells(connector: str | None, **after: object) -> bytes:
    return json.dumps({"op": "u", "after": after, "source": {"connector": connector, "table": "customers"}}).encode()


def error_of(identifier: str, value: bytes, schema: str = "id INT, name STRING", key: bytes | None = None, **options: Any) -> str:
    with pytest.raises(DecodeError) as refused:
        get_format(identifier, **options).decoder(schema, unique_key=["id"]).upserts(key, value)
    return str(refused.value)


@pytest.mark.parametrize("connector", ["cassandra", "scylla", "YugabyteDB"])
def test_a_connector_that_writes_cells_is_named(connector: str) -> None:
    value = of_cells(connector, id=cell("1"), name=None)
    error = error_of("debezium-json", value, "id STRING, name STRING")
    assert f"the connector {connector} writes cells, not rows, and a null cell means unchanged" in error
    block = b'{"schema":{"type":"struct","fields":[]},"payload":%b}' % value
    for text in (value, block):
        for metadata in METADATA:
            source = source_of(get_format("debezium-json"), "id STRING, name STRING", ["id"], metadata)
            assert not differences(source, [(None, text)])
            assert not differences(source, [(None, text)], TypedRows)


@pytest.mark.parametrize("connector", ["cassandra", None])
def test_cells_are_no_columns(connector: str | None) -> None:
    value = of_cells(connector, id=cell(1), email=None, name=cell("Anne"))
    with pytest.raises(InferenceError, match="a null cell means unchanged"):
        infer_schema([(None, value)], format="debezium-json")
    with pytest.raises(InferenceError, match="a null cell means unchanged"):
        infer_schema([(b'{"id":1}', json.dumps(json.loads(value)["after"]).encode())], format="debezium-flat-json")


def test_a_column_with_a_struct_like_a_cell_is_read() -> None:
    value = of_cells("postgresql", id=1, setting={"value": "on", "set": True})
    assert infer_schema([(None, value)], format="debezium-json").ddl == "id BIGINT, setting STRUCT<value: STRING, set: BOOLEAN>"
