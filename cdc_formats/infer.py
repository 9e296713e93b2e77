"""Inferring a table's columns, primary key and format options from a sample of its topic, with the evidence for each.

``infer_schema(records, format=...)`` takes what is said before what is seen. In this order:

1. a Connect schema block, or an Avro schema of a registry: types, NOT NULL, precision; the key's fields are the primary key
2. Canal's and TiCDC's ``mysqlType``, then ``sqlType``, and ``pkNames``
3. Maxwell's ``primary_key_columns`` or Kafka key, GoldenGate's ``primary_keys``, the fields of Debezium's and upsert-kafka's keys
4. the values (`observed` has the rules)

Values come from after-images: a before-image may hold fakes (PostgreSQL's default replica identity) or part of the row. Columns have
the order of the newest schema, else of the fullest row. A column is NOT NULL where a schema says so, or where it is of the primary
key. What a producer's configuration decides and the message does not say is not guessed: an epoch number stays BIGINT, base64 stays
STRING, and the evidence says how to declare it.

The schema is tried on the sample that it was made from; what does not decode with it is noted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

from .base import Event, Format, Headers, Ignored
from .errors import (
    ArgumentError,
    DecodeError,
    FormatOptionError,
    InferenceError,
    MalformedMessageError,
    MissingBeforeImageError,
    PartialImageError,
    SchemaError,
)
from .json_reader import read_json, read_object
from .observed import BASE64, DIGITS, Observed
from .registry import get_format
from .rows import RowConverter
from .schema import INTEGER_BITS, Column, SqlType, quote, to_ddl
from .source_types import MOST_DIGITS, STRING, Declared, connect_columns, jdbc_type, mysql_type, row_schema
from .upsert import UpsertKafka

if TYPE_CHECKING:
    from .infer_avro import AvroSample

Sample = Sequence[Any]
"""A record of a sample: its key, its value, and its headers where there are any."""

VALUES = "values"
_EPOCH_NOTE = (
    "an integer, as Debezium writes a DATE, TIME or TIMESTAMP too, and without a schema block its unit is not in the message: "
    "if it is one, declare it, and time_precision_mode"
)
_TEXT_NOTES = {
    DIGITS: "every value is digits: if it is a DECIMAL, declare it, and decimal_handling_mode='string'",
    BASE64: "every value is base64: if it is BINARY, declare it; if it is a DECIMAL, declare it, and decimal_handling_mode='precise' "
    "(its scale is not in the message)",
}
_NAMES = (
    ("source.database", "source.schema", "source.table"),
    ("source.database", "source.collection"),
    ("database", "schema", "table"),
)
_FILTERS = ("table_include", "database_include")


@dataclass(frozen=True)
class ColumnEvidence:
    """What is known of a column.

    Parameters
    ----------
    column : Column
        What was chosen.
    certainty : str
        Where the type is from: ``schema block``, ``schema registry``, ``mysqlType``, ``sqlType``, or ``values``: a guess.
    source_type : str
        The producer's name of the type; empty where it does not say.
    seen : mapping
        How many values of each JSON type there were, nulls among them.
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


@dataclass(frozen=True)
class InferredSchema:
    """What a sample says of its table.

    Parameters
    ----------
    format : str
        The format's identifier.
    evidence : tuple of ColumnEvidence
        In the order of the columns.
    primary_key : tuple of str
        Empty where nothing says it.
    primary_key_reason : str
    format_options : mapping
        The options that were given by name, and those that the sample tells.
    option_reasons : mapping
        Why, for those that the sample tells.
    tables : tuple of str
        The tables that the rows are of, as far as the format says.
    records, rows : int
        How many records the sample has, and how many after-images were looked at.
    ignored : mapping
        Records without rows, by reason.
    notes : tuple of str
    """

    format: str
    evidence: tuple[ColumnEvidence, ...]
    primary_key: tuple[str, ...]
    primary_key_reason: str
    format_options: Mapping[str, Any]
    option_reasons: Mapping[str, str]
    tables: tuple[str, ...]
    records: int
    rows: int
    ignored: Mapping[str, int]
    notes: tuple[str, ...] = ()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns."""
        return tuple(each.column for each in self.evidence)

    @property
    def ddl(self) -> str:
        """The columns as DDL text, for ``schema=``."""
        return to_ddl(self.columns)

    def to_dict(self) -> dict[str, Any]:
        """Return all of it as values that JSON has."""
        return {
            "format": self.format,
            "schema": self.ddl,
            "primary_key": list(self.primary_key),
            "primary_key_reason": self.primary_key_reason,
            "format_options": dict(self.format_options),
            "option_reasons": dict(self.option_reasons),
            "tables": list(self.tables),
            "records": self.records,
            "rows": self.rows,
            "ignored": dict(self.ignored),
            "columns": [
                {
                    "name": each.column.name,
                    "type": str(each.column.type),
                    "nullable": each.column.nullable,
                    "certainty": each.certainty,
                    "source_type": each.source_type,
                    "seen": dict(each.seen),
                    "lengths": None if each.lengths is None else list(each.lengths),
                    "examples": list(each.examples),
                    "notes": list(each.notes),
                }
                for each in self.evidence
            ],
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        of = f" of {', '.join(self.tables)}" if self.tables else ""
        key = f"({', '.join(map(quote, self.primary_key))})" if self.primary_key else "none"
        noted: dict[str, list[str]] = {}
        for each in self.evidence:
            for note in each.notes:
                noted.setdefault(note, []).append(each.column.name)
        return "\n".join(
            [
                f"{self.format}: {self.rows} rows{of} in {self.records} records",
                *(f"  {each}" for each in self.evidence),
                f"primary key {key}: {self.primary_key_reason}",
                *(f"{name}={self.format_options[name]!r}: {reason}" for name, reason in self.option_reasons.items()),
                *(f"note on {', '.join(map(quote, names))}: {note}" for note, names in noted.items()),
                *(f"note: {note}" for note in self.notes),
            ]
        )


def infer_schema(records: Iterable[Sample], *, format: str | Format, examples: int = 0, **options: Any) -> InferredSchema:
    """Infer the columns, the primary key and the format's options from a sample of a topic.

    Parameters
    ----------
    records : iterable of (key, value) or (key, value, headers)
        In the order of the topic, as far as there is one.
    format : str or Format
    examples : int
        How many values of each column the evidence shows; none by default, since they are data.
    **options
        The format's, where `format` is a name: ``table_include`` to choose a table, what is known of the producer.

    Raises
    ------
    InferenceError
        When the sample has no rows, or those of several tables.
    FormatOptionError, UnknownFormatError, ArgumentError

    Examples
    --------
    >>> value = b'{"type": "insert", "database": "shop", "table": "parts", "data": {"id": 1, "price": 9.50, "since": "2025-01-02"}}'
    >>> found = infer_schema([(b'{"database": "shop", "table": "parts", "pk.id": 1}', value)], format="maxwell-json")
    >>> found.ddl, found.primary_key
    ('id BIGINT NOT NULL, price DECIMAL(18,2), since DATE', ('id',))
    """
    if isinstance(format, Format) and options:
        raise ArgumentError(f"options go with a format's name; give them to the format itself: {type(format).__name__}(...)")
    chosen = format if isinstance(format, Format) else get_format(format, **options)
    kept = list(records)
    sample = _Sample(chosen, examples)
    for record in kept:
        sample.add(*record)
    sample.require_rows()
    key, reason = sample.primary_key()
    evidence = tuple(sample.evidence(key))
    told = {name: value for name, value in sample.told().items() if name not in options}
    inferred = InferredSchema(
        format=chosen.identifier,
        evidence=evidence,
        primary_key=key,
        primary_key_reason=reason,
        format_options={**options, **{name: value for name, (value, _) in told.items()}},
        option_reasons={name: why for name, (_, why) in told.items()},
        tables=tuple(sorted(".".join(table) for table in sample.tables)),
        records=len(kept),
        rows=sample.rows,
        ignored={ignored.value: count for ignored, count in sample.ignored.items()},
        notes=tuple(sample.notes()),
    )
    return replace(inferred, notes=(*inferred.notes, *_tried(chosen, inferred, kept)))


def _tried(format: Format, inferred: InferredSchema, records: Iterable[Sample]) -> Iterator[str]:
    """Decode the sample with the schema that was made of it."""
    told = {name: inferred.format_options[name] for name in inferred.option_reasons}
    try:
        decoder = replace(format, **told).decoder(inferred.columns, unique_key=inferred.primary_key)
    except (SchemaError, FormatOptionError) as error:
        yield str(error)
        return
    decode = decoder.upserts if inferred.primary_key else decoder.decode
    failed: list[DecodeError] = []
    for key, value, *headers in records:
        try:
            decode(key, value, *headers)
        except (MissingBeforeImageError, PartialImageError):
            continue  # what the producer left out is no matter of the schema
        except DecodeError as error:
            failed.append(error)
    if failed:
        yield f"{len(failed)} records of the sample do not decode with it, the first: {failed[0].without_data()}"


# ------------------------------------------------------------------------------------------------------------ the sample


class _Sample:
    """What the records of a sample say, as they are added."""

    def __init__(self, format: Format, examples: int) -> None:
        self.format, self.examples = format, examples
        self.avro = _avro_sample(format)
        self.read = _reader(format, self.avro)
        self.declares = _of_format(_DECLARES, format, lambda message, format: ("", []))
        self.keys_of = _of_format(_KEYS, format, lambda key, message, format: None)
        self.hidden = _hidden_prefixes(format)
        self.documents = _of_format({"debezium-mongodb-json": True}, format, False)
        self.observed: dict[str, Observed] = {}
        self.missing: Counter[str] = Counter()
        self.declared: dict[str, list[Declared]] = {}
        self.certainty: dict[str, str] = {}
        self.declarations = 0
        self.order: list[str] = []
        self.declared_order: list[str] = []
        self.tables: Counter[tuple[str, ...]] = Counter()
        self.keys: Counter[tuple[str, ...] | None] = Counter()
        self.ignored: Counter[Ignored] = Counter()
        self.refused: list[DecodeError] = []
        self.messages = self.blocks = self.rows = self.json_nulls = self.with_key = 0

    def add(self, key: bytes | None, value: bytes | None, headers: Headers = ()) -> None:
        """Add a record."""
        self.with_key += key is not None
        try:
            if not value and not self.format.reads_tombstones:
                self.ignored[Ignored.TOMBSTONE] += 1
                return
            self.json_nulls += value is not None and bytes(value) == b"null"
            with_headers = self.format.reads_headers or self.avro
            events = self.read(key, value, headers) if with_headers else self.read(key, value)
            if isinstance(events, Ignored):
                self.ignored[events] += 1
                return
            images = [(event, event.after) for event in events if event.after is not None]
            if value:
                self._add_message(key, value, headers)
            for event, image in images:
                self._add_row(image)
                if (table := _table(self.format, event.message)) is not None:
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
        self.declarations += 1
        self.declared_order = [each.column.name for each in declared]
        for each in declared:
            self.certainty[each.column.name] = certainty
            known = self.declared.setdefault(each.column.name, [])
            if each not in known:
                known.append(each)

    def _said(self, key: bytes | None, value: bytes, headers: Headers) -> tuple[str, tuple[str, ...] | None, list[Declared]]:
        """Return where a record says its columns, the names of its key, and its columns."""
        if self.avro:
            return "schema registry", self.avro.key_names(key, headers), self.avro.declared(value, headers)
        message = _object(value)
        certainty, declared = self.declares(message, self.format)
        return certainty, self.keys_of(key, message, self.format), declared

    def _add_row(self, image: Mapping[str, Any]) -> None:
        row = {name: value for name, value in image.items() if not self._is_hidden(name)}
        self.rows += 1
        for name, value in row.items():
            if name not in self.observed:
                self.observed[name] = Observed(self.format.handling.placeholder)
                self.missing[name] = self.rows - 1
            self.observed[name].add(_of_document(value) if self.documents else value, self.examples)
        for name in self.observed.keys() - row.keys():
            self.missing[name] += 1
        if len(row) >= len(self.order):
            self.order = list(row)

    def _is_hidden(self, name: str) -> bool:
        # Of a document, what an update sets of a part of a column has the path to it as its name.
        return name.startswith(self.hidden) or (self.documents and "." in name)

    def require_rows(self) -> None:
        """Refuse a sample that says nothing, or that is of several tables."""
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
        """Return the primary key, and why."""
        found = [names for names in self.keys if names]
        if not found:
            return (), "nothing in the sample says it: pass primary_key"
        if len(found) > 1:
            listed = " and ".join(f"({', '.join(names)})" for names in found)
            return (), f"it changes in the sample, {listed}: pass primary_key"
        names = self._spelled(found[0])
        unknown = [name for name in names if name not in self.observed and name not in self.declared]
        if unknown:
            return (), f"the key has {', '.join(unknown)}, which no row has: pass primary_key"
        return names, f"{_KEY_SOURCES.get(self.format.identifier, 'the fields of the Kafka key')}, in {self.keys[found[0]]} records"

    def _spelled(self, names: tuple[str, ...]) -> tuple[str, ...]:
        # Maxwell writes the names of a key in lower case.
        by_lower = {name.lower(): name for name in (*self.observed, *self.declared)}
        return tuple(name if name in self.observed else by_lower.get(name.lower(), name) for name in names)

    def evidence(self, key: Sequence[str]) -> Iterator[ColumnEvidence]:
        """Return what is known of each column, in their order."""
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
            # An ENUM or SET whose labels are written, and not their numbers.
            return Column(name, STRING), declared[-1].source_type, ["its values are text"]
        if sql_type == STRING and DIGITS in seen.notes():
            notes.append(DIGITS)
        said = ", then ".join(dict.fromkeys(each.source_type for each in declared))
        if len(set(types)) > 1:
            notes.append("its type changes in the sample: the wider one")
        return Column(name, sql_type, any(each.column.nullable for each in declared)), said, notes

    def _epochs(self) -> bool:
        """Whether the producer writes times as numbers and exact decimals as text, which a message does not tell."""
        return hasattr(self.format, "time_precision_mode")

    def _guess_notes(self, seen: Observed, sql_type: SqlType) -> Iterator[str]:
        for note in seen.notes():
            yield _TEXT_NOTES.get(note, note) if self._epochs() else note
        if self._epochs() and sql_type.name == "BIGINT":
            yield _EPOCH_NOTE

    def told(self) -> dict[str, tuple[Any, str]]:
        """Return the options that the sample tells, each with its reason."""
        told: dict[str, tuple[Any, str]] = {}
        if not self.with_key and getattr(self.format, "keyless", None) is False:
            told["keyless"] = (True, "no record has a Kafka key")
        unsigned = any("bigint_unsigned_handling_mode" in each.note for declared in self.declared.values() for each in declared)
        if unsigned and hasattr(self.format, "bigint_unsigned_handling_mode"):
            told["bigint_unsigned_handling_mode"] = ("long", "the schema has an unsigned BIGINT as a signed number")
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
        """Return what a user should know of the sample as a whole."""
        if self.refused:
            yield f"{len(self.refused)} records could not be read, the first: {self.refused[0].without_data()}"
        if len(self.tables) > 1:
            yield f"the filters take in {len(self.tables)} tables, which are read as one"
        if self.json_nulls and getattr(self.format, "json_null", None) == "fail":
            yield (
                f"{self.json_nulls} values are JSON's null, which Debezium's ExtractNewRecordState writes for a delete: "
                "if they are deletes, set json_null='delete', or read the topic as debezium-flat-json"
            )
        if "" in self.observed:
            yield "a column without a name cannot be declared, and is left out"


def _hidden_prefixes(format: Format) -> tuple[str, ...]:
    """Return what the fields begin with that stand beside the columns: a transformation's, and those of a before-image."""
    added = getattr(format, "add_fields_prefix", None)
    before = getattr(format, "before_image_prefix", None)
    return (*((added, "__deleted") if added else ()), *((before,) if before else ()))


def _of_document(value: Any) -> Any:
    """Return a value of MongoDB's Extended JSON as Python's: for what kind of value it is, not for what it says."""
    if isinstance(value, list):
        return [_of_document(item) for item in value]
    if isinstance(value, Decimal):
        return float(value)
    if not isinstance(value, dict):
        return value
    marks = {name: part for name, part in value.items() if name.startswith("$")}
    if not marks:
        return {name: _of_document(part) for name, part in value.items()}
    name, part = next(iter(marks.items()))
    return _BSON[name](part) if name in _BSON else str(value)


def _of_number(text: Any) -> Any:
    if not isinstance(text, str) or not re.fullmatch(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?", text):
        return str(text)  # NaN and Infinity too
    number = Decimal(text)
    # Without an exponent, which would tell a double.
    return Decimal(f"{number:f}") if number.adjusted() < MOST_DIGITS else float(number)


def _of_integer(text: Any) -> Any:
    return int(text) if isinstance(text, str) and re.fullmatch("[+-]?[0-9]{1,19}", text) else str(text)


_AN_INSTANT = datetime(2000, 1, 1)
_BSON: Mapping[str, Callable[[Any], Any]] = {
    "$oid": str,
    "$numberInt": _of_integer,
    "$numberLong": _of_integer,
    "$numberDouble": lambda _: 0.0,
    "$numberDecimal": _of_number,
    "$date": lambda _: _AN_INSTANT,
    "$timestamp": lambda _: _AN_INSTANT,
    "$binary": lambda _: b"",
    "$uuid": lambda _: b"",
    "$undefined": lambda _: None,
}


def _any_columns(format: Format) -> RowConverter:
    # A name that msgspec has no field for makes a reader read images as they stand, whatever their columns are.
    return RowConverter((Column('"', STRING),), format.handling)


def _object(value: bytes) -> dict[str, Any]:
    try:
        return read_object(value)
    except MalformedMessageError:
        return {}  # not a format of JSON objects, and so it declares nothing


def _table(format: Format, message: Any) -> tuple[str, ...] | None:
    """Return the names of the table that a message is about, as far as its metadata says."""
    for names in _NAMES:
        if names[-1] in format.metadata and message is not None:
            found = [format.metadata[name].read(message) for name in names if name in format.metadata]
            return tuple(str(name) for name in found if name is not None) or None
    return None


def _avro_sample(format: Format) -> AvroSample | None:
    """Return what reads records whose schemas are in a registry, None for other formats."""
    if isinstance(format, UpsertKafka):
        if format.value_format not in ("json", "avro-confluent"):
            raise InferenceError(f"value_format {format.value_format!r} has no names of columns to infer a schema from: pass schema")
        if format.value_format == "json":
            return None
    elif not hasattr(format, "registry"):
        return None
    from .infer_avro import AvroSample  # what it needs is not always installed

    return AvroSample(format, _any_columns(format))


def _reader(format: Format, avro: AvroSample | None) -> Callable[..., Any]:
    """Return a reader that needs no columns."""
    if avro is not None:
        return avro.read
    return _upsert_reader(format) if isinstance(format, UpsertKafka) else format.reader(_any_columns(format), keyed=True)


def _upsert_reader(format: UpsertKafka) -> Callable[..., Any]:
    def read(key: bytes | None, value: bytes | None) -> Any:
        if value is None or bytes(value) == b"null":
            return Ignored.TOMBSTONE
        fields = {format.key_fields_prefix + name: part for name, part in (_key_fields(key) or {}).items()}
        keyed = fields if format.key_format == "json" and format.value_fields_include == "EXCEPT_KEY" else {}
        return [Event.insert({**keyed, **read_object(value)}, path="$")]

    return read


# ------------------------------------------------------------------------------------------- what the producers declare


def widened(first: SqlType, second: SqlType) -> SqlType:
    """Return the type that takes the values of two: the larger integer, float or decimal, else STRING.

    Examples
    --------
    >>> str(widened(SqlType("DECIMAL", 10, 2), SqlType("DECIMAL", 8, 4)))
    'DECIMAL(12,4)'
    """
    names = (first.name, second.name)
    if first == second:
        return first
    if all(name in INTEGER_BITS for name in names):
        return max(first, second, key=lambda each: INTEGER_BITS[each.name])
    if set(names) == {"FLOAT", "DOUBLE"}:
        return SqlType("DOUBLE")
    if first.name == second.name and first.name in ("TIME", "TIMESTAMP", "TIMESTAMP_NTZ"):
        return replace(first, precision=max(first.precision or 6, second.precision or 6))
    if all(name == "DECIMAL" or name in INTEGER_BITS for name in names):
        sizes = [_digits(each) for each in (first, second)]
        scale = max(scale for _, scale in sizes)
        whole = max(whole for whole, _ in sizes)
        return SqlType("DECIMAL", whole + scale, scale) if whole + scale <= MOST_DIGITS else STRING
    if names == ("ARRAY", "ARRAY"):
        element = first.fields[0]
        return replace(first, fields=(replace(element, type=widened(element.type, second.fields[0].type)),))
    return STRING


def _digits(sql_type: SqlType) -> tuple[int, int]:
    if sql_type.name == "DECIMAL":
        return (sql_type.precision or 10) - (sql_type.scale or 0), sql_type.scale or 0
    return len(str(2 ** INTEGER_BITS[sql_type.name])), 0


def _of_format(table: Mapping[str, Any], format: Format, default: Any) -> Any:
    """Return the entry of a format, or of the one that it is derived from."""
    names = (getattr(cls, "identifier", "") for cls in type(format).__mro__)
    return next((table[name] for name in names if name in table), default)


def _connect_block(message: Mapping[str, Any], format: Format) -> tuple[str, list[Declared]]:
    schema, payload = message.get("schema"), message.get("payload")
    if not isinstance(schema, dict) or "payload" not in message or "op" in message:
        return "", []
    source = payload.get("source") if isinstance(payload, dict) else None
    connector = source.get("connector") if isinstance(source, dict) else None
    if isinstance(payload, dict) and connector is None:
        prefix = getattr(format, "add_fields_prefix", "__")
        connector = payload.get(f"{prefix}source_connector") or payload.get(f"{prefix}connector")
    try:
        return "schema block", connect_columns(row_schema(schema), str(connector or ""))
    except SchemaError as error:
        raise MalformedMessageError(str(error.args[0]), "$.schema") from None


def _canal_types(message: Mapping[str, Any], format: Format) -> tuple[str, list[Declared]]:
    mysql, jdbc = message.get("mysqlType"), message.get("sqlType")
    zoned = getattr(format, "time_zone", None) is not None
    if isinstance(mysql, dict):
        return "mysqlType", [_canal_column(name, str(text), *mysql_type(str(text), zoned=zoned)) for name, text in mysql.items()]
    if isinstance(jdbc, dict):
        numbers = {name: number for name, number in jdbc.items() if isinstance(number, int)}
        return "sqlType", [_canal_column(name, f"java.sql.Types {number}", jdbc_type(number), "") for name, number in numbers.items()]
    return "", []


def _canal_column(name: str, said: str, sql_type: SqlType | None, note: str) -> Declared:
    # Without a type its values have to tell it.
    return Declared(Column(name, sql_type or SqlType("")), said, note)


def _key_fields(key: bytes | None) -> dict[str, Any] | None:
    """Return the fields of a Kafka key, with or without a schema block."""
    if not key:
        return None
    try:
        value = read_json(key)
    except MalformedMessageError:
        return None
    if isinstance(value, dict) and set(value) == {"schema", "payload"}:
        value = value["payload"]
    return value if isinstance(value, dict) else None


def _connect_key(key: bytes | None, message: Any, format: Format) -> tuple[str, ...] | None:
    return tuple(_key_fields(key) or ()) or None


def _upsert_key(key: bytes | None, message: Any, format: Any) -> tuple[str, ...] | None:
    fields = _key_fields(key) if format.key_format == "json" else None
    return tuple(format.key_fields_prefix + name for name in fields or ()) or None


def _listed(name: str) -> Callable[[Any, Mapping[str, Any], Format], tuple[str, ...] | None]:
    def names(key: bytes | None, message: Mapping[str, Any], format: Format) -> tuple[str, ...] | None:
        found = message.get(name)
        return tuple(map(str, found)) or None if isinstance(found, list) else None

    return names


def _maxwell_key(key: bytes | None, message: Mapping[str, Any], format: Format) -> tuple[str, ...] | None:
    """Return ``primary_key_columns``, else the columns of the key: ``{"pk.id": 1}`` or ``["shop", "parts", [{"id": 1}]]``."""
    if (names := _listed("primary_key_columns")(key, message, format)) is not None:
        return names
    try:
        value = read_json(key) if key else None
    except MalformedMessageError:
        return None  # producer_partition_by may put any text there
    if isinstance(value, dict):
        return tuple(name[3:] for name in value if name.startswith("pk.")) or None
    if isinstance(value, list) and len(value) == 3 and isinstance(value[2], list):
        return tuple(name for part in value[2] if isinstance(part, dict) for name in part) or None
    return None


_DECLARES: Mapping[str, Callable[[Mapping[str, Any], Format], tuple[str, list[Declared]]]] = {
    "canal-json": _canal_types,
    "debezium-flat-json": _connect_block,
    "debezium-json": _connect_block,
    "ticdc-canal-json": _canal_types,
}
_KEYS: Mapping[str, Callable[[bytes | None, Mapping[str, Any], Format], tuple[str, ...] | None]] = {
    "canal-json": _listed("pkNames"),
    "debezium-flat-json": _connect_key,
    "debezium-json": _connect_key,
    "debezium-mongodb-json": lambda key, message, format: ("_id",),
    "maxwell-json": _maxwell_key,
    "ogg-json": _listed("primary_keys"),
    "ticdc-canal-json": _listed("pkNames"),
    "upsert-kafka": _upsert_key,
}
_KEY_SOURCES = {
    "canal-json": "pkNames",
    "debezium-mongodb-json": "of every collection",
    "maxwell-json": "primary_key_columns, or the Kafka key",
    "ogg-json": "primary_keys",
    "ticdc-canal-json": "pkNames",
}
