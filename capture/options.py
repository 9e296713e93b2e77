"""Options of ``mysql-changelog``: Flink CDC's names and defaults, plus ones for Spark's batches."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from cdc_formats.errors import ArgumentError


def _integer(least: int, most: int = 2**63 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not (re.fullmatch("[0-9]{1,19}", text) and least <= int(text) <= most):
            raise ValueError(f"a whole number from {least} to {most}")
        return int(text)

    return read


def _factor(text: str) -> float:
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        raise ValueError("a number such as 0.05 or 1000")
    return float(text)


def _one_of(*choices: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in choices:
            raise ValueError(f"one of {', '.join(choices)}")
        return text

    return read


def _seconds(text: str) -> float:
    """Parse a duration in Flink's format: ``30s``, ``500ms``, ``1 min``."""
    units = {"ms": 0.001, "s": 1.0, "sec": 1.0, "min": 60.0, "m": 60.0}
    match = re.fullmatch(r"([0-9]+)\s*([a-z]*)", text.strip().lower())
    if match is None or (match[2] or "s") not in units:
        raise ValueError("a duration such as 500ms, 30s or 1min")
    return int(match[1]) * units[match[2] or "s"]


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _server_ids(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"\s*([0-9]{1,10})\s*(?:-\s*([0-9]{1,10})\s*)?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high <= 2**32 - 1:
        raise ValueError("a number from 1 to 4294967295, or a range of them such as 5400-5408")
    return low, high


def _option(
    name: str,
    read: Callable[[str], Any] = str,
    default: Any = None,
    *,
    required: bool = False,
    secret: bool = False,
) -> Any:
    about = {"name": name, "read": read, "required": required}
    return field(default="" if required else default, repr=not secret, metadata=about)


@dataclass(frozen=True)
class CaptureOptions:
    """The validated options; the repr omits the password.

    Attributes
    ----------
    database, table : str
        Names, or regular expressions that match whole names: see `capture.tables`.
    connect_max_retries : int
        The number of retries after a connection is refused, times out or ends. Each row that is
        read resets the count.
    chunks_per_batch : int
        The largest number of chunks in a micro-batch.
    max_bytes : int
        The number of bytes of the binary log after which a micro-batch ends. A transaction is never
        divided.
    heartbeat : float
        The longest time in seconds between offsets while only other tables change.
    newly_added : bool
        Whether the stream adds tables that match the options but did not when it began.
    """

    hostname: str = _option("hostname", required=True)
    username: str = _option("username", required=True)
    password: str = _option("password", required=True, secret=True)
    database: str = _option("database-name", required=True)
    table: str = _option("table-name", required=True)
    port: int = _option("port", _integer(1, 65535), 3306)
    server_id: tuple[int, int] | None = _option("server-id", _server_ids)
    connect_timeout: float = _option("connect.timeout", _seconds, 30.0)
    connect_max_retries: int = _option("connect.max-retries", _integer(0), 3)
    ssl_ca: str | None = _option("ssl.ca")
    ssl_cert: str | None = _option("ssl.cert")
    ssl_key: str | None = _option("ssl.key")
    startup_mode: str = _option(
        "scan.startup.mode",
        _one_of(
            "initial",
            "snapshot",
            "earliest-offset",
            "latest-offset",
            "timestamp",
            "specific-offset",
        ),
        "initial",
    )
    startup_file: str | None = _option("scan.startup.specific-offset.file")
    startup_pos: int | None = _option("scan.startup.specific-offset.pos", _integer(4, 2**32 - 1))
    startup_gtids: str | None = _option("scan.startup.specific-offset.gtid-set")
    startup_timestamp: int | None = _option("scan.startup.timestamp-millis", _integer(0))
    chunk_size: int = _option("scan.incremental.snapshot.chunk.size", _integer(2), 8096)
    fetch_size: int = _option("scan.snapshot.fetch.size", _integer(2), 1024)
    chunk_key: tuple[str, ...] | None = _option(
        "scan.incremental.snapshot.chunk.key-column",
        lambda text: tuple(name.strip() for name in text.split(",")),
    )
    upper_factor: float = _option("chunk-key.even-distribution.factor.upper-bound", _factor, 1000.0)
    lower_factor: float = _option("chunk-key.even-distribution.factor.lower-bound", _factor, 0.05)
    parallelism: int = _option("scan.snapshot.parallelism", _integer(1, 1000), 2)
    chunks_per_batch: int = _option("scan.snapshot.chunks-per-batch", _integer(1), 32)
    max_bytes: int = _option("scan.binlog.max-bytes-per-batch", _integer(1), 256 * 2**20)
    heartbeat: float = _option("heartbeat.interval", _seconds, 30.0)
    newly_added: bool = _option("scan.newly-added-table.enabled", _boolean, False)
    zero_dates: str = _option("zero-dates", _one_of("null", "fail"), "fail")


def read_options(texts: Mapping[str, str]) -> CaptureOptions:
    """Return a reader's validated options; names may be lower case, because Spark can change them.

    Raises
    ------
    ArgumentError
        If an option is unknown, missing, or has an invalid value.

    Examples
    --------
    >>> read_options({"hostname": "db"})
    Traceback (most recent call last):
    cdc_formats.errors.ArgumentError: [ARGUMENT] mysql-changelog requires the option 'username'
    """
    declared = {each.metadata["name"]: each for each in fields(CaptureOptions)}
    values: dict[str, Any] = {}
    for name, text in texts.items():
        option = declared.get(name.lower())
        if option is None:
            raise ArgumentError(
                f"mysql-changelog has no option {name!r} (known: {', '.join(sorted(declared))})"
            )
        try:
            values[option.name] = option.metadata["read"](text)
        except ValueError as error:
            raise ArgumentError(
                f"option {option.metadata['name']!r} must be {error}, not {text!r}"
            ) from None
    for name, option in declared.items():
        if option.metadata["required"] and not values.get(option.name):
            raise ArgumentError(f"mysql-changelog requires the option {name!r}")
    return _checked(CaptureOptions(**values))


def _checked(options: CaptureOptions) -> CaptureOptions:
    mode = options.startup_mode
    has_position = options.startup_file is not None and options.startup_pos is not None
    if mode == "specific-offset" and has_position == (options.startup_gtids is not None):
        raise ArgumentError(
            "scan.startup.mode 'specific-offset' requires either scan.startup.specific-offset.file "
            "and scan.startup.specific-offset.pos, or scan.startup.specific-offset.gtid-set"
        )
    if mode == "timestamp" and options.startup_timestamp is None:
        raise ArgumentError("scan.startup.mode 'timestamp' requires scan.startup.timestamp-millis")
    if options.lower_factor > 1 or options.upper_factor < 1:
        raise ArgumentError(
            "chunk-key.even-distribution.factor.lower-bound must be at most 1, and "
            "chunk-key.even-distribution.factor.upper-bound at least 1"
        )
    if (
        options.server_id is not None
        and options.server_id[1] - options.server_id[0] < options.parallelism
    ):
        raise ArgumentError(
            f"option 'server-id' requires {options.parallelism + 1} numbers, one for each "
            f"concurrent reader of the log (scan.snapshot.parallelism is {options.parallelism}): "
            f"for example 5400-{5400 + options.parallelism}"
        )
    return options
