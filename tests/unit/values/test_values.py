"""Conversion of canonical values to Python and JSON."""

import json
import math
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import (
    Event,
    Format,
    Handling,
    RowKind,
    columns,
    get_format,
    read_json,
    read_object,
    to_python,
)
from cdc_formats.avro.records import AvroSchema, row_converter
from cdc_formats.encoding import RowWriter, pair_updates
from cdc_formats.values.equality import equal, row_unifier, sorted_entries, unifier
from cdc_formats.values.json_reader import json_bytes, json_text
from cdc_formats.values.schema import SqlType
from cdc_formats.values.times import date_text, interval_text, time_text, timestamp_text
from cdc_formats.values.types import converter, cuts, holds, writer
from tests.support.equal_pairs import NAN, OTHER_NAN, PAIRS
from tests.support.error_texts import error_test, text_test
from tests.support.examples import examples
from tests.support.writing import written

FLOAT_3_14 = 3.140000104904175
VALUES = [
    ("BOOLEAN", True, True, "true"),
    ("BIGINT", -(2**63), -(2**63), "-9223372036854775808"),
    ("DOUBLE", 0.1, 0.1, "0.1"),
    ("DOUBLE", math.inf, math.inf, '"Infinity"'),
    ("FLOAT", -math.inf, -math.inf, '"-Infinity"'),
    ("FLOAT", FLOAT_3_14, FLOAT_3_14, "3.14"),
    ("DOUBLE", FLOAT_3_14, FLOAT_3_14, "3.140000104904175"),
    ("ARRAY<FLOAT>", [FLOAT_3_14, None], [FLOAT_3_14, None], "[3.14,null]"),
    ("MAP<STRING, FLOAT>", [["a", FLOAT_3_14]], {"a": FLOAT_3_14}, '{"a":3.14}'),
    ("STRUCT<a: ARRAY<FLOAT>>", [[FLOAT_3_14]], {"a": [FLOAT_3_14]}, '{"a":[3.14]}'),
    ("DECIMAL(10,2)", "100.00", Decimal("100.00"), "100.00"),
    ("DECIMAL(38,0)", "9" * 38, Decimal("9" * 38), "9" * 38),
    ("STRING", "é\u2028", "é\u2028", '"é\u2028"'),
    ("BINARY", b"\x00\xff", b"\x00\xff", '"AP8="'),
    ("DATE", -1, date(1969, 12, 31), '"1969-12-31"'),
    ("DATE", -719162, date.min, '"0001-01-01"'),
    ("TIME", 45_296_120_000, time(12, 34, 56, 120000), '"12:34:56.12"'),
    ("TIMESTAMP", -1, datetime(1969, 12, 31, 23, 59, 59, 999999, timezone.utc), '"1969-12-31 23:59:59.999999Z"'),
    ("TIMESTAMP_NTZ", 1_000_000, datetime(1970, 1, 1, 0, 0, 1), '"1970-01-01 00:00:01"'),
    ("INTERVAL DAY TO SECOND", -3_600_000_001, timedelta(microseconds=-3_600_000_001), '"-01:00:00.000001"'),
    ("INTERVAL DAY TO SECOND", 360_000_000_000, timedelta(hours=100), '"100:00:00"'),
    ("ARRAY<DATE>", [0, None], [date(1970, 1, 1), None], '["1970-01-01",null]'),
    ("MAP<STRING, DECIMAL(3,1)>", [["a", "1.0"], ["b", None]], {"a": Decimal("1.0"), "b": None}, '{"a":1.0,"b":null}'),
    ("STRUCT<a: INT, `b c`: ARRAY<INT>>", [1, [2]], {"a": 1, "b c": [2]}, '{"a":1,"b c":[2]}'),
    ("STRING", None, None, "null"),
]  # fmt: skip
IDS = [f"{sql_type} {value!r}"[:50] for sql_type, value, _, _ in VALUES]


@pytest.mark.parametrize(("sql_type", "canonical", "python", "text"), VALUES, ids=IDS)
def test_canonical_values_to_python_and_json(
    sql_type: str, canonical: Any, python: Any, text: str
) -> None:
    declared = columns(f"c {sql_type}")
    (got,) = to_python(declared, (canonical,))
    assert got == python
    assert type(got) is type(python)
    assert (
        json_bytes(RowWriter(declared, Handling()).image((canonical,))).decode()
        == f'{{"c":{text}}}'
    )


quick = settings(max_examples=examples(100), deadline=None, derandomize=True)
LEAST, MOST = -62_135_596_800_000_000, 253_402_300_799_999_999


@quick
@given(micros=st.integers(LEAST, MOST))
def test_text_of_times_agrees_with_datetime(micros: int) -> None:
    stamp = datetime(1970, 1, 1) + timedelta(microseconds=micros)
    fraction = f".{stamp.microsecond:06d}".rstrip("0") if stamp.microsecond else ""
    text = stamp.replace(microsecond=0).isoformat(" ") + fraction
    assert timestamp_text(micros) == text
    assert timestamp_text(micros, "T") == text.replace(" ", "T")
    assert date_text(micros // 86_400_000_000) + " " + time_text(micros % 86_400_000_000) == text


ROW = (
    "a BIGINT, b DOUBLE, c DECIMAL(20,4), d STRING, e BINARY, f DATE, g TIME(6), h TIMESTAMP, i "
    "TIMESTAMP_NTZ, j INTERVAL DAY TO SECOND, k ARRAY<FLOAT>, l MAP<STRING, BOOLEAN>, m FLOAT"
)
floats = st.floats(width=32)
rows = st.tuples(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(),
    st.decimals(min_value=-(10**15), max_value=10**15, places=4).map(
        lambda value: f"{value + 0:.4f}".replace("-0.0000", "0.0000")
    ),
    st.text(st.characters(exclude_categories=("Cs",))),
    st.binary(),
    st.integers(-719_162, 2_932_896),
    st.integers(0, 86_400_000_000 - 1),
    st.integers(LEAST, MOST),
    st.integers(LEAST, MOST),
    st.integers(-(10**17), 10**17),
    st.lists(st.none() | floats, max_size=3),
    st.dictionaries(
        st.text(st.characters(exclude_categories=("Cs",))), st.none() | st.booleans(), max_size=3
    ).map(lambda entries: sorted([name, value] for name, value in entries.items())),
    floats,
)
WRITTEN = get_format("changelog-json").encoder(ROW, unique_key=["a", "d"])
ISO = get_format("changelog-json", timestamp_format_standard="ISO-8601").encoder(ROW)
READ = get_format("changelog-json").decoder(ROW, unique_key=["a", "d"])


def same(left: Any, right: Any) -> bool:
    """Whether two canonical values are the same; NaN equals NaN."""
    return repr(left) == repr(right)


@quick
@given(
    row=rows.flatmap(lambda row: st.tuples(*[st.none() | st.just(value) for value in row])),
    kind=st.sampled_from(list(RowKind)),
)
def test_a_row_of_every_type_that_is_written_is_read_back(row: tuple, kind: RowKind) -> None:
    for encoder in (WRITTEN, ISO):
        key, value = encoder.encode(kind, row)
        (change,) = READ.decode(key, value)
        assert change.kind is kind
        assert same(change.row, row)
    assert read_object(WRITTEN.encode(kind, row)[0]) == {"a": row[0], "d": row[3]}
    assert ISO.encode(kind, row)[0] is None


# --------------------------------------------------------------------------------------------------
# JSON


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(b"1.10", Decimal("1.10"), id="digits of a fraction stay"),
        pytest.param(b"1E+2", Decimal("1E+2"), id="an exponent makes a decimal"),
        pytest.param(b"9007199254740993", 9007199254740993, id="beyond what a double holds"),
        pytest.param(b"18446744073709551616", 2**64, id="beyond 64 bits"),
        pytest.param(b'{"a":1,"a":2}', {"a": 2}, id="the last of two equal names"),
        pytest.param(b"\xef\xbb\xbf[1]", [1], id="a byte order mark"),
        pytest.param(b' "\\ud83d\\ude00" ', "😀", id="a pair of surrogates"),
        pytest.param(b"-0.0", Decimal("-0.0"), id="a negative zero"),
    ],
)
@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
def test_json_is_read(text: bytes, value: Any, buffer: type) -> None:
    got = read_json(buffer(text))
    assert got == value
    assert str(got) == str(value)


# --------------------------------------------------------------------------------------------------
# Equality of keys and rows by Spark's SQL, whatever a float's bytes or a map's entry order


@pytest.mark.parametrize(("ddl", "left", "right", "same"), PAIRS)
def test_values_are_equal_exactly_when_their_unified_values_have_the_same_bytes(
    ddl, left, right, same
):
    assert equal(left, right) is same
    (column,) = columns(f"c {ddl}")
    unify = unifier(column.type) or (lambda value: value)
    assert (repr(unify(left)) == repr(unify(right))) is same
    if unifier(column.type) is None:
        assert row_unifier([column]) is None, "a table without floats pays nothing"


@pytest.mark.parametrize(
    "names", [["-0.0", "NaN", "1.5"], ["1.5", "-0.0", "NaN"], ["NaN", "1.5", "-0.0"]]
)
def test_a_maps_entries_have_one_order_for_all_key_types(names):
    (column,) = columns("c MAP<DOUBLE, STRING>")
    entries = converter(column.type, Handling())(dict(zip(names, "abc", strict=True)))
    assert [str(key) for key, _ in entries] == ["-0.0", "1.5", "nan"]


@pytest.mark.parametrize(("before", "after"), [(NAN, OTHER_NAN), (0.0, -0.0)])
def test_an_update_of_one_key_is_written_as_one_update(before, after):
    rows = [(RowKind.UPDATE_BEFORE, (before, "a")), (RowKind.UPDATE_AFTER, (after, "b"))]
    assert [kind for kind, _, _ in pair_updates(rows, [0])] == [RowKind.UPDATE_AFTER]


@dataclass(frozen=True, kw_only=True)
class WithFloats(Format):
    """A custom format that reads JSON with Python's json, so that its fractions are floats."""

    identifier = "with-floats"

    def read(self, key, value):
        return [Event.insert(json.loads(value))]


# --------------------------------------------------------------------------------------------------
# VARIANT columns: JSON that Spark's ``parse_json`` reads, and an error for all else
VARIANT, STRING = SqlType("VARIANT"), SqlType("STRING")
VALUE = Handling(json="value")
DEEP = 200
"""How deep Spark's parser surely reads."""


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"b":[1.50,null,true],"c":{"a":"\\u0000"}}',
        ' {"a" : 1,\n"b":{"a":2} } ',
        "null",
        '"text"',
        "-0",
        "1e5",
        "9" * 300,
        '"' + "9" * 2000 + '"',
        '"' + "[" * 2000 + '"',
        "[" * DEEP + "]" * DEEP,
        "[" + "[]," * DEEP + "1]",
        '"😀 \\ud83d\\ude00"',
    ],
)
def test_json_text_is_kept_as_it_is(text: str) -> None:
    assert converter(VARIANT, Handling())(text) == text


AVRO = AvroSchema({"type": "record", "name": "r", "fields": [{"name": "doc", "type": "string"}]})
PLACEHOLDER = "__debezium_unavailable_value"


def of_avro(text: str) -> object:
    """Return the row of a record whose text is a VARIANT."""
    handling = Handling(placeholder=PLACEHOLDER)
    rows = row_converter(AVRO, AVRO.fields(AVRO.top), columns("doc VARIANT"), handling)
    return rows.row({"doc": text}, "$")


def with_floats(ddl: str, text: str, **options: Any) -> object:
    return WithFloats(**options).decoder(ddl).decode(None, text.encode())


STAMPS = columns("a TIMESTAMP, b TIMESTAMP_NTZ, c ARRAY<TIMESTAMP_NTZ>")
test_texts = text_test(
    __file__,
    {
        "NaN is written as text": partial(
            RowWriter(columns("c DOUBLE"), Handling()).image, (math.nan,)
        ),
        "ISO timestamps have a T": partial(
            RowWriter(STAMPS, Handling(), iso=True).image, (0, 1, [2])
        ),
        **{
            f"an interval of {value}": partial(interval_text, value)
            for value in (0, -1, 90_061_000_001)
        },
        "the JSON of decimals": partial(json_text, {"a": Decimal("1.10"), "b": [Decimal("1E+2")]}),
        "entries sorted by keys that Python does not order": partial(
            sorted_entries, [[[None, 1], "b"], [[0, 1], "c"], [None, "a"]]
        ),
        **{
            f"a float of a custom format, {text}": partial(with_floats, "c FLOAT", text)
            for text in ('{"c": 0.1}', '{"c": Infinity}')
        },
        **{
            f"a VARIANT of {value!r} with json={handling.json}": partial(
                converter(VARIANT, handling), value
            )
            for handling in (Handling(), VALUE)
            for value in ("5", 5, {"a": "5"})
        },
        "the placeholder of unchanged values": partial(
            converter(VARIANT, Handling(placeholder=PLACEHOLDER)), PLACEHOLDER
        ),
        "the placeholder in Avro": partial(of_avro, PLACEHOLDER),
        "JSON in Avro": partial(of_avro, "[1]"),
        **{
            f"whether {new.name} cuts {old.name}": partial(cuts, new, old)
            for new, old in ((VARIANT, STRING), (STRING, VARIANT), (VARIANT, VARIANT))
        },
        # In a checkpoint, too: it may have text that is not JSON.
        "whether a VARIANT holds text": partial(holds, VARIANT, STRING),
        "a VARIANT is written as its text": partial(writer, VARIANT, Handling()),
        "a VARIANT is written as JSON": lambda: bytes(writer(VARIANT, VALUE)("[1.50]")),
        **{
            f"a written VARIANT of {name}": partial(
                *(written, get_format(name), "id INT, doc VARIANT"),
                *((RowKind.INSERT, (1, text)) for text in ('{"a":[1.50]}', '"5"', "5", "[]")),
                key=["id"],
            )
            for name in (
                *("debezium-json", "canal-json", "maxwell-json", "changelog-json"),
                "upsert-kafka",
            )
        },
    },
)
test_error_texts = error_test(
    __file__,
    {
        **{
            f"JSON that is no object, {text.decode()}": partial(read_object, text)
            for text in (b"null", b"[]", b'"a"', b"1", b"1.5", b"true")
        },
        "a float of a custom format out of its range": partial(
            with_floats, "c FLOAT", '{"c": 1e300}'
        ),
        **{
            f"a float in {ddl}, error_excerpt={shown}": partial(
                with_floats, ddl, text, error_excerpt=shown
            )
            for ddl, text in (
                ("c DECIMAL(10,2)", '{"c": 1.5}'),
                ("c ARRAY<DECIMAL(10,2)>", '{"c": [1.5]}'),
            )
            for shown in (True, False)
        },
        "no JSON in Avro": partial(of_avro, "[1"),
        "a VARIANT identifies no row": lambda: get_format("debezium-json").decoder(
            "id VARIANT", unique_key=["id"]
        ),
        **{
            f"a VARIANT in {nested}": partial(columns, f"id INT, doc {nested}")
            for nested in ("ARRAY<VARIANT>", "MAP<STRING, VARIANT>", "STRUCT<a: INT, b: VARIANT>")
        },
        "a map whose key is not text is refused": lambda: get_format("changelog-json").encoder(
            "a ARRAY<MAP<INT, INT>>"
        ),
        "a row of another length is refused, 1": lambda: to_python(columns("a INT, b INT"), (1,)),
        "a row of another length is refused, 2": lambda: (
            get_format("changelog-json").encoder("a INT, b INT").encode(RowKind.INSERT, (1,))
        ),
        **{
            f"text that is not json is malformed, {number}": lambda text=text: read_json(text)
            for number, text in enumerate(
                [
                    b"",
                    b" ",
                    b"nope",
                    b"[1",
                    b"[1]]",
                    b"NaN",
                    b"Infinity",
                    b"'a'",
                    b"[1,]",
                    b"{1:2}",
                    b'"\xff"',
                    b"\xef\xbb\xbf",
                    b"\xef\xbb\xbf" * 9000,
                ],
                1,
            )
        },
        **{
            f"text that spark would refuse or change is an error, {number}": lambda text=text: (
                converter(VARIANT, Handling())(text)
            )
            for number, text in enumerate(
                [
                    "",
                    "text",
                    "[1,]",
                    "[1] 2",
                    "NaN",
                    "{'a':1}",
                    "\ufeff1",
                    '"\\ud800"',
                    '{"a":1,"a":1}',
                    '[{"b":{"x":1, "\\u0078":2}}]',
                    "1e309",
                    "[-1E+999]",
                    "9" * 400,
                    "0." + "1" * 1001,
                    "[" * (DEEP + 1) + "]" * (DEEP + 1),
                    '{"a":' * (DEEP + 1) + "1" + "}" * (DEEP + 1),
                    '"' + "x" * 2**22 + '"',
                    '{"' + "x" * 50_001 + '":1}',
                ],
                1,
            )
        },
    },
)
