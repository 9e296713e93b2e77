"""Undeclared columns, and declared ones that messages lack, for every format with column names."""

import json
from dataclasses import dataclass

import pytest

from cdc_formats import Event, Format, RowKind, get_format
from cdc_formats.errors import FormatOptionError, UnknownColumnError

WRITTEN, DECLARED = "id INT, name STRING, weight INT", "id INT, name STRING, wieght INT"
BEFORE_IMAGES = {"before_image_prefix": "BI_", "before_image_column_filter": "all"}
FORMATS = [
    ("debezium-json", {}, "wieght"),
    ("debezium-json", {"schema_include": True}, "wieght"),
    ("debezium-flat-json", {}, "wieght"),
    ("debezium-flat-json", {"schema_include": True}, "wieght"),
    ("canal-json", {}, "wieght"),
    ("maxwell-json", {}, "wieght"),
    ("ogg-json", {}, "wieght"),
    ("changelog-json", {}, "wieght"),
    ("upsert-kafka", {}, "wieght"),
    ("upsert-kafka", {"value_fields_include": "EXCEPT_KEY"}, "wieght"),
    ("dms-json", {**BEFORE_IMAGES, "include_null_and_empty": True}, "wieght"),
    ("op-json", {}, "wieght"),
    ("op-json", {"before_prefix": "old_", "missing_columns": "unchanged"}, "wieght"),
    # Columns that are NULL are left out.
    ("dms-json", BEFORE_IMAGES, None),
]


def record_of(format: str, options: dict, kind: RowKind, row: tuple, before: tuple | None = None):
    if format not in ("dms-json", "op-json"):
        return (
            get_format(format, **options)
            .encoder(WRITTEN, unique_key=["id"])
            .encode(kind, row, before)
        )
    names, operations = (
        ("id", "name", "weight"),
        {RowKind.INSERT: "insert", RowKind.UPDATE_AFTER: "update", RowKind.DELETE: "delete"},
    )
    if format == "op-json":
        return None, json.dumps(
            {"op": operations[kind][0].upper(), **dict(zip(names, row, strict=True))}
        ).encode()
    data = {
        **dict(zip(names, row, strict=True)),
        **dict(zip((f"BI_{name}" for name in names), before or (), strict=bool(before))),
    }
    return None, json.dumps({"data": data, "metadata": {"operation": operations[kind]}}).encode()


def compared(
    format: str,
    options: dict,
    kind: RowKind,
    row=(1, "bike", 2),
    before=None,
    declared: str = DECLARED,
):
    record = record_of(format, options, kind, row, before)
    return get_format(format, **options).decoder(declared, unique_key=["id"]).compare_names(*record)


@pytest.mark.parametrize(("format", "options", "absent"), FORMATS)
def test_a_misspelt_column_is_absent_and_the_right_one_unknown(format, options, absent):
    difference = compared(format, options, RowKind.INSERT)
    assert (difference.absent, difference.unknown) == ((absent,) if absent else (), ("weight",))


@pytest.mark.parametrize(("format", "options", "absent"), FORMATS)
def test_columns_as_declared_have_no_difference(format, options, absent):
    for kind, before in (
        (RowKind.INSERT, None),
        (RowKind.UPDATE_AFTER, (1, "bike", None)),
        (RowKind.DELETE, None),
    ):
        difference = compared(format, options, kind, (1, None, 2), before, WRITTEN)
        assert difference is None or not any(difference)


def test_a_documents_fields_may_be_missing():
    decoder = get_format("debezium-mongodb-json").decoder(
        "_id STRING, wieght INT", unique_key=["_id"]
    )
    difference = decoder.compare_names(
        None, json.dumps({"op": "c", "after": '{"_id": "a", "weight": 1}'}).encode()
    )
    assert difference == ((), ("weight",))


@pytest.mark.parametrize(
    ("format", "options", "message", "absent", "unknown"),
    [
        pytest.param("ogg-json", {}, {"op_type": "U", "before": {"id": 1}, "after": {"id": 1}}, (), (), id="a compressed update"),
        pytest.param("canal-json", {}, {"type": "DELETE", "data": [{"id": "1"}]}, (), (), id="a delete by its key"),
        pytest.param(
            "maxwell-json", {"binlog_row_image": "MINIMAL"}, {"type": "update", "data": {"id": 1, "name": None}},
            (), (), id="a minimal row image",
        ),
        pytest.param(
            "maxwell-json", {}, {"type": "update", "data": {"id": 1, "name": None}, "old": {"name": "a"}},
            ("wieght",), (), id="old",
        ),
        pytest.param(
            "dms-json",
            BEFORE_IMAGES,
            {"data": {"id": 1, "BI_id": 1, "more": 2}, "metadata": {"operation": "update"}},
            (),
            ("more",),
            id="before-images next to the columns",
        ),
        pytest.param(
            "debezium-flat-json", {"add_fields_prefix": "my."}, {"id": 1, "name": "a", "wieght": 1, "my.op": "u", "__deleted": "false"},
            (), (), id="added fields",
        ),
        pytest.param(
            "debezium-json", {}, {"op": "c", "after": {"id": 1, "name": "a", "Wieght": [[[1]]]}}, ("wieght",), ("Wieght",), id="upper case"
        ),
        pytest.param(
            "debezium-json", {}, {"op": "u", "before": {"old": 1}, "after": {"id": 1, "name": "a", "wieght": 1}}, (), (), id="before"
        ),
    ],
)  # fmt: skip
def test_columns_that_producers_omit_or_add_are_no_difference(
    format, options, message, absent, unknown
):
    decoder = get_format(format, **options).decoder(DECLARED, unique_key=["id"])
    assert decoder.compare_names(b'{"id": 1}', json.dumps(message).encode()) == (absent, unknown)


@pytest.mark.parametrize(
    ("format", "options", "record"),
    [
        pytest.param("upsert-kafka", {}, (b'{"id": 1}', None), id="a tombstone"),
        pytest.param(
            "upsert-kafka", {"json_null": "delete"}, (b'{"id": 1}', b"null"), id="JSON's null"
        ),
        pytest.param("debezium-flat-json", {}, (b'{"id": 1}', None), id="a flattened tombstone"),
        pytest.param("debezium-json", {}, (None, b'{"op": "t"}'), id="a truncate"),
    ],
)
def test_a_record_without_columns_is_not_compared(format, options, record):
    assert (
        get_format(format, **options).decoder(DECLARED, unique_key=["id"]).compare_names(*record)
        is None
    )


@pytest.mark.parametrize("value_format", ["csv", "avro"])
def test_columns_by_position_have_no_names_to_compare(value_format):
    options = {"value_format": value_format}
    assert compared("upsert-kafka", options, RowKind.UPDATE_AFTER) is None


@pytest.mark.parametrize("key_format", ["csv", "raw"])
def test_a_key_without_names_has_the_declared_ones(key_format):
    options = {"key_format": key_format, "value_fields_include": "EXCEPT_KEY"}
    decoder = get_format("upsert-kafka", **options).decoder(
        "id STRING, wieght INT", unique_key=["id"]
    )
    assert decoder.compare_names(b"1", b'{"weight": 2}') == (("wieght",), ("weight",))


def test_a_custom_format_is_compared_by_its_images():
    @dataclass(frozen=True, kw_only=True)
    class Plain(Format):
        identifier = "plain"

        def read(self, key, value):
            return [Event.insert(json.loads(value))]

    decoder = Plain().decoder("id INT, weight INT")
    assert decoder.compare_names(None, b'{"id": 1, "wieght": 1.5}') == (("weight",), ("wieght",))


@pytest.mark.parametrize(("format", "options", "absent"), FORMATS)
def test_a_value_of_an_undeclared_column_can_be_an_error(format, options, absent):
    for declared in (WRITTEN, "id INT, name STRING"):
        decoder = get_format(format, unknown_columns="fail", **options).decoder(
            declared, unique_key=["id"]
        )
        for kind, before in ((RowKind.INSERT, None), (RowKind.UPDATE_AFTER, (1, "bike", None))):
            record = record_of(format, options, kind, (1, "bike", 2), before)
            if declared == WRITTEN:
                assert [change.row for change in decoder.upserts(*record)] == [(1, "bike", 2)]
                continue
            for decode in (decoder.upserts, decoder.decode):
                with pytest.raises(
                    UnknownColumnError,
                    match=r"`weight` has a value and is not declared: add it to the schema.*\.weight`",
                ):
                    decode(*record)
        # Without a value, nothing is lost; a delete has only its key.
        for kind, row in ((RowKind.INSERT, (1, "bike", None)), (RowKind.DELETE, (1, "bike", 2))):
            assert [
                change.key for change in decoder.upserts(*record_of(format, options, kind, row))
            ] == [(1,)]


def test_undeclared_columns_cannot_be_an_error_without_names():
    for value_format in ("csv", "raw"):
        with pytest.raises(
            FormatOptionError, match="upsert-kafka: its messages have no column names"
        ):
            get_format("upsert-kafka", value_format=value_format, unknown_columns="fail").decoder(
                "id INT", unique_key=["id"]
            )
    with pytest.raises(
        FormatOptionError, match="unknown_columns is 'drop'; it is one of 'ignore', 'fail'"
    ):
        get_format("canal-json", unknown_columns="drop")
