"""The option `mask` of formats: what is masked, how, and with which key."""

import pickle
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any

import pytest

from cdc_formats import Ignored, columns, get_format
from cdc_formats.decoding.rows import result_columns
from cdc_formats.errors import DecodeError, FormatOptionError
from cdc_formats.values.schema import ABSENT, Column, to_ddl
from cdc_formats.values.types import TYPES
from tests.support.error_texts import error_test
from tests.support.masks import KEY, hashed, kinds_of, masked
from tests.support.scenarios import CASE_IDS, CASES, FORMATS, OURS

MESSAGE = (
    b'{"op":"c","before":null,"after":{"id":7,"email":"ann@example.org","card":4111,"note":"n"}}'
)
SCHEMA = "id INT NOT NULL, email STRING NOT NULL, card BIGINT NOT NULL, note VARCHAR(2)"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("MASK_KEY", KEY)


def test_values_are_hashed_redacted_and_dropped() -> None:
    mask = {"email": "hmac", "card": "redact", "note": "drop"}
    decoder = masked(mask).decoder(SCHEMA, unique_key=["id"])
    assert to_ddl(decoder.columns) == "id INT NOT NULL, email STRING NOT NULL, card BIGINT"
    (change,) = decoder.decode(None, MESSAGE)
    assert change.row == (7, hashed("ann@example.org"), None)
    (upsert,) = decoder.upserts(None, MESSAGE)
    assert (upsert.key, upsert.row) == ((7,), change.row)
    decoder = masked({"note": "redact", "card": "hmac"}).decoder(SCHEMA)
    assert to_ddl(decoder.columns[2:]) == "card STRING NOT NULL, note STRING"
    assert decoder.decode(None, MESSAGE)[0].row[2:] == (hashed("4111"), "***")


def test_null_stays_null_and_is_refused_where_the_column_is_not_null() -> None:
    decoder = masked({"email": "hmac", "note": "redact"}).decoder(
        "id INT, email STRING, note STRING"
    )
    null = b'{"op":"c","after":{"id":7,"email":null,"note":null}}'
    assert decoder.decode(None, null)[0].row == (7, None, None)
    with pytest.raises(DecodeError, match="email is declared NOT NULL"):
        masked({"email": "hmac"}).decoder("id INT, email STRING NOT NULL").decode(None, null)


def test_a_key_keeps_its_identity_behind_hmac() -> None:
    decoder = masked({"email": "hmac"}).decoder("email STRING, n INT", unique_key=["email"])
    update = b'{"op":"u","before":{"email":"a","n":1},"after":{"email":"%s","n":2}}'
    (same,) = decoder.upserts(None, update % b"a")
    assert same.key == (hashed("a"),)
    old, new = decoder.upserts(None, update % b"b")
    assert (old.key, old.row, new.key) == ((hashed("a"),), None, (hashed("b"),))


def test_equal_numbers_have_equal_hashes() -> None:
    decoder = masked({"x": "hmac"}, decimal_handling_mode="string").decoder("x DOUBLE")
    rows = [
        decoder.decode(None, b'{"op":"c","after":{"x":%s}}' % number)[0].row
        for number in (b"0.0", b"-0.0", b"0")
    ]
    assert rows == [(hashed("0.0"),)] * 3
    decoder = masked({"x": "hmac"}, decimal_handling_mode="string").decoder("x DECIMAL(6,2)")
    assert decoder.decode(None, b'{"op":"c","after":{"x":"9.5"}}')[0].row == (hashed("9.50"),)


@pytest.mark.parametrize(
    ("declared", "value", "text"),
    [
        ("STRING", '"é"', "é"),
        ("STRING", '{"a": 1.50}', '{"a":1.50}'),
        ("CHAR(4)", '"a "', "a "),
        ("BOOLEAN", "true", "true"),
        ("TINYINT", "-1", "-1"),
        ("DECIMAL(6,2)", '"9.5"', "9.50"),
        ("FLOAT", "1.1", "1.1"),
        ("DOUBLE", "9.5", "9.5"),
        ("DATE", '"2026-11-24"', "2026-11-24"),
        ("TIMESTAMP_NTZ", '"2026-11-24T12:30:00.5"', "2026-11-24 12:30:00.5"),
        ("TIMESTAMP", '"2026-11-24T13:30:00.5+01:00"', "2026-11-24 12:30:00.5Z"),
        ("TIMESTAMP", '"2026-11-24 12:30:00Z"', "2026-11-24 12:30:00Z"),
        ("BINARY", '"AP8="', b"\0\xff"),
    ],
)
def test_the_text_that_is_hashed(declared, value, text) -> None:
    message = f'{{"type":"insert","database":"d","table":"t","data":{{"x":{value}}}}}'
    decoder = masked({"x": "hmac"}, "maxwell-json").decoder(f"x {declared}")
    assert decoder.decode(None, message.encode())[0].row == (hashed(text),)


# --------------------------------------------------------------------------------------------------
# all formats


def _of_kind(kind: str, column: Column, value: Any) -> Any:
    """Return the mask of a value, written without the functions that are tested."""
    if value is None or value is ABSENT or kind == "":
        return value
    if kind == "redact":
        return "***" if column.type.name in ("STRING", "CHAR", "VARCHAR") else None
    if column.type.name == "BINARY":
        return hashed(value)
    zero = column.type.name in ("FLOAT", "DOUBLE") and value == 0
    return hashed(TYPES[column.type.name].to_text(0.0 if zero else value))


def _row(table: tuple[Column, ...], kinds: dict[str, str], row: Any) -> Any:
    if row is None or not table:
        return row
    pairs = [
        (column, kinds.get(column.name, ""), value)
        for column, value in zip(table, row, strict=True)
    ]
    return tuple(_of_kind(kind, column, value) for column, kind, value in pairs if kind != "drop")


def _outcome(decode: Any, record: Any, change: Any) -> Any:
    try:
        changes = decode(*record)
    except DecodeError as error:
        return type(error), error.path
    return changes if isinstance(changes, Ignored) else [change(each) for each in changes]


def _of_change(table: tuple[Column, ...], kinds: dict[str, str], change: Any) -> Any:
    return change.kind, _row(table, kinds, change.row)


def _of_upsert(
    table: tuple[Column, ...], key: tuple[Column, ...], kinds: dict[str, str], change: Any
) -> Any:
    return (
        _row(key, kinds, change.key),
        _row(table, kinds, change.row),
        _row(key, kinds, change.moved_from),
    )


@pytest.mark.parametrize(("scenario", "identifier"), CASES, ids=CASE_IDS)
def test_the_rows_of_every_format_are_masked(scenario, identifier) -> None:
    vector, random = scenario.vector(identifier), Random(5)
    table, key = columns(vector.schema), vector.primary_key
    of_key = tuple(next(each for each in table if each.name == name) for name in key)
    plain = get_format(identifier, **vector.options).decoder(table, unique_key=key)
    for kinds in (kinds_of(table, key, random) for _ in range(4)):
        # Names that differ in case alone are one column, as in Spark.
        written = {name.swapcase(): kind for name, kind in kinds.items()}
        format = masked(written, identifier, **vector.options)
        decoder = format.decoder(table, unique_key=key)
        assert decoder.columns == result_columns(table, format.handling.masks)
        for record in vector.records:
            expected = _outcome(plain.decode, record, partial(_of_change, table, kinds))
            assert _outcome(decoder.decode, record, partial(_of_change, (), {})) == expected
            if key:
                expected = _outcome(
                    plain.upserts, record, partial(_of_upsert, table, of_key, kinds)
                )
                got = _outcome(decoder.upserts, record, partial(_of_upsert, (), (), {}))
                assert got == expected


@pytest.mark.parametrize(
    ("options", "value", "row"),
    [
        ({"value_format": "json"}, b'{"id": 7, "email": "ann", "n": 1}', ("7", "ann", 1)),
        ({"value_format": "csv"}, b"7,ann,1", ("7", "ann", 1)),
        ({"value_format": "raw", "value_fields_include": "EXCEPT_KEY"}, b"ann", ("7", "ann")),
    ],
    ids=lambda each: each.get("value_format") if isinstance(each, dict) else "",
)
def test_row_formats_mask_a_value_once(options, value, row) -> None:
    mask = {"id": "hmac", "email": "hmac"}
    decoder = masked(mask, "upsert-kafka", **options).decoder(
        ", ".join(("id INT", "email STRING", "n INT")[: len(row)]), unique_key=["id"]
    )
    (change,) = decoder.upserts(b'{"id": 7}', value)
    assert change.row == (hashed(row[0]), hashed(row[1]), *row[2:])
    assert decoder.upserts(b'{"id": 7}', None)[0].key == change.key == (hashed("7"),)


def test_columns_by_place_cannot_be_dropped() -> None:
    for value_format in ("csv", "raw", "avro"):
        with pytest.raises(FormatOptionError, match=r"their place: use 'redact'"):
            get_format("upsert-kafka", value_format=value_format, mask={"email": "drop"})
    with pytest.raises(FormatOptionError, match="key_fields_prefix cannot be combined"):
        get_format(
            "upsert-kafka",
            key_fields_prefix="k_",
            value_fields_include="EXCEPT_KEY",
            mask={"email": "redact"},
        )


# --------------------------------------------------------------------------------------------------
# options


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"mask": {"email": "sha1"}},
            "mask has 'sha1' for 'email': use 'hmac', 'redact' or 'drop'",
        ),
        ({"mask": "email"}, "mask must be a mapping"),
        ({"mask": ["email"]}, "mask must be a mapping"),
        ({"mask": {"email": "hmac"}}, "which requires a key: set one of mask_key_env"),
        (
            {"mask": {"email": "hmac"}, "mask_key_env": "MASK_KEY", "mask_key_file": "/key"},
            "set only one of",
        ),
        ({"mask": {"email": "hmac"}, "mask_key_env": "NO_KEY"}, "NO_KEY.* is not set"),
        ({"mask": {"email": "hmac"}, "mask_key_env": "SHORT_KEY"}, "less than 16 bytes"),
        ({"mask": {"email": "hmac"}, "mask_key_file": "/nowhere/key"}, "cannot be read"),
        ({"mask": {"email": "drop"}, "mask_key_env": "MASK_KEY"}, "mask_key_env has no effect"),
        ({"mask_key_file": "/key"}, "mask_key_file has no effect"),
    ],
)
def test_wrong_options_are_refused(monkeypatch, options, text) -> None:
    monkeypatch.setenv("SHORT_KEY", "planted-secret\n\n\n")
    with pytest.raises(FormatOptionError, match=text) as caught:
        get_format("maxwell-json", **options)
    assert "planted-secret" not in str(caught.value)


def test_the_key_comes_from_a_file_without_its_last_line_break(tmp_path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    format = get_format("debezium-json", mask='{"email": "hmac"}', mask_key_file=str(file))
    assert format.decoder("email STRING").decode(None, MESSAGE)[0].row == (
        hashed("ann@example.org"),
    )


def test_the_key_travels_with_the_format_and_is_never_shown(monkeypatch) -> None:
    format = masked({"email": "hmac"})
    monkeypatch.delenv("MASK_KEY")  # as on a worker of another machine
    there = pickle.loads(pickle.dumps(replace(format, rounding="half_up")))
    assert there.decoder("email STRING").decode(None, MESSAGE)[0].row == (
        hashed("ann@example.org"),
    )
    shown = f"{there!r} {there.handling.masks!r} {there.handling.masks.key!r} {there.handling!r} {there.handling.masks.facts}"
    assert KEY not in shown
    assert "mask={'email': 'hmac'}" in shown
    with pytest.raises(FormatOptionError, match="is not set on the driver"):
        replace(format, mask_key_env="OTHER_KEY")


def test_the_fingerprint_tells_keys_apart_and_contains_none(monkeypatch) -> None:
    first = masked({"email": "hmac", "card": "redact"}).handling.masks.facts
    assert first == masked({"card": "redact", "email": "hmac"}).handling.masks.facts
    assert first["card"] == "redact"
    assert hashed("") not in first["email"]
    monkeypatch.setenv("MASK_KEY", KEY + "!")
    assert masked({"email": "hmac"}).handling.masks.facts["email"] != first["email"]


def test_masks_of_a_database_name_columns_of_all_tables_or_of_one() -> None:
    masks = masked(
        {"email": "hmac", "shop.users.email": "drop", "shop.users.nane": "drop"}
    ).handling.masks
    users, orders = (("id", "email", "name"), ("id", "email"))
    assert dict(masks.of_columns(users, "shop.users").pairs) == {"email": "drop"}
    assert dict(masks.of_columns(orders, "shop.orders").pairs) == {"email": "hmac"}
    assert masks.unused({"shop.users": users}) == ["shop.users.nane"]
    assert masks.unused({"shop.orders": orders}) == ["shop.users.email", "shop.users.nane"]
    assert masks.naming("shop.users") == ["shop.users.email", "shop.users.nane"]
    assert masks.naming("shop.user") == []


def test_a_mask_is_of_the_column_whatever_the_case_of_its_letters() -> None:
    masks = masked({"email": "hmac", "shop.users.EMAIL": "drop"}).handling.masks
    assert masks.of_columns(["Email", "emails"], "Shop.Users").pairs == (("Email", "drop"),)
    assert masks.of_columns(["EMAIL", "eMail"], "shop.orders").facts.keys() == {"EMAIL", "eMail"}
    assert masks.unused({"shop.users": ["Email"]}) == []
    message = b'{"op":"c","after":{"id":7,"Email":"ann","eMail":"bob"}}'
    decoder = masked({"email": "redact"}).decoder("id INT, Email STRING, eMail STRING")
    assert decoder.decode(None, message)[0].row == (7, "***", "***")


# --------------------------------------------------------------------------------------------------
# errors


@pytest.mark.parametrize(
    ("schema", "record"),
    [
        ("id INT, email INT", MESSAGE),
        ("id INT, email BOOLEAN, card BIGINT", MESSAGE),
        ("id INT, email STRING", b'{"op":"ann@example.org","after":{"email":"ann@example.org"}}'),
        ("id INT, email STRING", b'{"op":"c","after":{"email":"ann@example.org"'),
        (
            "id INT, email STRING NOT NULL",
            b'{"op":"c","after":{"id":"ann@example.org","email":null}}',
        ),
    ],
)
def test_errors_contain_nothing_of_a_message(schema, record) -> None:
    format = masked({"email": "hmac"}, error_excerpt=True)
    assert not format.error_excerpt
    with pytest.raises(DecodeError) as caught:
        format.decoder(schema).decode(None, record)
    assert "ann@" not in f"{caught.value} {caught.value.args}"
    assert caught.value.__cause__ is None


def test_dropped_columns_are_declared_columns() -> None:
    format = masked({"email": "drop"}, unknown_columns="fail")
    schema = "id INT, email STRING, card BIGINT, note STRING"
    assert format.decoder(schema).decode(None, MESSAGE)[0].row == (7, 4111, "n")
    difference = format.decoder(schema).compare_names(None, MESSAGE)
    assert (difference.absent, difference.unknown) == ((), ())


@pytest.mark.parametrize("identifier", OURS)
def test_a_format_with_masks_is_shown_as_it_was_made(identifier) -> None:
    format = replace(FORMATS[identifier], mask={"email": "redact"})
    assert repr(format.handling.masks) == "{'email': 'redact'}"
    assert format == replace(FORMATS[identifier], mask=(("email", "redact"),))


test_error_texts = error_test(
    __file__,
    {
        **{
            f"masks that columns cannot have are refused, {number}": lambda mask=mask, schema=schema: (
                masked(mask).decoder(schema, unique_key=["id"])
            )
            for number, (mask, schema) in enumerate(
                [
                    ({"emial": "drop"}, "id INT, email STRING"),
                    ({"id": "drop"}, "id INT, email STRING"),
                    ({"id": "redact"}, "id INT, email STRING"),
                    ({"tags": "hmac"}, "id INT, tags ARRAY<STRING>"),
                ],
                1,
            )
        },
        "dropping every column is refused": lambda: masked({"id": "drop"}).decoder("id INT"),
        "a mask is of the column whatever the case of its letters, 1": lambda: masked(
            {"id": "redact"}
        ).decoder("Id INT, n INT", unique_key=["Id"]),
        "a mask is of the column whatever the case of its letters, 2": lambda: masked(
            {"email": "hmac", "Email": "drop"}
        ),
        "the position of op json cannot be masked": lambda: get_format(
            "op-json", position_field="meta.seq", mask={"Seq": "redact"}
        ),
    },
)
