"""The source databases' tables of the recorded topics: the expected results of replays.

A truth has one JSON object per row, with the values from the database's client: integers and
MySQL's floats as numbers, MySQL's BIT as an integer, binary as base64, all else as the server's
text. The functions here convert Python values to these encodings, so that equal cells compare
equal.
"""

import base64
import gzip
import json
import math
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple


class Column(NamedTuple):
    """A column, described by the source database.

    Attributes
    ----------
    name, type : str
    nullable : bool
    precision, scale : int or None
        The digits of a number.
    fraction : int or None
        The digits of a fraction of a second.
    """

    name: str
    type: str
    nullable: bool
    precision: int | None
    scale: int | None
    fraction: int | None


@dataclass(frozen=True)
class Table:
    """A source table: its columns, primary key and final rows."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    rows: tuple[Mapping[str, Any], ...]


def truth_file(folder: Path, database: str, table: str) -> Path:
    """Return the path of a table's rows, packed or not."""
    packed = folder / "truth" / f"{database}.{table}.jsonl.gz"
    return packed if packed.exists() else packed.with_suffix("")


def load(folder: Path, database: str, table: str) -> Table:
    """Read a table's description and rows from a folder of recordings."""
    schema = json.loads((folder / "truth" / f"{database}.schema.json").read_text("utf-8"))[table]
    path = truth_file(folder, database, table)
    lines = (
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    ).splitlines()
    columns = (
        Column(name, kind, null == "YES", *numbers)
        for name, kind, null, _, *numbers in schema["columns"]
    )
    return Table(table, tuple(columns), tuple(schema["pk"]), tuple(map(json.loads, lines)))


# -------------------------------------------------------------------------------------------------
# what both servers do


def same(value: Any) -> Any:
    """Return the value unchanged, because the truth has the same encoding."""
    return value


def plain(value: Decimal) -> str:
    """Return a decimal as its digits, with all zeros of its scale."""
    return f"{value:f}"


def in_base64(value: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(value).decode()


def iso(value: date) -> str:
    """Return a date as yyyy-MM-dd."""
    return value.isoformat()


def _in_utc(value: datetime) -> datetime:
    return value.astimezone(timezone.utc).replace(tzinfo=None) if value.tzinfo else value


def in_micros(value: timedelta) -> int:
    """Return a duration in microseconds."""
    return value // timedelta(microseconds=1)


# --------------------------------------------------------------------------------------------------
# MySQL and MariaDB


def mysql_stamp(digits: int | None) -> Callable[[datetime], str]:
    """Return the function from datetime to text with `digits` fraction digits, instants in UTC."""
    cut = 20 + digits if digits else 19
    return lambda value: _in_utc(value).isoformat(" ", "microseconds")[:cut]


def mysql_time(digits: int | None) -> Callable[[timedelta], str]:
    """Return the function from a duration to a TIME's text, ``[-]hours:mm:ss[.fraction]``."""

    def write(value: timedelta) -> str:
        seconds, micros = divmod(abs(value) // timedelta(microseconds=1), 1_000_000)
        text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
        fraction = f".{micros:06d}"[: digits + 1] if digits else ""
        return ("-" if value < timedelta() else "") + text + fraction

    return write


def little_endian(value: bytes) -> int:
    """Return a BIT's number from Debezium's bytes."""
    return int.from_bytes(value, "little")


def mysql_geometry(value: Mapping[str, Any]) -> str:
    """Return the SRID and the WKB of a geometry, from Debezium's struct."""
    return f"{value['srid'] or 0};{in_base64(value['wkb'])}"


def mysql_vector(value: Iterable[float]) -> str:
    """Return MySQL's text of a VECTOR."""
    return f"[{','.join(f'{element:.5e}' for element in value)}]"


# --------------------------------------------------------------------------------------------------
# PostgreSQL

EPOCH = datetime(1970, 1, 1)
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DAY = 86_400_000_000
_DAYS_OF_400_YEARS = 146_097
# The JDBC driver's values of the infinities, in Debezium's days (the last is from 1.9's snapshots)
# and microseconds.
_INFINITE_DAYS = {-2147472692: "infinity", -2147472691: "-infinity", -625821272: "-infinity"}
_INFINITE_MICROS = {9223372036825200000: "infinity", -9223372036832400000: "-infinity"}


def _fraction(micros: int) -> str:
    return f".{micros:06d}".rstrip("0") if micros else ""


def postgres_clock(micros: int) -> str:
    """Return microseconds since midnight as PostgreSQL writes a time of day."""
    seconds, rest = divmod(micros, 1_000_000)
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(rest)}"


def postgres_day(days: int) -> tuple[str, str]:
    """Return a day as text, with `` BC`` before the year 1."""
    cycles = 0
    while days + cycles * _DAYS_OF_400_YEARS + _EPOCH_DAY < 1:
        cycles += 1
    day = date.fromordinal(days + cycles * _DAYS_OF_400_YEARS + _EPOCH_DAY)
    year = day.year - 400 * cycles
    return (f"{year:04d}{day:-%m-%d}", "") if year > 0 else (f"{1 - year:04d}{day:-%m-%d}", " BC")


def postgres_date(days: int) -> str:
    """Return days since 1970 as PostgreSQL writes a date."""
    return _INFINITE_DAYS.get(days) or "".join(postgres_day(days))


def postgres_micros(micros: int) -> str:
    """Return microseconds since 1970 as PostgreSQL writes a timestamp."""
    if micros in _INFINITE_MICROS:
        return _INFINITE_MICROS[micros]
    days, rest = divmod(micros, _DAY)
    day, era = postgres_day(days)
    return f"{day} {postgres_clock(rest)}{era}"


def postgres_iso(text: str) -> str:
    """Return Debezium's ISO text of an instant as PostgreSQL writes it, infinities unchanged."""
    if "infinity" in text:
        return text
    day, clock = text.removesuffix("Z").split("T")
    return f"{day} {clock.rstrip('0').rstrip('.') if '.' in clock else clock}+00"


def postgres_stamp(value: datetime) -> str:
    """Return a date and time as PostgreSQL writes it; an instant in UTC, with its zone."""
    return postgres_micros((_in_utc(value) - EPOCH) // timedelta(microseconds=1)) + (
        "+00" if value.tzinfo else ""
    )


def postgres_time(value: time | str) -> str:
    """Return a time of day; a DataFrame has it as the same text."""
    if isinstance(value, str):
        return value
    return postgres_clock(
        ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond
    )


def postgres_money(value: Decimal) -> str:
    """Return an amount in the server's locale."""
    return f"{'-' if value < 0 else ''}${abs(value):,.2f}"


def _as_single(value: float) -> float:
    try:
        number: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.inf
    return number


def _shortest(value: float, single: bool) -> str:
    digits = (f"{value:.{n}e}" for n in range(17))
    return next(
        text for text in digits if (_as_single(float(text)) if single else float(text)) == value
    )


def postgres_float(single: bool) -> Callable[[float], str]:
    """Return the function from a float to PostgreSQL's text, the fewest digits that identify it."""

    def write(value: float) -> str:
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        mantissa, exponent = _shortest(value, single).split("e")
        if -4 <= int(exponent) < (6 if single else 15):
            return f"{Decimal(mantissa).scaleb(int(exponent)):f}"
        return f"{mantissa}e{int(exponent):+03d}"

    return write


def postgres_array(write: Callable[[Any], Any]) -> Callable[[Iterable[Any]], str]:
    """Return the function from a list to an array's text, its elements written by `write`."""

    def element(value: Any) -> str:
        if value is None:
            return "NULL"
        text = str(write(value))
        bare = text and text.upper() != "NULL" and not set(text) & set('{},"\\ \t\n\r\v\f')
        return text if bare else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    return lambda values: "{" + ",".join(map(element, values)) + "}"


def postgres_hstore(value: str) -> str:
    """Return the text of an hstore from Debezium's, which is a JSON object."""

    def quoted(text: str | None) -> str:
        return (
            "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        )

    entries = sorted(
        json.loads(value).items(), key=lambda entry: (len(entry[0].encode()), entry[0].encode())
    )
    return ", ".join(f"{quoted(key)}=>{quoted(item)}" for key, item in entries)


def postgres_numeric(value: Mapping[str, Any]) -> str:
    """Return a numeric of variable scale, from Debezium's scale and unscaled bytes."""
    unscaled = int.from_bytes(value["value"], "big", signed=True)
    digits = f"{abs(unscaled):0{value['scale'] + 1}d}"
    point = len(digits) - value["scale"]
    return (
        ("-" if unscaled < 0 else "")
        + digits[:point]
        + ("." + digits[point:] if value["scale"] else "")
    )


def postgres_point(value: Mapping[str, Any]) -> str:
    """Return a point, from Debezium's struct."""
    return f"({value['x']:g},{value['y']:g})"


def _single_text(value: float) -> str:
    return postgres_float(single=True)(_as_single(value))


def postgres_vector(value: Iterable[float]) -> str:
    """Return a vector of pgvector, whose elements have 32 bits or fewer."""
    return f"[{','.join(map(_single_text, value))}]"


def postgres_sparse_vector(value: Mapping[str, Any]) -> str:
    """Return a sparse vector of pgvector, from Debezium's struct."""
    elements = (f"{index}:{_single_text(element)}" for index, element in value["vector"].items())
    return f"{{{','.join(elements)}}}/{value['dimensions']}"


def postgres_bits(size: int | None) -> Callable[[bytes], str]:
    """Return the function from Debezium's little-endian bytes to bit text.

    Without a size, the number of leading zeros is unknown.
    """
    return lambda value: f"{int.from_bytes(value, 'little'):0{size or 1}b}"
