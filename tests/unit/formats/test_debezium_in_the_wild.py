"""Columns that are inferred from unrecorded messages of Debezium, in shapes from its documentation.

`tests/vectors/rules/debezium-json.jsonl` has the rows of such messages.
"""

from functools import partial
from typing import Any

from cdc_formats.topics.inference import infer_schema
from cdc_formats.values.times import STRUCTURED
from tests.support.error_texts import text_test
from tests.support.json_bytes import json_bytes

POSTGRES = {
    "version": "3.4.0.Final", "connector": "postgresql", "name": "shop", "ts_ms": 1_735_819_200_000, "snapshot": "false", "db": "shop",
    "sequence": '["24023119","24023128"]', "schema": "public", "table": "orders", "txId": 555, "lsn": 24023128, "xmin": None,
}  # fmt: skip
SPANNER = {
    "connector": "spanner", "db": "shop", "table": "parts", "ts_ms": 1, "ts_ns": 1000000, "sequence": "1", "mod_number": 0,
    "value_capture_type": "OLD_AND_NEW_VALUES",
}  # fmt: skip


def line(op: str, source: dict[str, Any], before: Any, after: Any, schema: Any = None) -> bytes:
    value = {"before": before, "after": after, "source": source, "op": op}
    return json_bytes(value if schema is None else {"schema": schema, "payload": value})


def envelope(**fields: dict[str, Any]) -> dict[str, Any]:
    columns = [{**field, "field": name} for name, field in fields.items()]
    row = {"type": "struct", "fields": columns, "optional": True, "name": "shop.orders.Value"}
    images = [{**row, "field": name} for name in ("before", "after")]
    return {"type": "struct", "fields": images, "name": "shop.orders.Envelope"}


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": name, "version": 1, **more}


def structured(name: str) -> dict[str, Any]:
    """Return the schema of a type of ``time.precision.mode=structured``."""
    fields = [
        {
            "type": "string" if part in ("specialValue", "zoneId") else "int32",
            "optional": True,
            "field": part,
        }
        for part in STRUCTURED[f"Structured{name}"][1]
    ]
    return named("struct", f"io.debezium.time.Structured{name}", fields=fields)


def parts_of(name: str, **parts: Any) -> dict[str, Any]:
    """Return a value of the type: JsonConverter writes missing parts as null."""
    return dict.fromkeys(STRUCTURED[f"Structured{name}"][1]) | parts


DAY = {"year": 2025, "month": 1, "day": 2}
CLOCK = {"hour": 12, "minute": 0, "second": 0, "nanos": 500_000_000}
LASTING = dict.fromkeys(("years", "months", "days", "minutes", "seconds", "nanos"), 0)
TIMES = {
    "Date": DAY,
    "Time": CLOCK,
    "Timestamp": {**DAY, **CLOCK, "precision": 6},
    "ZonedTimestamp": {**DAY, **CLOCK, "offsetSeconds": 0, "zoneId": "Z"},
    "Duration": {**LASTING, "hours": -838},
    "ZonedTime": {**CLOCK, "offsetSeconds": -28_800},
}
_INDEX = {"type": "int16", "optional": False}
_BY_INDEX = {"type": "map", "keys": _INDEX, "values": {"type": "double", "optional": False}}
SPARSE_VECTOR = named(
    "struct",
    "io.debezium.data.SparseDoubleVector",
    fields=[{**_INDEX, "field": "dimensions"}, {**_BY_INDEX, "field": "vector"}],
)
TEXTS = {"type": "map", "keys": {"type": "string"}, "values": {"type": "string"}}
GEOMETRY = named(
    "struct",
    "io.debezium.data.geometry.Geometry",
    fields=[
        {"type": "bytes", "optional": False, "field": "wkb"},
        {"type": "int32", "optional": True, "field": "srid"},
        {**TEXTS, "optional": True, "field": "extensions"},
    ],
)
VECTOR = named("array", "io.debezium.data.FloatVector", items={"type": "float"})
VECTORS = {"v": [1.5], "s": {"dimensions": 2, "vector": [[1, 1.5]]}, "g": {"wkb": "AQE="}}


def inferred(*values: bytes) -> object:
    return infer_schema([(None, value) for value in values], format="debezium-json")


def inferred_time(name: str, parts: dict[str, Any], block: Any) -> object:
    """Infer the columns of an insert and an update with a structured time."""
    rows = [{"id": key, "v": parts_of(name, **parts)} for key in (1, 2)]
    changes = zip(("c", "u"), rows, strict=True)
    return inferred(*(line(op, POSTGRES, None, row, block) for op, row in changes))


test_texts = text_test(
    __file__,
    {
        **{
            f"a structured {name}{' in a schema block' if block else ''}": partial(
                inferred_time, name, parts, block
            )
            for name, parts in TIMES.items()
            for block in (None, envelope(id={"type": "int32"}, v=structured(name)))
        },
        "a schema block declares vectors and geometry": partial(
            inferred,
            line("c", POSTGRES, None, VECTORS, envelope(v=VECTOR, s=SPARSE_VECTOR, g=GEOMETRY)),
        ),
        "an update of Spanner has all columns": partial(
            inferred,
            line(
                *("u", SPANNER, {"id": 1, "name": None, "stock": 6}),
                {"id": 1, "name": "fork", "stock": 7},
            ),
        ),
    },
)
