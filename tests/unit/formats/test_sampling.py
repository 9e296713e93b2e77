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
    get_format,
    read_object,
    register_format,
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
from cdc_formats.topics.declared import DeclaredColumn
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.kafka import sample_topic
from cdc_formats.topics.profile import TopicProfile, profile_records
from cdc_formats.topics.sampler import (
    Declaration,
    Evidence,
    Sampler,
    sampler_class,
    sampler_of,
)
from normalize import from_kafka_changelog
from tests.support.error_texts import error_test, text_test
from tests.support.samples import sample

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
    keyed = [(b"id=%d" % number, value) for number, value in enumerate(values, 1)]
    return profile_records(sample(*keyed), **options)


def profiled(*values: bytes, **options: Any) -> str:
    """Return what a profile says about the format, its tables and the call."""
    result = profile(*values, **options)
    (candidate,) = (each for each in result.candidates if each.identifier == "till-json")
    read = f"{candidate.read} read, {candidate.refused} refused: {candidate.error}"
    lines = [f"{result.format}: {result.reason}", read]
    for table in result.tables:
        lines.append(f"{table.name}: {table.ddl}, {table.operations}, {table.options}")
        lines.append(f"{table.key_agrees}, {table.kafka_key}, {table.schema.format_options}")
    return "\n".join([*lines, result.call()])


RECORDS = [(b"id=1", message(1)), (b"id=2", message(2))]


test_texts = text_test(
    __file__,
    {
        "declared types and the key": lambda: infer_schema(RECORDS, format="till-json"),
        "the evidence of declared types": lambda: infer_schema(
            RECORDS, format="till-json"
        ).to_dict(),
        "a type that the format does not know": lambda: infer_schema(
            [(None, message(1, types={"price": "weight"}))], format="till-json"
        ),
        "a detected format": lambda: profiled(message(1), message(2)),
        "a given format": lambda: profiled(message(1), message(2), format="till-json"),
        "given options": lambda: profiled(
            message(1), message(2), format="till-json", euro=False, only=None
        ),
        "the filter of each table": lambda: profiled(
            message(1), message(2, "oslo"), message(3, "os.lo")
        ),
        "a record that the sampler refuses": lambda: profiled(
            json.dumps({"act": "put", "of": "rome", "row": {"id": 1}}).encode()
        ),
        "a format without a sampler": lambda: sampler_class(
            type("Plain", (Format,), {"identifier": "plain-json"})
        ),
    },
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
        sampler_of(get_format("lost-json"))
    result = profile(message(1), message(2))
    assert result.format == "till-json"
    assert "the sampler of 'lost-json'" in next(
        each.requirement for each in result.candidates if each.identifier == "lost-json"
    )


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
