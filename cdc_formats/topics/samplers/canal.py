"""Samples of Canal's and TiCDC's messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from cdc_formats.decoding.metadata import unraw
from cdc_formats.decoding.other_messages import other_message
from cdc_formats.decoding.wrappers import message_fields
from cdc_formats.errors import DecodeError
from cdc_formats.events import Headers
from cdc_formats.formats.canal import CanalFormat
from cdc_formats.topics.declarations import listed_names
from cdc_formats.topics.inference.source_types import jdbc_type, mysql_type
from cdc_formats.topics.sampler import (
    Declaration,
    DeclaredColumn,
    Evidence,
    InspectedRecord,
    Sampler,
)
from cdc_formats.values.schema import Column, SqlType


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
            _declared(name, str(text), *mysql_type(str(text), zoned=zoned))
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
