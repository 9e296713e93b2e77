"""Maxwell's own rules: `old` at its own level, bootstraps, seconds."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import ABSENT, Change, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.errors import (
    FormatOptionError,
    MissingBeforeImageError,
    PartialImageError,
)
from cdc_formats.values.schema import complete
from tests.support.examples import examples

U, V, INS, D = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER, RowKind.INSERT, RowKind.DELETE


def decode(value: bytes, ddl: str = "id INT, n INT, s STRING", **options: object) -> object:
    return get_format("maxwell-json", **options).decoder(ddl).decode(None, value)


@pytest.mark.parametrize(
    ("value", "ddl", "rows"),
    [
        pytest.param(
            # Flink would find the n inside the JSON value of s.
            b'{"type":"update","data":{"id":1,"n":5,"s":{"n":8}},"old":{"s":{"n":7}}}',
            "id INT, n INT, s STRING",
            [(1, 5, '{"n":7}'), (1, 5, '{"n":8}')],
            id="old is looked up at its own level",
        ),
        pytest.param(
            b'{"type":"update","data":{"id":1,"n":5},"old":{}}',
            "id INT, n INT, s STRING",
            [(1, 5, None), (1, 5, None)],
            id="an empty old is an update without changes",
        ),
        pytest.param(
            b'{"type":"update","data":{"id":1},"old":{"other":1}}',
            "id INT",
            [(1,), (1,)],
            id="a column of old that is not declared",
        ),
        pytest.param(
            b'{"type":"insert","data":{"a":8.4270,"b":0E-18,'
            b'"c":12345678901234567890.123456789012345678}}',
            "a DECIMAL(6,4), b DECIMAL(38,18), c DECIMAL(38,18)",
            [("8.4270", "0.000000000000000000", "12345678901234567890.123456789012345678")],
            id="decimals of numbers keep every digit",
        ),
        pytest.param(
            b'{"type":"insert","data":{"a":["x","y"],"b":{"k":[1.50,null]},"c":["x"]}}',
            "a ARRAY<STRING>, b STRING, c STRING",
            [(["x", "y"], '{"k":[1.50,null]}', '["x"]')],
            id="a set is an array, and a JSON value is text",
        ),
    ],
)
def test_rows(value: bytes, ddl: str, rows: list[tuple[Any, ...]]) -> None:
    kinds = [U, V] if b"update" in value else [INS]
    assert decode(value, ddl) == list(map(Change, kinds, rows))


@pytest.mark.parametrize("kind", ["bootstrap-start", "bootstrap-complete"])
def test_marks_of_a_bootstrap_are_ignored_by_reason(kind: str) -> None:
    assert decode(b'{"type":"%s","table":"a","data":{}}' % kind.encode()) is Ignored.SNAPSHOT_MARK


@pytest.mark.parametrize("what", ["table", "database"])
@pytest.mark.parametrize("action", ["create", "alter", "drop"])
def test_ddl_is_ignored_under_all_filters(what: str, action: str) -> None:
    value = b'{"type":"%s-%s","database":"x","ts":1596684883000}' % (what.encode(), action.encode())
    assert decode(value) is decode(value, table_include="a", database_include="b") is Ignored.DDL


def test_filters_match_in_full_and_before_the_row_is_read() -> None:
    value = b'{"type":"insert","database":"shop","table":"apples","data":{"id":1}}'
    assert decode(value, table_include="app.*", database_include="shop") == [
        Change(INS, (1, None, None))
    ]
    assert decode(value, table_include="app") is Ignored.OTHER_TABLE
    assert (
        decode(b'{"type":"unknown type","database":"shop","table":"b"}', table_include="a")
        is Ignored.OTHER_TABLE
    )
    assert (
        decode(b'{"type":"bootstrap-start","database":"shop","table":"b"}', table_include="a")
        is Ignored.OTHER_TABLE
    )


# --------------------------------------------------------------------------------------------------
# partial images

WHOLE = (
    r"configure MySQL to write whole rows \(binlog_row_image=FULL; if it does, set the option "
    r"binlog_row_image\)"
)


def upserts(
    value: bytes, ddl: str = "id INT, n INT, s STRING", key: str = "id", **options: object
) -> object:
    return get_format("maxwell-json", **options).decoder(ddl, unique_key=[key]).upserts(None, value)


def test_an_update_without_old_is_completed_by_its_key() -> None:
    """MINIMAL: `UPDATE t SET n = 5 WHERE id = 1`."""
    value = b'{"type":"update","data":{"n":5,"id":1}}'
    assert upserts(value) == [KeyedChange((1,), (1, 5, ABSENT), partial=True)]
    assert upserts(value, "id INT, n INT NOT NULL, s STRING NOT NULL") == [
        KeyedChange((1,), (1, 5, ABSENT), partial=True)
    ]
    with pytest.raises(
        PartialImageError, match=r"left out s \(unchanged\).* Set a primary_key, or " + WHOLE
    ):
        decode(value)


def test_an_update_without_old_has_no_row_before_it() -> None:
    """MINIMAL: `UPDATE t SET id = 1, n = 5 WHERE id = 1`."""
    value = b'{"type":"update","data":{"n":5,"id":1}}'
    assert upserts(value, "id INT, n INT") == [KeyedChange((1,), (1, 5))]
    with pytest.raises(MissingBeforeImageError, match="MySQL: binlog_row_image=FULL"):
        decode(value, "id INT, n INT")


def test_a_column_in_old_that_is_missing_in_data_is_null() -> None:
    """output_nulls=false: `UPDATE t SET n = NULL WHERE id = 1`."""
    value = b'{"type":"update","data":{"id":1,"s":"a"},"old":{"n":5}}'
    assert upserts(value) == [KeyedChange((1,), (1, None, "a"))]
    assert decode(value) == [Change(U, (1, 5, "a")), Change(V, (1, None, "a"))]


def test_another_key_than_the_tables_is_refused_if_it_may_have_changed() -> None:
    value = b'{"type":"update","primary_key_columns":["id"],"data":{"id":1,"n":2,"s":"b"}}'
    with pytest.raises(
        MissingBeforeImageError,
        match="lacks old values, and `s` is not in the table's primary key, so .*: " + WHOLE,
    ):
        upserts(value, key="s")
    assert (
        upserts(value)
        == upserts(value, binlog_row_image="FULL")
        == [KeyedChange((1,), (1, 2, "b"))]
    )
    assert upserts(value, key="s", binlog_row_image="FULL") == [KeyedChange(("b",), (1, 2, "b"))]


def test_missing_columns_are_unchanged_if_declared_so() -> None:
    value = b'{"type":"update","data":{"id":2,"n":5},"old":{"id":1,"n":4}}'
    for image in ("MINIMAL", "NOBLOB"):
        changes = upserts(value, binlog_row_image=image)
        assert changes == [
            KeyedChange((1,), None),
            KeyedChange((2,), (2, 5, ABSENT), partial=True, moved_from=(1,)),
        ]
    assert (
        upserts(value, binlog_row_image="FULL")
        == upserts(value)
        == [KeyedChange((1,), None), KeyedChange((2,), (2, 5, None))]
    )
    with pytest.raises(
        FormatOptionError,
        match="binlog_row_image is 'full'; it is one of None, 'FULL', 'MINIMAL', 'NOBLOB'",
    ):
        upserts(value, binlog_row_image="full")


def test_undeclared_columns_show_that_a_row_is_complete() -> None:
    ddl = "id INT, added INT"
    whole, minimal = (
        b'{"type":"update","data":{"id":2%s},"old":{"id":1}}' % rest for rest in (b',"n":5', b"")
    )
    assert upserts(whole, ddl) == [KeyedChange((1,), None), KeyedChange((2,), (2, None))]
    assert upserts(minimal, ddl) == [
        KeyedChange((1,), None),
        KeyedChange((2,), (2, ABSENT), partial=True, moved_from=(1,)),
    ]
    assert decode(whole, ddl) == [Change(U, (1, None)), Change(V, (2, None))]
    with pytest.raises(PartialImageError):
        decode(minimal, ddl)


BLOBS = {"s"}


def written(
    kind: str,
    row: dict[str, Any],
    before: dict[str, Any] | None,
    assigned: set[str],
    image: str,
    nulls: bool,
) -> bytes:
    """Return Maxwell's message for a row event, following its BinlogConnectorEvent and RowMap.

    Parameters
    ----------
    kind : {"insert", "update", "delete"}
    row : dict
        The row after an insert or update, the deleted row.
    before : dict or None
        The row before an update.
    assigned : set of str
        The columns that an update's statement sets.
    image : {"FULL", "MINIMAL", "NOBLOB"}
        The server's binlog_row_image.
    nulls : bool
        Maxwell's output_nulls.
    """
    searched = {"FULL": set(row), "MINIMAL": {"id"}, "NOBLOB": set(row) - BLOBS}[image]
    data, old = row, {}
    if kind == "delete":
        data = {name: row[name] for name in searched}
    if before is not None:
        logged = {"FULL": set(row), "MINIMAL": assigned, "NOBLOB": set(row) - BLOBS | assigned}[
            image
        ]
        data = {name: row[name] for name in logged} | {
            name: before[name] for name in searched - logged
        }
        old = {name: before[name] for name in searched & logged if before[name] != row[name]}
    images = {"data": data, "old": old} if old else {"data": data}
    return json.dumps(
        {"type": kind, **{name: _output(of, nulls) for name, of in images.items()}}
    ).encode()


def _output(image: Mapping[str, Any], nulls: bool) -> dict[str, Any]:
    return {name: value for name, value in image.items() if nulls or value is not None}


VALUES = {"n": st.none() | st.integers(0, 2), "s": st.none() | st.sampled_from("ab")}
STATEMENT = st.tuples(
    st.integers(1, 3),
    st.integers(1, 3),
    st.fixed_dictionaries({}, optional=VALUES),
    st.sampled_from(["move", "set", "delete"]),
)
PRODUCERS = [
    ("FULL", True, None),
    ("FULL", False, None),
    ("FULL", False, "FULL"),
    ("MINIMAL", True, None),
    ("MINIMAL", True, "MINIMAL"),
    ("NOBLOB", True, "NOBLOB"),
]


@pytest.mark.parametrize(("image", "nulls", "declared"), PRODUCERS)
@settings(max_examples=examples(100), deadline=None)
@given(statements=st.lists(STATEMENT, max_size=30))
def test_every_row_image_ends_in_the_databases_table(
    image: str, nulls: bool, declared: str | None, statements: list[Any]
) -> None:
    decoder = get_format("maxwell-json", binlog_row_image=declared).decoder(
        "id INT, n INT, s STRING", unique_key=["id"]
    )
    table: dict[int, dict[str, Any]] = {}
    folded: dict[int, tuple[Any, ...] | None] = {}
    for key, target, values, what in statements:
        if key not in table:
            table[key] = {"id": key, "n": None, "s": None, **values}
            message = written("insert", table[key], None, set(), image, nulls)
        elif what == "delete":
            message = written("delete", table.pop(key), None, set(), image, nulls)
        else:
            before, changed = table[key], {**table[key], **values}
            assigned = set(values)
            # A row that lacks columns cannot be completed if its key changed: such statements set
            # all columns.
            if (
                what == "move"
                and target not in table
                and (nulls or declared == "FULL" or None not in changed.values())
            ):
                changed, assigned = {**changed, "id": target}, set(changed)
            if changed == before:
                continue  # the server logs nothing
            del table[key]
            table[changed["id"]] = changed
            message = written("update", changed, before, assigned, image, nulls)
        changes = decoder.upserts(None, message)
        assert not isinstance(changes, Ignored)
        for change in changes:
            row = change.row
            if change.partial:
                assert row is not None
                row = complete(row, folded[change.key[0]] or ())
            folded[change.key[0]] = row
        assert {key: row for key, row in folded.items() if row} == {
            key: tuple(row.values()) for key, row in table.items()
        }
