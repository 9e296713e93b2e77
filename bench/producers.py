"""The benchmark's history as each producer writes it, envelope and all: key and value of an event, by format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cdc_formats.json_reader import json_bytes

from .history import NAMES, Row, message

Write = Callable[[int, "Row | None", "Row | None"], "tuple[bytes | None, bytes | None]"]

_SQL_TYPES = dict(zip(NAMES, (-5, 12, 12, 12, 3, 4, 93, -6), strict=True))
_MYSQL_TYPES = dict(
    zip(
        NAMES,
        ("bigint", "varchar(60)", "varchar(80)", "varchar(30)", "decimal(12,2)", "int", "datetime(3)", "tinyint(1)"),
        strict=True,
    )
)
_MILLIS = 1_700_000_000_000


def _image(row: Row) -> dict[str, Any]:
    return dict(zip(NAMES, row, strict=True))


def _numbers(row: Row) -> dict[str, Any]:
    """Return a row with its decimal as a number and its flag as MySQL has it."""
    return {**_image(row), "amount": msgspec.Raw(row[4].encode()), "flag": int(row[7])}


def _texts(row: Row) -> dict[str, Any]:
    return {**{name: str(value) for name, value in _image(row).items()}, "flag": str(int(row[7]))}


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in before.items() if value != after[name]}


def _what(before: Row | None, after: Row | None, names: tuple[str, str, str]) -> tuple[str, Row]:
    name = names[2] if after is None else names[0] if before is None else names[1]
    return name, after or before or ()


def _key(row: Row) -> bytes:
    return b'{"id":%d}' % row[0]


def canal_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """Canal's flat message of one row."""
    what, row = _what(before, after, ("INSERT", "UPDATE", "DELETE"))
    old = [_changed(_texts(before), _texts(after))] if before and after else None
    times = {"es": _MILLIS + number, "ts": _MILLIS + number + 200}
    types = {"mysqlType": _MYSQL_TYPES, "sqlType": _SQL_TYPES, "pkNames": ["id"]}
    data = {"data": [_texts(row)], "old": old, "type": what, "isDdl": False, "sql": "", "id": number}
    return None, json_bytes({**data, **times, **types, "database": "shop", "table": "customers"})


def ticdc_canal_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """TiCDC's message: Canal's with all columns in ``old``."""
    what, row = _what(before, after, ("INSERT", "UPDATE", "DELETE"))
    old = [_texts(before)] if before and after else None
    head = {"id": 0, "database": "shop", "table": "customers", "pkNames": ["id"], "isDdl": False, "type": what, "es": _MILLIS + number}
    types = {"ts": _MILLIS + number + 200, "sql": "", "sqlType": _SQL_TYPES, "mysqlType": _MYSQL_TYPES}
    return None, json_bytes({**head, **types, "old": old, "data": [_texts(row)], "_tidb": {"commitTs": (_MILLIS + number) << 18}})


def dms_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """DMS's message, with whole before-images."""
    what, row = _what(before, after, ("insert", "update", "delete"))
    where = {"partition-key-type": "primary-key", "schema-name": "shop", "table-name": "customers", "transaction-id": number}
    metadata = {"timestamp": "2023-11-14T22:13:20.713000Z", "record-type": "data", "operation": what, **where}
    image = {"before-image": _numbers(before)} if before and after else {}
    return b'"shop.customers.%d"' % row[0], json_bytes({"data": _numbers(row), **image, "metadata": metadata})


def debezium_flat_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes | None]:
    """Debezium's row without its envelope; a delete is JSON's null."""
    what, row = _what(before, after, ("c", "u", "d"))
    added = {"__op": what, "__table": "customers", "__source_ts_ms": _MILLIS + number}
    return _key(row), b"null" if after is None else json_bytes({**_image(after), **added})


def maxwell_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """Maxwell's message."""
    what, row = _what(before, after, ("insert", "update", "delete"))
    value = {"database": "shop", "table": "customers", "type": what, "ts": (_MILLIS + number) // 1000, "xid": number, "commit": True}
    old = {"old": _changed(_numbers(before), _numbers(after))} if before and after else {}
    return b'{"database":"shop","table":"customers","pk.id":%d}' % row[0], json_bytes({**value, "data": _numbers(row), **old})


def ogg_json(number: int, before: Row | None, after: Row | None) -> tuple[None, bytes]:
    """GoldenGate's message, not compressed."""
    what, _ = _what(before, after, ("I", "U", "D"))
    times = {"op_ts": "2023-11-14 22:13:20.000000", "current_ts": "2023-11-14T22:13:20.713000", "pos": f"{number:023d}"}
    value = {"table": "SHOP.CUSTOMERS", "op_type": what, **times, "primary_keys": ["id"], "tokens": {}}
    return None, json_bytes({**value, "before": before and _image(before), "after": after and _image(after)})


def changelog_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes]:
    """A changelog's row: of an update the ``+U``."""
    what, row = _what(before, after, ("+I", "+U", "-D"))
    return _key(row), json_bytes({"data": _image(row), "op": what})


def upsert_json(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes | None]:
    """The newest row by key."""
    return _key(after or before or ()), after and json_bytes(_image(after))


def upsert_csv(number: int, before: Row | None, after: Row | None) -> tuple[bytes, bytes | None]:
    """The newest row by key, as a line."""
    return b"%d" % (after or before or ())[0], after and ",".join(map(str, after)).lower().encode()


FORMATS: tuple[tuple[str, dict[str, Any], Write], ...] = (
    ("debezium-json", {"decimal_handling_mode": "string"}, message),
    ("debezium-flat-json", {"decimal_handling_mode": "string"}, debezium_flat_json),
    ("canal-json", {}, canal_json),
    ("ticdc-canal-json", {}, ticdc_canal_json),
    ("dms-json", {"before_image_field": "before-image", "before_image_column_filter": "all"}, dms_json),
    ("maxwell-json", {}, maxwell_json),
    ("ogg-json", {}, ogg_json),
    ("changelog-json", {}, changelog_json),
    ("upsert-kafka", {}, upsert_json),
    ("upsert-kafka", {"key_format": "csv", "value_format": "csv"}, upsert_csv),
)
"""Each format with the options that its messages need, and the function that writes them."""
