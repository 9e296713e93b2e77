"""Samples of Debezium's messages: the columns of schema blocks, the connector's options that follow from them, and notes on guesses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cdc_formats.errors import MalformedMessageError, SchemaError
from cdc_formats.sampling import DeclaredColumn
from cdc_formats.values.schema import Column

from .connect_schema import CONNECT, DEBEZIUM_TIME

if TYPE_CHECKING:
    from cdc_formats.topics.inference.observed import ColumnValues
    from cdc_formats.topics.inference.sample import TopicSample

SCHEMA_BLOCK = "schema block"
"""The source of columns that a schema block declares."""
_UNSIGNED = "bigint_unsigned_handling_mode"
_UNSIGNED_NOTE = (
    "it has negative numbers: if the source's column is an unsigned BIGINT, declare DECIMAL(20,0), and bigint_unsigned_handling_mode='long'"
)
_UNSIGNED_BASE64_NOTE = "if it is an unsigned BIGINT, declare DECIMAL(20,0), and bigint_unsigned_handling_mode='precise'"
_UNSIGNED_BASE64_LENGTH = 12
_EPOCH_NOTE = (
    "an integer; Debezium writes DATE, TIME and TIMESTAMP as integers too, and without a schema block its unit is not in the message: "
    "if it is one, declare it, and time_precision_mode"
)
_DIGITS_NOTE = "every value is digits: if it is a DECIMAL, declare it, and decimal_handling_mode='string'"
_BASE64_NOTE = (
    "every value is base64: if it is BINARY, declare it; if it is a DECIMAL, declare it, and decimal_handling_mode='precise' "
    "(its scale is not in the message)"
)


def has_block(message: Mapping[str, Any]) -> bool:
    """Whether a message has a schema block."""
    return isinstance(message.get("schema"), dict) and "payload" in message and "op" not in message


def block_columns(schema: Mapping[str, Any], connector: Any) -> list[DeclaredColumn]:
    """Return the columns of a schema block.

    Parameters
    ----------
    schema : mapping
    connector : Any
        The name of the connector, None if unknown; the types of MySQL's connector are named otherwise.

    Raises
    ------
    MalformedMessageError
        When it is not a Connect schema of a row.
    """
    from cdc_formats.topics.inference.source_types import connect_columns, row_schema  # decoding does not need the type mappings

    try:
        return connect_columns(row_schema(schema), str(connector or ""))
    except SchemaError as error:
        raise MalformedMessageError(str(error.args[0]), "$.schema") from None


def unsigned_option(sample: TopicSample) -> dict[str, tuple[Any, str]]:
    """Return the option for an unsigned BIGINT if a schema declares one as a signed number."""
    unsigned = any(_UNSIGNED in each.note for declared in sample.declared.values() for each in declared)
    return {_UNSIGNED: ("long", "the schema declares an unsigned BIGINT as a signed number")} if unsigned else {}


def block_options(sample: TopicSample) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Return the options that the schema blocks of a sample show, each with its value and the reason for it."""
    said = {each.source_type for declared in sample.declared.values() for each in declared}
    names = {text.partition(",")[0].rpartition(".")[2] for text in said}
    if sample.sources[SCHEMA_BLOCK] == sample.messages:
        yield "schema_include", (True, f"all {sample.messages} messages have a schema block")
    if any(text.startswith(CONNECT + "Decimal") for text in said):
        yield "decimal_handling_mode", ("precise", "the schema block has Connect's Decimal")
    if any(text.startswith(CONNECT + "Time") for text in said):
        yield "time_precision_mode", ("connect", "the schema block has Connect's Time or Timestamp")
    elif any(name.startswith("Iso") for name in names):
        yield "time_precision_mode", ("isostring", "the schema block has Debezium's Iso types")
    elif DEBEZIUM_TIME + "Time" in said:
        yield "time_precision_mode", ("adaptive", "the schema block has io.debezium.time.Time")


def may_be_unsigned(connectors: Collection[str]) -> bool:
    """Whether the source may have unsigned integers: MySQL, MariaDB, or unknown."""
    from cdc_formats.topics.inference.source_types import MYSQL_CONNECTORS

    return set(connectors) <= {"", *MYSQL_CONNECTORS}


def unsigned_notes(column: Column, values: ColumnValues) -> Iterator[str]:
    """Return the note on a signed number that may be an unsigned BIGINT."""
    if column.type.name == "BIGINT" and values.has_negative_integers:
        yield _UNSIGNED_NOTE


def guess_notes(column: Column, values: ColumnValues, notes: Sequence[str], *, unsigned: bool) -> Iterator[str]:
    """Return the notes on a guessed type, with the connector's options that it depends on.

    Parameters
    ----------
    column : Column
    values : ColumnValues
    notes : sequence of str
        Notes that name no option.
    unsigned : bool
        Whether the source may have unsigned integers.
    """
    from cdc_formats.topics.inference.observed import BASE64, DIGITS

    named = {DIGITS: _DIGITS_NOTE, BASE64: _BASE64_NOTE}
    for note in notes:
        yield named.get(note, note)
        if note == BASE64 and unsigned and (values.longest or 0) <= _UNSIGNED_BASE64_LENGTH:
            yield _UNSIGNED_BASE64_NOTE
    if column.type.name == "BIGINT":
        yield _EPOCH_NOTE
