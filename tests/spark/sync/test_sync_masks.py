"""Tables of `sync_database` and `sync_table` with masked columns."""

import logging

import pytest

from cdc_formats.errors import SchemaError
from tests.support.masks import KEY, KEY_ENV, hashed
from tests.support.syncing import BoundedSync, write

MASK = {
    "Email": "hmac",
    "shop.users.id": "hmac",
    "shop.users.name": "drop",
    "shop.users.nane": "drop",
    "emails": "drop",
}
OPTIONS = {"format_options": {"mask": MASK, "mask_key_env": KEY_ENV}}
ANN = {"id": 1, "email": "ann", "name": "Ann"}


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_ENV, KEY)


def test_masks_of_all_tables_and_of_one_also_of_a_column_that_appears_later(
    sync: BoundedSync, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "normalize")
    write(sync, {"users": [("insert", ANN)], "orders": [("insert", {"id": 1, "name": "pen"})]})
    sync.run(**OPTIONS)
    ann = {"id": hashed("1"), "email": hashed("ann")}
    assert sync.rows_of("users") == [ann]
    assert sync.rows_of("orders") == [{"id": 1, "name": "pen"}]
    assert "shop.users: mask has `shop.users.nane`, which is not one of its columns" in caplog.text
    unused = (
        "mask has `emails`, which no table has so far; similar columns are `email` of shop.users"
    )
    assert caplog.text.count(unused) == 1
    bob = {"id": 2, "email": "bob", "name": "Bob"}
    write(
        sync,
        {
            "users": [
                ("insert", bob),
                ("update", {**ANN, "email": "anna"}, {"email": "ann"}),
                ("delete", bob),
            ],
            "orders": [("insert", {"id": 2, "name": "cup", "email": "ann"})],
        },
    )
    sync.run(by_spark=True, **OPTIONS)
    assert sync.rows_of("users") == [{**ann, "email": hashed("anna")}]
    assert sync.rows_of("orders")[1] == {"id": 2, "name": "cup", "email": ann["email"]}
    assert sync.file("shop.users")["facts"]["masks"].keys() == {"id", "email", "name"}
    files = "".join(path.read_text("utf-8") for path in (sync.folder / "schemas").glob("*.json"))
    assert "ann" not in files
    # The next micro-batch with other masks writes nothing.
    write(sync, {"orders": [("delete", {"id": 2, "name": "cup", "email": "ann"})]})
    monkeypatch.setenv("OTHER_KEY", KEY[::-1])
    other = {"format_options": {"mask": MASK, "mask_key_env": "OTHER_KEY"}}
    assert "[SYNC] shop.orders: the mask of 'email' is 'hmac with" in sync.error(**other)
    sync.run(**OPTIONS)
    assert sync.rows_of("orders") == [{"id": 1, "name": "pen"}]


def test_a_primary_key_that_is_redacted_stops_its_table(sync: BoundedSync) -> None:
    write(sync, {"users": [("insert", ANN)]})
    text = sync.error(format_options={"mask": {"id": "redact"}})
    assert "[SYNC] shop.users: [SCHEMA] mask has 'redact' for 'id', which is part of the" in text


def test_one_table_with_masks(sync: BoundedSync) -> None:
    options = {
        "schema": "id INT, email STRING, name STRING",
        "primary_key": "id",
        "format_options": {"mask": {"email": "hmac", "name": "redact"}, "mask_key_env": KEY_ENV},
    }
    write(sync, {"users": [("insert", ANN)]})
    sync.apply(sync.table_job(**options))
    (row,) = sync.rows("orders")
    assert (row["id"], row["email"], row["name"]) == (1, hashed("ann"), "***")
    with pytest.raises(SchemaError, match="mask has 'emial', which is not one of the columns"):
        sync.table_job(**{**options, "format_options": {"mask": {"emial": "drop"}}})
