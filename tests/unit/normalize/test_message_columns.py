"""MessageColumn converts many values of a column together, and each as its converter does."""

from base64 import b64encode
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import columns
from cdc_formats.avro.records import AvroSchema
from cdc_formats.values.schema import ABSENT, ConversionError, Handling
from cdc_formats.values.types import converter
from normalize.core.arrow import to_stored
from normalize.core.message_columns import MessageColumn
from normalize.decode.avro_batches import PARTS, MessageBytes, avro_reader, marks_of
from tests.support.avro import schemas, written
from tests.support.examples import examples

DIGITS = st.from_regex(r"\A[+-]?[0-9]{0,9}(\.[0-9]{0,4})?(e[0-9])?\Z")
MANY_DIGITS = st.from_regex(r"\A-?[0-9]{30,60}(\.[0-9]{0,30})?\Z")
UNSIGNED = st.integers(0, 2**65).map(
    lambda number: b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big")).decode()
)
DAYS = st.dates().map(str) | st.from_regex(r"\A[0-9]{4}-[0-9]{2}-[0-9]{2}\Z")
MOMENTS = st.tuples(
    st.datetimes(), st.sampled_from([" ", "T"]), st.sampled_from([0, 1, 3, 6, 9])
).map(
    lambda drawn: (
        drawn[0].isoformat(drawn[1], "seconds")
        + (f".{drawn[0].microsecond:06d}000"[: drawn[2] + 1] if drawn[2] else "")
    )
)
NUMBERS = (
    st.integers(-(2**65), 2**65)
    | st.decimals(allow_nan=False, allow_infinity=False)
    | st.integers(-3, 3).map(Decimal)
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=3) | st.sampled_from(
    ["true", "False", "0", "1", " 1", "0x10", "NaN", "gone"]
)
ANY_VALUE = (
    TEXTS
    | NUMBERS
    | st.booleans()
    | st.lists(st.integers(0, 3), max_size=2)
    | st.dictionaries(st.text(max_size=1), st.none(), max_size=1)
)
HANDLINGS = [
    Handling(),
    Handling(native=False, binary="latin1"),
    Handling(decimal="string", rounding="half_up", placeholder="gone"),
    Handling(decimal="precise", bigint_unsigned="precise", time="adaptive", binary="hex"),
    Handling(decimal="double", bigint_unsigned="long", time="connect", time_zone="Europe/Berlin"),
    Handling(decimal=None, time=None, binary=None, epoch_unit="us", json="value"),
]
TYPES = {
    "BOOLEAN": st.booleans() | st.sampled_from([0, 1]),
    "SMALLINT": st.integers(-40_000, 40_000),
    "BIGINT": st.integers(-(2**64), 2**64) | st.integers().map(str),
    "FLOAT": NUMBERS,
    "DOUBLE": NUMBERS,
    "DECIMAL(7,2)": DIGITS | MANY_DIGITS | NUMBERS,
    "DECIMAL(20,0)": DIGITS | UNSIGNED | st.integers(-3, 2**66),
    "DECIMAL(38,18)": MANY_DIGITS | NUMBERS,
    "STRING": TEXTS,
    "VARIANT": TEXTS | st.sampled_from(['{"a": 1}', "null", '{"a":1,"a":2}', "1e999"]),
    "BINARY": TEXTS,
    "DATE": DAYS,
    "TIME": st.times().map(str),
    "TIMESTAMP(3)": MOMENTS.map(lambda text: f"{text}Z"),
    "TIMESTAMP_NTZ(3)": MOMENTS,
    "TIMESTAMP_NTZ": MOMENTS,
    "ARRAY<INT>": st.lists(st.integers(-3, 3), max_size=2),
}


@pytest.mark.parametrize("ddl", TYPES)
@settings(max_examples=examples(200))
@given(handling=st.sampled_from(HANDLINGS), data=st.data())
def test_a_column_is_converted_as_each_of_its_values(ddl, handling, data):
    (column,) = columns(f"c {ddl}")
    convert = converter(column.type, handling)
    more_values = [ANY_VALUE] if data.draw(st.booleans()) else []
    values = data.draw(st.lists(st.one_of(st.none(), TYPES[ddl], *more_values), max_size=6))
    expected, refused = [], []
    for index, value in enumerate(values):
        try:
            expected.append(None if value is None else convert(value))
        except ConversionError:
            expected.append(None)
            refused.append(index)
    refused += [index for index, value in enumerate(expected) if value is ABSENT]
    expected = [None if index in refused else value for index, value in enumerate(expected)]
    tested = MessageColumn(column, handling, convert)

    array, in_doubt = tested.array(values)
    canonical, canonical_in_doubt = tested.canonical(values)
    assert sorted(in_doubt) == sorted(canonical_in_doubt) == sorted(refused)
    for converted, result in (
        (array.to_pylist(), to_stored(column.type, expected).to_pylist()),
        (canonical, expected),
    ):
        shown = [None if index in refused else value for index, value in enumerate(converted)]
        assert repr(shown) == repr(result)  # NaN equals NaN, 0.0 does not equal -0.0


def test_a_decimal_of_more_digits_than_its_type_is_refused_and_not_cut():
    (column,) = columns("c DECIMAL(5,2)")
    tested = MessageColumn(column, Handling(), converter(column.type, Handling()))
    values = ["123.45", "9" * 40, "1234.50", "1.999", Decimal("1234.5"), Decimal("-1.5")]
    results = [tested.array([value]) for value in values]
    assert [in_doubt for _, in_doubt in results] == [[], [0], [0], [0], [0], []]
    converted = [results[place][0].to_pylist() for place in (0, -1)]
    assert converted == [[Decimal("123.45")], [Decimal("-1.50")]]


# --------------------------------------------------------------------------------------------------
# Avro messages read together: values as fastavro reads them, and all others left to fastavro
MESSAGE = msgspec.defstruct("Message", [("value", Any), ("added", Any, "default")])
READ_TOGETHER = {"boolean", "int", "long", "float", "double", "bytes", "string", "fixed"}
hard = settings(deadline=None, max_examples=examples(200), suppress_health_check=list(HealthCheck))


def of(avro: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Top", "fields": [{"name": "value", "type": avro}]}


def reader_of(avro: Any, *, fewest: int = 1) -> Any:
    return avro_reader(AvroSchema(avro), MESSAGE, fewest=fewest)


def read_together(avro: Any, messages: list[bytes]) -> dict[int, Any]:
    """Return the values that are read together by index."""
    values, refused = reader_of(avro)(messages)
    places = [index for index in range(len(messages)) if index not in refused]
    assert refused == sorted(set(refused))
    assert {value.added for value in values} <= {"default"}
    return dict(zip(places, (value.value for value in values), strict=True))


def is_read_together(avro: Any) -> bool:
    if isinstance(avro, list):
        return (
            len(avro) == 2
            and "null" in avro
            and all(is_read_together(branch) for branch in avro if branch != "null")
        )
    kind = avro["type"] if isinstance(avro, dict) else avro
    return (
        all(is_read_together(field["type"]) for field in avro["fields"])
        if kind == "record"
        else kind in READ_TOGETHER
    )


@hard
@given(data=st.data(), pair=schemas())
def test_sound_messages_are_read_together(data: Any, pair: tuple[Any, Any]) -> None:
    schema, values = pair
    messages = [
        written(of(schema), {"value": data.draw(values)})
        for _ in range(data.draw(st.integers(1, 5)))
    ]
    parsed = AvroSchema(of(schema))
    if is_read_together(schema):
        assert repr(read_together(of(schema), messages)) == repr(
            {index: parsed.read(message)["value"] for index, message in enumerate(messages)}
        )
    else:
        assert avro_reader(parsed, MESSAGE, fewest=1) is None


def simple(depth: int = 2) -> st.SearchStrategy[tuple[Any, Any]]:
    return schemas(depth).filter(lambda pair: is_read_together(pair[0]))


def changed(draw: Any, message: bytes) -> bytes:
    """Return a message with a few other bytes, bytes more, or bytes less."""
    content = bytearray(message)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 3))] = draw(
            st.binary(max_size=3) | st.sampled_from([b"\x02", b"\x04", b"\x80\x00", b"\xff" * 9])
        )
    return bytes(content)


@hard
@given(data=st.data(), pair=simple())
def test_a_damaged_message_is_read_as_fastavro_reads_it_or_left_to_it(
    data: Any, pair: tuple[Any, Any]
) -> None:
    schema, values = pair
    parsed = AvroSchema(of(schema))
    sound = [written(of(schema), {"value": data.draw(values)}) for _ in range(20)]
    damaged = data.draw(st.sets(st.integers(0, 19), min_size=1, max_size=2))
    messages = [
        changed(data.draw, message) if index in damaged else message
        for index, message in enumerate(sound)
    ]
    results = read_together(of(schema), messages)
    for index, value in results.items():
        assert repr(value) == repr(parsed.read(messages[index])["value"])
    # Each message is tried a few times, in smaller and smaller parts: only damaged ones are left
    # over.
    assert set(range(20)) - set(results) <= damaged


RECORD = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "a", "type": ["null", "string"]}, {"name": "b", "type": "boolean"}],
}


@pytest.mark.parametrize(
    ("avro", "message", "is_read"),
    [
        pytest.param("boolean", b"\1", True, id="true"),
        pytest.param("boolean", b"\2", False, id="a boolean of 2"),
        pytest.param(["null", "string"], b"\2\2a", True, id="the second branch of a union"),
        pytest.param(["null", "string"], b"\4\2a", False, id="the third branch of two"),
        pytest.param(["string", "null"], b"\4", False, id="the third branch of two, null last"),
        pytest.param(["null", "string"], b"\1\2a", False, id="a negative branch"),
        pytest.param("long", b"\x80\0", False, id="a zero of two bytes"),
        pytest.param("int", b"\xfe\xff\xff\xff\x1f", True, id="an int of 33 bits"),
        pytest.param("string", b"\4\xff\xfe", False, id="no UTF-8"),
        pytest.param("string", b"\2a\0", False, id="a byte more"),
        pytest.param("string", b"\4a", False, id="a byte less"),
        pytest.param("string", b"\xfe\xff\xff\xff\x0fa", False, id="a string of 2 GiB"),
        pytest.param(
            "string", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7fa", False, id="a string of 4 EB"
        ),
        pytest.param("bytes", b"\1", False, id="bytes of a negative length"),
        pytest.param(["null", RECORD], b"\2\0\1", True, id="a record"),
        pytest.param(["null", RECORD], b"\2\0\3", False, id="a boolean of 3 in a record"),
        pytest.param(["null", RECORD], b"\2\4\2a\1", False, id="a third branch in a record"),
        pytest.param("long", b"", False, id="nothing"),
    ],
)
def test_bytes_that_polars_and_fastavro_read_differently_are_left_to_fastavro(
    avro: Any, message: bytes, is_read: bool
) -> None:
    parsed = AvroSchema(of(avro))
    sounds = {"long": b"\2", "int": b"\2", "string": b"\2b", "bytes": b"\2b"}
    sound = b"\2" if avro == ["string", "null"] else sounds.get(str(avro), b"\0")
    messages = [sound] * 3 + [message] + [sound] * 3
    results = read_together(of(avro), messages)
    assert set(results) == set(range(7)) - (set() if is_read else {3})
    assert all(value == parsed.read(messages[index])["value"] for index, value in results.items())


def test_damaged_messages_leave_no_trace_on_the_standard_error(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sound, damaged = b"\2a", b"\xfe\xff\xff\xff\x0fa"
    # polars panics for such a message, and prints a trace of 200 lines.
    for check, is_printed in ((lambda self, avro: self.right, True), (MessageBytes.check, False)):
        monkeypatch.setattr(MessageBytes, "check", check)
        assert read_together(of("string"), [sound, damaged, sound]) == {0: "a", 2: "a"}
        printed = capfd.readouterr().err
        assert "panicked" in printed if is_printed else printed == ""


def test_a_body_with_the_marks_of_others_is_left_to_fastavro() -> None:
    read, marks = reader_of(of("string")), marks_of(5)
    assert len(set(marks)) == 5
    for index in range(5):
        messages = [b"\2a"] * 5
        messages[index] = b"\2b" + marks[index] + b"\2c"
        values, refused = read(messages)
        assert index in refused
        assert {value.value for value in values} == {"a"}


def test_the_work_for_damaged_messages_is_bounded() -> None:
    read, size = reader_of(of("string"), fewest=16), PARTS**2 * 16
    reads: list[int] = []
    reader = read.__self__
    table = reader.table
    reader.table = lambda messages, marks: reads.append(len(messages)) or table(messages, marks)
    for damage in (b"", b"\xff", b"\2a\0", b"\4a"):
        reads.clear()
        messages = [b"\2a"] * size
        messages[size // 3] = damage
        values, refused = read(messages)
        assert size // 3 in refused
        assert len(refused) <= 16
        assert len(values) == size - len(refused)
        assert sum(reads) <= 3 * size
        reads.clear()
        assert read([damage] * size) == ([], list(range(size)))
        assert sum(reads) <= 4 * size


def test_a_value_that_is_null_is_left_to_fastavro() -> None:
    messages = [b"\2\2a", b"\0", b"\2\2b"]
    assert read_together(["null", of("string")], messages) == {0: "a", 2: "b"}


@pytest.mark.parametrize(
    ("avro", "shape"),
    [
        (of("string"), msgspec.defstruct("M", [("value", int | None, None)])),
        (of("long"), msgspec.defstruct("M", [("value", str | None, None)])),
        (of("string"), msgspec.defstruct("M", [("other", Any, None)])),
        (of("string"), msgspec.defstruct("M", [("value", MESSAGE | None, None)])),
        (
            of(["null", of("string") | {"name": "Inner"}]),
            msgspec.defstruct("M", [("value", MESSAGE)]),
        ),
        ("string", MESSAGE),
    ],
)
def test_a_schema_that_does_not_fit_the_message_is_left_to_fastavro(avro: Any, shape: Any) -> None:
    assert avro_reader(AvroSchema(avro), shape, fewest=1) is None


def test_records_and_types_that_are_named_again_are_read() -> None:
    fields = [
        {"name": "a", "type": {"type": "fixed", "name": "F", "size": 2}},
        {"name": "b", "type": ["null", "F"]},
    ]
    inner = {"type": "record", "name": "I", "fields": fields}
    schema = {
        "type": "record",
        "name": "Top",
        "fields": [{"name": "value", "type": inner}, {"name": "added", "type": ["null", "I"]}],
    }
    values, refused = reader_of(schema)([b"ab\0\0", b"ab\2cd\2ef\0"])
    assert refused == []
    assert [(value.value, value.added) for value in values] == [
        ({"a": b"ab", "b": None}, None),
        ({"a": b"ab", "b": b"cd"}, {"a": b"ef", "b": None}),
    ]


def test_a_schema_whose_types_are_used_too_often_is_left_to_fastavro() -> None:
    schema: Any = of("long")
    for level in range(14):
        fields = [{"name": "value", "type": schema}, {"name": "b", "type": schema["name"]}]
        schema = {"type": "record", "name": f"R{level}", "fields": fields}
    assert avro_reader(AvroSchema(schema), MESSAGE, fewest=1) is None


def test_the_container_is_one_that_fastavro_reads() -> None:
    header = reader_of(of("string")).__self__.header
    assert list(fastavro.reader(BytesIO(header))) == []
