"""Another distribution's format that declares its messages is decoded together."""

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cdc_formats import get_format
from cdc_formats.decoding.envelope import Framing
from cdc_formats.testing import Reject, Vector, check_format
from normalize.decode.collectors import Blocks, TypedRows
from normalize.decode.columnar import ColumnarDecoder
from normalize.decode.plan import DecodePlan
from tests.support.both_decoders import (
    Record,
    differences,
    odd_places,
    outcome,
    source_of,
    together,
)
from tests.support.distributions import install

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
    assert not differences(plan, sound)
    assert odd_places(plan, [*sound, RECORDS[4]])[-1] == len(sound)
    assert not differences(plan, RECORDS)
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
