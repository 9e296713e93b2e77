"""Reads tests/vectors; tests/vectors/README.md describes the files of a scenario."""

import json
from base64 import b64decode
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cdc_formats import Column, RowKind, columns, get_format, list_formats
from cdc_formats.testing import KeyValue, Reject, Vector
from tests.support.avro import registered
from tests.support.paths import VECTORS


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line of a .jsonl file: an object is the message itself, text is its bytes, null is null."""

    key: msgspec.Raw = msgspec.Raw(b"null")
    value: msgspec.Raw = msgspec.Raw(b"null")
    key_base64: str | None = None
    value_base64: str | None = None
    schema: str = ""
    primary_key: list[str] = []
    options: dict[str, Any] = {}
    error: str = ""
    path: str = ""
    keyed: bool = False
    why: str = ""

    @property
    def record(self) -> KeyValue:
        return _bytes(self.key, self.key_base64), _bytes(self.value, self.value_base64)


def _bytes(raw: msgspec.Raw, base64: str | None) -> bytes | None:
    if base64 is not None:
        return b64decode(base64)
    text = bytes(
        raw
    )  # the original text, because parsing and writing would change a number's digits
    if text == b"null":
        return None
    return json.loads(text).encode("utf-8", "surrogatepass") if text.startswith(b'"') else text


def read_lines(path: Path) -> list[Line]:
    return [msgspec.json.decode(line, type=Line) for line in path.read_bytes().split(b"\n") if line]


def _changelog(path: Path) -> list[str]:
    return [line for line in path.read_text("utf-8").split("\n") if line]


@dataclass(frozen=True)
class Scenario:
    """A folder of vectors.

    Parameters
    ----------
    gaps : dict
        Identifier to the reason why the scenario has no file of that format; ``*`` means all
        others. `Case.gaps` are added.
    keyed : bool
        Whether the changelog is that of a keyed stage (`Decoder.upserts`).
    keyed_differs : dict
        Identifier to the reason why a keyed stage ends in another table than the changelog.
    """

    name: str
    columns: str
    primary_key: list[str]
    options: dict[str, dict[str, Any]] = field(default_factory=dict)
    gaps: dict[str, str] = field(default_factory=dict)
    keyed: bool = False
    keyed_differs: dict[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        return VECTORS / self.name

    @property
    def parsed(self) -> tuple[Column, ...]:
        return columns(self.columns)

    @property
    def identifiers(self) -> list[str]:
        return sorted(path.stem for path in self.folder.glob("*.jsonl"))

    def records(self, identifier: str) -> list[KeyValue]:
        return [line.record for line in read_lines(self.folder / f"{identifier}.jsonl")]

    def expected(self, identifier: str = "expected") -> list[str]:
        own = self.folder / f"{identifier}.changelog"
        return _changelog(own if own.exists() else self.folder / "expected.changelog")

    def vector(self, identifier: str) -> Vector:
        return Vector(
            records=self.records(identifier),
            schema=self.columns,
            expected=None
            if identifier in UPSERTS and not self.keyed
            else self.expected(identifier),
            primary_key=self.primary_key,
            options={**REQUIRED[identifier], **self.options.get(identifier, {})},
            keyed=self.keyed,
        )


def scenarios() -> list[Scenario]:
    stories = []
    for path in sorted(VECTORS.glob("*/schema.json")):
        story = Scenario(path.parent.name, **json.loads(path.read_text("utf-8")))
        for name, case in OF_FORMAT.items():
            reason = case.gaps.get(story.name)
            if reason is None and name not in story.identifiers and "*" not in story.gaps:
                reason = case.gaps.get("*")
            if reason is not None:
                story.gaps[name] = reason
        stories.append(story)
    return stories


def rejects(identifier: str) -> list[tuple[str, Reject]]:
    """Return the records that a format must refuse, each with its reason."""
    refused = []
    for line in read_lines(VECTORS / "reject" / f"{identifier}.jsonl"):
        key, value = line.record
        refused.append(
            (
                line.why,
                Reject(
                    key=key,
                    value=value,
                    schema=line.schema or "id INT",
                    error=line.error,
                    path=line.path,
                    primary_key=line.primary_key,
                    options={**REQUIRED[identifier], **line.options},
                    keyed=line.keyed,
                ),
            )
        )
    return refused


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the contract's tests need to know of a format: ``formats/<identifier>.json``.

    Parameters
    ----------
    errors : list
        The classes of errors that its rejects must cover.
    required : dict
        Its required options.
    key : str
        The name of its key column.
    base64_decimals : bool
        Whether its vectors have decimals in base64 without a scale; the column's scale applies.
    fuzzed : list
        Options, and a schema that differs from the usual one, of decoders for any bytes.
    around : str
        Its JSON message around a value of the column `id`; empty if its rows are not JSON.
    broken : list
        Messages of the table %s that it refuses, by the fault.
    together : float
        The least share of sound messages that are decoded as columns; 0: none are. It is less for a
        format of which some vectors are in schema blocks, for one whose deletes are read alone in
        a plan without a keyed stage, and for one of which some updates lack the document.
    native : bool
        Whether the native decoder knows it: each fact about messages is checked for it, too.
    messages : list
        Some of its messages, in which the tests of security replace texts.
    hidden : list
        Messages that it refuses, with %s in the place of a value that no error may show.
    gaps : dict
        By the name of a scenario without a file of the format, the reason; ``*``: of all others.
    """

    errors: list[str]
    required: dict[str, Any] = field(default_factory=dict)
    key: str = "id"
    base64_decimals: bool = False
    fuzzed: list[dict[str, Any]] = field(default_factory=list)
    around: str = ""
    broken: list[dict[str, str]] = field(default_factory=list)
    together: float = 0
    native: bool = False
    messages: list[Any] = field(default_factory=list)
    hidden: list[str] = field(default_factory=list)
    gaps: dict[str, str] = field(default_factory=dict)


OURS = list_formats()
OF_FORMAT = {
    name: Case(**json.loads((VECTORS / "formats" / f"{name}.json").read_text("utf-8")))
    for name in OURS
}
REQUIRED = {name: case.required for name, case in OF_FORMAT.items()}
FORMATS = {name: get_format(name, **REQUIRED[name]) for name in OURS}
"""Made once, because `get_format` searches all installed distributions."""
UPSERTS = [
    name for name in OURS if not FORMATS[name].changelog_mode.contains(RowKind.UPDATE_BEFORE)
]
"""Formats without -U; their changelogs are compared after normalising."""
SCENARIOS = scenarios()


for _number, _schema in enumerate(
    json.loads((VECTORS / "avro-schemas.json").read_text("utf-8")), 1
):
    assert registered("mock://vectors", _schema).schema_id == _number
CASES = [(scenario, name) for scenario in SCENARIOS for name in scenario.identifiers]
CASE_IDS = [f"{scenario.name}, {name}" for scenario, name in CASES]
