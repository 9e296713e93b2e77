"""Metadata columns: Flink's names and types, and the values of a message."""

from typing import Any

import pytest

from cdc_formats import get_format

CASES: list[tuple[str, bytes, bytes, dict[str, tuple[str, Any]]]] = [
    (
        "canal-json",
        b'{"type":"INSERT","data":[{"id":"1"},{"id":"2"}],"database":"shop","table":"a",'
        b'"sqlType":{"n":12,"id":4,"x":null},"pkNames":["id"],"es":1589373560000,'
        b'"ts":1589373560798}',
        b'{"type":"INSERT","data":[{"id":"1"}],"pkNames":null,"sqlType":[]}',
        {
            "database": ("STRING", "shop"),
            "table": ("STRING", "a"),
            "sql-type": ("MAP<STRING, INT>", [["id", 4], ["n", 12], ["x", None]]),
            "pk-names": ("ARRAY<STRING>", ["id"]),
            "ingestion-timestamp": ("TIMESTAMP(3)", 1_589_373_560_798_000),
            "event-timestamp": ("TIMESTAMP(3)", 1_589_373_560_000_000),
        },
    ),
    (
        "maxwell-json",
        b'{"type":"insert","database":"shop","table":"a","ts":1596684883,"xid":7152,'
        b'"position":"m.6:800","primary_key_columns":["id","n"],"data":{"id":1}}',
        b'{"type":"insert","data":{"id":1}}',
        {
            "database": ("STRING", "shop"),
            "table": ("STRING", "a"),
            "primary-key-columns": ("ARRAY<STRING>", ["id", "n"]),
            "ingestion-timestamp": ("TIMESTAMP(3)", 1_596_684_883_000_000),
            "position": ("STRING", "m.6:800"),
            "xid": ("BIGINT", 7152),
        },
    ),
    (
        "ogg-json",
        b'{"op_type":"I","after":{"id":1},"table":"OWNER.A","primary_keys":["ID"],'
        b'"op_ts":"2020-05-13 15:40:06.000123","current_ts":"2020-05-13T13:39:35.766",'
        b'"pos":"00000143"}',
        b'{"op_type":"I","after":{"id":1}}',
        {
            "table": ("STRING", "OWNER.A"),
            "primary-keys": ("ARRAY<STRING>", ["ID"]),
            "ingestion-timestamp": ("TIMESTAMP(6)", 1_589_377_175_766_000),
            "event-timestamp": ("TIMESTAMP(6)", 1_589_384_406_000_123),
            "position": ("STRING", "00000143"),
        },
    ),
]
"""A message, one without metadata, and the type and value of each column."""


@pytest.mark.parametrize(("identifier", "value", "bare", "metadata"), CASES)
def test_metadata_has_flinks_names_types_and_values(
    identifier: str, value: bytes, bare: bytes, metadata: dict[str, tuple[str, Any]]
) -> None:
    format = get_format(identifier)
    types = {name: column.type for name, column in format.metadata.items()}
    assert types == {name: sql_type for name, (sql_type, _) in metadata.items()}
    decoder = format.decoder("id INT", metadata=list(metadata))
    expected = tuple(each for _, each in metadata.values())
    assert {repr(change.metadata) for change in decoder.decode(None, value)} == {repr(expected)}
    (change,) = decoder.decode(None, bare)
    assert change.metadata == (None,) * len(metadata)
