"""Every format on every scenario of tests/vectors, by the contract for third-party formats, too."""

import json
import re
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterable
from decimal import ROUND_HALF_UP, Decimal
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import Change, Ignored, RowKind, get_format
from cdc_formats.decoder import Decoder
from cdc_formats.decoding.rows import key_indices
from cdc_formats.errors import DecodeError, TypeConversionError
from cdc_formats.events import KeyedChange
from cdc_formats.testing import (
    Reject,
    check_damaged,
    check_format,
    check_json_schema,
    check_record,
    check_reject,
    damaged,
    render,
)
from tests.support.examples import examples
from tests.support.scenarios import (
    CASE_IDS,
    CASES,
    FORMATS,
    OF_FORMAT,
    OURS,
    SCENARIOS,
    UPSERTS,
    VECTORS,
    Scenario,
    read_lines,
    rejects,
)

each_case = pytest.mark.parametrize(("scenario", "identifier"), CASES, ids=CASE_IDS)
each_format = pytest.mark.parametrize("identifier", OURS)
each_scenario = pytest.mark.parametrize(
    "scenario", SCENARIOS, ids=[scenario.name for scenario in SCENARIOS]
)


# --------------------------------------------------------------------------------------------------
# the vectors


@each_scenario
def test_scenario_has_a_file_or_a_reason_for_every_format(scenario: Scenario) -> None:
    formats, files = set(OURS), set(scenario.identifiers)
    named = {*scenario.gaps, *scenario.options, *scenario.keyed_differs, *files}
    overrides = {path.stem for path in scenario.folder.glob("*.changelog")} - {"expected"}
    assert named - {"*"} | overrides <= formats, "names an unknown format"
    assert files & set(scenario.gaps) == set(), "a gap, and there is a file"
    assert files | set(scenario.gaps) >= formats or "*" in scenario.gaps, "no file and no reason"
    assert all(reason.strip() for reason in scenario.gaps.values())


def test_every_folder_of_vectors_is_used_and_every_format_has_rejects() -> None:
    folders = {
        path.name for path in VECTORS.iterdir() if path.is_dir() and any(path.glob("*.jsonl"))
    }
    others = {"reject", "control-events", "rules"}
    assert folders == {scenario.name for scenario in SCENARIOS} | others
    assert sorted(path.stem for path in (VECTORS / "reject").glob("*.jsonl")) == sorted(OURS)


@each_format
def test_rejects_cover_the_classes_of_errors(identifier: str) -> None:
    assert {reject.error for _, reject in rejects(identifier)} == set(OF_FORMAT[identifier].errors)


def test_a_line_with_an_unknown_member_fails(tmp_path) -> None:
    (tmp_path / "x.jsonl").write_text('{"value": null, "vlaue": 1}\n')
    with pytest.raises(Exception, match="unknown field `vlaue`"):
        read_lines(tmp_path / "x.jsonl")


# --------------------------------------------------------------------------------------------------
# the contract


@each_case
def test_a_format_keeps_the_contract_in_every_scenario(scenario: Scenario, identifier: str) -> None:
    check_format(identifier, [scenario.vector(identifier)], mutations=10)


@each_case
def test_damaged_messages_raise_only_decode_errors(scenario: Scenario, identifier: str) -> None:
    check_damaged(FORMATS[identifier], scenario.vector(identifier), mutations=60)


@each_case
def test_json_schema_accepts_every_vector(scenario: Scenario, identifier: str) -> None:
    check_json_schema(FORMATS[identifier], scenario.vector(identifier))


@pytest.mark.parametrize(
    "identifier", [name for name in OURS if not OF_FORMAT[name].base64_decimals]
)
def test_a_decimal_with_too_many_digits_is_an_error_or_rounded_as_configured(
    identifier: str,
) -> None:
    scenario = next(
        each
        for name in ("product", "mongodb")
        for each in SCENARIOS
        if each.name == name and identifier in each.identifiers
    )
    options, narrow = (
        scenario.vector(identifier).options,
        scenario.columns.replace("DECIMAL(10,3)", "DECIMAL(10,1)"),
    )
    assert narrow != scenario.columns
    exact, rounds = (
        get_format(identifier, rounding=rounding, **options) for rounding in ("error", "half_up")
    )
    wide, narrowed, strict = (
        format.decoder(ddl, unique_key=scenario.primary_key)
        for format, ddl in ((exact, scenario.columns), (rounds, narrow), (exact, narrow))
    )
    place = [column.name for column in scenario.parsed].index("weight")
    refused = 0
    for record in scenario.records(identifier):
        expected, rounded = (
            [_value(change, place) for change in _upserts(decoder, record)]
            for decoder in (wide, narrowed)
        )
        assert rounded == [
            value and str(Decimal(value).quantize(Decimal("0.1"), ROUND_HALF_UP))
            for value in expected
        ]
        if all(
            value is None or Decimal(value) == Decimal(value).quantize(Decimal("0.1"))
            for value in expected
        ):
            assert [_value(change, place) for change in _upserts(strict, record)] == rounded
            continue
        with pytest.raises(
            TypeConversionError,
            match=r"DECIMAL\(10,1\)`, got `.*more digits after the point .* rounding='half_up'",
        ) as caught:
            strict.upserts(*record)
        assert caught.value.path.endswith(".weight")
        refused += 1
    assert refused


def _upserts(decoder: Decoder, record: tuple[bytes | None, bytes | None]) -> list[KeyedChange]:
    changes = decoder.upserts(*record)
    return [] if isinstance(changes, Ignored) else changes


def _value(change: KeyedChange, place: int) -> str | None:
    return None if change.row is None else change.row[place]


REJECTS = [(name, why, reject) for name in OURS for why, reject in rejects(name)]


@pytest.mark.parametrize(
    ("identifier", "reject"),
    [(n, r) for n, _, r in REJECTS],
    ids=[f"{n}, {w}" for n, w, _ in REJECTS],
)
def test_reject_raises_the_expected_error_at_its_path(identifier: str, reject: Reject) -> None:
    check_reject(FORMATS[identifier], reject)
    check_json_schema(FORMATS[identifier], reject)


@each_format
def test_module_docstring_has_its_sections(identifier: str) -> None:
    text = sys.modules[type(get_format(identifier)).__module__].__doc__ or ""
    sections = (
        "Changelog mode:",
        "Key:",
        "Null value:",
        "Absent and null:",
        "Differs from Flink",
        "Source:",
    )
    assert [section for section in sections if section not in text] == []


# -------------------------------------------------------------------------------------------------
# meaning of changelogs


def normalised(changes: Iterable[Change], key: tuple[int, ...]) -> list[Change]:
    """Return a changelog with before-images from each key's earlier rows (`UPSERTS` has no -U)."""
    rows: dict[tuple, tuple] = {}
    result = []
    for change in changes:
        name = tuple(change.row[index] for index in key)
        old = rows.get(name)
        if change.kind is RowKind.DELETE:
            if rows.pop(name, None) is not None:
                result.append(Change(RowKind.DELETE, old))
        elif old is None:
            result.append(Change(RowKind.INSERT, change.row))
        elif old != change.row:
            result += [Change(RowKind.UPDATE_BEFORE, old), Change(RowKind.UPDATE_AFTER, change.row)]
        if change.kind is not RowKind.DELETE:
            rows[name] = change.row
    return result


def decoder_of(scenario: Scenario, identifier: str) -> Decoder:
    format = type(FORMATS[identifier]).from_options(scenario.vector(identifier).options)
    return format.decoder(scenario.columns, unique_key=scenario.primary_key)


def changelog(scenario: Scenario, identifier: str) -> list[Change]:
    decode = decoder_of(scenario, identifier).decode
    results = [decode(key, value) for key, value in scenario.records(identifier)]
    changes = [change for result in results if not isinstance(result, Ignored) for change in result]
    key = key_indices(scenario.parsed, scenario.primary_key)
    return normalised(changes, key) if identifier in UPSERTS else changes


def table(changes: Iterable[Change]) -> list[str]:
    """Return the rows left by a changelog as a multiset (a retraction removes one equal row)."""
    rows: dict[str, int] = defaultdict(int)
    for change in changes:
        rows[repr(change.row)] += 1 if change.kind in (RowKind.INSERT, RowKind.UPDATE_AFTER) else -1
        assert rows[repr(change.row)] >= 0, f"{change} takes away a row that is not there"
    return sorted(row for row, count in rows.items() for _ in range(count))


WHOLE = [(scenario, name) for scenario, name in CASES if not scenario.keyed]
each_whole = pytest.mark.parametrize(
    ("scenario", "identifier"), WHOLE, ids=[f"{s.name}, {n}" for s, n in WHOLE]
)


@pytest.mark.parametrize(
    ("scenario", "identifier"),
    [(scenario, name) for scenario, name in CASES if name in UPSERTS and not scenario.keyed],
    ids=lambda value: getattr(value, "name", value),
)
def test_normalised_upserts_equal_the_changelog(scenario: Scenario, identifier: str) -> None:
    expected = [line for line in scenario.expected(identifier) if not line.startswith("Ignored")]
    assert render(changelog(scenario, identifier), scenario.columns) == expected


@each_whole
def test_changelog_is_a_retract_stream_that_ends_in_one_table(
    scenario: Scenario, identifier: str
) -> None:
    reference = next(
        (name for name in scenario.identifiers if name not in UPSERTS), scenario.identifiers[0]
    )
    assert table(changelog(scenario, identifier)) == table(changelog(scenario, reference))


@each_whole
def test_a_format_with_its_own_changelog_has_no_other_rows(
    scenario: Scenario, identifier: str
) -> None:
    """An override may add ignored records and write an update as a delete and an insert."""
    shared, own = (
        [line for line in scenario.expected(name) if not line.startswith("Ignored")]
        for name in ("expected", identifier)
    )
    assert sorted(line[2:] for line in shared) == sorted(line[2:] for line in own)


@each_whole
def test_keyed_changes_end_in_the_same_table_as_the_changelog(
    scenario: Scenario, identifier: str
) -> None:
    decoder, rows = decoder_of(scenario, identifier), dict[tuple, tuple]()
    for record in scenario.records(identifier):
        for change in _upserts(decoder, record):
            assert isinstance(change, KeyedChange)
            if change.row is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.row
    same = sorted(map(repr, rows.values())) == table(changelog(scenario, identifier))
    assert same is (identifier not in scenario.keyed_differs)


PRODUCT = next(scenario for scenario in SCENARIOS if scenario.name == "product")


@pytest.fixture(scope="module")
def product() -> Iterable[sqlite3.Connection]:
    """Run the statements of the products scenario in a database."""
    database = sqlite3.connect(":memory:")
    database.executescript((PRODUCT.folder / "statements.sql").read_text("utf-8"))
    yield database
    database.close()


@pytest.mark.parametrize("identifier", PRODUCT.identifiers)
def test_product_table_is_the_databases(product: sqlite3.Connection, identifier: str) -> None:
    rows = {}
    for change in changelog(PRODUCT, identifier):
        if change.kind in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            rows[change.row[0]] = change.row
        elif rows[change.row[0]] == change.row:
            del rows[change.row[0]]
    stored = product.execute(
        "SELECT id, name, description, printf('%.3f', weight) FROM product ORDER BY id"
    ).fetchall()
    assert len(stored) == 8
    assert [rows[key] for key in sorted(rows)] == stored


def test_product_has_a_message_for_each_of_22_statements() -> None:
    text = (PRODUCT.folder / "statements.sql").read_text("utf-8")
    statements = re.findall("^(?:INSERT|UPDATE|DELETE)", text, re.MULTILINE)
    fewest = min(len(PRODUCT.records(name)) for name in PRODUCT.identifiers)
    assert len(statements) == fewest == 22


# --------------------------------------------------------------------------------------------------
# any bytes at all

WIDE = (
    "id INT, name STRING, w DECIMAL(10,2), u DECIMAL(20,0), f FLOAT, d DATE, t TIME(3), ts "
    "TIMESTAMP(6), n TIMESTAMP_NTZ(3), b BINARY, flag BOOLEAN, i INTERVAL DAY TO SECOND, a "
    "ARRAY<INT>, m MAP<STRING, DECIMAL(5,1)>, s STRUCT<x: INT, y: ARRAY<DATE>>"
)
DECODERS = [
    get_format(name, **each["options"]).decoder(
        WIDE.replace("id", OF_FORMAT[name].key, 1),
        unique_key=[OF_FORMAT[name].key],
        metadata=sorted(FORMATS[name].metadata),
    )
    for name in OURS
    for each in OF_FORMAT[name].fuzzed
    if "schema" not in each
]
IN_BLOCKS = [decoder for decoder in DECODERS if hasattr(decoder.format, "schema_include")]
LINES = [
    get_format(name, **each["options"]).decoder(each["schema"], unique_key=["id"])
    for name in OURS
    for each in OF_FORMAT[name].fuzzed
    if "schema" in each
]
quick = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)


@quick
@given(key=st.none() | st.binary(max_size=30), value=st.binary(max_size=60))
def test_any_bytes_raise_only_decode_errors(key: bytes | None, value: bytes) -> None:
    for decoder in (*DECODERS, *LINES):
        check_record(decoder, key, value)


words = re.compile(r"\S+").findall
NAMES = words(
    "op type op_type isDdl data old before after payload schema source fields field name "
    "parameters scale value items status ddl ts ts_ms es sqlType pkNames database table db "
    "primary_keys current_ts op_ts id name w u f d t ts n b flag i a m s x y"
)
OPS = words(
    "c u d r t m +I -U +U -D I U D T INSERT UPDATE DELETE TRUNCATE QUERY insert update delete "
    "bootstrap-insert table-create"
)
CONNECT = words(
    "before after org.apache.kafka.connect.data.Decimal org.apache.kafka.connect.data.Timestamp "
    "io.debezium.time.MicroTime io.debezium.time.NanoTimestamp shop parts 2 -3 AQID AP8= 1.5 1e5 "
    "2020-05-13 03:04:05.123 2020-05-13T03:04:05Z 2020-05-13Z"
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**65), 2**65)
    | st.floats()
    | st.sampled_from([*OPS, *CONNECT, "__debezium_unavailable_value"])
    | st.text(max_size=6)
)
documents = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6)
    ),
    max_leaves=25,
)
images = st.dictionaries(
    st.sampled_from([*WIDE.replace(",", " ").split()[::2], "id", "w", "ts", "n", "d"]),
    documents,
    max_size=8,
)
envelopes = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(OPS) | documents,
        "op_type": st.sampled_from("IUDT") | documents,
        "type": st.sampled_from(OPS) | documents,
        "data": images | st.lists(images, max_size=2) | documents,
        "old": images | st.lists(images, max_size=2) | documents,
        "before": images | documents,
        "after": images | documents,
        "payload": documents,
        "schema": documents,
        "source": documents,
        "database": documents,
        "table": documents,
        "ts": documents,
        "ts_ms": documents,
        "current_ts": documents,
        "sqlType": documents,
    },
)


@quick
@given(value=documents | envelopes, key=documents)
def test_any_json_raises_only_decode_errors(value: object, key: object) -> None:
    texts = [
        json.dumps(part, ensure_ascii=False).encode("utf-8", "surrogatepass")
        for part in (key, value)
    ]
    for decoder in DECODERS:
        check_record(decoder, *texts)


@quick
@given(envelope=envelopes)
def test_any_wrapped_envelope_raises_only_decode_errors(envelope: dict) -> None:
    image = {"type": "struct", "field": "after", "fields": envelope.pop("schema", None)}
    message = {"schema": {"fields": [image, envelope.pop("source", None)]}, "payload": envelope}
    value = json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")
    for decoder in IN_BLOCKS:
        check_record(decoder, None, value)


fields_of_blocks = st.fixed_dictionaries(
    {},
    optional={
        "field": st.sampled_from(["id", "w", "u", "t", "n", "ts", "a", "i"]) | documents,
        "type": st.sampled_from(["int32", "bytes", "array", "struct"]) | documents,
        "name": st.sampled_from(CONNECT) | documents,
        "parameters": st.fixed_dictionaries(
            {"scale": st.sampled_from(["0", "2", "-3", "٣", "9" * 30, "--1"]) | documents}
        )
        | documents,
        "items": documents,
    },
)


@quick
@given(block=st.lists(fields_of_blocks, max_size=5), image=images)
def test_any_schema_block_raises_only_decode_errors(block: list, image: dict) -> None:
    schema = {"fields": [{"field": "after", "fields": block}]}
    value = json.dumps(
        {"schema": schema, "payload": {"op": "c", "after": image}}, ensure_ascii=False
    )
    for decoder in IN_BLOCKS:
        check_record(decoder, None, value.encode("utf-8", "surrogatepass"))


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: repr(decoder.format)[:60])
@pytest.mark.parametrize(
    "opening", [b"[", b'{"a":', b'{"after":', b'{"data":', b'{"source":', b'{"payload":{"schema":']
)
def test_deep_nesting_raises_only_decode_errors(decoder, opening: bytes) -> None:
    """Test depths where readers of values reach their limit a little before the JSON reader."""
    for depth in (*range(900, 1000, 100 // examples(40)), 50_000):
        nested = (
            opening * depth
            + b"1"
            + (b"]" if opening == b"[" else b"}" * opening.count(b"{")) * depth
        )
        for column in (b"id", b"name", b"a"):
            image = b'{"%s":%s' % (column, nested)
            check_record(
                decoder,
                b'{"id": 1}',
                b'{"op":"c","op_type":"I","type":"insert","after":%s,"data":%s}}'
                % (image + b"}", image),
            )


AROUND = {name: case.around for name, case in OF_FORMAT.items() if case.around}
"""Each format's JSON message around a value of the column `id` (MongoDB's documents are text: see
its own tests)."""
NUMBERS = [
    "1e2",
    "1.0E-5",
    "-1.5e+3",
    "1E0",
    "0.0000000",
    "0.00000001",
    "-0.0",
    "1.50",
    "100",
    "123456789012345678901234567890.5",
]


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("identifier", AROUND)
def test_a_number_in_a_string_column_keeps_its_own_text(identifier: str, number: str) -> None:
    spaced = f'{{"a": {number}, "b": [{number}]}}'
    compact = spaced.replace(" ", "")
    for sql_type, text, expected in (
        ("STRING", number, number),
        ("VARCHAR(9)", number, number),
        ("ARRAY<STRING>", f"[{number}, 5]", [number, "5"]),
        ("MAP<STRING, STRING>", f'{{"x": {number}}}', [["x", number]]),
        ("STRUCT<a: INT, b: ARRAY<STRING>>", f'{{"a": 1e0, "b": [{number}]}}', [1, [number]]),
        ("STRING", spaced, compact),
        ("ARRAY<STRING>", f"[{spaced}]", [compact]),
        ("STRING", f"[{number}]", f"[{number}]"),
    ):
        decoder = FORMATS[identifier].decoder(f"k INT, id {sql_type}", unique_key=["k"])
        value = (AROUND[identifier] % f'{text}, "k": 1').encode()
        (change,) = decoder.decode(b'{"k":1}', value)
        assert change.row[-1] == expected


@pytest.mark.parametrize("identifier", AROUND)
def test_a_number_column_next_to_a_string_column_stays_a_number(identifier: str) -> None:
    ddl = "k INT, id STRING, d DOUBLE, f FLOAT, w DECIMAL(10,5), n INT, m BIGINT"
    decoder = FORMATS[identifier].decoder(ddl, unique_key=["k"])
    rest = '"x", "k": 1, "d": 1.0E-5, "f": 2.5e-1, "w": 1.0E-5, "n": 1e2, "m": 5.0E3'
    (change,) = decoder.decode(b'{"k":1}', (AROUND[identifier] % rest).encode())
    assert change.row == (1, "x", 1e-5, 0.25, "0.00001", 100, 5000)


@pytest.mark.parametrize("depth", [400, 700, 900, 930, 960, 980, 990])
@pytest.mark.parametrize("identifier", AROUND)
def test_deep_values_in_columns_raise_only_decode_errors(identifier: str, depth: int) -> None:
    for sql_type in ("INT", "STRING", "ARRAY<STRING>", "ARRAY<INT>"):
        decoder = FORMATS[identifier].decoder(f"k INT, id {sql_type}", unique_key=["k"])
        for further in range(0, 10):
            nested = "[" * (depth + further) + "]" * (depth + further)
            check_record(decoder, b'{"k":1}', (AROUND[identifier] % nested).encode())


BROKEN = [(name, each["why"], each["value"]) for name in OURS for each in OF_FORMAT[name].broken]


@pytest.mark.parametrize("validate", [False, True])
@pytest.mark.parametrize(
    ("identifier", "why", "text"), BROKEN, ids=[f"{name}, {why}" for name, why, _ in BROKEN]
)
def test_a_broken_message_of_another_table_is_ignored(
    identifier: str, why: str, text: str, validate: bool
) -> None:
    key = OF_FORMAT[identifier].key
    decoder = get_format(identifier, table_include="mine", validate=validate).decoder(
        f"{key} INT", unique_key=[key]
    )
    for decode in (decoder.decode, decoder.upserts):
        with pytest.raises(DecodeError):
            decode(b'{"id":1}', (text % "mine").encode())
        assert decode(b'{"id":1}', (text % "other").encode()) is Ignored.OTHER_TABLE
        with pytest.raises(DecodeError):
            decode(b'{"id":1}', (text % "other").encode()[:-1])


def test_damage_is_drawn_from_the_seed() -> None:
    data = b'{"op": "c", "after": {"id": 1, "name": "scooter"}}'
    first, again, other = (
        [damaged(data, draw) for _ in range(50)] for draw in (Random(3), Random(3), Random(4))
    )
    assert first == again
    assert first != other
    assert len(set(first)) > 40
