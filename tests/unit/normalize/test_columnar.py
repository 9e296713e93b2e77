"""Messages that are decoded together give the rows and the errors that each gives alone."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from itertools import product

import pytest

from cdc_formats import ChangelogMode, Ignored, get_format
from cdc_formats.errors import DecodeError, SchemaError, SeveralTablesError
from cdc_formats.formats.debezium.json import DebeziumJson
from normalize.decode.columnar import ColumnarDecoder
from normalize.decode.targets import Blocks, KeyedRows, TypedRows
from normalize.decode.where import FilterRows
from tests.support.both_decoders import all_metadata, differences, odd_share, outcome, source_of
from tests.support.replay.replaying import read_recording
from tests.support.replay.topics import topics
from tests.support.scenarios import CASES, rejects
from tools.fuzz import mutated, subjects

FORMATS = (
    "canal-json", "changelog-json", "debezium-avro-confluent", "debezium-flat-json", "debezium-json", "dms-json", "maxwell-json",
    "ogg-json", "ticdc-canal-json", "upsert-kafka",
)  # fmt: skip
RECORDED = [topic for topic in topics() if topic.format in FORMATS and topic.primary_key]
MESSAGES = 3_000
MOST_ODD, MOST_ODD_OF_TABLES = 0.01, {"toasted": 0.25, "evolving": 0.12, "all_types": 0.05}
"""The share of messages that may be decoded one by one; more for tables with columns that messages lack, or unavailable values."""
TARGETS = (Blocks, KeyedRows, FilterRows, TypedRows)
SCHEMA = "id INT NOT NULL, name STRING, price DECIMAL(6,2), at TIMESTAMP_NTZ(3)"


@pytest.fixture(autouse=True)
def few_messages_are_read_together(monkeypatch) -> None:
    monkeypatch.setattr("normalize.decode.avro_batches._FEWEST", 1)


@pytest.mark.parametrize(("scenario", "name"), [case for case in CASES if case[1] in FORMATS], ids=lambda each: getattr(each, "name", each))
def test_vectors_give_the_same(scenario, name) -> None:
    vector = scenario.vector(name)
    if not vector.primary_key:
        pytest.skip("a table without a primary key has no keyed stage")
    format = get_format(name, **vector.options)
    for metadata, target, compact in product(({}, all_metadata(format)), TARGETS, (False, True)):
        for positions in (False, True) if not format.positions and target is not TypedRows else (False,):
            source = source_of(format, vector.schema, vector.primary_key, metadata, positions=positions, compact=compact)
            assert not differences(source, vector.records, target)


@pytest.mark.parametrize(("scenario", "name"), [case for case in CASES if case[1] in FORMATS], ids=lambda each: getattr(each, "name", each))
def test_vectors_give_the_same_changelog_without_a_key_or_update_before(scenario, name) -> None:
    vector = scenario.vector(name)
    format = get_format(name, **vector.options)
    for drop, ignore_deletes in product((False, True), (False, True)):
        if vector.primary_key or not (drop or format.changelog_mode == ChangelogMode.upsert() or name == "upsert-kafka"):
            key = vector.primary_key if drop or format.changelog_mode != ChangelogMode.all() else ()
            source = source_of(format, vector.schema, key, drop_update_before=drop, ignore_deletes=ignore_deletes)
            assert not differences(source, vector.records, TypedRows)


@pytest.mark.parametrize("identifier", FORMATS)
def test_rejected_messages_give_the_same_errors(identifier: str) -> None:
    for _, reject in rejects(identifier):
        source = source_of(get_format(identifier, **reject.options), reject.schema, reject.primary_key)
        for target in TARGETS if reject.primary_key else (TypedRows,):
            assert not differences(source, [(reject.key, reject.value)], target)


def bad_records(source, records, *, keyed: bool) -> int:
    decoder = source.decoder()
    decode, bad = decoder.upserts if keyed else decoder.decode, 0
    for record in records:
        try:
            decode(*record)
        except DecodeError:
            bad += 1
    return bad


@pytest.mark.parametrize("topic", RECORDED, ids=lambda topic: topic.name)
def test_recorded_topics_give_the_same_and_are_decoded_together(topic, recorded_registry) -> None:
    records = [(record.key, record.value) for record in read_recording(topic.path)]
    format = get_format(topic.format, **topic.options_at(recorded_registry))
    source = source_of(format, topic.schema, topic.primary_key, control_events=frozenset(), on_truncate="ignore")
    for target in (Blocks, KeyedRows, TypedRows):
        assert not differences(source, records, target)
    assert not differences(replace(source, compact=True), records)
    for keyed in (True, False):
        if ColumnarDecoder.of(source, keyed=keyed) is not None:
            odd, _ = odd_share(source, records, keyed=keyed)
            most = MOST_ODD_OF_TABLES.get(topic.table, MOST_ODD)
            assert odd <= most * len(records) + bad_records(source, records, keyed=keyed)


@pytest.mark.parametrize("identifier", FORMATS)
def test_a_damaged_message_among_sound_ones_gives_the_same(identifier: str) -> None:
    draw, tried = random.Random(17), 0
    known = [subject for subject in subjects(identifier) if subject.primary_key]
    while tried < MESSAGES:
        subject = draw.choice(known)
        decoder, size = draw.choice(subject.decoders), draw.choice((1, 20, 200))
        records = [draw.choice(subject.records) for _ in range(size)]
        records = [mutated(record, draw) if draw.random() < max(0.01, 1 / size) else record for record in records]
        metadata = {f"meta_{column.name}": column.name for column in decoder.metadata_columns}
        counted = {"control_events": frozenset(), "on_truncate": "ignore"} if draw.random() < 0.5 else {}
        positions = not decoder.format.positions and draw.random() < 0.3
        arguments = {"ignore_deletes": draw.random() < 0.2, "compact": draw.random() < 0.2}
        target = draw.choice((Blocks, Blocks, *TARGETS))
        if target is TypedRows:
            arguments |= {"drop_update_before": draw.random() < 0.3, "positions": False}
        schema = ", ".join(map(str, decoder.columns))
        try:
            source = source_of(decoder.format, schema, decoder.unique_key, metadata, **{"positions": positions, **arguments, **counted})
            outcome(source, records, columnar=False, target=target)
        except (SchemaError, SeveralTablesError):
            continue
        assert not differences(source, records, target)
        tried += size


def debezium(op: str, before: object, after: object, table: str = "parts") -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, "source": {"db": "shop", "table": table}}).encode()


PART = {"id": 1, "name": "bolt", "price": "1.50", "at": "2026-11-21 14:00:02.434"}


@pytest.mark.parametrize(
    ("value", "odd"),
    [
        (debezium("u", PART, PART), 0),
        (debezium("u", None, PART), 0),
        (debezium("c", None, {"id": 1}), 0),  # a missing column is NULL
        (debezium("d", PART, None), 0),
        (None, 0),
        (b"", 0),
        (debezium("u", {**PART, "id": 2}, PART), 0),
        (debezium("u", {**PART, "id": None}, PART), 1),
        (debezium("u", {**PART, "id": "two"}, PART), 1),
        (debezium("c", None, {**PART, "price": "1.555"}), 1),
        (debezium("c", None, {**PART, "id": None}), 1),
        (debezium("c", None, {**PART, "id": 2**31}), 1),
        (debezium("c", None, {**PART, "name": "__debezium_unavailable_value"}), 1),
        (debezium("c", None, {**PART, "name": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}), 1),
        (debezium("c", None, {**PART, "name": json.loads("[" * 300 + "]" * 300)}), 0),
        (debezium("d", None, None), 1),
        (debezium("t", None, None), 1),
        (b"\xef\xbb\xbf" + debezium("c", None, PART), 1),
        (b"[]", 1),
        (b"{", 1),
    ],
)
def test_only_a_message_in_doubt_is_decoded_alone(value: bytes | None, odd: int) -> None:
    records = [(None, debezium("c", None, {**PART, "id": key})) for key in range(20, 60)]
    records.insert(7, (None, value))
    format = get_format("debezium-json", decimal_handling_mode="string")
    source = source_of(format, SCHEMA, ["id"], control_events=frozenset(), on_truncate="ignore")
    assert odd_share(source, records)[0] == odd
    assert not differences(source, records)


def test_a_damaged_message_after_others_that_lack_columns_gives_the_same() -> None:
    # A field that no row needs is not text. Alone, the message would be read without a look at it.
    message = '{"data":[{"id":"%d"%s}],"old":[{"name":"%s"}],"type":"UPDATE","table":"parts","sqlType":{"id":4}}'
    whole = ',"name":"bolt","price":"1.50","at":"2026-11-21 14:00:02.434"'
    texts = [message % (1, "", "a"), message % (2, "", "a"), message % (3, whole, "\xb1")]
    records = [(None, text.encode("latin-1")) for text in texts]
    assert not differences(source_of(get_format("canal-json"), SCHEMA, ["id"]), records)


def test_a_deleted_row_without_a_part_of_its_key_gives_the_same() -> None:
    format, schema = get_format("debezium-json"), "shop STRING NOT NULL, id INT NOT NULL"
    for before in ({"id": 1}, {"shop": None, "id": 1}, {"shop": "north"}):
        source = source_of(format, schema, ["shop", "id"])
        assert not differences(source, [(None, debezium("d", before, None))])
        assert not outcome(source, [(None, debezium("d", before, None))], columnar=True).changes


def canal_update(old: dict[str, str], row: dict[str, str]) -> bytes:
    return json.dumps({"type": "UPDATE", "data": [row], "old": [old], "database": "shop", "table": "parts"}).encode()


@pytest.mark.parametrize(
    ("old", "keys"),
    [
        ({"name": "nut"}, 1),
        ({"id": "7"}, 2),
        ({"shop": "south"}, 2),
        ({"id": "07"}, 2),
        ({"id": "+1"}, 1),  # the same number
        ({"id": "1"}, 1),
    ],
)
def test_an_update_that_changes_the_key_deletes_the_old_key(old: dict[str, str], keys: int) -> None:
    record = (None, canal_update(old, {"shop": "north", "id": "1", "name": "bolt"}))
    source = source_of(get_format("canal-json"), "shop STRING NOT NULL, id INT NOT NULL, name STRING", ["shop", "id"])
    assert odd_share(source, [record])[0] == 0
    found = outcome(source, [record], columnar=True).changes
    assert sum(map(len, found.values())) == keys
    for arguments in product((False, True), (False, True)):
        compact, ignore_deletes = arguments
        for target in TARGETS:
            assert not differences(replace(source, compact=compact, ignore_deletes=ignore_deletes), [record], target)


def test_keys_that_two_updates_exchange_give_the_same() -> None:
    records = [(None, debezium("u", {**PART, "id": old}, {**PART, "id": new})) for old, new in ((1, 3), (2, 1), (3, 2))]
    source = source_of(get_format("debezium-json", decimal_handling_mode="string"), SCHEMA, ["id"], key_groups=1)
    assert odd_share(source, records)[0] == 0
    for target in TARGETS:
        assert not differences(source, records, target)
    (changes,) = outcome(source, records, columnar=True).changes.values()
    assert ["'deleted': True" in change for change in changes] == [True, False] * 3


def test_statements_without_rows_are_counted_together() -> None:
    statement = b'{"type":"QUERY","isDdl":false,"database":"","table":"","data":null,"old":null,"sql":"insert"}'
    records = [(None, canal_update({"name": "nut"}, {"id": "1", "name": "bolt"})), (None, statement)]
    for options, reason in (({}, "MESSAGE"), ({"table_include": "parts"}, "OTHER_TABLE")):
        source = source_of(get_format("canal-json", **options), "id INT, name STRING", ["id"], control_events=frozenset())
        assert odd_share(source, records)[0] == 0
        assert not differences(source, records)
        assert sum(counts[reason] for counts in outcome(source, records, columnar=True).counts if isinstance(counts, dict)) == 1
        assert not differences(replace(source, control_events=frozenset(Ignored)), records)


def test_a_record_without_rows_among_upserts_without_a_stage_is_counted() -> None:
    source = source_of(get_format("debezium-json"), "id INT", ["id"], control_events=frozenset(), drop_update_before=True)
    records = [(None, debezium("c", None, {"id": 1})), (None, debezium("m", None, None)), (None, None)]
    assert not differences(source, records, TypedRows)
    rows = outcome(source, records, columnar=False, target=TypedRows).changes[0]
    assert "'row_kind': '+I'" in rows[0]
    assert "'MESSAGE': 1" in rows[1]
    assert "'TOMBSTONE': 1" in rows[1]


def test_an_update_before_that_is_dropped_is_still_converted() -> None:
    source = source_of(get_format("changelog-json"), "id INT, price DECIMAL(6,2)", ["id"], drop_update_before=True)
    records = [(None, b'{"op":"-U","data":{"id":1,"price":1e400}}'), (None, b'{"op":"-U","data":{"id":1,"price":1}}')]
    assert not differences(source, records, TypedRows)
    assert "out of its range" in outcome(source, records, columnar=True, target=TypedRows).changes[0][0]


def test_damage_in_metadata_that_no_column_needs_gives_the_same() -> None:
    message = b'{"op":"c","after":{"id":1},"source":{"db":"shop","table":"parts","snapshot":"\xa3"}}'
    for metadata in ({"table": "source.table"}, {"all": "source.properties"}):
        assert not differences(source_of(get_format("debezium-json"), "id INT", ["id"], metadata), [(None, message)])


def test_the_name_of_a_table_that_is_not_text_gives_the_same() -> None:
    message = json.dumps({"op": "c", "after": {"id": 1}, "source": {"db": ["shop"], "table": 7}}).encode()
    format = get_format("debezium-json")
    for metadata in ({}, {"all": "source.properties"}):
        source = source_of(format, "id INT", ["id"], metadata)
        assert not differences(source, [(None, message)])
        assert outcome(source, [(None, message)], columnar=True).changes


def test_a_table_whose_name_cannot_be_read_gives_the_same() -> None:
    message = b'{"op":"c","after":{"id":1},"source":{"db":"\\ud800","table":"parts"}}'
    for metadata in ({}, {"all": "source.properties"}):
        assert not differences(source_of(get_format("debezium-json"), "id INT", ["id"], metadata), [(None, message)])


def test_tombstones_that_become_rows_are_decoded_alone() -> None:
    source = source_of(get_format("debezium-json"), "id INT", ["id"], control_events=frozenset({Ignored.TOMBSTONE}))
    records = [(None, debezium("c", None, {"id": 1})), (None, None)]
    assert odd_share(source, records) == (1, 1)
    assert not differences(source, records)


def test_a_change_keeps_its_place_among_those_of_messages_in_doubt() -> None:
    # The second and the fourth change are those of messages in doubt; all are of one key.
    texts = ["1.50", "1.5e0", "2.50", "3.5e0", "4.50"]
    records = [(None, debezium("u", None, {**PART, "price": text})) for text in texts]
    source = source_of(get_format("debezium-json", decimal_handling_mode="string"), SCHEMA, ["id"], key_groups=1)
    records.insert(2, (None, debezium("u", {**PART, "id": 9}, {**PART, "price": "9.00"})))
    (changes,) = outcome(source, records, columnar=True).changes.values()
    found = [change.split("'c2': Decimal('")[1][:4] for change in changes if "'c2': Decimal" in change]
    assert found == ["1.50", "1.50", "9.00", "2.50", "3.50", "4.50"]
    assert not differences(source, records)


@pytest.mark.parametrize("identifier", ["canal-json", "debezium-json", "maxwell-json"])
def test_messages_of_other_tables_are_counted_together(identifier: str) -> None:
    rows = {
        "debezium-json": lambda table: {"op": "c", "after": {"id": 1, "x": table}, "source": {"db": "shop", "table": table}},
        "canal-json": lambda table: {"type": "INSERT", "data": [{"id": "1", table: "1"}], "database": "shop", "table": table},
        "maxwell-json": lambda table: {"type": "insert", "data": {"id": 1, table: 1}, "database": "shop", "table": table},
    }
    tables = ["parts", "tools", "tools", "parts"]
    records = [(None, json.dumps(rows[identifier](table)).encode()) for table in tables]
    source = source_of(get_format(identifier, table_include="parts"), "id INT, parts INT", ["id"], control_events=frozenset())
    assert odd_share(source, [record for record, table in zip(records, tables, strict=True) if table == "tools"])[0] == 0
    assert not differences(source, records)
    found = outcome(source, records, columnar=True)
    assert sum(counts["OTHER_TABLE"] for counts in found.counts if isinstance(counts, dict)) == 2


def test_every_message_in_doubt_turns_the_attempt_off_for_a_while() -> None:
    source = source_of(get_format("debezium-json"), "id INT", ["id"])
    records = [(None, debezium("u", {"id": None}, {"id": key + 1})) for key in range(50)]
    assert odd_share(source, records)[0] == 50
    assert not differences(source, records)


def test_a_column_with_the_name_of_a_field_of_the_message_is_read() -> None:
    format = get_format("debezium-flat-json")
    source = source_of(format, "id INT, `__op` STRING", ["id"])
    records = [(b'{"id":1}', b'{"id":1,"__op":"c"}')]
    assert ColumnarDecoder.of(source) is None
    assert not differences(source, records)
    assert len(outcome(source, records, columnar=True).changes) == 1


def test_a_kafka_key_without_its_columns_gives_the_same() -> None:
    source = source_of(get_format("upsert-kafka", key_format="json", value_format="json"), "id INT, name STRING", ["id"])
    for key in (b'{"id\xe9": 1}', b'{"x": 1}', b'{"id": null}', b"{}"):
        assert not differences(source, [(key, b'{"id": 1, "name": "bolt"}')])


def test_a_subclass_that_reads_messages_differently_is_decoded_by_itself() -> None:
    class Reversed(DebeziumJson):
        def reader(self, rows, *, keyed=False):
            read = super().reader(rows, keyed=keyed)
            return lambda key, value: read(key, value[::-1])

    format = Reversed()
    source = source_of(format, "id INT", ["id"])
    assert ColumnarDecoder.of(source) is None
    assert len(outcome(source, [(None, debezium("c", None, {"id": 1})[::-1])], columnar=True).changes) == 1
