"""The option `mask` of formats: what is masked, how, and with which key."""

import pickle
from collections.abc import Sequence
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
from tests.support.error_texts import error_test, text_test
from tests.support.masks import KEY, hashed, kinds_of, masked
from tests.support.rules import results_of
from tests.support.scenarios import CASE_IDS, CASES, FORMATS, OURS

MESSAGE = (
    b'{"op":"c","before":null,"after":{"id":7,"email":"ann@example.org","card":4111,"note":"n"}}'
)
SCHEMA = "id INT NOT NULL, email STRING NOT NULL, card BIGINT NOT NULL, note VARCHAR(2)"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv("MASK_KEY", KEY)


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


# --------------------------------------------------------------------------------------------------
# options


def test_the_key_travels_with_the_format_and_is_never_shown(monkeypatch, tmp_path) -> None:
    (tmp_path / "key").write_text(f"{KEY}\n")  # without its last line break
    of_file = get_format(
        "debezium-json", mask='{"email": "hmac"}', mask_key_file=str(tmp_path / "key")
    )
    of_environment = replace(masked({"email": "hmac"}), rounding="half_up")
    (tmp_path / "key").unlink()  # as on a worker of another machine
    monkeypatch.delenv("MASK_KEY")
    for format in (of_file, of_environment):
        there = pickle.loads(pickle.dumps(format))
        (change,) = there.decoder("email STRING").decode(None, MESSAGE)
        assert change.row == (hashed("ann@example.org"),)
        masks = there.handling.masks
        shown = f"{there!r} {masks!r} {masks.key!r} {there.handling!r} {masks.facts}"
        assert KEY not in shown
        assert "mask={'email': 'hmac'}" in shown
    with pytest.raises(FormatOptionError, match="is not set on the driver"):
        replace(of_environment, mask_key_env="OTHER_KEY")


def test_the_fingerprint_tells_keys_apart_and_contains_none(monkeypatch) -> None:
    first = masked({"email": "hmac", "card": "redact"}).handling.masks.facts
    assert first == masked({"card": "redact", "email": "hmac"}).handling.masks.facts
    assert first["card"] == "redact"
    assert hashed("") not in first["email"]
    monkeypatch.setenv("MASK_KEY", KEY + "!")
    assert masked({"email": "hmac"}).handling.masks.facts["email"] != first["email"]


# --------------------------------------------------------------------------------------------------
# errors


@pytest.mark.parametrize("identifier", OURS)
def test_a_format_with_masks_is_shown_as_it_was_made(identifier) -> None:
    format = replace(FORMATS[identifier], mask={"email": "redact"})
    assert repr(format.handling.masks) == "{'email': 'redact'}"
    assert format == replace(FORMATS[identifier], mask=(("email", "redact"),))


def read(
    mask: dict[str, str],
    ddl: str,
    *values: bytes | None,
    key: str = "",
    name: str = "debezium-json",
    **options: Any,
) -> str:
    """Return the columns of a format with masks, and what all decoders read."""
    format, keys = masked(mask, name, **options), [key] if key else []
    records = [(b'{"id": 7}', value) for value in values]
    results = results_of(format, records, ddl, keys)
    lines = [f"{part}: {each}" for part, read in results._asdict().items() for each in read]
    decoder = format.decoder(ddl, unique_key=keys)
    return "\n".join([to_ddl(decoder.columns), *lines])


def in_tables(mask: dict[str, str], tables: dict[str, Sequence[str]]) -> str:
    """Return the masks of each table, and the names that no table has."""
    masks = masked(mask).handling.masks
    lines = [
        f"{name}: {masks.of_columns(columns, name).pairs}, {masks.naming(name)}"
        for name, columns in tables.items()
    ]
    return "\n".join([*lines, f"unused: {masks.unused(tables)}"])


CREATED = b'{"op":"c","before":null,"after":%s}'
UPDATED = b'{"op":"u","before":{"email":"a","n":1},"after":{"email":"%s","n":2}}'
OF_DATABASE = {"email": "hmac", "shop.users.email": "drop", "shop.users.nane": "drop"}
USERS, ORDERS = ("id", "email", "name"), ("id", "email")
test_texts = text_test(
    __file__,
    {
        "hashed, redacted and dropped": lambda: read(
            {"email": "hmac", "card": "redact", "note": "drop"}, SCHEMA, MESSAGE, key="id"
        ),
        "a hashed number, and redacted text": lambda: read(
            {"note": "redact", "card": "hmac"}, SCHEMA, MESSAGE
        ),
        "NULL stays NULL": lambda: read(
            {"email": "hmac", "note": "redact"},
            "id INT, email STRING, note STRING",
            CREATED % b'{"id":7,"email":null,"note":null}',
        ),
        "NULL of a column that is NOT NULL": lambda: read(
            {"email": "hmac"}, "id INT, email STRING NOT NULL", CREATED % b'{"id":7,"email":null}'
        ),
        "a key keeps its identity behind hmac": lambda: read(
            *({"email": "hmac"}, "email STRING, n INT", UPDATED % b"a", UPDATED % b"b"), key="email"
        ),
        "equal numbers have equal hashes": lambda: read(
            *({"x": "hmac"}, "x DOUBLE"),
            *(CREATED % (b'{"x":%s}' % number) for number in (b"0.0", b"-0.0", b"0")),
            decimal_handling_mode="string",
        ),
        **{
            f"rows by key in {options['value_format']}": partial(
                read,
                {"id": "hmac", "email": "hmac"},
                *(ddl, value, None),
                key="id",
                name="upsert-kafka",
                **options,
            )
            for options, ddl, value in [
                (
                    {"value_format": "json"},
                    "id INT, email STRING, n INT",
                    b'{"id": 7, "email": "ann", "n": 1}',
                ),
                ({"value_format": "csv"}, "id INT, email STRING, n INT", b"7,ann,1"),
                (
                    {"value_format": "raw", "value_fields_include": "EXCEPT_KEY"},
                    "id INT, email STRING",
                    b"ann",
                ),
            ]
        },
        **{
            f"errors contain nothing of a message, {number}": partial(
                read, {"email": "hmac"}, ddl, value, error_excerpt=True
            )
            for number, (ddl, value) in enumerate(
                [
                    ("id INT, email INT", MESSAGE),
                    ("id INT, email BOOLEAN, card BIGINT", MESSAGE),
                    (
                        "id INT, email STRING",
                        b'{"op":"ann@example.org","after":{"email":"ann@example.org"}}',
                    ),
                    ("id INT, email STRING", b'{"op":"c","after":{"email":"ann@example.org"'),
                    (
                        "id INT, email STRING NOT NULL",
                        b'{"op":"c","after":{"id":"ann@example.org","email":null}}',
                    ),
                ],
                1,
            )
        },
        "dropped columns are declared columns": lambda: read(
            *({"email": "drop"}, "id INT, email STRING, card BIGINT, note STRING", MESSAGE),
            unknown_columns="fail",
        ),
        "the names of a record with a dropped column": lambda: (
            masked({"email": "drop"})
            .decoder("id INT, email STRING, card BIGINT, note STRING")
            .compare_names(None, MESSAGE)
        ),
        "columns whose names differ in case alone": lambda: read(
            {"email": "redact"},
            "id INT, Email STRING, eMail STRING",
            CREATED % b'{"id":7,"Email":"ann","eMail":"bob"}',
        ),
        "masks of a table of a database": lambda: in_tables(OF_DATABASE, {"shop.users": USERS}),
        "masks of another table of a database": lambda: in_tables(
            OF_DATABASE, {"shop.orders": ORDERS, "shop.user": ORDERS}
        ),
        "masks of names that differ in case": lambda: in_tables(
            {"email": "hmac", "shop.users.EMAIL": "drop"},
            {"Shop.Users": ["Email", "emails"], "shop.orders": ["EMAIL", "eMail"]},
        ),
    },
)


def with_key(key: str, **options: Any) -> object:
    """Return a format whose key in the environment is one that no error may show."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHORT_KEY", key)
        return get_format("maxwell-json", **options)


HASHED: dict[str, Any] = {"mask": {"email": "hmac"}}
test_error_texts = error_test(
    __file__,
    {
        **{
            f"masks that columns cannot have are refused, {number}": partial(
                read, mask, ddl, key="id"
            )
            for number, (mask, ddl) in enumerate(
                [
                    ({"emial": "drop"}, "id INT, email STRING"),
                    ({"id": "drop"}, "id INT, email STRING"),
                    ({"id": "redact"}, "id INT, email STRING"),
                    ({"tags": "hmac"}, "id INT, tags ARRAY<STRING>"),
                ],
                1,
            )
        },
        "dropping every column is refused": partial(read, {"id": "drop"}, "id INT"),
        "a mask is of the column whatever the case of its letters, 1": partial(
            read, {"id": "redact"}, "Id INT, n INT", key="Id"
        ),
        "a mask is of the column whatever the case of its letters, 2": lambda: masked(
            {"email": "hmac", "Email": "drop"}
        ),
        "the position of op json cannot be masked": lambda: get_format(
            "op-json", position_field="meta.seq", mask={"Seq": "redact"}
        ),
        **{
            f"a column of {value_format} cannot be dropped": partial(
                get_format, "upsert-kafka", value_format=value_format, mask={"email": "drop"}
            )
            for value_format in ("csv", "raw", "avro")
        },
        "a prefix of key columns cannot be masked": lambda: get_format(
            "upsert-kafka",
            key_fields_prefix="k_",
            value_fields_include="EXCEPT_KEY",
            mask={"email": "redact"},
        ),
        **{
            f"options that cannot be, {options}": partial(
                with_key, "planted-secret\n\n\n", **options
            )
            for options in [
                {"mask": {"email": "sha1"}},
                {"mask": "email"},
                {"mask": ["email"]},
                HASHED,
                {**HASHED, "mask_key_env": "MASK_KEY", "mask_key_file": "/key"},
                {**HASHED, "mask_key_env": "NO_KEY"},
                {**HASHED, "mask_key_env": "SHORT_KEY"},
                {**HASHED, "mask_key_file": "/nowhere/key"},
                {"mask": {"email": "drop"}, "mask_key_env": "MASK_KEY"},
                {"mask_key_file": "/key"},
            ]
        },
    },
)
