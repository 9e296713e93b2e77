"""Rules of TiCDC's Canal JSON: the fields of ``_tidb``, and incomplete rows."""

import json
from typing import Any

import pytest

from cdc_formats import Change, Ignored, RowKind, get_format
from cdc_formats.errors import MissingBeforeImageError, PartialImageError
from cdc_formats.events import ControlEvent, KeyedChange

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
