"""Collects a sample's records: the values seen in each column, and the producer's declarations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

from ..base import Format, Headers, Ignored
from ..debezium_mongodb_json import DebeziumMongodbJson
from ..errors import DecodeError, InferenceError, MalformedMessageError
from ..json_reader import read_object
from ..schema import INTEGER_BITS, Column, SqlType
from .messages import KEY_SOURCES, connector_of, declared_columns, key_names
from .observed import BASE64, DIGITS, Observed, of_document
from .reading import AnyColumns
from .source_types import MYSQL_CONNECTORS, STRING, Declared, widened

VALUES = "values"
_DECIMAL_NOTE = (
    "a number with a fraction, and a value with more digits than this type is an error: declare the source's DECIMAL(p,s), or DOUBLE"
)
_DOUBLE_NOTE = "a number with a fraction: if the source's column is a DECIMAL, declare it, since a DOUBLE holds 15 digits"
_UNSIGNED_NOTE = (
    "it has negative numbers: if the source's column is an unsigned BIGINT, declare DECIMAL(20,0), and bigint_unsigned_handling_mode='long'"
)
_UNSIGNED_BASE64_NOTE = "if it is an unsigned BIGINT, declare DECIMAL(20,0), and bigint_unsigned_handling_mode='precise'"
_UNSIGNED_BASE64_LENGTH = 12
_EPOCH_NOTE = (
    "an integer; Debezium writes DATE, TIME and TIMESTAMP as integers too, and without a schema block its unit is not in the message: "
    "if it is one, declare it, and time_precision_mode"
)
_TEXT_NOTES = {
    DIGITS: "every value is digits: if it is a DECIMAL, declare it, and decimal_handling_mode='string'",
    BASE64: "every value is base64: if it is BINARY, declare it; if it is a DECIMAL, declare it, and decimal_handling_mode='precise' "
    "(its scale is not in the message)",
}
_FILTERS = ("table_include", "database_include")


@dataclass(frozen=True)
class ColumnEvidence:
    """A column, and the evidence for its type.

    Parameters
    ----------
    column : Column
        The chosen name, type and nullability.
    certainty : str
        The type's source: ``schema block``, ``schema registry``, ``mysqlType``, ``sqlType``, or ``values`` (a guess).
    source_type : str
        The producer's name of the type; empty if unknown.
    seen : mapping
        The number of values of each JSON type, including nulls.
    lengths : tuple of int or None
        The shortest and the longest text.
    examples : tuple of str
    notes : tuple of str
    """

    column: Column
    certainty: str
    source_type: str = ""
    seen: Mapping[str, int] = field(default_factory=dict)
    lengths: tuple[int, int] | None = None
    examples: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        seen = ", ".join(f"{count} {kind}" for kind, count in self.seen.items())
        lengths = f" of {self.lengths[0]} to {self.lengths[1]} characters" if self.lengths else ""
        said = f"{self.certainty}: {self.source_type}" if self.source_type else f"guessed from {self.certainty}"
        shown = f"; for example {', '.join(self.examples)}" if self.examples else ""
        return f"{self.column}: {said}; {seen or 'no value'}{lengths}{shown}"


class TopicSample:
    """Collects the evidence of a sample, record by record."""

    def __init__(self, format: Format, examples: int) -> None:
        self.format, self.examples = format, examples
        self.reader = AnyColumns(format)
        self.avro = self.reader.avro
        self.hidden = _hidden_prefixes(format)
        self.documents = isinstance(format, DebeziumMongodbJson)
        self.observed: dict[str, Observed] = {}
        self.missing: Counter[str] = Counter()
        self.declared: dict[str, list[Declared]] = {}
        self.certainty: dict[str, str] = {}
        self.order: list[str] = []
        self.declared_order: list[str] = []
        self.tables: Counter[tuple[str, ...]] = Counter()
        self.keys: Counter[tuple[str, ...] | None] = Counter()
        self.ignored: Counter[Ignored] = Counter()
        self.refused: list[DecodeError] = []
        self.connectors: set[str] = set()
        self.messages = self.blocks = self.rows = self.json_nulls = self.with_key = 0

    def add(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Add a record."""
        self.with_key += key is not None
        try:
            self.json_nulls += value is not None and bytes(value) == b"null"
            events = self.reader.events(key, value, headers)
            if isinstance(events, Ignored):
                self.ignored[events] += 1
                return
            images = [(event, event.after) for event in events if event.after is not None]
            if value:
                self._add_message(key, value, headers)
            for event, image in images:
                self._add_row(image)
                self.connectors.add(str(connector_of(event.message) or ""))
                if (table := self.reader.table(event.message)) is not None:
                    self.tables[table] += 1
        except (DecodeError, RecursionError) as error:
            self.refused.append(error if isinstance(error, DecodeError) else MalformedMessageError("nested too deeply"))

    def _add_message(self, key: bytes | None, value: bytes, headers: Headers) -> None:
        self.messages += 1
        certainty, names, declared = self._said(key, value, headers)
        self.keys[names] += 1
        self.blocks += certainty == "schema block"
        declared = [each for each in declared if not self._is_hidden(each.column.name)]
        if not declared:
            return
        self.declared_order = [each.column.name for each in declared]
        for each in declared:
            self.certainty[each.column.name] = certainty
            known = self.declared.setdefault(each.column.name, [])
            if each not in known:
                known.append(each)

    def _said(self, key: bytes | None, value: bytes, headers: Headers) -> tuple[str, tuple[str, ...] | None, list[Declared]]:
        """Return the source of a record's column declarations, its key columns, and its columns."""
        if self.avro:
            return "schema registry", self.avro.key_names(key, headers), self.avro.declared(value, headers)
        message = _object(value)
        certainty, declared = declared_columns(message, self.format)
        return certainty, key_names(key, message, self.format), declared

    def _add_row(self, image: Mapping[str, Any]) -> None:
        row = {name: value for name, value in image.items() if not self._is_hidden(name)}
        self.rows += 1
        for name, value in row.items():
            if name not in self.observed:
                self.observed[name] = Observed(self.format.handling.placeholder)
                self.missing[name] = self.rows - 1
            self.observed[name].add(of_document(value) if self.documents else value, self.examples)
        for name in self.observed.keys() - row.keys():
            self.missing[name] += 1
        if len(row) >= len(self.order):
            self.order = list(row)

    def _is_hidden(self, name: str) -> bool:
        # A MongoDB update of part of a column uses the path to that part as the name.
        return name.startswith(self.hidden) or (self.documents and "." in name)

    def require_rows(self) -> None:
        """Raise an error when the sample has no rows, or rows of several tables."""
        format = self.format.identifier
        if not self.rows:
            ignored = ", ".join(f"{count} {reason.value}" for reason, count in self.ignored.items()) or "none"
            refused = f"; {len(self.refused)} could not be read, the first: {self.refused[0].without_data()}" if self.refused else ""
            raise InferenceError(
                f"the sample has no row of {format} to infer a schema from (ignored: {ignored}{refused}): "
                "take a larger sample, check the format and its filters, or pass schema"
            )
        filters = [name for name in _FILTERS if hasattr(self.format, name)]
        if len(self.tables) > 1 and all(getattr(self.format, name) is None for name in filters):
            listed = ", ".join(f"{'.'.join(table)} ({count} rows)" for table, count in self.tables.most_common(20))
            more = f" and {len(self.tables) - 20} more" if len(self.tables) > 20 else ""
            choose = f"choose one with {filters[0]}, a regular expression" if filters else "pass schema"
            raise InferenceError(f"the topic has several tables: {listed}{more}; {choose}")

    def primary_key(self) -> tuple[tuple[str, ...], str]:
        """Return the primary key and the reason for it."""
        found = [names for names in self.keys if names]
        if not found:
            return (), "the sample does not name one: pass primary_key"
        if len(found) > 1:
            listed = " and ".join(f"({', '.join(names)})" for names in found)
            return (), f"it changes in the sample, {listed}: pass primary_key"
        names = self._spelled(found[0])
        unknown = [name for name in names if name not in self.observed and name not in self.declared]
        if unknown:
            return (), f"the key has {', '.join(unknown)}, which no row has: pass primary_key"
        return names, f"{KEY_SOURCES.get(self.format.identifier, 'the fields of the Kafka key')}, in {self.keys[found[0]]} records"

    def _spelled(self, names: tuple[str, ...]) -> tuple[str, ...]:
        # Maxwell writes the names of a key in lower case.
        by_lower = {name.lower(): name for name in (*self.observed, *self.declared)}
        return tuple(name if name in self.observed else by_lower.get(name.lower(), name) for name in names)

    def evidence(self, key: Sequence[str]) -> Iterator[ColumnEvidence]:
        """Return the evidence for each column, in the columns' order."""
        order = dict.fromkeys([*self.declared_order, *self.order, *self.observed, *self.declared])
        for name in order:
            if name:
                yield self._of_column(name, name in key)

    def _of_column(self, name: str, of_key: bool) -> ColumnEvidence:
        seen, declared = self.observed.get(name, Observed()), self.declared.get(name, [])
        missing = self.missing[name] if name in self.observed else self.rows
        column, said, notes = self._declared(name, seen, declared)
        if column is None:
            column = Column(name, seen.type(exact_numbers=not self._epochs()))
            notes = [*notes, *self._guess_notes(seen, column.type)]
        if self._may_be_unsigned() and column.type.name == "BIGINT" and seen.has_negative_integers:
            notes = [*notes, _UNSIGNED_NOTE]
        if missing:
            notes = [*notes, f"not in {missing} of {self.rows} rows"]
        column = replace(column, nullable=not of_key and (column.nullable or missing > 0))
        return ColumnEvidence(
            column=column,
            certainty=self.certainty[name] if said else VALUES,
            source_type=said,
            seen=dict(sorted(seen.kinds.items(), key=lambda pair: (pair[0] == "null", -pair[1]))),
            lengths=None if seen.shortest is None or seen.longest is None else (seen.shortest, seen.longest),
            examples=tuple(seen.examples),
            notes=tuple(dict.fromkeys(notes)),
        )

    def _declared(self, name: str, seen: Observed, declared: Sequence[Declared]) -> tuple[Column | None, str, list[str]]:
        """Return the column as its producer declares it, the producer's name of its type, and notes."""
        notes = [each.note for each in declared if each.note]
        types = [each.column.type for each in declared]
        if types and all(each == SqlType("DECIMAL") for each in types):
            types = [digits for digits in [seen.digits()] if digits is not None]
        if not types or any(each in (SqlType(""), SqlType("DECIMAL")) for each in types):
            return None, "", notes
        sql_type = reduce(widened, types)
        if sql_type.name in INTEGER_BITS and seen.kinds["string"] and seen.type() == STRING and DIGITS not in seen.notes():
            # An ENUM or SET that is written as labels instead of numbers.
            return Column(name, STRING), declared[-1].source_type, ["its values are text"]
        if sql_type == STRING and DIGITS in seen.notes():
            notes.append(DIGITS)
        said = ", then ".join(dict.fromkeys(each.source_type for each in declared))
        if len(set(types)) > 1:
            notes.append("its type changes in the sample: the wider one is used")
        return Column(name, sql_type, any(each.column.nullable for each in declared)), said, notes

    def _epochs(self) -> bool:
        """Whether the producer may write times as numbers and exact decimals as text; messages do not show it."""
        return hasattr(self.format, "time_precision_mode")

    def _may_be_unsigned(self) -> bool:
        """Whether the source may have unsigned integers (MySQL, MariaDB or unknown), and the format has an option for them."""
        return hasattr(self.format, "bigint_unsigned_handling_mode") and self.connectors <= {"", *MYSQL_CONNECTORS}

    def _guess_notes(self, seen: Observed, sql_type: SqlType) -> Iterator[str]:
        for note in seen.notes():
            yield _TEXT_NOTES.get(note, note) if self._epochs() else note
            if note == BASE64 and self._may_be_unsigned() and (seen.longest or 0) <= _UNSIGNED_BASE64_LENGTH:
                yield _UNSIGNED_BASE64_NOTE
        if self._epochs() and sql_type.name == "BIGINT":
            yield _EPOCH_NOTE
        types = set(_leaves(sql_type))
        if any(each.name == "DECIMAL" and each.scale for each in types):
            yield _DECIMAL_NOTE
        elif self._epochs() and SqlType("DOUBLE") in types:
            yield _DOUBLE_NOTE

    def told(self) -> dict[str, tuple[Any, str]]:
        """Return the format options inferred from the sample, each with its reason."""
        told: dict[str, tuple[Any, str]] = {}
        if not self.with_key and getattr(self.format, "keyless", None) is False:
            told["keyless"] = (True, "no record has a Kafka key")
        unsigned = any("bigint_unsigned_handling_mode" in each.note for declared in self.declared.values() for each in declared)
        if unsigned and hasattr(self.format, "bigint_unsigned_handling_mode"):
            told["bigint_unsigned_handling_mode"] = ("long", "the schema declares an unsigned BIGINT as a signed number")
        if not self.blocks:
            return told
        said = {each.source_type for declared in self.declared.values() for each in declared}
        names = {text.partition(",")[0].rpartition(".")[2] for text in said}
        if self.blocks == self.messages:
            told["schema_include"] = (True, f"all {self.messages} messages have a schema block")
        if any(text.startswith("org.apache.kafka.connect.data.Decimal") for text in said):
            told["decimal_handling_mode"] = ("precise", "the schema block has Connect's Decimal")
        if any(text.startswith("org.apache.kafka.connect.data.Time") for text in said):
            told["time_precision_mode"] = ("connect", "the schema block has Connect's Time or Timestamp")
        elif any(name.startswith("Iso") for name in names):
            told["time_precision_mode"] = ("isostring", "the schema block has Debezium's Iso types")
        elif "io.debezium.time.Time" in said:
            told["time_precision_mode"] = ("adaptive", "the schema block has io.debezium.time.Time")
        return told

    def notes(self) -> Iterator[str]:
        """Return notes for the user on the whole sample."""
        if self.refused:
            yield f"{len(self.refused)} records could not be read, the first: {self.refused[0].without_data()}"
        if len(self.tables) > 1:
            yield f"the filters select {len(self.tables)} tables, which are read as one"
        if self.json_nulls and getattr(self.format, "json_null", None) == "fail":
            yield (
                f"{self.json_nulls} values are JSON's null, which Debezium's ExtractNewRecordState writes for a delete: "
                "if they are deletes, set json_null='delete', or read the topic as debezium-flat-json"
            )
        if "" in self.observed:
            yield "a column without a name cannot be declared and is left out"


def _leaves(sql_type: SqlType) -> Iterator[SqlType]:
    if not sql_type.fields:
        yield sql_type
    for part in sql_type.fields:
        yield from _leaves(part.type)


def _hidden_prefixes(format: Format) -> tuple[str, ...]:
    """Return the prefixes of fields that are not columns: a transformation's added fields and before-image fields."""
    added = getattr(format, "add_fields_prefix", None)
    before = getattr(format, "before_image_prefix", None)
    return (*((added, "__deleted") if added else ()), *((before,) if before else ()))


def _object(value: bytes) -> dict[str, Any]:
    try:
        return read_object(value)
    except MalformedMessageError:
        return {}  # the format does not write JSON objects, so the value declares nothing
