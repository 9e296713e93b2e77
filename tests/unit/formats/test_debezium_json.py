"""Debezium's own rules: schema blocks, declared encodings and unchanged values.

They include updates without before-images.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from cdc_formats import get_format
from cdc_formats.errors import (
    MissingBeforeImageError,
)
from cdc_formats.formats.debezium.envelope import SCHEMAS_KEPT
from cdc_formats.formats.debezium.json import DebeziumJson
from normalize.decode.plan import needed_columns
from tests.support.both_decoders import source_of
from tests.support.error_texts import error_test

PLACE = "__debezium_unavailable_value"


def message(op: str, before: Any, after: Any, **more: Any) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, **more}).encode()


def wrapped(name: str | None, value: Any, /, **more: Any) -> bytes:
    fields = [{"type": "int64", "field": "v", "name": name, **more}]
    schema = {"type": "struct", "fields": [{"type": "struct", "field": "before", "fields": fields}]}
    return json.dumps({"schema": schema, "payload": {"op": "c", "after": {"v": value}}}).encode()


# --------------------------------------------------------------------------------------------------
# schema blocks


def test_more_schema_blocks_than_the_cache_holds_are_read() -> None:
    readers = []

    class Watched(DebeziumJson):
        def reader(self, rows, *, keyed=False):
            read = super().reader(rows, keyed=keyed)
            readers.append(read)
            return read

    decoder = Watched().decoder("v TIMESTAMP_NTZ")
    units = {"Timestamp": 1000, "MicroTimestamp": 1}
    for number in range(SCHEMAS_KEPT + 3):
        for unit, factor in (
            units.items()
            if number % 500 == 0 or number > SCHEMAS_KEPT - 2
            else [("Timestamp", 1000)]
        ):
            value = wrapped(f"io.debezium.time.{unit}", 7, doc=f"version {number}")
            assert decoder.decode(None, value)[0].row == (7 * factor,)
    assert 0 < max(reader.described.cache_info().currsize for reader in readers) <= SCHEMAS_KEPT


# --------------------------------------------------------------------------------------------------
# what is not declared


@pytest.mark.parametrize(
    ("options", "ddl"),
    [
        ({}, "a DECIMAL(5,2), t TIMESTAMP"),
        ({"time_precision_mode": "adaptive_time_microseconds"}, "a DECIMAL(5,2), t TIME"),
        ({"schema_include": True}, "a DECIMAL(5,2), t TIMESTAMP"),
        (
            {"schema_include": False, "decimal_handling_mode": "string"},
            "a DECIMAL(5,2), b DECIMAL(20,0), t DATE",
        ),
        ({"schema_include": False, "time_precision_mode": "isostring"}, "t TIMESTAMP"),
    ],
)
def test_columns_that_can_be_read_are_accepted(options: dict, ddl: str) -> None:
    assert get_format("debezium-json", **options).decoder(ddl).columns


def test_a_masked_value_that_the_log_may_lack_completes_no_unavailable_one() -> None:
    masked = get_format("debezium-json", mask={"v": "redact"}).decoder(
        "id INT, v STRING", unique_key=["id"]
    )
    source = {"connector": "postgresql", "version": "3.7.1.Final"}
    update = message("u", {"id": 1, "v": ""}, {"id": 1, "v": PLACE}, source=source)
    assert masked.upserts(None, update)[0].partial


def test_the_kafka_key_is_only_read_for_a_keyed_stage_with_a_primary_key() -> None:
    record = (b'{"id": 1}', b'{"op": "d", "before": null, "after": null}')
    for decode in (
        get_format("debezium-json").decoder("id BIGINT", unique_key=["id"]).decode,
        get_format("debezium-json").decoder("id BIGINT").decode,
    ):
        with pytest.raises(MissingBeforeImageError):
            decode(*record)
    for key in ([], ["id"]):
        plan = source_of(get_format("debezium-json"), "id INT", key)
        plan = replace(plan, mode="FAILFAST", control_events=frozenset())
        assert ("key" in needed_columns(plan)) is bool(key)


test_error_texts = error_test(
    __file__,
    {
        **{
            f"columns that cannot be read are refused when the decoder is made, {number}": lambda options=options, ddl=ddl: (
                get_format("debezium-json", **options).decoder(ddl)
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
    },
)
