"""Canal's own rules: several rows in a message, statements, and filters that apply first."""

import json
from typing import Any

import pytest

from cdc_formats import ABSENT, Change, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.errors import MissingBeforeImageError, PartialImageError, TypeConversionError
from cdc_formats.events import ControlEvent
from tests.support.both_decoders import differences, natively, odd_places, source_of
from tests.support.error_texts import error_test

U, V, INS, D = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.INSERT, RowKind.DELETE


def decode(value: bytes, ddl: str = "id INT, n INT, s STRING", **options: object) -> object:
    return get_format("canal-json", **options).decoder(ddl).decode(None, value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(
            # Flink searches all of `old`: the second row's before-image would get NULL for s.
            b'{"type":"UPDATE","data":[{"id":"1","n":"1","s":"new"},{"id":"2","n":"9","s":"same"}],'
            b'"old":[{"s":"was"},{"n":"2"}]}',
            [
                Change(U, (1, 1, "was")),
                Change(V, (1, 1, "new")),
                Change(U, (2, 2, "same")),
                Change(V, (2, 9, "same")),
            ],
            id="old is looked up in its own row",
        ),
        pytest.param(
            b'{"type":"UPDATE","data":[{"id":"1","n":null,"s":"a"},{"id":"1","n":null,"s":"a"}],'
            b'"old":[{"s":"a","n":null},{}]}',
            [Change(U, (1, None, "a")), Change(V, (1, None, "a"))] * 2,
            id="old lists unchanged columns, or none",
        ),
        pytest.param(
            b'{"type":"INSERT","data":[{"id":"1"},{"id":"1"}]}',
            [Change(INS, (1, None, None))] * 2,
            id="equal rows of one message are two rows",
        ),
        pytest.param(
            b'{"id":0,"type":"INSERT","data":[{"id":"1"}],"old":null,'
            b'"_tidb":{"commitTs":429918007904436226,"onlyHandleKey":true}}',
            [Change(INS, (1, None, None))],
            id="the extension of TiDB",
        ),
        (b'{"type":"INSERT","data":[],"old":[]}', []),
        (b'{"type":"UPDATE","data":[],"old":[]}', []),
        (b'{"type":"DELETE","data":[],"old":[]}', []),
    ],
)
def test_rows_of_a_message(value: bytes, expected: list[Change]) -> None:
    assert decode(value) == expected


# --------------------------------------------------------------------------------------------------
# partial images


WHOLE = (
    r"configure MySQL to write whole rows \(binlog_row_image=FULL; if it does, set the option "
    r"binlog_row_image\)"
)


def upserts(
    value: bytes, ddl: str = "id INT, n INT, s STRING", key: str = "id", **options: object
) -> object:
    return get_format("canal-json", **options).decoder(ddl, unique_key=[key]).upserts(None, value)


def test_an_update_that_lacks_columns_is_completed_by_its_key() -> None:
    """MINIMAL: `UPDATE t SET id = 1, n = 5 WHERE id = 1`."""
    value = b'{"type":"UPDATE","data":[{"id":"1","n":"5"}],"old":[{}],"pkNames":["id"]}'
    assert upserts(value) == [KeyedChange((1,), (1, 5, ABSENT), partial=True)]
    assert upserts(value, "id INT, n INT") == [KeyedChange((1,), (1, 5))]
    with pytest.raises(
        PartialImageError, match=r"left out s \(unchanged\).* Set a primary_key, or " + WHOLE
    ):
        decode(value)


@pytest.mark.parametrize(
    ("old", "partial"), [(b"{}", True), (b'{"a":["1"]}', False), (b'{"other":[]}', False)]
)
def test_a_nested_value_in_old_is_a_change_as_any_other(old: bytes, partial: bool) -> None:
    value = b'{"type":"UPDATE","data":[{"id":"1","a":[]}],"old":[%s],"pkNames":["id"]}' % old
    rest = ABSENT if partial else None
    assert upserts(value, "id INT, a ARRAY<STRING>, s STRING") == [
        KeyedChange((1,), (1, [], rest), partial=partial)
    ]


def test_a_partial_update_with_another_primary_key_than_the_tables_is_refused() -> None:
    for names in (b"null", b'["id"]'):
        value = b'{"type":"UPDATE","data":[{"id":"1","s":"b"}],"old":[{}],"pkNames":%s}' % names
        with pytest.raises(
            MissingBeforeImageError,
            match="`s` is not in the table's primary key, so it may have changed: " + WHOLE,
        ):
            upserts(value, key="s")
        assert upserts(value, key="s", binlog_row_image="FULL") == [
            KeyedChange(("b",), (1, None, "b"))
        ]


@pytest.mark.parametrize(
    ("kind", "is_ddl", "expected"),
    [
        ("CREATE", "true", Ignored.DDL),
        ("CREATE", "false", Ignored.DDL),
        ("ALTER", "null", Ignored.DDL),
        ("ERASE", "true", Ignored.DDL),
        ("RENAME", "true", Ignored.DDL),
        ("CINDEX", "true", Ignored.DDL),
        ("DINDEX", "true", Ignored.DDL),
        ("QUERY", "true", Ignored.DDL),
        ("QUERY", "false", Ignored.MESSAGE),
        ("A NEW ONE", "true", Ignored.DDL),
        ("INIT_DDL", "true", Ignored.DDL),
        ("INIT_DDL", "false", Ignored.DDL),
        ("TRUNCATE", "true", Ignored.TRUNCATE),
        ("TRUNCATE", "false", Ignored.TRUNCATE),
    ],
)
def test_statements_are_ignored_by_reason(kind: str, is_ddl: str, expected: Ignored) -> None:
    value = b'{"type":"%s","isDdl":%s,"data":null,"old":null,"sql":"..."}' % (
        kind.encode(),
        is_ddl.encode(),
    )
    assert decode(value) is expected


@pytest.mark.parametrize(
    ("options", "database", "table", "expected"),
    [
        ({"database_include": "shop"}, b'"shop"', b"null", 1),
        ({"database_include": "sho"}, b'"shop"', b'"a"', Ignored.OTHER_TABLE),
        ({"table_include": "a.*"}, b"null", b'"apples"', 1),
        ({"table_include": "a.*"}, b'"shop"', b'"bananas"', Ignored.OTHER_TABLE),
        ({"database_include": "shop|store", "table_include": "a"}, b'"store"', b'"a"', 1),
        (
            {"database_include": "shop|store", "table_include": "a"},
            b'"store"',
            b'"b"',
            Ignored.OTHER_TABLE,
        ),
        ({"table_include": "5"}, b"null", b"5", 1),
    ],
)
def test_filters_match_in_full(
    options: dict, database: bytes, table: bytes, expected: object
) -> None:
    result = decode(
        b'{"type":"INSERT","database":%s,"table":%s,"data":[{"id":"1"}]}' % (database, table),
        **options,
    )
    assert result == ([Change(INS, (1, None, None))] if expected == 1 else expected)


def test_messages_of_filtered_tables_are_not_validated() -> None:
    value = b'{"type":"UNKNOWN TYPE","table":"b","data":[{"id":"no number"}]}'
    assert decode(value, table_include="a") is Ignored.OTHER_TABLE


def test_binary_is_latin_1_and_base64_on_request() -> None:
    value = b'{"type":"INSERT","data":[{"b":"AP8="}]}'
    assert decode(value, "b BINARY")[0].row == (b"AP8=",)
    assert decode(value, "b BINARY", binary_handling_mode="base64")[0].row == (b"\x00\xff",)
    assert decode('{"type":"INSERT","data":[{"b":"\\u0000ÿ"}]}'.encode(), "b BINARY")[0].row == (
        b"\x00\xff",
    )


def test_binary_may_be_hexadecimal_digits() -> None:
    value = b'{"type":"INSERT","data":[{"b":"0x48656C6C6F"}]}'
    assert decode(value, "b BINARY", binary_handling_mode="hex")[0].row == (b"Hello",)
    assert decode(value, "b BINARY", binary_handling_mode="latin1")[0].row == (b"0x48656C6C6F",)
    assert decode(value, "b STRING")[0].row == ("0x48656C6C6F",)
    assert decode(value.replace(b"48", b"4"), "b BINARY")[0].row == (b"0x4656C6C6F",)
    with pytest.raises(TypeConversionError, match=r"or hexadecimal digits.*'hex' .Tencent DTS"):
        decode(value, "b BINARY")


def test_messages_of_huawei_drs() -> None:
    row, key = b'[{"id":"1","n":"2","s":"a"}]', b'"pkNames":["id"]'
    messages = [
        b'{"type":"INIT","data":%s,"old":null,%s}' % (row, key),
        b'{"type":"UPDATE","data":%s,"old":[{"n":"1"}],%s}' % (row, key),
        b'{"type":"DELETE","data":null,"old":%s,%s}' % (row, key),
        b'{"type":"DELETE","data":null,"old":[{"id":"1"}],%s}' % key,
        b'{"type":"DELETE","data":null,"old":[{"id":"1"},{"id":"2"}],%s}' % key,
        b'{"type":"DELETE","data":null,"old":null,%s}' % key,
    ]
    assert decode(messages[0]) == [Change(INS, (1, 2, "a"))]
    assert decode(messages[2]) == [Change(D, (1, 2, "a"))]
    with pytest.raises(MissingBeforeImageError, match="`old` of a delete is null"):
        decode(messages[5])
    plan = source_of(get_format("canal-json"), "id INT, n INT, s STRING", ["id"])
    records = [(None, message) for message in messages]
    assert not differences(plan, records)
    assert not differences(plan, records, columnar=natively)
    assert odd_places(plan, records) == [2, 3, 4, 5]


@pytest.mark.parametrize(
    ("member", "path"),
    [
        (b'"ts":"soon"', "$.ts"),
        (b'"es":1e300', "$.es"),
        (b'"sqlType":{"a":"x"}', "$.sqlType"),
        (b'"ts":253402300800000', "$.ts"),
    ],
)
def test_metadata_of_the_wrong_type_is_an_error_only_when_requested(
    member: bytes, path: str
) -> None:
    value = b'{"type":"INSERT","data":[{"id":"1"}],%s}' % member
    format = get_format("canal-json")
    assert format.decoder("id INT").decode(None, value) == [Change(INS, (1,))]
    with pytest.raises(ValueError, match=f"at `{path.replace('$', '[$]')}`"):
        format.decoder("id INT", metadata=list(format.metadata)).decode(None, value)


# --------------------------------------------------------------------------------------------------
# Rules of TiCDC's Canal JSON: the fields of ``_tidb``, and incomplete rows
TICDC = get_format("ticdc-canal-json")
COLUMNS = "id INT, name STRING, flags INT, data BINARY"
ROW = {"id": "1", "name": "bike", "flags": "3", "data": "\x00\xff"}


def message(what: str, row: Any = None, old: Any = None, **more: Any) -> bytes:
    head = {
        "id": 0,
        "database": "shop",
        "table": "orders",
        "pkNames": ["id"],
        "isDdl": False,
        "type": what,
        "es": 5,
        "ts": 6,
        "sql": "",
    }
    return json.dumps({**head, "data": row and [row], "old": old and [old], **more}).encode()


@pytest.mark.parametrize(
    "old",
    [{**ROW, "name": "scooter"}, {"name": "scooter"}],
    ids=["all columns", "only-output-updated-columns"],
)
def test_old_has_all_or_only_the_changed_columns(old: dict[str, str]) -> None:
    before, after = TICDC.decoder(COLUMNS).decode(None, message("UPDATE", ROW, old))
    assert before == Change(RowKind.UPDATE_BEFORE, (1, "scooter", 3, b"\x00\xff"))
    assert after == Change(RowKind.UPDATE_AFTER, (1, "bike", 3, b"\x00\xff"))


def test_commit_ts_and_canals_fields_are_metadata() -> None:
    names = ["commit-ts", "database", "table", "pk-names", "event-timestamp", "ingestion-timestamp"]
    decoder = TICDC.decoder("id INT", metadata=names)
    (change,) = decoder.decode(None, message("INSERT", ROW, _tidb={"commitTs": 437451228626059264}))
    assert change.metadata == (437451228626059264, "shop", "orders", ["id"], 5000, 6000)
    (change,) = decoder.decode(None, message("INSERT", ROW))  # enable-tidb-extension=false
    assert change.metadata[0] is None


def test_a_watermark_is_a_heartbeat_of_no_table() -> None:
    watermark = message(
        "TIDB_WATERMARK", database="", table="", _tidb={"watermarkTs": 437451228626059265}
    )
    assert (
        get_format("ticdc-canal-json", table_include="orders")
        .decoder("id INT")
        .decode(None, watermark)
        is Ignored.HEARTBEAT
    )
    event = ControlEvent(Ignored.HEARTBEAT, None, None, None, "437451228626059265")
    assert TICDC.control_event(None, watermark, Ignored.HEARTBEAT) == event
    assert TICDC.control_event(None, None, Ignored.TOMBSTONE) == ControlEvent(Ignored.TOMBSTONE)


def test_a_statement_is_a_control_event() -> None:
    ddl = message(
        "ALTER", isDdl=True, sql="ALTER TABLE orders ADD note TEXT", _tidb={"commitTs": 5}
    )
    assert TICDC.decoder("id INT").decode(None, ddl) is Ignored.DDL
    event = ControlEvent(Ignored.DDL, "shop", None, "orders", "ALTER TABLE orders ADD note TEXT")
    assert TICDC.control_event(None, ddl, Ignored.DDL) == event
    assert TICDC.decoder("id INT").decode(None, message("TRUNCATE", isDdl=True)) is Ignored.TRUNCATE


def test_other_tables_are_filtered_without_validation() -> None:
    decoder = get_format("ticdc-canal-json", table_include="customers").decoder("id INT")
    for value in (
        message("INSERT", {"ID": "x"}),
        message("ALTER", isDdl=True),
        message("INSERT", None, _tidb={"onlyHandleKey": True}),
    ):
        assert decoder.decode(None, value) is Ignored.OTHER_TABLE


# -------------------------------------------------------------------------------------------------
# rows that are not whole


@pytest.mark.parametrize(
    "value",
    [
        message("DELETE", {"id": "1"}),
        message("DELETE", {"id": "1"}, _tidb={"commitTs": 5, "onlyHandleKey": True}),
        message(
            "DELETE", {"id": "1"}, _tidb={"commitTs": 5, "claimCheckLocation": "s3:/claims/1.json"}
        ),
    ],
    ids=["delete-only-output-handle-key-columns", "onlyHandleKey", "claimCheckLocation"],
)
def test_a_keyed_stage_accepts_a_delete_with_only_its_key(value: bytes) -> None:
    assert TICDC.decoder(COLUMNS, unique_key=["id"]).upserts(None, value) == [
        KeyedChange((1,), None)
    ]
    with pytest.raises((MissingBeforeImageError, PartialImageError)):
        TICDC.decoder(COLUMNS).decode(None, value)


@pytest.mark.parametrize(
    ("columns", "value", "row"),
    [
        pytest.param(
            COLUMNS,
            message("DELETE", {"id": "1", "name": "bike"}),
            (1, "bike", None, None),
            id="a column that was added later",
        ),
        pytest.param(
            "id INT",
            message("DELETE", {"id": "1"}, _tidb={"onlyHandleKey": True}),
            (1,),
            id="a table that is all key",
        ),
        pytest.param(
            "id INT, name STRING",
            message("DELETE", {"id": "1"}, pkNames=None),
            (1, None),
            id="a table without a primary key",
        ),
    ],
)
def test_a_delete_with_a_whole_row(columns: str, value: bytes, row: tuple[Any, ...]) -> None:
    assert TICDC.decoder(columns).decode(None, value) == [Change(RowKind.DELETE, row)]


@pytest.mark.parametrize("what", ["INSERT", "UPDATE"])
def test_an_incomplete_row_is_never_filled_with_null(what: str) -> None:
    decoder = TICDC.decoder(COLUMNS, unique_key=["id"])
    for tidb, reason in (
        ({"onlyHandleKey": True}, "raise TiCDC's max-message-bytes"),
        ({"claimCheckLocation": "s3:/x"}, r"\(s3:/x\)"),
    ):
        with pytest.raises(PartialImageError, match=reason):
            decoder.upserts(None, message(what, {"id": "1"}, {"id": "1"}, _tidb=tidb))


def test_the_encoder_is_canals() -> None:
    record = TICDC.encoder("id INT, name STRING").encode(
        RowKind.UPDATE_AFTER, (1, "bike"), (1, "scooter")
    )
    assert record == get_format("canal-json").encoder("id INT, name STRING").encode(
        RowKind.UPDATE_AFTER, (1, "bike"), (1, "scooter")
    )
    assert record is not None
    assert [change.row for change in TICDC.decoder("id INT, name STRING").decode(*record)] == [
        (1, "scooter"),
        (1, "bike"),
    ]


test_error_texts = error_test(
    __file__,
    {
        **{
            f"an invalid old is an error in a delete too, {number}": lambda old=old: decode(
                b'{"type":"DELETE",%s"data":[{"id":"1"}]}' % old
            )
            for number, old in enumerate([b'"old":{},', b'"old":"text",', b'"old":[5],'], 1)
        },
    },
)
