"""A real registry: schemas registered, found, refused and evolved, written records read back."""

import pytest

from cdc_formats import Change, RowKind, get_format
from cdc_formats.avro.schema_registry import Registry, framed
from cdc_formats.errors import InferenceError, SchemaRegistryError, WriterSchemaError
from cdc_formats.topics.inference import infer_subject
from tests.support.servers.local_registry import LocalRegistry
from tests.support.servers.registry_front import RegistryFront

C, U, D = RowKind.INSERT, RowKind.UPDATE_AFTER, RowKind.DELETE


@pytest.mark.parametrize("user", ["", "user:password"])
def test_written_records_are_read_back(registry: LocalRegistry, user: str) -> None:
    with RegistryFront(registry.url, basic=user or None) as front:
        format = get_format(
            "debezium-avro-confluent",
            url=front.url,
            basic_auth_user_info=user or None,
            subject=f"rows{len(user)}-value",
            key_subject=f"rows{len(user)}-key",
        )
        ddl = "id INT NOT NULL, price DECIMAL(6,2), at TIMESTAMP(3)"
        encoder, decoder = (
            format.encoder(ddl, unique_key=["id"]),
            format.decoder(ddl, unique_key=["id"]),
        )
        old, new = (1, "2.50", 1_500_000), (1, None, None)
        records = [encoder.encode(C, old), encoder.encode(U, new, old), encoder.encode(D, new)]
        assert [
            [(change.kind, change.row) for change in decoder.decode(*record)] for record in records
        ] == [
            [(C, old)],
            [(RowKind.UPDATE_BEFORE, old), (U, new)],
            [(D, new)],
        ]
        assert all(key == records[0][0] for key, _ in records)
        # Two schemas are registered and one is looked up, each once.
        assert front.requests == 3


def test_a_schema_has_one_id_under_all_subjects(registry: LocalRegistry) -> None:
    client = Registry(url=registry.url).client
    schema = {"type": "record", "name": "One", "fields": [{"name": "x", "type": "int"}]}
    number = client.number("one-value", schema, register=True)
    assert client.number("one-value", schema, register=False) == number
    assert (
        Registry(url=registry.url, retry_seconds=1).client.number(
            "one-value", schema, register=True
        )
        == number
    )
    assert client.schema(number).fields(client.schema(number).top) == {"x": {"type": "int"}}
    with pytest.raises(SchemaRegistryError, match="does not have the schema under other-value"):
        client.number("other-value", schema, register=False)


def test_the_newest_schemas_of_a_topics_subjects_describe_its_table(
    registry: LocalRegistry,
) -> None:
    format = get_format("debezium-avro-confluent", url=registry.url).for_topic("said")
    format.encoder("id INT NOT NULL, price DECIMAL(6,2)", unique_key=["id"]).encode(C, (1, "2.50"))
    inferred = infer_subject("said-value", format=format)
    assert (inferred.ddl, inferred.primary_key) == ("id INT NOT NULL, price DECIMAL(6,2)", ("id",))
    with pytest.raises(InferenceError, match="has no subject 'unsaid-value'"):
        infer_subject("unsaid-value", format=format)


def test_a_schema_that_changes_is_read_by_the_id_of_each_record(registry: LocalRegistry) -> None:
    options = {
        "avro_confluent_url": registry.url,
        "value_avro_confluent_subject": "evolving-value",
        "value_format": "avro-confluent",
    }
    format = get_format("upsert-kafka", **options)
    first = format.encoder("id INT, a STRING", unique_key=["id"]).encode(U, (1, "x"))
    second = format.encoder("id INT, b INT, a STRING", unique_key=["id"]).encode(U, (1, 7, "y"))
    assert first[1][:5] != second[1][:5]
    decoder = format.decoder("id INT, a STRING, b INT", unique_key=["id"])
    assert [decoder.decode(*record) for record in (first, second)] == [
        [Change(U, (1, "x", None))],
        [Change(U, (1, "y", 7))],
    ]


def test_an_incompatible_schema_is_refused_with_the_registrys_reason(
    registry: LocalRegistry,
) -> None:
    client = Registry(url=registry.url).client
    client.confluent.set_compatibility("strict-value", "BACKWARD")
    client.number("strict-value", {"type": "record", "name": "S", "fields": []}, register=True)
    with pytest.raises(
        SchemaRegistryError, match="answers 409 to registering a schema under strict-value"
    ):
        client.number(
            "strict-value",
            {"type": "record", "name": "S", "fields": [{"name": "x", "type": "int"}]},
            register=True,
        )


def test_an_unknown_id_is_a_record_error(registry: LocalRegistry) -> None:
    decoder = get_format("debezium-avro-confluent", url=registry.url).decoder("id INT")
    with pytest.raises(WriterSchemaError, match="has no schema 999999"):
        decoder.decode(None, framed(999_999, b"x"))
    wrong = get_format("debezium-avro-confluent", url=f"{registry.url}/wrong").decoder("id INT")
    with pytest.raises(SchemaRegistryError, match="Check the url"):
        wrong.decode(None, framed(1, b"x"))
