"""Control events of records without rows, from real producers and from unusual messages."""

from functools import partial
from itertools import product
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import Format, Ignored, get_format
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.error_texts import text_test
from tests.support.examples import examples
from tests.support.json_bytes import json_bytes
from tests.support.samples import sample
from tests.support.scenarios import FORMATS, VECTORS, Line

pytestmark = pytest.mark.usefixtures("no_other_formats")


class ControlLine(Line, forbid_unknown_fields=True, kw_only=True):
    """A line of a file of control events."""

    event: dict[str, str | None]


CASES = [
    (path.stem, msgspec.json.decode(line, type=ControlLine))
    for path in sorted((VECTORS / "control-events").glob("*.jsonl"))
    for line in path.read_bytes().splitlines()
]


@pytest.mark.parametrize(
    ("identifier", "line"), CASES, ids=[f"{name}, {line.why}" for name, line in CASES]
)
def test_a_record_without_rows_is_a_control_event(identifier: str, line: ControlLine) -> None:
    format, reason = get_format(identifier, **line.options), Ignored(line.event["type"])
    assert format.decoder("id INT").decode(*line.record) is reason
    event = format.control_event(*line.record, reason)
    assert event._asdict() == {**line.event, "type": reason}


values = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(), st.none())
)
MEMBERS = (
    *("database", "table", "sql", "type", "ddl", "databaseName", "schemaName", "source"),
    *("tableChanges", "message", "status", "id", "payload"),
)


@pytest.mark.parametrize(
    "identifier", ["debezium-json", "canal-json", "maxwell-json", "ogg-json", "changelog-json"]
)
@settings(max_examples=examples(60), deadline=None, derandomize=True)
@given(
    message=st.dictionaries(st.sampled_from(MEMBERS), values), reason=st.sampled_from(list(Ignored))
)
def test_unusual_details_are_no_errors(
    identifier: str, message: dict[str, Any], reason: Ignored
) -> None:
    event = get_format(identifier).control_event(None, msgspec.json.encode(message), reason)
    assert event.type is reason
    assert all(part is None or (isinstance(part, str) and part) for part in event[1:])


# --------------------------------------------------------------------------------------------------
# Metadata columns, and messages and keys in a schemaless wrapper, ``{"payload": ...}``
ROW = {"id": 1, "name": "bolt"}
SOURCE = {"connector": "TiCDC", "db": "shop", "table": "parts", "commit_ts": 447984084414103554}
INSERT = {"source": SOURCE, "op": "c", "before": None, "after": ROW}


def metadata_of(format: Format) -> list[tuple[str, str]]:
    return [(name, str(column.type)) for name, column in format.metadata.items()]


def wrapped(identifier: str, message: Any) -> str:
    """Return what a topic of payloads is found to be."""
    records = list(
        product([json_bytes({"payload": {"id": 1}})], [json_bytes({"payload": message})] * 3)
    )
    profile = profile_records(sample(*records))
    inferred = infer_schema(records, format=identifier)
    return f"{profile.format} {profile.tables[0].primary_key}\n{inferred}"


def names_of(**key: Any) -> object:
    decoder = get_format("upsert-kafka").decoder("id INT, name STRING", unique_key=["id"])
    return decoder.compare_names(json_bytes(key), b'{"name":"bolt"}')


test_texts = text_test(
    __file__,
    {
        **{f"metadata of {name}": partial(metadata_of, format) for name, format in FORMATS.items()},
        "a topic of payloads of debezium-json": partial(wrapped, "debezium-json", INSERT),
        "a topic of payloads of debezium-flat-json": partial(wrapped, "debezium-flat-json", ROW),
        "the names of a key": partial(names_of, id=1),
        "the names of a key in a payload": partial(names_of, payload={"id": 1}),
        "the names of a key in a schema block": partial(
            names_of, payload={"id": 1}, schema={"type": "struct", "fields": []}
        ),
    },
)
