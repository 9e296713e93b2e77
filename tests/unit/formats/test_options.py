"""What formats declare, and which options and columns they, their decoders and encoders refuse."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest

from cdc_formats import ChangelogMode, RowKind, get_format
from cdc_formats.formats.debezium.json import SCHEMAS_KEPT, DebeziumJson
from normalize.decode.plan import needed_columns
from tests.support.both_decoders import source_of
from tests.support.error_texts import error_test, text_test
from tests.support.json_bytes import json_bytes

FLAT = get_format("debezium-flat-json")
RAW_KEY = {"key_format": "raw", "value_fields_include": "EXCEPT_KEY"}


def in_block(number: int, unit: str = "Timestamp") -> bytes:
    """Return the key 7 and a row of it in a schema block that differs by its number."""
    field = {"type": "int64", "field": "v", "name": f"io.debezium.time.{unit}", "doc": f"{number}"}
    image = {"type": "struct", "field": "before", "fields": [field]}
    schema = {"type": "struct", "fields": [image]}
    return json_bytes({"schema": schema, "payload": {"op": "c", "after": {"v": 7}}})


def test_more_schema_blocks_than_the_cache_holds_are_read() -> None:
    readers = []

    class Watched(DebeziumJson):
        def reader(self, rows, *, keyed=False):
            readers.append(super().reader(rows, keyed=keyed))
            return readers[-1]

    decoder, flat = Watched().decoder("v TIMESTAMP_NTZ"), FLAT.decoder("id INT", unique_key=["id"])
    for number in [*range(SCHEMAS_KEPT + 3), 0]:
        assert decoder.decode(None, in_block(number))[0].row == (7_000,)
        assert decoder.decode(None, in_block(number, "MicroTimestamp"))[0].row == (7,)
        schema = {"type": "struct", "fields": [{"type": "int32", "field": "id"}], "version": number}
        row = json_bytes({"schema": schema, "payload": {"id": number}})
        for record in ((None, row), (row, None)):
            assert flat.upserts(*record)[0].key == (number,)
    assert 0 < max(reader.described.cache_info().currsize for reader in readers) <= SCHEMAS_KEPT


@pytest.mark.parametrize("key", [[], ["id"]])
def test_the_kafka_key_is_only_loaded_for_a_keyed_stage_with_a_primary_key(key: list[str]) -> None:
    plan = source_of(get_format("debezium-json"), "id INT", key)
    plan = replace(plan, mode="FAILFAST", control_events=frozenset())
    assert ("key" in needed_columns(plan)) is bool(key)


def columns_of(identifier: str, ddl: str, *key: str, **options: object) -> tuple[object, ...]:
    """Return the columns of a decoder that is made."""
    return get_format(identifier, **options).decoder(ddl, unique_key=key).columns


MODES: dict[str, Callable[[], object]] = {
    "all changes": ChangelogMode.all,
    "inserts": ChangelogMode.insert_only,
    "upserts": ChangelogMode.upsert,
    "upserts with whole deletes": partial(ChangelogMode.upsert, key_only_deletes=False),
    **{
        f"{identifier}, {options}": partial(
            getattr, get_format(identifier, **options), "changelog_mode"
        )
        for identifier, options in [
            *(("upsert-kafka", {}), ("debezium-flat-json", {})),
            *(("debezium-flat-json", {"keyless": True}), ("op-json", {})),
            ("op-json", {"before_field": "before"}),
            ("op-json", {"before_prefix": "old_"}),
        ]
    },
}
ACCEPTED: dict[str, Callable[[], object]] = {
    f"{identifier}, {options}": partial(columns_of, identifier, ddl, *key, **options)
    for identifier, options, ddl, *key in [
        ("debezium-json", {}, "a DECIMAL(5,2), t TIMESTAMP"),
        (
            "debezium-json",
            {"time_precision_mode": "adaptive_time_microseconds"},
            "a DECIMAL(5,2), t TIME",
        ),
        ("debezium-json", {"schema_include": True}, "a DECIMAL(5,2), t TIMESTAMP"),
        (
            "debezium-json",
            {"schema_include": False, "decimal_handling_mode": "string"},
            "a DECIMAL(5,2), b DECIMAL(20,0), t DATE",
        ),
        (
            "debezium-json",
            {"schema_include": False, "time_precision_mode": "isostring"},
            "t TIMESTAMP",
        ),
        ("upsert-kafka", {}, "id INT, before DATE, after DATE", "id"),
    ]
}
CODES = {
    "codes of a number": lambda: get_format("op-json", codes={"I": "+I", 2: "-D"}),
    "codes in pairs": lambda: get_format("op-json", codes=[("2", "-D"), ("I", "+I")]),
    "codes of no option": lambda: get_format("op-json").codes,
}
OTHERS = {
    "row kinds": lambda: [(kind.name, kind.value, kind.short_string) for kind in RowKind],
    "the names of a record whose field marks a missing column": lambda: (
        get_format("ogg-json")
        .decoder("id INT, n INT", unique_key=["id"])
        .compare_names(
            None,
            b'{"op_type":"I","before":null,"after":{"id":1,"id_isMissing":false,"n":null,'
            b'"n_isMissing":true}}',
        )
    ),
    "metadata of upserts": lambda: dict(get_format("upsert-kafka").metadata),
    **{
        f"upserts whose headers are read: {part}": partial(
            lambda part: get_format("upsert-kafka", **part).traits.reads_headers, part
        )
        for part in (
            {},
            {"value_format": "avro"},
            {"value_format": "avro-confluent", "avro_confluent_url": "mock://upserts"},
        )
    },
}
test_texts = text_test(__file__, {**MODES, **ACCEPTED, **CODES, **OTHERS})
test_error_texts = error_test(
    __file__,
    {
        **{
            f"columns that cannot be read are refused when the decoder is made, {number}": partial(
                columns_of, "debezium-json", ddl, **options
            )
            for number, (options, ddl) in enumerate(
                [
                    ({"schema_include": False}, "a DECIMAL(5,2)"),
                    ({"schema_include": False, "time_precision_mode": "adaptive"}, "t TIMESTAMP"),
                    ({"time_precision_mode": "adaptive"}, "t TIME"),
                    ({"time_precision_mode": "adaptive_time_microseconds"}, "t TIMESTAMP_NTZ"),
                    ({"time_precision_mode": "connect"}, "t INTERVAL DAY TO SECOND"),
                ],
                1,
            )
        },
        "a key column that differs by case": lambda: columns_of("debezium-json", "K1 INT", "k1"),
        "an empty prefix": lambda: get_format("debezium-flat-json", add_fields_prefix=""),
        "a table without a key must be declared": lambda: FLAT.decoder("id INT"),
        **{
            f"flat rows that could not be read back, {number}": partial(
                get_format("debezium-flat-json", **options).encoder, "id INT", unique_key=["id"]
            )
            for number, options in enumerate([{"keyless": True}, {"table_include": "a"}], 1)
        },
        "another primary key than MongoDB's": lambda: columns_of(
            "mongodb-json", "_id STRING, name STRING", "name"
        ),
        "a primary key is needed": lambda: columns_of("cockroachdb-json", "id INT"),
        "a row image that MySQL does not have": lambda: columns_of(
            "maxwell-json", "id INT", binlog_row_image="full"
        ),
        **{
            f"options of DMS, {number}": partial(columns_of, "dms-json", "id INT", **options)
            for number, options in enumerate(
                [
                    {"before_image_field": "data"},
                    {"before_image_field": ""},
                    {"before_image_prefix": ""},
                    {"before_image_field": "before-image", "before_image_prefix": "BI_"},
                    {"before_image_column_filter": "some"},
                    {"table_include": "("},
                    {"schema_include": "("},
                ],
                1,
            )
        },
        "a key column that is not declared": lambda: get_format("changelog-json").encoder(
            "a INT", unique_key=["d"]
        ),
        **{
            f"an unknown kind, {text!r}": partial(RowKind.from_short_string, text)
            for text in ("I", "+X", "", "+i")
        },
        **{
            f"the columns of an envelope of CockroachDB: {columns}": partial(
                columns_of, "upsert-kafka", f"k STRING, {columns}", "k", **RAW_KEY
            )
            for columns in ("after STRUCT<b: STRING>", "after VARIANT, updated STRING")
        },
    },
)
