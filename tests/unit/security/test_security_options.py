"""Secrets in the options of formats: no repr and no error contains them."""

import pickle

import pytest

from cdc_formats import get_format
from cdc_formats.errors import FormatOptionError, SchemaRegistryError
from normalize import ChangelogNormalize, DeadLetter
from normalize.api import explain_changelog
from normalize.core.output import Destination
from tests.support.planted import ALL, PLANTED, REGISTRY, leaks

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
