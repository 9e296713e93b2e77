"""Rules of AWS DMS: the places and forms of before-images, omitted NULLs, control records."""

import json
from typing import Any

import pytest

from cdc_formats import Change, Ignored, RowKind, get_format
from cdc_formats.errors import MissingBeforeImageError, PartialImageError
from cdc_formats.events import ControlEvent, KeyedChange
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from cdc_formats.values.schema import ABSENT
from tests.support.error_texts import error_test
from tests.support.samples import sample

FIELD = {"before_image_field": "before-image"}
PREFIX = {"before_image_prefix": "BI_"}
ALL = {"before_image_column_filter": "all"}
COLUMNS = "id INT, name STRING, weight DECIMAL(5,2)"


def message(
    operation: str,
    data: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    **more: Any,
) -> bytes:
    metadata = {
        "record-type": "data",
        "operation": operation,
        "schema-name": "shop",
        "table-name": "products",
        **more,
    }
    image = {} if before is None else {"before-image": before}
    return json.dumps({"data": data, **image, "metadata": metadata}).encode()


# --------------------------------------------------------------------------------------------------
# before-images

AFTER, BEFORE = (
    {"id": 2, "name": "bike", "weight": 9.5},
    {"id": 1, "name": "scooter", "weight": 3.14},
)
BESIDE = {**AFTER, **{f"BI_{name}": value for name, value in BEFORE.items()}}


@pytest.mark.parametrize(
    ("options", "value"),
    [
        ({**FIELD, **ALL}, message("update", AFTER, BEFORE)),
        ({**PREFIX, **ALL}, message("update", BESIDE)),
    ],
)
def test_a_full_before_image_gives_both_rows(options: dict[str, Any], value: bytes) -> None:
    decoder = get_format("dms-json", **options).decoder(COLUMNS, unique_key=["id"])
    assert decoder.decode(None, value) == [
        Change(RowKind.UPDATE_BEFORE, (1, "scooter", "3.14")),
        Change(RowKind.UPDATE_AFTER, (2, "bike", "9.50")),
    ]
    assert decoder.upserts(None, value) == [
        KeyedChange((1,), None),
        KeyedChange((2,), (2, "bike", "9.50")),
    ]


@pytest.mark.parametrize("filter", ["pk-only", "non-lob"])
@pytest.mark.parametrize(
    ("options", "value"),
    [
        (FIELD, message("update", AFTER, {"id": 1})),
        (PREFIX, message("update", {**AFTER, "BI_id": 1})),
    ],
)
def test_a_before_image_with_only_the_key_names_the_old_key_but_is_not_a_row(
    options: dict[str, Any], value: bytes, filter: str
) -> None:
    decoder = get_format("dms-json", **options, before_image_column_filter=filter).decoder(
        COLUMNS, unique_key=["id"]
    )
    assert decoder.upserts(None, value) == [
        KeyedChange((1,), None),
        KeyedChange((2,), (2, "bike", "9.50")),
    ]
    with pytest.raises(MissingBeforeImageError):
        decoder.decode(None, value)


@pytest.mark.parametrize("options", [{}, FIELD, PREFIX, {**FIELD, **ALL}, {**PREFIX, **ALL}])
@pytest.mark.parametrize("value", [message("update", AFTER), message("update", AFTER, {})])
def test_without_a_before_image_an_update_is_an_upsert_of_its_key(
    options: dict[str, Any], value: bytes
) -> None:
    decoder = get_format("dms-json", **options).decoder(COLUMNS, unique_key=["id"])
    assert decoder.upserts(None, value) == [KeyedChange((2,), (2, "bike", "9.50"))]
    with pytest.raises(MissingBeforeImageError):
        decoder.decode(None, value)


def test_columns_whose_names_no_struct_can_have() -> None:
    columns = 'id INT, `a "b"` STRING'
    value = message("update", {"id": 1, 'a "b"': "new", "BI_id": 1, 'BI_a "b"': "old"})
    decoder = get_format("dms-json", **PREFIX, **ALL).decoder(columns)
    assert [change.row for change in decoder.decode(None, value)] == [(1, "old"), (1, "new")]


# --------------------------------------------------------------------------------------------------
# NULL and missing


def test_an_omitted_null_is_null() -> None:
    decoder = get_format("dms-json", **FIELD, **ALL).decoder(COLUMNS)
    rows = decoder.decode(
        None, message("update", {"id": 1, "weight": 1}, {"id": 1, "name": "scooter"})
    )
    assert [change.row for change in rows] == [(1, "scooter", None), (1, None, "1.00")]


def test_an_omitted_column_is_unknown_when_nulls_are_written() -> None:
    decoder = get_format("dms-json", include_null_and_empty=True).decoder(
        COLUMNS, unique_key=["id"]
    )
    value = message("update", {"id": 1, "weight": None})
    assert decoder.upserts(None, value) == [KeyedChange((1,), (1, ABSENT, None), (), True)]
    with pytest.raises(PartialImageError):
        decoder.decode(None, value)
    assert decoder.decode(None, message("insert", {"id": 1, "weight": None})) == [
        Change(RowKind.INSERT, (1, None, None))
    ]


def test_an_omitted_column_is_unknown_without_any_column_of_a_before_image() -> None:
    decoder = get_format("dms-json", **PREFIX, include_null_and_empty=True).decoder(
        COLUMNS, unique_key=["id"]
    )
    assert decoder.upserts(None, message("update", {"id": 1, "weight": None})) == [
        KeyedChange((1,), (1, ABSENT, None), (), True)
    ]


def test_a_delete_of_a_source_that_logs_the_key_has_the_key() -> None:
    assert get_format("dms-json").decoder(COLUMNS).decode(None, message("delete", {"id": 1})) == [
        Change(RowKind.DELETE, (1, None, None))
    ]


# --------------------------------------------------------------------------------------------------
# types


@pytest.mark.parametrize(
    ("sql_type", "value", "expected"),
    [
        ("BINARY", "0x00FF", b"\x00\xff"),
        ("BINARY", "00ff", b"\x00\xff"),
        ("BINARY", "", b""),
        ("TIMESTAMP_NTZ", "1970-01-01T00:00:01Z", 1_000_000),
        ("TIMESTAMP_NTZ", "1970-01-01T00:00:01.5", 1_500_000),
        ("TIMESTAMP", "1970-01-01T00:00:01Z", 1_000_000),
        ("DATE", "1970-01-02", 1),
        ("TIME", "00:00:01", 1_000_000),
        ("DECIMAL(5,2)", "1.5", "1.50"),
        ("DECIMAL(20,0)", 18446744073709551615, "18446744073709551615"),
    ],
)
def test_values_are_as_dms_writes_them(sql_type: str, value: Any, expected: Any) -> None:
    (change,) = (
        get_format("dms-json")
        .decoder(f"v {sql_type}")
        .decode(None, message("insert", {"v": value}))
    )
    assert change.row == (expected,)


# ---------------------------------------------------------------------------------------------
# metadata, tables, control


def test_metadata_is_read_from_the_message() -> None:
    more = {
        "timestamp": "1970-01-01T00:00:02.000001Z",
        "commit-timestamp": "1970-01-01T00:00:01.000000Z",
        "transaction-id": 670014899490,
        "stream-position": "00000002/7C007328.2.00000002/7C007328",
    }
    names = [
        "operation",
        "schema",
        "table",
        "ingestion-timestamp",
        "event-timestamp",
        "transaction-id",
        "stream-position",
    ]
    decoder = get_format("dms-json").decoder("id INT", metadata=names)
    (change,) = decoder.decode(None, message("load", {"id": 1}, **more))
    expected = (
        "load",
        "shop",
        "products",
        2_000_001,
        1_000_000,
        670014899490,
        "00000002/7C007328.2.00000002/7C007328",
    )
    assert change == Change(RowKind.INSERT, (1,), expected)
    (change,) = decoder.decode(None, message("load", {"id": 1}))
    assert change.metadata == ("load", "shop", "products", None, None, None, None)


@pytest.mark.parametrize("options", [{"schema_include": "sho"}, {"table_include": "product"}])
def test_filters_must_match_in_full(options: dict[str, str]) -> None:
    decoder = get_format("dms-json", **options).decoder("id INT")
    assert decoder.decode(None, message("insert", {"ID": 1})) is Ignored.OTHER_TABLE
    full = {name: pattern + "." for name, pattern in options.items()}
    assert get_format("dms-json", **full).decoder("id INT").decode(
        None, message("insert", {"id": 1})
    ) == [Change(RowKind.INSERT, (1,))]


@pytest.mark.parametrize(
    "operation",
    [
        "create-table",
        "drop-table",
        "rename-table",
        "add-column",
        "change-columns",
        "truncate-table",
    ],
)
def test_control_records_have_no_rows(operation: str) -> None:
    value = message(operation, None, **{"record-type": "control"})
    reason = Ignored.TRUNCATE if operation == "truncate-table" else Ignored.DDL
    assert get_format("dms-json").decoder("id INT").decode(None, value) is reason
    event = ControlEvent(reason, None, "shop", "products", operation)
    assert get_format("dms-json").control_event(None, value, reason) == event


def test_a_control_event_includes_the_table_definition() -> None:
    value = (
        b'{"control":{"table-def":{"primary-key":["id"]}},"metadata":{"record-type":"control",'
        b'"operation":"create-table"}}'
    )
    event = get_format("dms-json").control_event(None, value, Ignored.DDL)
    assert event == ControlEvent(
        Ignored.DDL, None, None, None, 'create-table {"table-def":{"primary-key":["id"]}}'
    )
    assert get_format("dms-json").control_event(None, None, Ignored.TOMBSTONE) == ControlEvent(
        Ignored.TOMBSTONE
    )


# --------------------------------------------------------------------------------------------------
# inference


def test_a_before_image_among_the_columns_is_inferred_as_one() -> None:
    update = message(
        "update", {**AFTER, "BI_id": 1, "BI_note": "old"}
    )  # the new note is NULL, which is left out
    inferred = infer_schema([(None, message("insert", AFTER)), (None, update)], format="dms-json")
    assert [column.name for column in inferred.columns] == list(AFTER)
    assert inferred.format_options == {"before_image_prefix": "BI_"}
    assert (
        "1 of 2 rows have columns with this prefix"
        in inferred.option_reasons["before_image_prefix"]
    )
    (table,) = profile_records(sample((None, update))).tables
    assert [column.name for column in table.schema.columns] == list(AFTER)
    assert table.options == {"before_image_prefix": "BI_"}
    assert (table.before.updates, table.before.updates_with) == (1, 1)


def test_a_column_with_the_prefix_of_before_images_alone_is_a_column() -> None:
    inferred = infer_schema(
        [(None, message("update", {"id": 1, "BI_note": "x"}))], format="dms-json"
    )
    assert (inferred.ddl, inferred.format_options) == ("id BIGINT, BI_note STRING", {})
    inferred = infer_schema(
        [(None, message("update", {**AFTER, "BI_id": 1}))], format="dms-json", **FIELD
    )
    assert ([column.name for column in inferred.columns], inferred.format_options) == (
        [*AFTER, "BI_id"],
        FIELD,
    )


test_error_texts = error_test(
    __file__,
    {
        "a before image of changed columns is not a row when nulls are written": lambda: (
            get_format("dms-json", **FIELD, **ALL, include_null_and_empty=True)
            .decoder(COLUMNS)
            .decode(None, message("update", AFTER, {"name": "scooter"}))
        ),
        **{
            f"invalid options are refused, {number}": lambda options=options: get_format(
                "dms-json", **options
            ).decoder("id INT")
            for number, options in enumerate(
                [
                    {"before_image_field": "data"},
                    {"before_image_field": ""},
                    {"before_image_prefix": ""},
                    {**FIELD, **PREFIX},
                    {"before_image_column_filter": "some"},
                    {"table_include": "("},
                    {"schema_include": "("},
                ],
                1,
            )
        },
    },
)
