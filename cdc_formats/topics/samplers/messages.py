"""Samples of messages of Maxwell, GoldenGate, AWS DMS, Canal and TiCDC, and of changelog-json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from cdc_formats.decoding.metadata import unraw
from cdc_formats.decoding.other_messages import other_message
from cdc_formats.errors import DecodeError, MalformedMessageError
from cdc_formats.events import Headers
from cdc_formats.formats.canal import CanalFormat
from cdc_formats.formats.dms import USUAL_PREFIX, DmsJson, before_image_names
from cdc_formats.topics.encodings import listed_names
from cdc_formats.topics.inference.observed import DIGITS
from cdc_formats.topics.inference.source_types import canal_type, jdbc_type
from cdc_formats.topics.sampler import (
    Declaration,
    DeclaredColumn,
    Evidence,
    InspectedRecord,
    SampleCounts,
    Sampler,
)
from cdc_formats.values.connect_schema import message_fields
from cdc_formats.values.json_reader import read_json
from cdc_formats.values.schema import Column, SqlType


class MaxwellSampler(Sampler):
    """The hooks of ``maxwell-json``."""

    marks = ("database", "table", "type", "ts", "data", "sql")
    operation_path = ("type",)
    not_asked = (DIGITS,)

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the primary key of ``primary_key_columns``, or else of the Kafka key."""
        names = listed_names(message_fields(value).get("primary_key_columns"))
        return Declaration(
            primary_key=names or tuple(self.key_columns(key)),
            key_source="primary_key_columns, or the Kafka key",
        )

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return the columns of ``primary_key_columns``, or else of the Kafka key."""
        return listed_names(message.primary_key_columns) or tuple(self.key_columns(key))

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

    def declaration(self, key: bytes | None, value: bytes, headers: Headers = ()) -> Declaration:
        """Return the primary key of ``primary_keys``."""
        return Declaration(
            primary_key=listed_names(message_fields(value).get("primary_keys")),
            key_source="primary_keys",
        )

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return the columns of ``primary_keys``."""
        return listed_names(message.primary_keys)


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
        message = message_fields(value)
        source, columns = _declared_columns(message, zoned=self.format.time_zone is not None)
        return Declaration(source, columns, listed_names(message.get("pkNames")), "pkNames")

    def source_key(self, message: Any, key: bytes | None, headers: Headers = ()) -> tuple[str, ...]:
        """Return the columns of ``pkNames``."""
        return listed_names(unraw(message.pk_names))

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Refuse TiCDC's simple protocol, whose DDL looks like Canal's."""
        if "commitTs" in record.value.fields and (sentence := other_message(record.record.value)):
            return Evidence(refusal=DecodeError(sentence))
        return Evidence()


class TicdcSampler(CanalSampler):
    """The hooks of ``ticdc-canal-json``."""

    marks = ("_tidb", "data", "type", "isDdl", "database", "table")

    def evidence(self, record: InspectedRecord) -> Evidence:
        """Return whether the value has ``_tidb``, or the id 0: Canal numbers its batches from 1."""
        evidence, fields = super().evidence(record), record.value.fields
        if evidence.refusal is not None:
            return evidence
        zero = fields.get("id") == 0
        return Evidence(
            "_tidb" in fields or (zero and "isDdl" in fields),
            ("{} have id 0, as TiCDC writes it",) if zero else (),
        )


def _declared_columns(
    message: Mapping[str, Any], *, zoned: bool
) -> tuple[str, list[DeclaredColumn]]:
    mysql, jdbc = message.get("mysqlType"), message.get("sqlType")
    if isinstance(mysql, dict):
        return "mysqlType", [
            _declared(name, str(text), *canal_type(str(text), zoned=zoned))
            for name, text in mysql.items()
        ]
    if isinstance(jdbc, dict):
        numbers = {name: number for name, number in jdbc.items() if isinstance(number, int)}
        return "sqlType", [
            _declared(name, f"java.sql.Types {number}", jdbc_type(number))
            for name, number in numbers.items()
        ]
    return "", []


def _declared(
    name: str, source_type: str, sql_type: SqlType | None, note: str = ""
) -> DeclaredColumn:
    return DeclaredColumn(Column(name, sql_type or SqlType("")), source_type, note)
