"""The planner's rule, compared with Flink 2.2's EXPLAIN CHANGELOG_MODE, and its explanation."""

import importlib
import json
import pickle
import re
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from cdc_formats import ChangelogMode, get_format
from cdc_formats.decoding.envelope import Framing
from cdc_formats.errors import ChangelogError
from cdc_formats.events import RowKind
from cdc_formats.testing import Reject, Vector, check_format
from normalize.api import explain_changelog
from normalize.decode.collectors import Blocks, TypedRows
from normalize.decode.columnar import ColumnarDecoder
from normalize.decode.decode_pass import decode_pass
from normalize.decode.plan import DecodePlan
from normalize.kafka.topics import TopicMonitor
from normalize.query import ChangelogNormalize
from normalize.stage_options import make_plan
from tests.support.both_decoders import (
    Record,
    batch_of,
    differences,
    odd_places,
    outcome,
    source_of,
    together,
)
from tests.support.distributions import install
from tests.support.error_texts import error_test, text_test

UPSERT = get_format("upsert-kafka").changelog_mode
CHANGELOG = ChangelogMode.all()


# (source, source_duplicates, consumer) -> ChangelogNormalize in the plan, whether it emits -U,
# DropUpdateBefore without it. Flink: ups / dbz_pk with the flag off and on, into a retract sink
# ("all") and an upsert sink of the same key ("upsert").
@pytest.mark.parametrize(
    ("source", "duplicates", "consumer", "normalize", "makes_before", "drops_before"),
    [
        pytest.param(UPSERT, False, "all", True, True, False, id="ups, off, retract sink"),
        pytest.param(UPSERT, True, "all", True, True, False, id="ups, on, retract sink"),
        pytest.param(UPSERT, False, "upsert", False, False, False, id="ups, off, upsert sink"),
        pytest.param(UPSERT, True, "upsert", True, False, False, id="ups, on, upsert sink"),
        pytest.param(CHANGELOG, False, "all", False, False, False, id="dbz_pk, off, retract sink"),
        pytest.param(CHANGELOG, True, "all", True, True, False, id="dbz_pk, on, retract sink"),
        pytest.param(CHANGELOG, False, "upsert", False, False, True, id="dbz_pk, off, upsert sink"),
        pytest.param(CHANGELOG, True, "upsert", True, False, False, id="dbz_pk, on, upsert sink"),
        pytest.param(
            ChangelogMode.insert_only(),
            True,
            "all",
            False,
            False,
            False,
            id="append-only, on, retract sink",
        ),
    ],
)
def test_the_stage_is_placed_like_in_flinks_plans(
    source, duplicates, consumer, normalize, makes_before, drops_before
):
    plan = make_plan(source, ["id"], consumer, duplicates)
    adds_before = plan.normalize and plan.mode.contains(RowKind.UPDATE_BEFORE)
    assert (plan.normalize, adds_before, plan.drop_update_before) == (
        normalize,
        makes_before,
        drops_before,
    )
    assert plan.reason


def test_a_changelog_without_a_key_passes_if_no_duplicates_are_removed():
    assert not make_plan(CHANGELOG, [], "all", False).normalize


def explained(
    format: str,
    *,
    topics: Any = "a",
    key: str = "id",
    mode: str = "all",
    normalizes: bool = True,
    **options: Any,
) -> str:
    """Return an explanation, without which decoder reads: this depends on the installation."""
    text = explain_changelog(
        topics,
        format=format,
        primary_key=key or (),
        normalize=ChangelogNormalize(**options) if key and normalizes else False,
        changelog_mode=mode,
    )
    return re.sub(r"(Decode\(.*?\)): .*", r"\1", text)


test_texts = text_test(
    __file__,
    {
        "no stage, as the call says": partial(explained, "debezium-json", key=""),
        "no stage, and upserts of a pattern": partial(
            *(explained, "upsert-kafka"), topics=re.compile("a.*"), mode="upsert", normalizes=False
        ),
        "no stage, and upserts of a changelog": partial(
            explained, "debezium-json", mode="upsert", normalizes=False
        ),
        "upserts of two topics": partial(
            explained, "upsert-kafka", topics=["a", "b"], source_duplicates=False, key_groups=8
        ),
        "a changelog for upserts": partial(
            explained, "canal-json", mode="upsert", source_duplicates=False
        ),
        "order and a condition": partial(
            explained, "maxwell-json", order="source", where="qty > 1"
        ),
        "the defaults": partial(explained, "debezium-json"),
        "options that the native engine refuses": partial(
            explained, "debezium-json", order="source", mini_batch=True
        ),
        "the native engine": partial(explained, "debezium-json", engine="native"),
        "without a stage": partial(explained, "debezium-json", key=""),
    },
)
test_error_texts = error_test(
    __file__,
    {
        "a changelog with duplicates and no key": partial(make_plan, CHANGELOG, [], "all", True),
        "upserts without a key": partial(make_plan, UPSERT, [], "all", False),
        "upserts of a changelog without a key": partial(make_plan, CHANGELOG, [], "upsert", False),
    },
)


# --------------------------------------------------------------------------------------------------
# Another distribution's format that declares its messages is decoded together
CODE = """
from dataclasses import dataclass

import msgspec

from cdc_formats import Format, Ignored, RowKind
from cdc_formats.decoding.envelope import Envelope, Images
from cdc_formats.message_format import MetadataColumn


class Fields(msgspec.Struct):
    what: object = None
    shop: object = None
    at: object = None


@dataclass(frozen=True, kw_only=True)
class Declared(Format):
    identifier = "declared-json"
    shop_include: str | None = None
    metadata = {
        "shop": MetadataColumn("STRING", lambda message: message.shop),
        "at": MetadataColumn("BIGINT", lambda message: message.at),
    }
    table_identity = {"shop": "shop_include"}

    def envelope(self, rows, metadata=(), *, positions=False):
        kinds = {"add": RowKind.INSERT, "put": RowKind.UPDATE_AFTER, "drop": RowKind.DELETE, "ping": Ignored.HEARTBEAT}
        return Envelope(
            fields=Fields,
            operation=("what",),
            kinds=kinds,
            after="row",
            before="was",
            deleted="row",
            images=Images(missing_is_null=True),
            attributes={"shop": ("shop", None)},
        )


class Louder(Declared):
    identifier = "louder-json"
    metadata = {"shop": MetadataColumn("STRING", lambda message: message.shop.upper())}
"""
SCHEMA = "id INT, price DECIMAL(5,2)"
PUT = b'{"what":"put","shop":"a","at":1,"row":{"id":1,"price":"9.5"},"was":{"id":1,"price":"8"}}'
MESSAGES: list[tuple[bytes | None, int]] = [
    (b'{"what":"add","shop":"a","at":1,"row":{"id":1,"price":"8"}}', 0),
    (PUT, 0),
    (b'{"what":"put","shop":"a","at":1,"row":{"id":2},"was":{"id":1}}', 0),
    (b'{"what":"drop","shop":"a","row":{"id":2,"price":null}}', 0),
    (b'{"what":"add","shop":"a","at":"noon","row":{"id":3}}', 0),  # only its metadata is odd
    (b'{"what":"fly","shop":"a","row":{"id":1}}', 1),
    (b'{"what":7,"shop":"a","row":{"id":1}}', 1),
    (b'{"what":"add","shop":"a"}', 1),
    (b'{"what":"ping"}', 0),
    (b'{"what":"add","shop":"a","row":{"id":"one"}}', 1),
    (b"{", 1),
]
OTHER: Record = (None, b'{"what":"add","shop":"b","row":{"id":"of another shop"}}')
RECORDS: list[Record] = [(None, value) for value, _ in MESSAGES]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Install a distribution with two formats, and return their module."""
    monkeypatch.syspath_prepend(tmp_path)
    points = {"declared-json": "acme_declared:Declared", "louder-json": "acme_declared:Louder"}
    install(tmp_path, points, "acme-declared", {"acme_declared": CODE})
    return importlib.import_module("acme_declared")


def source(identifier: str, metadata: dict[str, str] | None = None, **options: Any) -> DecodePlan:
    return source_of(
        get_format(identifier, **options),
        SCHEMA,
        ["id"],
        metadata,
        control_events=frozenset(),
        on_truncate="ignore",
    )


def test_its_messages_are_decoded_together_with_the_rows_and_errors_of_each_alone(
    module: Any,
) -> None:
    plan = source("declared-json")
    assert odd_places(plan, RECORDS) == [
        place for place, (_, alone) in enumerate(MESSAGES) if alone
    ]
    for target in (Blocks, TypedRows):
        assert not differences(plan, RECORDS, target)
    assert any(outcome(plan, RECORDS, columnar=together).changes.values())


def test_its_messages_of_other_tables_are_counted_even_if_they_are_damaged(module: Any) -> None:
    plan, named = source("declared-json", shop_include="a"), RECORDS[:4]
    assert odd_places(plan, [*named, OTHER]) == []
    assert not differences(plan, [*named, OTHER])
    assert (
        outcome(plan, [*named, OTHER], columnar=together).changes
        == outcome(plan, named, columnar=together).changes
    )


def test_metadata_that_is_not_of_its_type_is_refused_by_both_decoders(module: Any) -> None:
    plan = source("declared-json", {"meta_at": "at"})
    sound = [record for record in RECORDS if b"noon" not in (record[1] or b"")]
    assert odd_places(plan, [*sound, RECORDS[4]])[-1] == len(sound)
    assert not [*differences(plan, sound), *differences(plan, RECORDS)]
    assert "Expected `int | null`, got `str`" in repr(
        outcome(plan, RECORDS, columnar=together).side_outputs
    )


def test_a_subclass_that_reads_metadata_differently_is_decoded_alone(module: Any) -> None:
    plan = source("louder-json", {"meta_shop": "shop"})
    assert ColumnarDecoder.of(plan) is None
    assert "'m0': 'A'" in repr(outcome(plan, RECORDS[:1], columnar=together).changes)


def test_a_declaration_that_the_generic_reader_cannot_follow_needs_a_reader(module: Any) -> None:
    class Wrapped(module.Declared):
        def envelope(self, rows, metadata=(), *, positions=False):
            return replace(super().envelope(rows), framing=Framing(block=("schema", "payload")))

    with pytest.raises(NotImplementedError, match=r"Wrapped needs read\(\) or reader\(\)"):
        Wrapped().decoder(SCHEMA)


def test_it_keeps_the_contract_of_formats(module: Any) -> None:
    check_format(
        "declared-json",
        vectors=[Vector(value=PUT, schema=SCHEMA, expected=["-U(1,8.00)", "+U(1,9.50)"])],
        rejects=[
            Reject(
                value=b'{"what":"fly"}', schema=SCHEMA, error="UnknownOperationError", path="$.what"
            ),
            Reject(value=b'{"what":"put"}', schema=SCHEMA, error="MissingFieldError", path="$.row"),
        ],
        mutations=50,
    )


# --------------------------------------------------------------------------------------------------
# Kafka's descriptions of topics, without a broker
def test_brokers_that_do_not_answer_take_a_part_of_the_time() -> None:
    times = iter([0.0, 2.0, 41.9, 42.0, 42.1])
    monitor = TopicMonitor(
        {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}, clock=lambda: next(times)
    )
    problems = []
    for _ in range(3):
        assert monitor() == {}
        problems.append(monitor.problem[:19])
        monitor.problem = ""
    assert problems == ["[KAFKA_UNAVAILABLE]", "", "[KAFKA_UNAVAILABLE]"]


# --------------------------------------------------------------------------------------------------
# What a worker keeps between the tasks of the decode pass: a plan that was compiled
Maxwell: Any = type(get_format("maxwell-json"))
readers: list[Any] = []


@dataclass(frozen=True, kw_only=True)
class Counting(Maxwell):
    identifier = "counting-json"

    def reader(self, rows, keyed=False):
        readers.append(rows)
        return super().reader(rows, keyed=keyed)


def plan_of(format: Any) -> DecodePlan:
    return source_of(format, "id INT", ["id"], mode="FAILFAST", control_events=frozenset())


def messages(table: str, *ids: Any) -> pa.RecordBatch:
    values = [
        {"database": "shop", "table": table, "type": "insert", "ts": 1, "data": {"id": each}}
        for each in ids
    ]
    return batch_of([(None, json.dumps(value).encode()) for value in values])


def run(plan: DecodePlan, *batches: pa.RecordBatch) -> list[Any]:
    received = pickle.loads(pickle.dumps(plan))
    rows = decode_pass(iter(batches), plan=received, collector=Blocks, report=lambda notices: None)
    return [row for batch in rows for row in batch.to_pylist()]


def test_a_worker_compiles_a_plan_once_and_a_plan_with_other_options_again():
    plan = plan_of(Counting())
    first = run(plan, messages("a", 1))
    compiled = len(readers)
    assert compiled
    assert run(plan, messages("a", 1)) == first
    assert len(readers) == compiled
    run(plan_of(Counting(error_excerpt=False)), messages("a", 1))
    assert len(readers) > compiled


@pytest.mark.parametrize("records", [1, 100], ids=["scalar", "columnar"])
def test_tables_of_another_task_are_not_those_of_a_task(records):
    plan = plan_of(get_format("maxwell-json"))
    a, b = (messages(table, *range(records)) for table in ("a", "b"))
    assert all(run(plan, each) for each in (a, b))
    with pytest.raises(ChangelogError, match="table"):
        run(plan, a, b)
    assert run(plan, b)
    # Two tasks of one plan at the same time: the driver decodes in threads.
    together = [
        decode_pass(iter([each] * 3), plan=plan, collector=Blocks, report=lambda notices: None)
        for each in (a, b)
    ]
    assert len(list(zip_longest(*together))) > 1


def test_a_task_that_failed_leaves_nothing():
    plan = plan_of(get_format("maxwell-json"))
    for _ in range(2):
        with pytest.raises(ChangelogError, match="INT"):
            run(plan, messages("a", "one"))
    assert run(plan, messages("b", 1))


def test_few_records_are_decoded_one_by_one():
    decoded = []

    class Decoder(ColumnarDecoder):
        def decode(self, records, kafka):
            decoded.append(len(records.values))
            return super().decode(records, kafka)

    plan = plan_of(get_format("maxwell-json"))
    for count in (1, 23, 24):
        passed = decode_pass(
            iter([messages("a", *range(count))]),
            plan=plan,
            collector=Blocks,
            report=lambda notices: None,
            columnar=Decoder.of,
        )
        assert list(passed)
    assert decoded == [24]
