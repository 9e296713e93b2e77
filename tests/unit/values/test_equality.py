"""Equality of keys and rows by Spark's SQL, whatever a float's bytes or a map's entry order."""

import json
import math
import struct
from dataclasses import dataclass

import pytest

from cdc_formats import Event, Format, RowKind, columns
from cdc_formats.encoding import pair_updates
from cdc_formats.errors import TypeConversionError
from cdc_formats.formats.debezium.json import DebeziumJson
from cdc_formats.values.equality import equal, row_unifier, sorted_entries, unifier
from cdc_formats.values.handling import Handling
from cdc_formats.values.types import converter
from tests.support.equal_pairs import NAN, OTHER_NAN, PAIRS


def bits(value: float) -> bytes:
    return struct.pack(">d", value)


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


def test_entries_are_sorted_by_keys_that_python_does_not_order():
    assert sorted_entries([[[None, 1], "b"], [[0, 1], "c"], [None, "a"]]) == [
        [None, "a"],
        [[None, 1], "b"],
        [[0, 1], "c"],
    ]


def message(op: str, before: str | None = None, after: str | None = None) -> bytes:
    images = [f'{{"id": {of}, "name": "x"}}' if of else "null" for of in (before, after)]
    return f'{{"op": "{op}", "before": {images[0]}, "after": {images[1]}}}'.encode()


@pytest.mark.parametrize(
    ("one", "other"), [("0.0", "-0.0"), ('"NaN"', '"NaN"'), ("-0.0", "0"), ("-0.00", '"-0"')]
)
def test_equal_keys_are_one_key_and_the_row_keeps_its_value(one, other):
    decoder = DebeziumJson(schema_include=False).decoder(
        "id DOUBLE, name STRING", unique_key=["id"]
    )
    records = [
        message("c", after=one),
        message("u", one, other),
        message("u", other, one),
        message("d", other),
    ]
    changes = [change for record in records for change in decoder.upserts(None, record)]
    assert len(changes) == len(records), "no update changes the key"
    assert len({bits(change.key[0]) for change in changes}) == 1
    row = decoder.upserts(None, message("c", after="-0.0"))[0].row
    assert bits(row[0]) == bits(-0.0)


def test_a_key_that_changes_is_still_a_delete_and_an_upsert():
    decoder = DebeziumJson(schema_include=False).decoder(
        "id DOUBLE, name STRING", unique_key=["id"]
    )
    changes = decoder.upserts(None, message("u", "-0.0", "1.5"))
    assert [(bits(change.key[0]), change.row is None) for change in changes] == [
        (bits(0.0), True),
        (bits(1.5), False),
    ]


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


def test_a_float_of_a_custom_format_is_rounded_to_32_bits():
    decoder = WithFloats().decoder("c FLOAT")
    assert decoder.decode(None, b'{"c": 0.1}')[0].row == (
        struct.unpack("<f", struct.pack("<f", 0.1))[0],
    )
    assert decoder.decode(None, b'{"c": Infinity}')[0].row == (math.inf,)
    with pytest.raises(TypeConversionError, match="out of its range"):
        decoder.decode(None, b'{"c": 1e300}')


@pytest.mark.parametrize("ddl", ["c DECIMAL(10,2)", "c ARRAY<DECIMAL(10,2)>"])
@pytest.mark.parametrize("excerpt", [True, False])
def test_a_float_in_a_decimal_names_the_reader_that_keeps_digits(ddl, excerpt):
    value = b'{"c": 1.5}' if "ARRAY" not in ddl else b'{"c": [1.5]}'
    with pytest.raises(
        TypeConversionError,
        match=r"got `float`.*cdc_formats.read_object, which gives a Decimal, instead of json.loads",
    ):
        WithFloats(error_excerpt=excerpt).decoder(ddl).decode(None, value)
