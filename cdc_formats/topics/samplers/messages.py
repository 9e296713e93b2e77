"""Samples of the messages of all formats but Debezium's."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from itertools import chain
from typing import Any, ClassVar

from cdc_formats.avro.registry_client import RegistryOptions
from cdc_formats.decoding.other_messages import is_wrapped_row, other_message
from cdc_formats.errors import DecodeError, MalformedMessageError
from cdc_formats.events import Headers, Ignored
from cdc_formats.formats.canal import CanalFormat
from cdc_formats.formats.dms import USUAL_PREFIX, DmsJson, before_image_names
from cdc_formats.formats.op import OpJson
from cdc_formats.formats.sqlserver_ces import unwrapped
from cdc_formats.formats.upsert.upsert_kafka import UpsertKafka
from cdc_formats.topics.declared import DeclaredColumn
from cdc_formats.topics.inference.observed import DIGITS
from cdc_formats.topics.inference.source_types import STRING, canal_type, jdbc_type
from cdc_formats.topics.sampler import (
    FRAMED,
    FRAMED_JSON,
    JSON_BLOCK,
    JSON_NULL,
    JSON_OBJECT,
    JSON_PAYLOAD,
    JSON_VALUE,
    NULL,
    Declaration,
    Evidence,
    InspectedRecord,
    SampleCounts,
    Sampler,
    listed_names,
    value_at,
)
from cdc_formats.values.connect_schema import message_fields
from cdc_formats.values.json_reader import read_json
from cdc_formats.values.schema import Column, SqlType

from .debezium import REGISTRY_SCHEMA, json_columns, record_columns


class MaxwellSampler(Sampler):
    """The hooks of ``maxwell-json``."""

    marks = ("database", "table", "type", "ts", "data", "sql")
    operation_path = ("type",)
    not_asked = (DIGITS,)
    uses_kafka_key = True

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return the columns of ``{"pk.id": 1}`` or of ``["shop", "parts", [{"id": 1}]]``."""
        try:
            value = read_json(key) if key else None
        except MalformedMessageError:
            return {}  # producer_partition_by may write any text
        match value:
            case dict():
                return {name[3:]: part for name, part in value.items() if name.startswith("pk.")}
            case [_, _, [*columns]]:
                return {
                    name: part
                    for each in columns
                    if isinstance(each, dict)
                    for name, part in each.items()
                }
        return {}


# --------------------------------------------------------------------------------------------------
# Samples of GoldenGate's messages


class OggSampler(Sampler):
    """The hooks of ``ogg-json``."""

    marks = ("op_type", "before", "after", "table", "pos")
    operation_path = ("op_type",)


# --------------------------------------------------------------------------------------------------
# Samples of CockroachDB's messages


class CockroachdbSampler(Sampler):
    """The hooks of ``cockroachdb-json``."""

    marks = ("after", "updated", "resolved", "mvcc_timestamp", "topic")

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the columns of the row that alone have the values of the Kafka key."""
        fields, parts = message_fields(value), key and read_json(key)
        row: Any = fields if "__crdb__" in fields else fields.get("after")
        names = [
            # Python takes true for 1.
            [name for name, own in row.items() if own == part and type(own) is type(part)]
            for part in (parts if isinstance(parts, list) and isinstance(row, dict) else ())
        ]
        primary_key = tuple(each[0] for each in names if len(each) == 1)
        return Declaration(
            primary_key=primary_key if len(primary_key) == len(names) else (),
            key_source="the columns with the values of the Kafka key",
        )

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has only fields of a wrapped changefeed, or those of a bare one."""
        names = {*record.value.fields}
        return Evidence(is_wrapped_row(names) or names == {"resolved"} or "__crdb__" in names)


# --------------------------------------------------------------------------------------------------
# Samples of SQL Server's change event streaming

_SQL_SERVER_TYPES = {
    "bigint": "BIGINT",
    "bit": "BOOLEAN",
    "date": "DATE",
    "datetime": "TIMESTAMP_NTZ",
    "datetime2": "TIMESTAMP_NTZ",
    "datetimeoffset": "TIMESTAMP",
    "decimal": "DECIMAL",
    "float": "DOUBLE",
    "int": "INT",
    "numeric": "DECIMAL",
    "real": "FLOAT",
    "smalldatetime": "TIMESTAMP_NTZ",
    "smallint": "SMALLINT",
    "time": "TIME",
    "tinyint": "SMALLINT",
    **dict.fromkeys(("char", "nchar", "nvarchar", "uniqueidentifier", "varchar"), "STRING"),
    **dict.fromkeys(("binary", "varbinary"), "STRING"),
}
_SIZED = re.compile(r"([a-z0-9]+)(?:\(([0-9]+)(?:, ?([0-9]+))?\)|\(max\))?")


class SqlserverCesSampler(Sampler):
    """The hooks of ``sqlserver-ces-json``."""

    marks = ("specversion", "type", "operation", "logicalid", "data")
    operation_path = ("operation",)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the columns of ``cols``, and the primary key of ``pkkey``."""
        match read_json(unwrapped(value)):
            case {"data": {"eventsource": {"cols": [*columns], "pkkey": [*keys]}}}:
                declared = [
                    _declared(name, of, _sql_server_type(of))
                    for each in columns
                    if isinstance(name := value_at(each, ("name",)), str)
                    and isinstance(of := value_at(each, ("type",)), str)
                ]
                return Declaration(
                    "cols",
                    declared,
                    listed_names([value_at(each, ("columnname",)) for each in keys]),
                    "pkkey",
                )
        return Declaration()


def _sql_server_type(text: str) -> SqlType | None:
    match = _SIZED.fullmatch(text.lower())
    name = _SQL_SERVER_TYPES.get(match[1]) if match else None
    if match is None or name is None:
        return None
    sizes = [int(each) for each in match.groups()[1:] if each]
    return SqlType(
        name, *(sizes if name in ("DECIMAL", "TIMESTAMP_NTZ", "TIMESTAMP", "TIME") else ())
    )


# --------------------------------------------------------------------------------------------------
# Samples of changelog-json


class ChangelogSampler(Sampler):
    """The hooks of ``changelog-json``."""

    marks = ("data", "op")
    operation_path = ("op",)


# --------------------------------------------------------------------------------------------------
# Samples of AWS DMS's messages


class DmsSampler(Sampler):
    """The hooks of ``dms-json``."""

    format: DmsJson
    marks = ("data", "metadata", "control")
    operation_path = ("metadata", "operation")

    @classmethod
    def detected_options(
        cls, records: Sequence[InspectedRecord], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the documentation's prefix of before-images if a row has columns with it."""
        rows = [each.value.fields.get("data") for each in records]
        prefixed = any(before_image_names(row) for row in rows if isinstance(row, dict))
        return (
            {"before_image_prefix": USUAL_PREFIX}
            if prefixed and "before_image_field" not in options
            else {}
        )

    def inferred_options(self, sample: SampleCounts) -> Mapping[str, tuple[Any, str]]:
        """Return the documentation's prefix of before-images if rows have columns with it."""
        if self.format.before_image_prefix is not None or not sample.with_added:
            return {}
        reason = (
            f"{sample.with_added} of {sample.rows} rows have columns with this prefix, the "
            "before-image, next to those without it"
        )
        return {"before_image_prefix": (USUAL_PREFIX, reason)}


# --------------------------------------------------------------------------------------------------
# Samples of Canal's and TiCDC's messages


class CanalSampler(Sampler):
    """The hooks of ``canal-json``."""

    format: CanalFormat
    marks: ClassVar[tuple[str, ...]] = ("data", "old", "type", "isDdl", "database", "table", "es")
    operation_path = ("type",)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return columns of ``mysqlType``, else ``sqlType``, and the primary key of ``pkNames``."""
        declared = super().declaration(key, value)
        message, zoned = message_fields(value), self.format.time_zone is not None
        match message:
            case {"mysqlType": dict(types)}:
                columns = [
                    _declared(name, str(text), *canal_type(str(text), zoned=zoned))
                    for name, text in types.items()
                ]
                return declared._replace(source="mysqlType", columns=columns)
            case {"sqlType": dict(types)}:
                columns = [
                    _declared(name, f"java.sql.Types {number}", jdbc_type(number))
                    for name, number in types.items()
                    if isinstance(number, int)
                ]
                return declared._replace(source="sqlType", columns=columns)
        return declared


class TicdcSampler(CanalSampler):
    """The hooks of ``ticdc-canal-json``."""

    marks = ("_tidb", "data", "type", "isDdl", "database", "table")

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has ``_tidb``, or the id 0: Canal numbers its batches from 1."""
        fields = record.value.fields
        zero = fields.get("id") == 0
        return Evidence(
            "_tidb" in fields or (zero and "isDdl" in fields),
            ("{} have id 0, as TiCDC writes it",) if zero else (),
        )


class TicdcSimpleSampler(Sampler):
    """The hooks of ``ticdc-simple-json``."""

    marks = ("version", "type", "commitTs", "buildTs", "data", "database", "table")
    operation_path = ("type",)
    declaring = (Ignored.MESSAGE, Ignored.DDL)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the columns and the primary key of ``tableSchema``."""
        match read_json(value):
            case {"tableSchema": {"columns": [*columns], "indexes": [*indexes]}}:
                keys = [
                    each.get("columns")
                    for each in indexes
                    if isinstance(each, dict) and each.get("primary") is True
                ]
                declared = list(filter(None, map(_simple_column, columns)))
                names = listed_names(next(iter(keys), None))
                return Declaration("tableSchema", declared, names, "tableSchema")
        return Declaration()

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Refuse a value without the fields that all messages of the protocol have."""
        if {"version", "commitTs", "buildTs"} <= {*record.value.fields}:
            return Evidence(distinctive=True)
        return Evidence(refusal=DecodeError("`version`, `commitTs` or `buildTs` is missing"))


def _simple_column(column: Any) -> DeclaredColumn | None:
    """Return a column of ``tableSchema``; None if it has another form."""
    match column:
        case {"name": str(name), "dataType": {"mysqlType": str(kind), **more}}:
            digits = more.get("decimal", 0)
            sizes = {
                "decimal": f"({more.get('length')},{digits})",
                "bit": f"({more.get('length')})",
            }
            sizes |= dict.fromkeys(("datetime", "timestamp"), f"({digits})")
            unsigned = " unsigned" if more.get("unsigned") or more.get("zerofill") else ""
            text = f"{kind}{sizes.get(kind, '')}{unsigned}"
            # A vector is text, not Canal's bytes.
            of = (STRING, "") if kind == "vector" else canal_type(text, zoned=True)
            declared = _declared(name, text, *of)
            is_nullable = column.get("nullable") is not False
            return declared._replace(column=replace(declared.column, nullable=is_nullable))
    return None


def _declared(
    name: str, source_type: str, sql_type: SqlType | None, note: str = ""
) -> DeclaredColumn:
    return DeclaredColumn(Column(name, sql_type or SqlType("")), source_type, note)


# --------------------------------------------------------------------------------------------------
# Samples of rows in JSON with an operation: its field, its codes, and the fields with the rows.

_Path = tuple[str, ...]
_CODES = {
    word: kind
    for kind, words in (
        {
            "+I": "+i i c r ins insert inserted create created add added read refresh load snapshot",
            "-U": "-u b ub update_before update_preimage before_update",
            "+U": (
                "+u u ua upd update updated modify modified upsert update_after update_postimage "
                "after_update"
            ),
            "-D": "-d d del delete deleted remove removed",
        }
    ).items()
    for word in words.split()
}
"""The row kind of an operation in lower case, whose meaning is the same in all tools."""
_FIVETRAN, _SQL_SERVER = "_fivetran_deleted", "__$operation"
_OPERATIONS: tuple[str, ...] = (
    "op",
    "operation",
    "optype",
    "operationtype",
    "operationname",
    "cdcop",
    "cdcoperation",
    "changeoper",
    "headerchangeoper",
    "changetype",
    "dmltype",
    "rowkind",
)
"""Names of an operation, without case and separators."""
_OF_OBJECTS = ("type", "eventtype", "action", "kind")
"""Names of an operation only next to a field with the row: in a row they are ordinary columns."""
_ROWS = ("after", "data", "row", "new", "record", "values", "newrow")
_BEFORES = ("before", "beforedata", "beforeimage", "old", "olddata", "oldrow", "previous")


class OpSampler(Sampler):
    """The hooks of ``op-json``."""

    format: OpJson
    fallback = True

    @property
    def operation_path(self) -> _Path:  # type: ignore[override]
        """The path of `op_field`."""
        return tuple(self.format.op_field.split("."))

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the primary key of the Kafka key."""
        return Declaration(primary_key=tuple(self.key_columns(key)))

    @classmethod
    def detected_options(
        cls, records: Sequence[InspectedRecord], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return where the operation is, the codes in the sample, and the fields with the rows."""
        values = [each.value.fields for each in records if each.value.fields]
        op_field = options.get("op_field")
        paths = (
            [tuple(str(op_field).split("."))]
            if op_field
            else sorted(set(chain.from_iterable(map(_paths, values))), key=_order)
        )
        tried = (_field_options(path, values, is_given=bool(op_field)) for path in paths)
        return next(filter(None, tried), None) or _header_options(records)

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has an operation.

        Refuse messages of tools that no format reads.
        """
        if sentence := other_message(record.record.value):
            return Evidence(refusal=DecodeError(sentence))
        field, header = self.format.op_field, self.format.op_header
        operations = record.value.fields if header is None else dict(record.record.headers)
        path = self.operation_path if header is None else (header,)
        has_operation = value_at(operations, path) is not None
        where = field if header is None else f"the header {header}"
        described = f"values have an operation in {where}: {', '.join(self.format.codes)}"
        return Evidence(
            has_operation,
            ("{} of {} " + described.replace("{", "{{").replace("}", "}}"),)
            if has_operation
            else (),
        )


_OF_PRODUCERS: tuple[tuple[tuple[_Path, ...], Mapping[str, str]], ...] = (
    (
        (("record",), ("metadata", "commit_lsn"), ("metadata", "commit_idx")),
        {
            "before_field": "changes",
            "before_columns": "changed",
            "position_field": "metadata.commit_lsn",
            "position_index_field": "metadata.commit_idx",
        },
    ),
    (
        (("data",), ("meta", "scn"), ("meta", "seq"), ("meta", "op")),
        {
            "before_field": "key",
            "missing_columns": "unchanged",
            "position_field": "meta.scn",
            "position_index_field": "meta.seq",
        },
    ),
)
"""The fields of Sequin's and SharePlex's messages, and what else their options are."""


def _spelled(name: str) -> str:
    """Return a name without case and separators.

    A name with two underscores at its start is Debezium's.
    """
    return name if name.startswith("__") else name.lower().replace("_", "").replace("-", "")


def _field_options(
    path: _Path, values: Sequence[Mapping[str, Any]], *, is_given: bool
) -> dict[str, Any]:
    """Return the options of messages with the operation at a path; none if it is not there."""
    codes = _codes_at(path, values)
    # The row is next to the operation, or next to an object around it.
    rows = (_object(path[:depth], values, _ROWS, len(values) / 2) for depth in range(len(path)))
    row = next(filter(None, rows), ())
    if not (codes and (row or is_given or _is_flat(path, values))):
        return {}
    of_producers = (
        options
        for fields, options in _OF_PRODUCERS
        if all(value_at(each, at) is not None for each in values for at in fields)
    )
    return {
        "op_field": ".".join(path),
        "codes": codes,
        **_row_options(row, values, codes),
        **_position_option(path, values),
        **next(of_producers, {}),
    }


def _header_options(records: Sequence[InspectedRecord]) -> dict[str, Any]:
    """Return the options of messages with the operation in a Kafka header."""
    headers = [
        {name: (data or b"").decode(errors="replace") for name, data in each.record.headers}
        for each in records
        if each.value.fields
    ]
    names = sorted(name for name in set(chain(*headers)) if _spelled(name) in _OPERATIONS)
    tried = ({"op_header": name, "codes": _codes_at((name,), headers)} for name in names)
    return next((options for options in tried if options["codes"]), {})


def _paths(value: Mapping[str, Any], outer: _Path = ()) -> Iterator[_Path]:
    """Return the paths of fields with the name of an operation."""
    for name, member in value.items():
        if name in (_FIVETRAN, _SQL_SERVER) or _spelled(name) in (*_OPERATIONS, *_OF_OBJECTS):
            yield (*outer, name)
        elif (
            isinstance(member, dict)
            and len(outer) + 1 < 3
            and _spelled(name) not in (*_ROWS, *_BEFORES)
        ):
            yield from _paths(member, (*outer, name))


def _order(path: _Path) -> tuple[Any, ...]:
    name = _spelled(path[-1])
    return name in _OF_OBJECTS, len(path), (*_OPERATIONS, *_OF_OBJECTS, name).index(name), path


def _codes_at(path: _Path, values: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the codes at a path with their meanings.

    The result is empty unless nearly all values have a code whose meaning is known.
    """
    operations = [operation for value in values if (operation := value_at(value, path)) is not None]
    counts = Counter(
        str(each).lower() if isinstance(each, bool) else str(each)
        for each in operations
        if isinstance(each, (str, int))
    )
    meanings: Mapping[str, str] = {
        _FIVETRAN: {"true": "-D", "false": "+U"},
        _SQL_SERVER: {"1": "-D", "2": "+I", "3": "-U", "4": "+U"},
    }.get(path[-1], _CODES)
    codes = {code: meanings[code.lower()] for code in counts if code.lower() in meanings}
    return (
        dict(sorted(codes.items()))
        if sum(counts[code] for code in codes) >= 0.9 * len(values) > 0
        else {}
    )


def _is_flat(path: _Path, values: Sequence[Mapping[str, Any]]) -> bool:
    """Whether messages with an operation at a path can be rows themselves.

    They can if they have other values next to the operation.
    """
    if _spelled(path[-1]) in _OF_OBJECTS:
        return False
    return all(
        any(
            name != path[0] and not isinstance(member, (dict, list))
            for name, member in value.items()
        )
        for value in values
    )


def _object(
    outer: _Path, values: Sequence[Mapping[str, Any]], names: Sequence[str], least: float
) -> _Path:
    """Return the path of an object with one of some names; empty if there is none.

    At least the given number of values have the object.
    """
    around = [member for value in values if isinstance(member := value_at(value, outer), dict)]
    present = {name for name in chain.from_iterable(around) if _spelled(name) in names}
    for name in sorted(present, key=lambda name: (names.index(_spelled(name)), name)):
        objects = [member[name] for member in around if member.get(name) is not None]
        if len(objects) >= least and {dict}.issuperset(map(type, objects)):
            return (*outer, name)
    return ()


def _row_options(
    row: _Path, values: Sequence[Mapping[str, Any]], codes: Mapping[str, str]
) -> dict[str, str]:
    """Return the options of the row and of the row before an update."""
    options = {"row_field": ".".join(row)} if row else {}
    if "-U" in codes.values():
        return options
    if before := _object(row[:-1], values, _BEFORES, 1):
        return options | {"before_field": ".".join(before)}
    images = [image for value in values if isinstance(image := value_at(value, row), dict)]
    pairs = [(image, name) for image in images for name in image]
    prefix = next(
        (
            each
            for each in ("before_", "before.", "old_", "old.", "prev_", "previous_", "BI_")
            if any(f"{each}{name}" in image for image, name in pairs)
        ),
        "",
    )
    return options | ({"before_prefix": prefix} if prefix else {})


def _position_option(path: _Path, values: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Return the option of a position next to the operation."""
    names = {
        name
        for value in values
        for name in value_at(value, path[:-1]) or ()
        if _spelled(name) in ("changesequence",)
    }
    return {"position_field": ".".join((*path[:-1], *names))} if len(names) == 1 else {}


# --------------------------------------------------------------------------------------------------
# Samples of upsert-kafka: the formats of its key and value, and columns of registry schemas.

_REGISTRY = {option.name for option in fields(RegistryOptions)}
_URL = "avro_confluent_url"
_DEFAULTS = {option.name: option.default for option in fields(UpsertKafka)}
_KEY_FORMATS: dict[str | None, str] = {
    None: "json",
    JSON_OBJECT: "json",
    JSON_BLOCK: "json",
    JSON_PAYLOAD: "json",
    **dict.fromkeys(FRAMED_JSON, "json"),
    **dict.fromkeys(FRAMED, "avro-confluent"),
}


class UpsertKafkaSampler(Sampler):
    """The hooks of ``upsert-kafka``."""

    format: UpsertKafka
    plain_rows = True

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return registry schemas' columns of value and key, and the Kafka key's primary key."""
        format, primary_key = self.format, tuple(self.key_columns(key, headers))
        if format.value_format == "json" and getattr(format, _URL):
            declared = json_columns(format.registry, value, headers)
            return Declaration(REGISTRY_SCHEMA if declared else "", declared, primary_key)
        if format.value_format != "avro-confluent":
            return Declaration(primary_key=primary_key)
        columns = record_columns(format.registry, "value", value, headers)
        names = {each.column.name for each in columns}
        of_key: Sequence[DeclaredColumn] = ()
        if key and primary_key and format.key_format == "avro-confluent":
            prefix = format.key_fields_prefix
            of_key = [
                each._replace(column=replace(each.column, name=prefix + each.column.name))
                for each in record_columns(format.registry, "key", key, headers)
                if prefix + each.column.name not in names
            ]
        return Declaration(REGISTRY_SCHEMA, [*of_key, *columns], primary_key)

    def key_columns(self, key: bytes | None, headers: Headers = ()) -> Mapping[str, Any]:
        """Return the fields of a JSON or Avro key, with the prefix of the row's columns."""
        return self.format.key_columns(key, headers)

    def sample_notes(self, sample: SampleCounts) -> Iterable[str]:
        """Return a note on JSON's null, which can be a delete."""
        if sample.json_nulls and self.format.json_null == "fail":
            yield (
                f"{sample.json_nulls} values are JSON's null, which Debezium's "
                "ExtractNewRecordState writes for a delete: if they are deletes, set "
                "json_null='delete', or read the topic as debezium-flat-json"
            )

    @classmethod
    def detected_options(
        cls, records: Sequence[InspectedRecord], options: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return the formats of key and value; registry options without a prefix apply to both."""
        values = [each.value.encoding for each in records]
        key, value = _most(each.key.encoding for each in records), _most(values)
        numbers = [
            isinstance(each.key.value, (int, Decimal))
            for each in records
            if each.key.encoding == JSON_VALUE
        ]
        named = _REGISTRY.intersection(options) if {key, value} & {*FRAMED, *FRAMED_JSON} else ()
        detected = {
            **{f"avro_confluent_{name}": options[name] for name in named},
            "key_format": _KEY_FORMATS.get(key)
            or ("csv" if 2 * sum(numbers) > len(records) else "raw"),
            "value_format": "avro-confluent" if value in FRAMED else "json",
            "value_fields_include": "EXCEPT_KEY" if _are_apart(records) else "ALL",
            "json_null": "delete" if JSON_NULL in values else "fail",
        }
        return {name: option for name, option in detected.items() if option != _DEFAULTS[name]}

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Refuse a schema block and a null key."""
        if record.value.encoding in (JSON_BLOCK, JSON_PAYLOAD):
            return Evidence(
                refusal=DecodeError(
                    "a payload, with or without a schema block, would be a column of the row"
                )
            )
        return Evidence(
            refusal=DecodeError("the Kafka key is null", field="key")
            if record.key.encoding == NULL
            else None
        )


def _are_apart(records: Sequence[InspectedRecord]) -> bool:
    """Return whether no value has a column of its key."""
    both = [(each.key.fields, each.value.fields) for each in records]
    pairs = [(key, value) for key, value in both if key and value]
    return bool(pairs) and all(key.keys().isdisjoint(value) for key, value in pairs)


def _most(encodings: Iterable[str]) -> str | None:
    counted = Counter(each for each in encodings if each != NULL).most_common(1)
    return counted[0][0] if counted else None
