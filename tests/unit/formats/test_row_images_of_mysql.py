"""Rows of MySQL's binlog in the formats of Canal and Maxwell: `old`, and columns that are missing."""

import pytest

from cdc_formats import ABSENT, Change, KeyedChange, RowKind, get_format
from cdc_formats.errors import MissingFieldError, PartialImageError
from tests.support.json_bytes import json_bytes

U, V, INS, D = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.INSERT, RowKind.DELETE
ROWS = "id INT, n INT, s STRING"
WHOLE = (
    r"configure MySQL to write whole rows \(binlog_row_image=FULL; if it does, set the option "
    r"binlog_row_image\)"
)
pytestmark = pytest.mark.parametrize("identifier", ["canal-json", "maxwell-json"])


def message(identifier: str, kind: str, row: object, old: object = None) -> bytes:
    if identifier == "maxwell-json":
        images = {"data": row, "old": old} if old else {"data": row}
        return json_bytes({"type": kind, "primary_key_columns": ["id"], **images})
    olds = None if old is None else [old]
    return json_bytes({"type": kind.upper(), "data": [row], "old": olds, "pkNames": ["id"]})


def decode(identifier: str, value: bytes, ddl: str = ROWS, **options: object) -> object:
    return get_format(identifier, **options).decoder(ddl).decode(None, value)


def upserts(identifier: str, value: bytes) -> object:
    return get_format(identifier).decoder(ROWS, unique_key=["id"]).upserts(None, value)


def test_null_in_old_was_null(identifier: str) -> None:
    value = message(identifier, "update", {"id": 1, "n": 5, "s": None}, {"n": None})
    assert decode(identifier, value) == [Change(U, (1, None, None)), Change(V, (1, 5, None))]


def test_a_delete_does_not_read_old(identifier: str) -> None:
    value = message(identifier, "delete", {"id": 1}, {"id": "x"})
    assert decode(identifier, value, "id INT") == [Change(D, (1,))]


def test_an_update_of_the_key_that_lacks_columns_has_none_of_the_old_row(identifier: str) -> None:
    assert upserts(identifier, message(identifier, "update", {"id": 2}, {"id": 1})) == [
        KeyedChange((1,), None),
        KeyedChange((2,), (2, ABSENT, ABSENT), partial=True, moved_from=(1,)),
    ]


@pytest.mark.parametrize(("kind", "old"), [("update", {}), ("delete", None)])
def test_a_row_that_lacks_the_key_names_the_servers_setting(
    identifier: str, kind: str, old: object
) -> None:
    """MINIMAL: `UPDATE t SET n = 5 WHERE id = 1`."""
    with pytest.raises(
        MissingFieldError, match="`id` is part of the primary key and is null or missing: " + WHOLE
    ):
        upserts(identifier, message(identifier, kind, {"n": 5}, old))


def test_a_delete_that_lacks_columns_deletes_its_key_and_has_no_row(identifier: str) -> None:
    value = message(identifier, "delete", {"id": 1})
    assert upserts(identifier, value) == [KeyedChange((1,), None)]
    with pytest.raises(PartialImageError, match=WHOLE):
        decode(identifier, value)
    assert decode(identifier, value, binlog_row_image="FULL") == [Change(D, (1, None, None))]


@pytest.mark.parametrize("old", [{"n": 4}, {"id": 0, "n": 4}, {"other": 1}])
def test_missing_columns_are_null_if_old_shows_that_the_row_is_complete(
    identifier: str, old: object
) -> None:
    """A column that was added later, or Maxwell's output_nulls=false."""
    value = message(identifier, "update", {"id": 1, "n": 5}, old)
    assert upserts(identifier, value)[-1] == KeyedChange((1,), (1, 5, None))
    assert decode(identifier, value)[1] == Change(V, (1, 5, None))


def test_missing_columns_of_an_insert_are_null(identifier: str) -> None:
    insert = message(identifier, "insert", {"id": 1})
    assert decode(identifier, insert) == [Change(INS, (1, None, None))]
    with pytest.raises(MissingFieldError, match="n is declared NOT NULL and is missing: " + WHOLE):
        decode(identifier, insert, "id INT, n INT NOT NULL")
