"""Control events of records without rows, from real producers and from unusual messages."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import ControlEvent, Ignored, get_format
from tests.support.examples import examples
from tests.support.scenarios import VECTORS, Line

FOLDER = VECTORS / "control-events"


class Expected(msgspec.Struct, forbid_unknown_fields=True):
    """The control event of a record."""

    type: str
    database: str | None
    schema: str | None
    table: str | None
    statement: str | None


class ControlLine(Line, forbid_unknown_fields=True, kw_only=True):
    """A line of a file of control events."""

    event: Expected


def lines(path: Path) -> list[ControlLine]:
    return [
        msgspec.json.decode(line, type=ControlLine)
        for line in path.read_bytes().split(b"\n")
        if line
    ]


CASES = [(path.stem, line) for path in sorted(FOLDER.glob("*.jsonl")) for line in lines(path)]


@pytest.mark.parametrize(
    ("identifier", "line"), CASES, ids=[f"{name}, {line.why}" for name, line in CASES]
)
def test_a_record_without_rows_is_a_control_event(identifier: str, line: ControlLine) -> None:
    format, (key, value) = get_format(identifier, **line.options), line.record
    reason = format.decoder("id INT").decode(key, value)
    assert reason is Ignored(line.event.type)
    expected = line.event
    assert format.control_event(key, value, reason) == ControlEvent(
        reason, expected.database, expected.schema, expected.table, expected.statement
    )


values = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.lists(st.text(max_size=3), max_size=2)
    | st.dictionaries(st.text(), st.none())
)
MEMBERS = (
    "database",
    "table",
    "sql",
    "type",
    "ddl",
    "databaseName",
    "schemaName",
    "source",
    "tableChanges",
    "message",
    "status",
    "id",
    "payload",
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
