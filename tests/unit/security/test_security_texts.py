"""Hostile messages: no name or value can control a terminal or program that shows it."""

import ast
import json
import pickle
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as st

from cdc_formats import Event, Format, get_format, read_object
from cdc_formats.decoder import Decoder
from cdc_formats.errors import (
    ArgumentError,
    ChangelogError,
    DecodeError,
    EncodeError,
    FormatBugError,
    FormatOptionError,
    InferenceError,
    SchemaError,
    SchemaRegistryError,
    printable,
)
from cdc_formats.format import BUILT_IN
from cdc_formats.message_format import json_schema_of
from cdc_formats.topics.inference import infer_schema
from normalize import ChangelogNormalize, DeadLetter
from normalize.api import explain_changelog
from normalize.core.output import Destination
from normalize.kafka.infer_arguments import arguments_text
from tests.support.examples import examples
from tests.support.hostile import HOSTILE, MESSAGES, PIECE, SCHEMA
from tests.support.planted import ALL, PLANTED, REGISTRY, leaks


def spoiled(value: Any, piece: str, random: Random) -> Any:
    """The same value with a hostile piece added to, or replacing, some of its names and texts."""
    if isinstance(value, dict):
        return {
            spoiled(name, piece, random): spoiled(each, piece, random)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [spoiled(each, piece, random) for each in value]
    if random.random() > 0.15:
        return value
    return (value if isinstance(value, str) else "") + piece


def encoded(message: Any, raw: bool) -> bytes:
    """A message's bytes, with raw characters or with JSON escapes."""
    return json.dumps(message, ensure_ascii=not raw).encode("utf-8", "surrogatepass")


def decoders(identifier: str) -> list[Decoder]:
    name = "_id" if "mongodb" in identifier else "id"
    format = get_format(identifier)
    schema = SCHEMA.replace("id INT", f"{name} INT", 1)
    every = {"unique_key": [name], "metadata": sorted(format.metadata)}
    readers = [format.decoder(schema, **every, positions=not format.traits.positions)]
    if json_schema_of(type(format)) is not None:
        readers.append(get_format(identifier, validate=True).decoder(schema, **every))
    return readers


def errors_of(identifier: str, key: bytes | None, value: bytes) -> list[ChangelogError]:
    errors: list[ChangelogError] = []
    for decoder in DECODERS[identifier]:
        for decode in (decoder.decode, decoder.upserts):
            try:
                decode(key, value)
            except DecodeError as error:
                errors += [error, error.at(where="t[0]@1"), error.without_data()]
    try:
        infer_schema([(key, value)], format=FORMATS[identifier])
    except (InferenceError, SchemaError) as error:
        errors.append(error)
    return errors


FORMATS = {name: get_format(name) for name in MESSAGES}
DECODERS = {name: decoders(name) for name in MESSAGES}


def test_every_text_format_is_covered() -> None:
    assert sorted([*MESSAGES, "debezium-avro-confluent"]) == sorted(BUILT_IN)


@pytest.mark.parametrize("identifier", sorted(MESSAGES))
@settings(max_examples=examples(40))
@given(piece=PIECE, seed=st.integers(0, 10_000), raw=st.booleans())
@example(piece="\x1b[2J\x1b[31m", seed=1, raw=False)
@example(piece="\u202e", seed=1, raw=True)
def test_errors_have_no_control_characters(
    identifier: str, piece: str, seed: int, raw: bool
) -> None:
    random = Random(seed)
    for message in MESSAGES[identifier]:
        bad = spoiled(message, piece, random)
        for error in errors_of(
            identifier, encoded(spoiled({"id": 1}, piece, random), raw), encoded(bad, raw)
        ):
            for text in (str(error), f"{error}", repr(error)):
                assert printable(text) == text


@pytest.mark.parametrize(
    "cls",
    [ArgumentError, EncodeError, FormatBugError, InferenceError, SchemaError],
    ids=lambda cls: cls.__name__,
)
@pytest.mark.parametrize("piece", HOSTILE)
def test_errors_of_every_class_escape_names(cls: type[ChangelogError], piece: str) -> None:
    text = str(cls(f"column {piece} is wrong"))
    assert printable(text) == text
    assert text.startswith(f"[{cls.condition}] column ")


class PlainJson(Format):
    """A third-party format that reads objects without checks."""

    identifier = "plain-json"

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        return [Event.insert(read_object(value), path="$")]


def test_an_escaped_name_is_shown() -> None:
    with pytest.raises(DecodeError, match=r"it has id\\x1b\[2J"):
        PlainJson().decoder("id INT").decode(None, encoded({"id\x1b[2J": 1}, raw=False))


# --------------------------------------------------------------------------------------------------
# what is to be pasted

NAMES = [
    '"""+__import__("os").abort()+"""',
    "a\nb",
    'c"""\nimport os\n"""',
    "\\",
    "\x1b[2J",
    "\u202ename",
    "x`y",
    "# z",
    "'''",
    "plain",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("more", [[], ["two\nlines"]], ids=["one column", "two columns"])
def test_an_inferred_schema_can_be_pasted_and_runs_no_code(name: str, more: list[str]) -> None:
    row = {name: 1, **dict.fromkeys(more, "text")}
    inferred = infer_schema(
        [(None, json.dumps({"op": "+I", "data": row}).encode())], format="changelog-json"
    )
    text = arguments_text(inferred, ["orders"], {}, [name])
    assert [line for line in text.split("\n") if printable(line) != line] == []
    assert [line for line in str(inferred).split("\n") if printable(line) != line] == []
    pasted = text.partition("\n")[2].rpartition("\n")[0]
    arguments = {
        target.targets[0].id: ast.literal_eval(target.value) for target in ast.parse(pasted).body
    }  # type: ignore[attr-defined]
    assert arguments["primary_key"] == [name]
    assert {
        column.name for column in get_format("changelog-json").decoder(arguments["schema"]).columns
    } == {name, *more}


# --------------------------------------------------------------------------------------------------
# Secrets in the options of formats: no repr and no error contains them
UPSERT = {
    "value_format": "avro-confluent",
    **{f"avro_confluent_{name}": value for name, value in ALL.items()},
}


@pytest.mark.parametrize(
    ("identifier", "options"), [("debezium-avro-confluent", ALL), ("upsert-kafka", UPSERT)]
)
def test_formats_show_no_secret_and_keep_it(identifier: str, options: dict) -> None:
    format = get_format(identifier, **options)
    texts = [
        repr(format),
        str(format),
        repr({"of": [format]}),
        explain_changelog("orders", format=format, primary_key=["id"]),
    ]
    assert not leaks("".join(texts), list(PLANTED.values()))
    for secret in ("basic", "key", "proxy"):
        assert PLANTED[secret].encode() in pickle.dumps(format)  # the workers need it


def test_objects_that_carry_options_to_the_workers_show_no_secrets() -> None:
    letters = Destination("dead", "debezium-json", (("sasl.password", PLANTED["producer"]),))
    decoder = get_format("debezium-avro-confluent", **ALL).decoder("id INT")
    public = DeadLetter("dead", {"sasl.password": PLANTED["producer"]})
    shown = [letters, public, decoder, decoder.format, ChangelogNormalize(primary_key=["id"])]
    assert not leaks("".join(f"{each!r}{each}" for each in shown), list(PLANTED.values()))


@pytest.mark.parametrize(
    ("options", "error"),
    [
        pytest.param(REGISTRY, SchemaRegistryError, id="no answer"),
        pytest.param(ALL, FormatOptionError, id="no certificate for the key"),
        pytest.param(
            {**REGISTRY, "properties": {"no.such": PLANTED["proxy"]}},
            FormatOptionError,
            id="an unknown property",
        ),
        pytest.param(
            {**REGISTRY, "properties": {"timeout": PLANTED["proxy"]}},
            SchemaRegistryError,
            id="a property of another type",
        ),
    ],
)
def test_an_unreachable_registry_is_an_error_without_secrets(
    options: dict, error: type[Exception]
) -> None:
    decoder = get_format("debezium-avro-confluent", **options).decoder("id INT")
    with pytest.raises(error) as caught:
        decoder.decode(None, b"\0\0\0\0\1avro")
    assert not leaks(str(caught.value) + repr(caught.value), list(PLANTED.values()))
