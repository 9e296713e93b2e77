"""Masks in the first pass: together and one by one, bad records, control events, checkpoints."""

from random import Random

import pytest

from cdc_formats import Event, Format, columns
from cdc_formats.errors import (
    FormatBugError,
    StateVersionError,
)
from normalize.core.guard import Expected, PartitionSummary, check
from normalize.core.state import Layout
from normalize.decode.collectors import Blocks, TypedRows
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan, RecordInput
from normalize.engines.native import condition_fact
from normalize.kafka.dead_letter import DeadLetter
from normalize.query import Request
from tests.support.both_decoders import (
    batch_of,
    differences,
    odd_places,
    outcome,
    source_of,
    together,
)
from tests.support.error_texts import error_test
from tests.support.masks import KEY, KEY_ENV, kinds_of, masked
from tests.support.scenarios import CASES, rejects
from tools.fuzz_together import FORMATS as IN_JSON

FORMATS = (*IN_JSON, "debezium-avro-confluent")
SECRET = "ann@example.org"


@pytest.fixture(autouse=True)
def key(monkeypatch):
    monkeypatch.setenv(KEY_ENV, KEY)


@pytest.mark.parametrize(
    ("scenario", "name"),
    [case for case in CASES if case[1] in FORMATS],
    ids=lambda each: getattr(each, "name", each),
)
def test_messages_decoded_together_and_alone_have_the_same_masks(scenario, name) -> None:
    vector, random = scenario.vector(name), Random(7)
    kinds = kinds_of(columns(vector.schema), vector.primary_key, random)
    written = {name.swapcase(): kind for name, kind in kinds.items()}
    format = masked(written, name, **vector.options)
    for target in (Blocks, TypedRows) if vector.primary_key else (TypedRows,):
        source = source_of(format, vector.schema, vector.primary_key)
        assert not differences(source, vector.records, target)


@pytest.mark.parametrize("identifier", FORMATS)
def test_rejected_messages_give_the_same_errors_without_values(identifier) -> None:
    for _, reject in rejects(identifier):
        table = columns(reject.schema)
        kinds = kinds_of(table, reject.primary_key, Random(3))
        source = source_of(
            masked(kinds, identifier, **reject.options), reject.schema, reject.primary_key
        )
        for target in (Blocks, TypedRows) if reject.primary_key else (TypedRows,):
            assert not differences(source, [(reject.key, reject.value)], target)


KINDS = {"email": "hmac", "name": "redact", "note": "drop"}
SCHEMA = "id INT, email STRING, name STRING, note STRING, age INT"
ROW = f'{{"id":1,"email":"{SECRET}","name":"{SECRET}","note":"{SECRET}","age":%s}}'
QUOTED = f'"{SECRET}"'
SOUND = f'{{"op":"c","after":{ROW % 7}}}'.encode()
BAD = f'{{"op":"c","after":{ROW % QUOTED}}}'.encode()


def test_masked_columns_are_decoded_together() -> None:
    source = source_of(masked(KINDS, "debezium-json"), SCHEMA, ["id"])
    assert odd_places(source, [(None, SOUND)] * 3) == []
    assert [column.name for column in source.shape.columns] == ["id", "email", "name", "age"]
    assert SECRET not in repr(outcome(source, [(None, SOUND)], columnar=together))


def rows_of(plan: DecodePlan, records) -> list[dict]:
    batches = decode_pass(iter([batch_of(records)]), plan=plan, collector=TypedRows)
    return [row for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("mode", ["PERMISSIVE", "DROPMALFORMED"])
def test_a_bad_record_leaves_its_place_and_not_its_content(mode, caplog) -> None:
    source = source_of(masked(KINDS, "debezium-json"), SCHEMA, ["id"], mode=mode)
    headers = [("trace", SECRET.encode())]
    rows = rows_of(source, [(SECRET.encode(), BAD, headers), (None, SOUND)])
    assert SECRET not in f"{rows} {caplog.text}"
    corrupt = [row["_corrupt_record"] for row in rows if row.get("_corrupt_record")]
    assert [(each["offset"], each["key"], each["value"]) for each in corrupt] == (
        [(0, None, None)] if mode == "PERMISSIVE" else []
    )
    assert all(
        each["error"]
        == "[TYPE_CONVERSION] expected `INT`, got `str` - at `$.after.age` of the value in t[0]@0"
        for each in corrupt
    )


class Broken(Format):
    """A format with a bug."""

    identifier = "broken"

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        raise ValueError(f"no idea of {value!r}")


def test_a_bug_of_a_format_shows_no_value_in_its_cause() -> None:
    source = source_of(Broken(mask={"id": "redact"}), "id INT", [], mode="FAILFAST")
    with pytest.raises(FormatBugError) as caught:
        rows_of(source, [(None, SECRET.encode())])
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_control_events_have_neither_records_nor_messages() -> None:
    statement = f"INSERT INTO users VALUES ('{SECRET}')"
    records = [
        (SECRET.encode(), None),
        (
            None,
            f'{{"type":"QUERY","database":"d","table":"users","isDdl":false,"sql":"{statement}"}}'.encode(),
        ),
        (
            None,
            b'{"type":"ALTER","database":"d","table":"users","isDdl":true,"sql":"ALTER TABLE t"}',
        ),
        (None, f'{{"type":"INSERT","database":"d","table":"other","data":[{ROW % 7}]}}'.encode()),
    ]
    format = masked(KINDS, "canal-json", table_include="users")
    rows = rows_of(source_of(format, SCHEMA, ["id"]), records)
    events = [row["_control_event"] for row in rows if row.get("_control_event")]
    assert [(each["type"], each["statement"]) for each in events] == [
        ("TOMBSTONE", None),
        ("MESSAGE", None),
        ("DDL", "ALTER TABLE t"),
        ("OTHER_TABLE", None),
    ]
    assert SECRET not in repr(rows)


# --------------------------------------------------------------------------------------------------
# arguments


def request(format: Format, records: RecordInput, **arguments) -> Request:
    options = {
        "schema": SCHEMA,
        "primary_key": "id",
        "normalize": None,
        "mode": "FAILFAST",
        "metadata": (),
        "changelog_mode": "all",
        "control_events": (),
        "on_truncate": "fail",
        "observation": None,
        **arguments,
    }
    return Request.check(records, {}, format=format, **options)


# --------------------------------------------------------------------------------------------------
# checkpoints

LAYOUT = Layout(1, columns("id INT, email STRING"), ("id",))
WIDER = Layout(1, columns("id INT, email STRING, phone STRING"), ("id",))


def stored_with(masks: dict[str, str], layout: Layout = LAYOUT) -> bytes:
    return check(None, [PartitionSummary("t")], layout, Expected(masks=masks), 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"email": "redact"}),
        ({"email": "redact"}, {}),
        ({"email": "hmac 1"}, {"email": "hmac 2"}),
        ({}, {"email": "drop"}),
    ],
)
def test_another_mask_or_key_than_that_of_the_checkpoint_is_refused(before, after) -> None:
    stored = stored_with(before)
    assert check(stored, [], LAYOUT, Expected(masks=before), 0) == stored
    with pytest.raises(StateVersionError, match=r"the mask of 'email' is .*: set it back, or"):
        check(stored, [], LAYOUT, Expected(masks=after), 0)
    assert condition_fact("", before) != condition_fact("", after)


def test_a_new_column_may_have_a_mask() -> None:
    masks = {"email": "redact"}
    stored = stored_with(masks)
    after = Expected(masks={**masks, "phone": "redact"})
    assert check(stored, [], WIDER, after, 0) == stored_with(dict(after.masks), WIDER)


def test_the_facts_of_the_native_engine_have_masks() -> None:
    assert condition_fact("(id > 1)", {}) == "(id > 1)"
    assert condition_fact("", {"b": "drop", "a": "redact"}) == "mask: a redact, b drop"
    assert condition_fact("(id > 1)", {"a": "redact"}) == "(id > 1); mask: a redact"


test_error_texts = error_test(
    __file__,
    {
        **{
            f"metadata that may have values is refused, {number}": lambda name=name: request(
                masked(KINDS, "debezium-json"), RecordInput(True), metadata=[name]
            )
            for number, name in enumerate(["headers", "header-list", "source.properties"], 1)
        },
        "dead letters require places": lambda: request(
            masked(KINDS, "debezium-json"),
            RecordInput(True, row_order="row", columns=frozenset({"value"})),
            mode=DeadLetter("dead", {"bootstrap.servers": "127.0.0.1:9"}),
        ),
        **{
            f"masks are checked during the call, {number}": lambda arguments=arguments: request(
                masked(KINDS, "debezium-json"), RecordInput(True), **arguments
            )
            for number, arguments in enumerate(
                [
                    {"primary_key": "name"},
                    {"schema": "id INT, name STRING"},
                ],
                1,
            )
        },
    },
)
