"""Undeclared columns, and declared ones that messages lack, for every format with column names."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from cdc_formats import Event, Format, RowKind, get_format, read_object
from tests.support.error_texts import error_test, text_test
from tests.support.json_bytes import json_bytes
from tests.support.rules import results_of

INSERT, UPDATE, DELETE = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE
WRITTEN, DECLARED = "id INT, name STRING, weight INT", "id INT, name STRING, wieght INT"
BEFORE_IMAGES = {"before_image_prefix": "BI_", "before_image_column_filter": "all"}
FORMATS = [
    ("debezium-json", {}),
    ("debezium-json", {"schema_include": True}),
    ("debezium-flat-json", {}),
    ("debezium-flat-json", {"schema_include": True}),
    ("canal-json", {}),
    ("maxwell-json", {}),
    ("ogg-json", {}),
    ("changelog-json", {}),
    ("upsert-kafka", {}),
    ("upsert-kafka", {"value_fields_include": "EXCEPT_KEY"}),
    ("dms-json", {**BEFORE_IMAGES, "include_null_and_empty": True}),
    ("op-json", {}),
    ("op-json", {"before_prefix": "old_", "missing_columns": "unchanged"}),
    # Columns that are NULL are left out.
    ("dms-json", BEFORE_IMAGES),
]


OPERATIONS = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
NAMES = ("id", "name", "weight")


@dataclass(frozen=True, kw_only=True)
class Plain(Format):
    """A format of another package."""

    identifier = "plain"

    def read(self, key, value):
        return [Event.insert(read_object(value))]


def record_of(
    format: Format, kind: RowKind, row: tuple, before: tuple | None = None
) -> tuple[bytes | None, bytes | None]:
    if format.identifier not in ("dms-json", "op-json"):
        return format.encoder(WRITTEN, unique_key=["id"]).encode(kind, row, before)
    columns = dict(zip(NAMES, row, strict=True))
    if format.identifier == "op-json":
        return None, json_bytes({"op": OPERATIONS[kind][0].upper(), **columns})
    old = {f"BI_{name}": value for name, value in zip(NAMES, before or (), strict=False)}
    return None, json_bytes({"data": columns | old, "metadata": {"operation": OPERATIONS[kind]}})


def compared(format: Format, *record: Any, ddl: str = DECLARED, key: str = "id") -> object:
    """Return the difference between the names of a record, or of a row's record, and the declared."""
    if isinstance(record[0], RowKind):
        record = record_of(format, *record)
    return format.decoder(ddl, unique_key=[key]).compare_names(*record)


def refused(format: Format, ddl: str) -> object:
    """Return what records give if values of undeclared columns are errors."""
    rows = [(INSERT, (1, "bike", 2)), (UPDATE, (1, "bike", 2), (1, "bike", None))]
    rows += [(INSERT, (1, "bike", None)), (DELETE, (1, "bike", 2))]
    return results_of(format, [record_of(format, *row) for row in rows], ddl, ["id"])


SHAPES: list[tuple[str, str, dict[str, Any], Any]] = [
    (
        "a compressed update",
        "ogg-json",
        {},
        {"op_type": "U", "before": {"id": 1}, "after": {"id": 1}},
    ),
    ("a delete by its key", "canal-json", {}, {"type": "DELETE", "data": [{"id": "1"}]}),
    (
        "a minimal row image",
        "maxwell-json",
        {"binlog_row_image": "MINIMAL"},
        {"type": "update", "data": {"id": 1, "name": None}},
    ),
    (
        "old",
        "maxwell-json",
        {},
        {"type": "update", "data": {"id": 1, "name": None}, "old": {"name": "a"}},
    ),
    (
        "before-images next to the columns",
        "dms-json",
        BEFORE_IMAGES,
        {"data": {"id": 1, "BI_id": 1, "more": 2}, "metadata": {"operation": "update"}},
    ),
    (
        "added fields",
        "debezium-flat-json",
        {"add_fields_prefix": "my."},
        {"id": 1, "name": "a", "wieght": 1, "my.op": "u", "__deleted": "false"},
    ),
    (
        "upper case",
        "debezium-json",
        {},
        {"op": "c", "after": {"id": 1, "name": "a", "Wieght": [[[1]]]}},
    ),
    (
        "before",
        "debezium-json",
        {},
        {"op": "u", "before": {"old": 1}, "after": {"id": 1, "name": "a", "wieght": 1}},
    ),
    ("a truncate", "debezium-json", {}, {"op": "t"}),
]
test_texts = text_test(
    __file__,
    {
        **{
            f"{name}, {options}: a misspelt column": partial(
                compared, get_format(name, **options), INSERT, (1, "bike", 2)
            )
            for name, options in FORMATS
        },
        **{
            f"{name}, {options}: {OPERATIONS[kind]} of declared columns": partial(
                compared, get_format(name, **options), kind, (1, None, 2), before, ddl=WRITTEN
            )
            for name, options in FORMATS
            for kind, before in ((INSERT, None), (UPDATE, (1, "bike", None)), (DELETE, None))
        },
        **{
            f"{name}, {options}: undeclared columns are errors, {ddl}": partial(
                refused, get_format(name, unknown_columns="fail", **options), ddl
            )
            for name, options in FORMATS
            for ddl in (WRITTEN, "id INT, name STRING")
        },
        **{
            f"{name}: {what}": partial(
                compared, get_format(name, **options), b'{"id": 1}', json_bytes(message)
            )
            for what, name, options, message in SHAPES
        },
        **{
            f"{name}: {what}": partial(compared, get_format(name, **options), b'{"id": 1}', value)
            for what, name, options, value in [
                ("a tombstone", "upsert-kafka", {}, None),
                ("JSON's null", "upsert-kafka", {"json_null": "delete"}, b"null"),
                ("a flattened tombstone", "debezium-flat-json", {}, None),
            ]
        },
        "a document's fields may be missing": partial(
            *(compared, get_format("debezium-mongodb-json"), None),
            json_bytes({"op": "c", "after": '{"_id": "a", "weight": 1}'}),
            ddl="_id STRING, wieght INT",
            key="_id",
        ),
        **{
            f"columns by position, {value_format}": partial(
                compared, get_format("upsert-kafka", value_format=value_format), UPDATE, (1, "a", 2)
            )
            for value_format in ("csv", "avro")
        },
        **{
            f"a key without names, {key_format}": partial(
                compared,
                get_format(
                    "upsert-kafka", key_format=key_format, value_fields_include="EXCEPT_KEY"
                ),
                *(b"1", b'{"weight": 2}'),
                ddl="id STRING, wieght INT",
            )
            for key_format in ("csv", "raw")
        },
        "a format of another package": partial(
            compared, Plain(), None, b'{"id": 1, "wieght": 1.5}', ddl="id INT, weight INT"
        ),
    },
)
test_error_texts = error_test(
    __file__,
    {
        **{
            f"columns by position, {value_format}": partial(
                get_format(
                    "upsert-kafka", value_format=value_format, unknown_columns="fail"
                ).decoder,
                "id INT",
                unique_key=["id"],
            )
            for value_format in ("csv", "raw")
        },
        "an unknown option": lambda: get_format("canal-json", unknown_columns="drop"),
    },
)
