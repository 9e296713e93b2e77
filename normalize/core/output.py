"""The last step of every plan: canonical values to the typed columns of the resulting DataFrame.

Its columns are ``row_kind``, the declared columns, the requested metadata, and the side outputs:
``_corrupt_record`` in PERMISSIVE mode, and ``_control_event`` if control events are requested. A
row of a side output is not a row of the table; its ``row_kind`` and other columns are NULL. Side
outputs pass every stage unchanged.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec
import pyarrow as pa

from cdc_formats.errors import DecodeError
from cdc_formats.events import SHORT_STRINGS, ControlEvent
from cdc_formats.values.schema import Column, columns as to_columns

from .arrow import arrow_type, of_stored, spark_ddl, to_arrow
from .records import KafkaRecord

Mode = Literal["FAILFAST", "DROPMALFORMED", "PERMISSIVE"]
"""What happens to a record that cannot be decoded, in the words of Spark's readers."""

ROW_KIND = "row_kind"
_SHORT_STRINGS = pa.array([SHORT_STRINGS[kind] for kind in range(4)])
CORRUPT_RECORD = "_corrupt_record"
CONTROL_EVENT = "_control_event"
SIDE_OUTPUTS: dict[str, Column] = {
    column.name: column
    for column in to_columns(
        f"{CORRUPT_RECORD} STRUCT<error: STRING, topic: STRING, partition: INT, offset: BIGINT, "
        f"key: BINARY, value: BINARY>, {CONTROL_EVENT} STRUCT<type: STRING, database: STRING, "
        "schema: STRING, table: STRING, statement: STRING, topic: STRING, partition: INT, offset: "
        "BIGINT, timestamp: TIMESTAMP, key: BINARY, value: BINARY>"
    )
}
"""The columns of side outputs."""


class SideOutput(NamedTuple):
    """A row of a side output, which is not a row of the table.

    Attributes
    ----------
    column : str
        The name of its column, of `SIDE_OUTPUTS`.
    value : list
        The column's canonical value.
    """

    column: str
    value: list[Any]


class Letter(NamedTuple):
    """A record that cannot be decoded, and its error."""

    error: DecodeError
    record: KafkaRecord


@dataclass(frozen=True)
class Destination:
    """The destination of dead letters; built on the driver, sent to the workers.

    Parameters
    ----------
    topic : str
    format : str
        The identifier of the format that cannot decode them.
    config : tuple of (str, value)
        The producer's configuration, with librdkafka's names.
    """

    topic: str
    format: str
    config: tuple[tuple[str, Any], ...] = field(repr=False)  # may contain a password


decode_side_outputs = msgspec.msgpack.Decoder(list[SideOutput]).decode
"""Decodes side outputs (`arrow.encode` of a list of them)."""


def corrupt(error: DecodeError, record: KafkaRecord) -> SideOutput:
    """Return the side output for an undecodable record: the error's text and the raw record."""
    return SideOutput(
        CORRUPT_RECORD, [whole_text(str(error)), *record.origin, record.key, record.value]
    )


def control(event: ControlEvent, record: KafkaRecord) -> SideOutput:
    """Return the side output for a control event."""
    origin = [
        *record.origin,
        None if record.timestamp is None else record.timestamp * 1000,
        record.key,
        record.value,
    ]
    about = [None if part is None else whole_text(str(part)) for part in event[1:]]
    return SideOutput(CONTROL_EVENT, [event.type.value, *about, *origin])


def whole_text(text: str) -> str:
    """Return text with lone surrogates escaped, which messages may have and UTF-8 cannot encode."""
    return text.encode(errors="backslashreplace").decode()


@dataclass(frozen=True)
class Output:
    """The columns of a changelog DataFrame.

    Parameters
    ----------
    columns, metadata, side_outputs : tuple of Column
        `side_outputs` are columns of `SIDE_OUTPUTS`.
    """

    columns: tuple[Column, ...]
    metadata: tuple[Column, ...] = ()
    side_outputs: tuple[Column, ...] = ()

    @property
    def all(self) -> tuple[Column, ...]:
        """All columns after ``row_kind``."""
        return (*self.columns, *self.metadata, *self.side_outputs)

    @property
    def ddl(self) -> str:
        """The DataFrame's schema."""
        return f"{ROW_KIND} STRING, {spark_ddl(self.all)}"

    @property
    def arrow_schema(self) -> pa.Schema:
        """The DataFrame's schema for Arrow."""
        return pa.schema(
            [
                (ROW_KIND, pa.string()),
                *((column.name, arrow_type(column.type)) for column in self.all),
            ]
        )

    def of_side_outputs(self, side_outputs: Sequence[SideOutput]) -> pa.RecordBatch:
        """Return side outputs as a typed batch."""
        nulls = [pa.nulls(len(side_outputs), field.type) for field in self.arrow_schema]
        arrays = nulls[: len(nulls) - len(self.side_outputs)]
        for column in self.side_outputs:
            values = [
                side_output.value if side_output.column == column.name else None
                for side_output in side_outputs
            ]
            arrays.append(to_arrow(column.type, values))
        return pa.RecordBatch.from_arrays(arrays, schema=self.arrow_schema)

    def of_stored(self, changelog: pa.RecordBatch) -> pa.RecordBatch:
        """Return the stage's changelog rows (`changes.Shape.changelog_schema`) as a typed batch."""
        kinds, *rows = changelog.columns
        typed = [
            of_stored(column.type, array)
            for column, array in zip((*self.columns, *self.metadata), rows, strict=True)
        ]
        side_outputs = [
            pa.nulls(changelog.num_rows, arrow_type(column.type)) for column in self.side_outputs
        ]
        return pa.RecordBatch.from_arrays(
            [_SHORT_STRINGS.take(kinds), *typed, *side_outputs], schema=self.arrow_schema
        )
