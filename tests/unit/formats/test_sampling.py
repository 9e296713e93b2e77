"""A format of another package with sampling hooks: detection, profile and inference use them.

They use these hooks as those of built-in formats.
"""

import json
import socket
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from cdc_formats import (
    Column,
    Event,
    Format,
    MetadataColumn,
    SqlType,
    read_object,
    register_format,
    registry,
)
from cdc_formats.errors import (
    ArgumentError,
    DecodeError,
    KafkaUnavailableError,
    MissingDependencyError,
    MissingFieldError,
    UnknownFormatError,
)
from cdc_formats.testing import Vector, check_format, check_sampling
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.kafka import sample_topic
from cdc_formats.topics.profile import TopicProfile, profile_records
from cdc_formats.topics.sampler import (
    Declaration,
    DeclaredColumn,
    Evidence,
    Sampler,
    sampler_class,
    sampler_of,
)
from normalize import from_kafka_changelog
from tests.support.error_texts import error_test

TYPES = {"int": SqlType("INT"), "money": SqlType("DECIMAL", 12, 2)}


class TillSampler(Sampler):
    """Names of types in the messages, and a key in a notation of its own."""

    marks = ("act", "of", "row", "types")
    operation_path = ("act",)

    def declaration(
        self, key: bytes | None, value: bytes, headers: Sequence[Any] = ()
    ) -> Declaration:
        types = read_object(value).get("types")
        columns = [
            DeclaredColumn(Column(name, TYPES.get(type_name, SqlType(""))), type_name)
            for name, type_name in dict(types or {}).items()
        ]
        return Declaration("types", columns, tuple(self.key_columns(key)), "the key's name")

    def key_columns(self, key: bytes | None, headers: Sequence[Any] = ()) -> Mapping[str, Any]:
        name, _, number = (key or b"").decode("utf-8", "replace").partition("=")
        return {name: int(number)} if number.isascii() and number.isdigit() else {}

    def column_notes(
        self,
        column: Column,
        values: Any,
        notes: Sequence[str],
        *,
        guessed: bool,
        connectors: Collection[str],
    ) -> Iterable[str]:
        return [
            *notes,
            *(["in cents"] if column.type == TYPES["money"] and connectors == {"till"} else []),
        ]

    def connector(self, message: Any) -> str | None:
        return "till"

    def inferred_options(self, sample: Any) -> Mapping[str, tuple[Any, str]]:
        return {"euro": (True, f"{sample.sources['types']} messages have types")}

    def sample_notes(self, sample: Any) -> Iterator[str]:
        yield f"{sample.rows} rows of a till"

    @classmethod
    def detected_options(
        cls, records: Sequence[Any], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        return {"euro": len(records) > 1}

    def evidence(self, record: Any) -> Evidence:
        refusal = (
            DecodeError("a message without types") if "types" not in record.value.fields else None
        )
        return Evidence(
            True, ("{} of {} have an act",) if "act" in record.value.fields else (), refusal
        )


@dataclass(frozen=True, kw_only=True)
class Till(Format):
    """A format of messages with the names of the columns' types.

    A message is ``{"act": "put", "of": "shop", "row": {...}, "types": {...}}``.
    """

    identifier = "till-json"
    sampler = f"{__name__}:TillSampler"
    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "shop": MetadataColumn("STRING", lambda message: message["of"])
    }
    table_identity: ClassVar[Mapping[str, str]] = {"shop": "only"}

    only: str | None = None
    euro: bool = False

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        message = read_object(value or b"")
        row = message.get("row")
        if "act" not in message or "of" not in message or not isinstance(row, dict):
            raise MissingFieldError("`act`, `of` or `row` is missing", "$")
        return [Event.insert(row, message, "$.row")]


@pytest.fixture(autouse=True)
def registered(own_registrations: None) -> None:
    register_format(Till)


def message(number: int, shop: str = "rome", **more: Any) -> bytes:
    row, types = {"id": number, "price": 9}, {"id": "int", "price": "money"}
    return json.dumps({"act": "put", "of": shop, "row": row, "types": types, **more}).encode()


def profile(*values: bytes, **options: Any) -> TopicProfile:
    return profile_records(
        [
            SampledRecord("t", 0, at, 0, b"id=%d" % (at + 1), value, ())
            for at, value in enumerate(values)
        ],
        **options,
    )


RECORDS = [(b"id=1", message(1)), (b"id=2", message(2))]


def test_declared_types_and_the_key_are_inferred() -> None:
    inferred = infer_schema(RECORDS, format="till-json")
    assert (inferred.ddl, inferred.primary_key) == ("id INT NOT NULL, price DECIMAL(12,2)", ("id",))
    assert inferred.primary_key_reason == "the key's name, in 2 records"
    assert [(each.certainty, each.source_type) for each in inferred.evidence] == [
        ("types", "int"),
        ("types", "money"),
    ]
    assert [each.notes for each in inferred.evidence] == [(), ("in cents",)]
    assert (inferred.option_reasons, inferred.notes) == (
        {"euro": "2 messages have types"},
        ("2 rows of a till",),
    )
    assert inferred.tables == ("rome",)


def test_a_type_that_the_format_does_not_know_is_inferred_from_values() -> None:
    inferred = infer_schema([(None, message(1, types={"price": "weight"}))], format="till-json")
    assert inferred.ddl == "price BIGINT, id BIGINT"


def test_a_profile_detects_the_format_with_its_evidence() -> None:
    result = profile(message(1), message(2))
    assert (result.format, result.reason) == (
        "till-json",
        "2 of 2 values have act, of, row and types, 2 of 2 have an act",
    )
    (table,) = result.tables
    assert (table.name, table.ddl, table.operations) == (
        "rome",
        "id INT NOT NULL, price DECIMAL(12,2)",
        {"put": 2},
    )
    assert (table.key_agrees, table.kafka_key) == (
        True,
        "yes: (id), equal to the row's in 2 events",
    )
    assert table.options == {"euro": True}
    assert 'format_options={"euro": True}' in result.call()


def test_options_are_detected_for_a_format_given_by_name() -> None:
    assert profile(message(1), message(2), format="till-json").tables[0].options == {"euro": True}
    assert profile(message(1), message(2), format="till-json", euro=False, only=None).tables[
        0
    ].schema.format_options == {"euro": True}


def test_the_filter_of_each_table_is_the_formats_own_option() -> None:
    result = profile(message(1), message(2, "oslo"), message(3, "os.lo"))
    assert {table.name: table.options["only"] for table in result.tables} == {
        "rome": "rome",
        "oslo": "oslo",
        "`os.lo`": r"os\.lo",
    }


def test_records_that_the_format_refuses_are_not_its_own() -> None:
    result = profile(json.dumps({"act": "put", "of": "rome", "row": {"id": 1}}).encode())
    candidate = next(each for each in result.candidates if each.identifier == "till-json")
    assert (candidate.read, candidate.refused, candidate.error) == (
        0,
        1,
        "[DECODE] a message without types - at the value",
    )


VECTOR = Vector(
    records=[(b"id=1", message(1)), (b"id=2", message(2))],
    schema="id INT, price INT",
    expected=["+I(1,9)", "+I(2,9)"],
    primary_key=["id"],
)


def test_the_contract_includes_the_hooks() -> None:
    check_format("till-json", [VECTOR], mutations=20)
    text = Vector(value=message(1, types="int"), schema="id INT, price INT", expected=["+I(1,9)"])
    with pytest.raises(
        AssertionError,
        match=r"till-json: a sample with .* raises ValueError, which is not a DecodeError",
    ):
        check_format("till-json", [text])


def fails(error: Exception) -> Any:
    def hook(self: Any, *arguments: Any, **more: Any) -> Any:
        raise error

    return hook


def requires_shop(self: Any, record: Any) -> Evidence:
    """Fail for a message that lacks only this field."""
    if "act" in record.value.fields and "of" not in record.value.fields:
        raise KeyError("of")
    return Evidence()


@pytest.mark.parametrize(
    ("members", "sentence"),
    [
        ({"declaration": fails(MissingFieldError("no types", "$"))}, "is refused by a hook: "),
        (
            {"key_columns": lambda self, key, headers=(): ["id"]},
            r"key_columns gives \['id'\], not a mapping",
        ),
        ({"evidence": lambda self, record: True}, "evidence gives True, not an Evidence"),
        ({"evidence": fails(KeyError("act"))}, "raises KeyError, which is not a DecodeError"),
        ({"evidence": requires_shop}, "raises KeyError, which is not a DecodeError: 'of'"),
        (
            {"detected_options": classmethod(lambda cls, records, options: {"dollar": 1})},
            "detected_options gives dollar, which are no",
        ),
    ],
)
def test_a_broken_hook_is_a_violation_of_the_contract(
    members: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, member in {"declaration": Sampler.declaration, **members}.items():
        monkeypatch.setattr(TillSampler, name, member)
    with pytest.raises(AssertionError, match=sentence):
        check_sampling(Till(), VECTOR)


@pytest.mark.parametrize(
    "path", [f"{__name__}:Missing", f"{__name__}:Till", "no_such_module_of_a_till:Sampler"]
)
def test_a_sampler_that_cannot_be_loaded_is_named_and_hides_no_other_format(path: str) -> None:
    register_format(type("Lost", (Till,), {"identifier": "lost-json", "sampler": path}))
    with pytest.raises(
        (UnknownFormatError, MissingDependencyError),
        match=f"the sampler of 'lost-json' .*{path.partition(':')[0]}",
    ):
        sampler_of(registry.get_format("lost-json"))
    result = profile(message(1), message(2))
    assert result.format == "till-json"
    assert "the sampler of 'lost-json'" in next(
        each.requirement for each in result.candidates if each.identifier == "lost-json"
    )


def test_a_format_without_a_sampler_has_the_defaults() -> None:
    assert sampler_class(type("Plain", (Format,), {"identifier": "plain-json"})) is Sampler


def test_decoding_loads_no_sampler() -> None:
    script = (
        "import sys, cdc_formats\nfor name in ('maxwell-json', 'debezium-json', "
        "'debezium-flat-json', 'upsert-kafka', 'canal-json'):\n    "
        "cdc_formats.get_format(name).decoder('id INT', unique_key=['id'])\nprint([name for name "
        "in sys.modules if name.startswith('cdc_formats.topics')])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True
        ).stdout.strip()
        == "[]"
    )


# --------------------------------------------------------------------------------------------------
# Impossible samples: an unreachable broker, invalid options, and sources without named topics
def test_an_unreachable_broker_is_an_error_without_secrets() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ada",
        "sasl.password": "lovelace",
    }
    with pytest.raises(KafkaUnavailableError, match="no Kafka broker answered") as caught:
        sample_topic(f"127.0.0.1:{port}", "orders", config=config, timeout_seconds=0.5)
    assert "lovelace" not in str(caught.value)


@pytest.mark.parametrize(
    "config",
    [{"no.such": "lovelace"}, {"security.protocol": "lovelace"}, {"enable.auto.commit": True}],
)
def test_an_invalid_option_is_named_without_its_value(config: dict) -> None:
    with pytest.raises(ArgumentError) as caught:
        sample_topic("localhost:1", "orders", config=config)
    (name,) = config
    assert name in str(caught.value)
    assert "lovelace" not in str(caught.value)


test_error_texts = error_test(
    __file__,
    {
        **{
            f"a source that cannot be sampled needs a schema, {number}": lambda more=more: (
                from_kafka_changelog(
                    None,
                    format="canal-json",
                    options={"kafka.bootstrap.servers": "localhost:1", **more},
                )
            )
            for number, more in enumerate(
                [
                    {"subscribePattern": "a.*"},
                    {"assign": "{"},
                    {
                        "subscribe": "a",
                        "kafka.sasl.mechanism": "GSSAPI",
                        "kafka.security.protocol": "SASL_SSL",
                    },
                ],
                1,
            )
        },
    },
)
