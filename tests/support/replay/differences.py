"""Differences of topics from the truth that producers cause, each described and recognised exactly.

A difference explains a cell (or a surplus or missing row) only if its value is exactly what the
producer writes for the truth. Any other difference is a failure, and so is a listed difference that
no longer occurs.
"""

import base64
import json
import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from tests.support.replay.replaying import Final, Place, Recorded, as_text

ROW_TOO_MANY = "a row too many"
ROW_MISSING = "a row missing"
CORRUPT = "a record that cannot be decoded"


@dataclass(frozen=True)
class Evidence:
    """The input of a difference: the recording, and the records that could not be decoded."""

    records: Mapping[Place, Recorded]
    corrupt: Mapping[Place, str]
    primary_key: tuple[str, ...]

    @cached_property
    def messages(self) -> dict[Place, dict[str, Any]]:
        """The values of all records that have one, read as JSON."""
        return {
            place: json.loads(record.value)
            for place, record in self.records.items()
            if record.value
        }

    @cached_property
    def bootstrapped(self) -> set[str]:
        """The rows written by Maxwell's bootstraps, as text."""
        return {
            as_text(message["data"])
            for message in self.messages.values()
            if message["type"] == "bootstrap-insert"
        }


class Mismatch(NamedTuple):
    """A difference between the result and the truth.

    Attributes
    ----------
    what : str
        A column's name, or `ROW_TOO_MANY`, `ROW_MISSING`, `CORRUPT`.
    actual, truth : Any
        The two values in the truth's encoding; for a missing row, `truth` is the row.
    row : Final or None
        The row of the result, if it exists.
    record : Recorded or None
        The last record of that row, or the corrupt record.
    """

    what: str
    actual: Any = None
    truth: Any = None
    row: Final | None = None
    record: Recorded | None = None


Explains = Callable[[Mismatch, Evidence], bool]


@dataclass(frozen=True)
class Difference:
    """A difference caused by the producer.

    Parameters
    ----------
    what : tuple of str
        Columns, or `ROW_TOO_MANY`, `ROW_MISSING`, `CORRUPT`.
    reason : str
    explains : callable
        Whether this difference explains a mismatch.
    times : int or None
        The number of occurrences, if known.
    """

    what: tuple[str, ...]
    reason: str
    explains: Explains
    times: int | None = None


def written_as(reason: str, spelling: Callable[[Any], Any], *columns: str) -> Difference:
    """Return the difference of columns that producers write as `spelling` of the truth's value."""
    return Difference(
        columns,
        reason,
        lambda mismatch, _: (
            mismatch.truth is not None and mismatch.actual == spelling(mismatch.truth)
        ),
    )


def _value_of(mismatch: Mismatch) -> bytes:
    return (mismatch.record.value if mismatch.record else None) or b""


# --------------------------------------------------------------------------------------------------
# ALTER TABLE


def _has(mismatch: Mismatch, column: str, schemas: tuple[int, ...]) -> bool:
    """Whether the record has a column: by its name in JSON, by the id of its schema in Avro."""
    value = _value_of(mismatch)
    return (
        int.from_bytes(value[1:5], "big") in schemas if schemas else f'"{column}"'.encode() in value
    )


def added_later(column: str, default: str, schemas: tuple[int, ...] = ()) -> Difference:
    """Return the difference of a column added with a default: rows not written since lack it."""

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        return (
            mismatch.actual is None
            and mismatch.truth == default
            and not _has(mismatch, column, schemas)
        )

    return Difference(
        (column,), f"ADD COLUMN {column} DEFAULT: no event for the existing rows", explains
    )


def renamed_later(column: str, before: str) -> Difference:
    """Return the difference of a renamed column: rows not written since have its old name."""

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        return mismatch.actual is None and mismatch.truth == mismatch.row.row[before]

    return Difference(
        (column,), f"RENAME COLUMN {before}: no event for the existing rows", explains
    )


def default_for_null(column: str, default: str, schemas: tuple[int, ...] = ()) -> Difference:
    """Return a nullable column's difference: Connect's converters write its default for NULL."""

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        return (
            mismatch.truth is None
            and mismatch.actual == default
            and _has(mismatch, column, schemas)
        )

    return Difference(
        (column,), "the default instead of NULL (replace.null.with.default)", explains
    )


# --------------------------------------------------------------------------------------------------
# whole rows


def truncated_at(timestamp: int) -> Difference:
    """Return the difference of a TRUNCATE the topic lacks: rows last written before it stay."""

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        return mismatch.record is not None and mismatch.record.timestamp <= timestamp

    return Difference((ROW_TOO_MANY,), "TRUNCATE is not in the topic, or has no row", explains)


def torn_between_partitions(table: str) -> Difference:
    """Return the difference of keys changed in one millisecond by records in several partitions.

    The new key decides the record's partition, and Kafka does not order records of several
    partitions within a millisecond.
    """

    def explains(mismatch: Mismatch, evidence: Evidence) -> bool:
        (column,) = evidence.primary_key
        key = (mismatch.row.row if mismatch.row else mismatch.truth)[column]
        partitions: dict[int, set[int]] = {}
        for place, message in evidence.messages.items():
            if message["table"] == table and any(
                key == (message.get(image) or {}).get(column) for image in ("data", "old")
            ):
                partitions.setdefault(evidence.records[place].timestamp, set()).add(place[0])
        return any(len(several) > 1 for several in partitions.values())

    reason = "a key was changed within one millisecond by records in several partitions"
    return Difference((ROW_TOO_MANY, ROW_MISSING), reason, explains)


def fake_keys(column: str) -> Difference:
    """Return the difference of a table whose replica identity is an index without the primary key.

    A before-image has the index's columns and 0 for the key, so that neither a delete nor a key
    change identifies the old key. A row stays if its value in the index was removed, or was written
    again under another key.
    """

    def explains(mismatch: Mismatch, evidence: Evidence) -> bool:
        row = mismatch.row.row
        images = (
            (message["before"] or {}, message["after"] or {})
            for message in evidence.messages.values()
        )
        return any(
            (before.get(column) == row[column] and before["id"] == 0)
            or (after.get(column) == row[column] and after["id"] != row["id"])
            for before, after in images
        )

    return Difference(
        (ROW_TOO_MANY,),
        "REPLICA IDENTITY USING INDEX: a before-image has the index's columns, and 0 for the key",
        explains,
    )


_PLACEHOLDERS = (b"__debezium_unavailable_value", base64.b64encode(b"__debezium_unavailable_value"))


def toast_of_the_old_key() -> tuple[Difference, Difference]:
    """Return the differences of a key change that leaves TOASTed values unchanged.

    Debezium writes it as a delete of the old key and a create of the new one, with placeholders in
    it: the values are those of the old key, which is deleted by then. The row stays incomplete
    until an update has all values.
    """

    def created_with_placeholders(evidence: Evidence) -> set[Any]:
        messages = (evidence.messages[place] for place in evidence.corrupt)
        return {message["after"]["id"] for message in messages if message["op"] == "c"}

    def corrupt(mismatch: Mismatch, evidence: Evidence) -> bool:
        after = json.loads(_value_of(mismatch))["after"]
        has_placeholder = any(text in _value_of(mismatch) for text in _PLACEHOLDERS)
        return has_placeholder and after["id"] in created_with_placeholders(evidence)

    def missing(mismatch: Mismatch, evidence: Evidence) -> bool:
        return mismatch.truth["id"] in created_with_placeholders(evidence)

    reason = (
        "REPLICA IDENTITY DEFAULT: a key change with unchanged TOASTed values; they were the old "
        "key's"
    )
    return Difference((CORRUPT,), reason, corrupt), Difference((ROW_MISSING,), reason, missing)


# --------------------------------------------------------------------------------------------------
# Debezium's spellings


def _six_digits(value: float) -> float:
    number: float = struct.unpack("<f", struct.pack("<f", float(f"{value:.6g}")))[0]
    return number


def _connect_time(text: str) -> str | None:
    hours = int(text.removeprefix("-").split(":")[0])
    inside = hours < 24 and not text.startswith("-")
    return (text[:-3] + "000" if "." in text else text) if inside else None


CONNECT_TIME = written_as(
    "time.precision.mode=connect: milliseconds, and NULL outside of 0 to 24 hours",
    _connect_time,
    "c_time",
    "c_time6",
)
FLOAT_OF_SNAPSHOT = written_as(
    "a snapshot's FLOAT has the six digits of the server's text", _six_digits, "c_float"
)
YEAR_0 = written_as("YEAR 0 is 1900", lambda value: 1900 if value == 0 else value, "c_year")
YEAR_0_OF_SNAPSHOT = written_as(
    "YEAR 0 is 2000 in a snapshot", lambda value: 2000 if value == 0 else value, "c_year"
)
ENUM_COMMA = written_as(
    "the comma in an ENUM's label is escaped", lambda value: value.replace(",", "\\,"), "c_enum"
)

_INTERVAL = re.compile(
    r"(?:(-?\d+) years? ?)?(?:(-?\d+) mons? ?)?(?:([+-]?\d+) days? "
    r"?)?(?:([+-]?)(\d+):(\d+):(\d+)(?:\.(\d+))?)?"
)
_ZONED = re.compile(r"(\d\d):(\d\d):(\d\d)(\.\d+)?([+-]\d\d)(?::(\d\d))?")


def _interval_micros(text: str) -> int:
    match = _INTERVAL.fullmatch(text)
    assert match is not None, text
    years, months, days, hours, minutes, seconds = (
        int(match[group] or 0) for group in (1, 2, 3, 5, 6, 7)
    )
    clock = ((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + int(
        (match[8] or "").ljust(6, "0")
    )
    # A month is a twelfth of 365.25 days: 30.4375.
    return round(((years * 12 + months) * 30.4375 + days) * 86_400_000_000) + (
        -clock if match[4] == "-" else clock
    )


def _in_utc(text: str) -> str:
    match = _ZONED.fullmatch(text)
    assert match is not None, text
    offset = int(match[5]) * 60 + (-1 if match[5][0] == "-" else 1) * int(match[6] or 0)
    minutes = (int(match[1]) * 60 + int(match[2]) - offset) % 1440
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{match[3]}{match[4] or ''}Z"


def _host_without_mask(text: str) -> str:
    return re.sub(r"(?<=\.\d)/32$|(?<=:\d)/128$", "", text)


def _without_scale(text: str) -> str | None:
    if text == "NaN":
        return None
    return text.rstrip("0").rstrip(".") if "." in text else text


INTERVAL = written_as(
    "an interval is microseconds, with months of 30.4375 days", _interval_micros, "c_interval"
)
TIMETZ = written_as("a timetz is written in UTC, without its zone", _in_utc, "c_timetz")
HOSTS = written_as("the mask of a host is missing", _host_without_mask, "c_inet")
NUMERIC = written_as(
    "a numeric without scale loses its trailing zeros, and NaN is null", _without_scale, "c_numany"
)


def unchanged_vectors(*columns: str) -> Difference:
    """Return the difference of pgvector's vectors in TOAST, which an update did not change."""

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        updated = b'"op":"u"' in _value_of(mismatch)
        return updated and mismatch.actual is None and mismatch.truth is not None

    return Difference(columns, "an unchanged vector in TOAST is null", explains)


JULIAN = written_as(
    "Debezium 1.9's snapshot reads days before 1582 in the Julian calendar",
    lambda text: text.replace("1000-01-02", "1000-01-07"),
    "c_ts",
)

# --------------------------------------------------------------------------------------------------
# Maxwell's spellings


def _wrapped_time(text: str) -> str:
    """Return Maxwell's TIME: the fields of the binlog's number without its sign, modulo a day."""
    match = re.fullmatch(r"(-?)(\d+):(\d+):(\d+)(?:\.(\d+))?", text)
    assert match is not None, text
    packed = (int(match[2]) << 12 | int(match[3]) << 6 | int(match[4])) << 24 | int(match[5] or 0)
    packed = 2**47 - packed if match[1] else packed
    hours, minutes, seconds, micros = (
        packed >> 36 & 1023,
        packed >> 30 & 63,
        packed >> 24 & 63,
        packed & 0xFFFFFF,
    )
    total = (((hours * 60 + minutes) * 60 + seconds) * 1_000_000 + micros) % 86_400_000_000
    whole, rest = divmod(total, 1_000_000)
    fraction = f".{rest:06d}" if match[5] else ""
    return f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{fraction}"


def _without_trailing_zeros(text: str) -> str:
    return base64.b64encode(base64.b64decode(text).rstrip(b"\0")).decode()


def _halves_added(number: int) -> int:
    high, low = struct.unpack(">ii", number.to_bytes(8, "big"))
    total: int = high + low
    return total


WRAPPED_TIME = written_as(
    "a TIME outside of 0 to 24 hours is mangled", _wrapped_time, "c_time", "c_time6"
)
BINARY_ZEROS = written_as("a BINARY loses its trailing zeros", _without_trailing_zeros, "c_binary")
BIT_64 = written_as(
    "a BIT of more than 32 bits is mangled: the sum of its signed halves", _halves_added, "c_bit64"
)
ENUM_QUOTE = written_as(
    "the quote in an ENUM's label is doubled", lambda value: value.replace("'", "''"), "c_enum"
)


def nested_json(*columns: str) -> Difference:
    """Return the difference of a JSON column nested in the message: same value, other whitespace.

    A JSON string becomes its bare text, and a JSON null becomes SQL's NULL.
    """

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        if mismatch.truth is None:
            return False
        value = json.loads(mismatch.truth, parse_float=Decimal)
        if value is None or isinstance(value, str):
            return bool(mismatch.actual == value)
        return mismatch.actual is not None and repr(
            json.loads(mismatch.actual, parse_float=Decimal)
        ) == repr(value)

    return Difference(columns, "a JSON value is nested in the message and is not text", explains)


def bootstrapped_zone(*columns: str) -> Difference:
    """Return the difference of a bootstrap's TIMESTAMP: the server's zone, not the stream's UTC."""

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        actual, truth = (datetime.fromisoformat(text) for text in (mismatch.actual, mismatch.truth))
        return b'"type":"bootstrap-insert"' in _value_of(mismatch) and actual - truth == timedelta(
            hours=2
        )

    return Difference(columns, "a bootstrap writes a TIMESTAMP in the server's zone", explains)


def bootstrapped_again(rows: int) -> Difference:
    """Return the difference of a keyless table that was bootstrapped when it already had rows."""

    def explains(mismatch: Mismatch, evidence: Evidence) -> bool:
        return as_text(mismatch.row.row) in evidence.bootstrapped

    reason = (
        "a bootstrap repeated rows of the stream, and without a primary key repeated rows cannot "
        "be recognised"
    )
    return Difference((ROW_TOO_MANY,), reason, explains, rows)


# --------------------------------------------------------------------------------------------------
# Canal's spellings

LATIN1 = written_as(
    "a character of a latin1 column that is not ASCII is lost",
    lambda text: re.sub(r"[^\x00-\x7f]", "\ufffd", text),
    "c_latin1",
)


def _mojibake(text: str) -> str:
    return text.encode("utf-8").decode("latin-1")


def misread_json(*columns: str) -> Difference:
    """Return the difference of MariaDB's JSON, whose UTF-8 Canal reads as ISO-8859-1."""
    return written_as("MariaDB's JSON is read as ISO-8859-1", _mojibake, *columns)


# --------------------------------------------------------------------------------------------------
# Flink's spellings


def respaced_json(*columns: str) -> Difference:
    """Return MySQL's JSON difference: snapshots have the server's text, streams the connector's."""

    def value_of(text: str) -> Any:
        return json.loads(text, parse_float=Decimal, parse_int=Decimal)

    def explains(mismatch: Mismatch, _: Evidence) -> bool:
        return None not in (mismatch.actual, mismatch.truth) and bool(
            value_of(mismatch.actual) == value_of(mismatch.truth)
        )

    return Difference(
        columns, "the connector reformats JSON in the stream: spaces and numbers", explains
    )


def milliseconds(text: str) -> str:
    """Return the text of a timestamp with microseconds, cut to milliseconds."""
    return text[:-3] + "000"


def cut_to_milliseconds(*columns: str) -> Difference:
    """Return the difference of a microsecond column that the producer writes with milliseconds."""
    return written_as("milliseconds of microseconds", milliseconds, *columns)
