"""Avro schemas for property tests, with strategies for their values."""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema
from hypothesis import strategies as st

from cdc_formats.avro.schema_registry import Registry, framed

PRIMITIVES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    # In every column a float is the double of its shortest text, so that both values are equal.
    "float": st.integers(-999, 999).map(lambda number: number / 4)
    | st.sampled_from([float("inf"), float("-inf")]),
    "double": st.floats(allow_nan=False),
    "bytes": st.binary(max_size=200),
    "string": st.text(max_size=100),
}


@st.composite
def schemas(draw: Any, depth: int = 3, names: list[str] | None = None) -> tuple[Any, Any]:
    """Return a schema and a strategy for its values."""
    names = [] if names is None else names
    kinds = [
        *PRIMITIVES,
        "enum",
        "fixed",
        *(["array", "map", "record", "nullable", "union"] if depth else []),
    ]
    kind = draw(st.sampled_from(kinds))
    if kind in PRIMITIVES:
        return kind, PRIMITIVES[kind]
    names.append(name := f"N{len(names)}")
    if kind == "enum":
        return {"type": "enum", "name": name, "symbols": ["a", "b", "c"]}, st.sampled_from("abc")
    if kind == "fixed":
        size = draw(st.integers(1, 20))
        return {"type": "fixed", "name": name, "size": size}, st.binary(
            min_size=size, max_size=size
        )
    if kind == "record":
        fields = draw(st.lists(schemas(depth - 1, names), min_size=1, max_size=4))
        listed = [
            {"name": f"f{number}", "type": schema} for number, (schema, _) in enumerate(fields)
        ]
        values = {f"f{number}": of for number, (_, of) in enumerate(fields)}
        return {"type": "record", "name": name, "fields": listed}, st.fixed_dictionaries(values)
    schema, of = draw(
        schemas(depth - 1, names).filter(
            lambda pair: pair[0] != "null" and not isinstance(pair[0], list)
        )
    )
    if kind == "array":
        return {"type": "array", "items": ["null", schema]}, st.lists(st.none() | of, max_size=4)
    if kind == "map":
        return {"type": "map", "values": schema}, st.dictionaries(
            st.text(max_size=5), of, max_size=3
        )
    if kind == "nullable" or (isinstance(schema, dict) and schema["type"] in ("map", "record")):
        return draw(st.sampled_from([["null", schema], [schema, "null"]])), st.none() | of
    other = {
        "type": "record",
        "name": f"{name}Other",
        "fields": [{"name": "only_here", "type": "long"}],
    }
    return ["null", schema, other], st.none() | of | st.fixed_dictionaries(
        {"only_here": PRIMITIVES["long"]}
    )


def record(name: str, fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of a record."""
    listed = [{"name": field, "type": of} for field, of in fields.items()]
    return {"type": "record", "name": name, "fields": listed, **more}


_CLIENTS: dict[str, Any] = {}
_SCHEMAS: dict[str, list[Any]] = {}


def registered(url: str, schema: Any) -> Any:
    """Return the answer of a registry in the process to a schema."""
    keep_registry(url)
    _SCHEMAS[url].append(schema)
    return _answer(url, schema)


def keep_registries() -> None:
    """Keep the registries that have schemas: they are lost when tests have used many others."""
    for url in _SCHEMAS:
        keep_registry(url)


def keep_registry(url: str) -> None:
    """Use a registry, and if it was lost, register its schemas in their order: for the same ids."""
    client, schemas = Registry(url=url).client.confluent, _SCHEMAS.setdefault(url, [])
    if _CLIENTS.get(url) is not client:
        _CLIENTS[url] = client
        for each in schemas:
            _answer(url, each)


def _answer(url: str, schema: Any) -> Any:
    text = Schema(json.dumps(schema), "AVRO")
    return _CLIENTS[url].register_schema_full_response("tests", text)


def message_of(url: str, schema: Any, value: Any) -> bytes:
    """Return a value's message, which names a schema of the registry."""
    return framed(registered(url, schema).schema_id, written(schema, value))


def written(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()
