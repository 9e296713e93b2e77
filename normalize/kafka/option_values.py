"""Values of the options of Spark's Kafka source, checked before a query starts.

Spark itself reads most of them in the first micro-batch. It does not check the sign of a number:
with a negative ``maxOffsetsPerTrigger``, a query runs and reads nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec

from cdc_formats.errors import ArgumentError

_LONG, _INT = 2**63 - 1, 2**31 - 1
_DURATION = re.compile(r"\s*\d{1,18}\s*(us|ms|s|m|min|h|d)\s*")
_EXAMPLE = '{"orders": {"0": 23, "1": -2}}'


def check_option_values(options: Mapping[str, Any]) -> None:
    """Raise an error for a value that Spark's Kafka source does not support.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source, whose names may have any case.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> check_option_values({"maxOffsetsPerTrigger": 100_000, "startingOffsets": "earliest"})
    >>> check_option_values({"failOnDataLoss": "no"})
    Traceback (most recent call last):
    cdc_formats.errors.ArgumentError: [ARGUMENT] the option failOnDataLoss is 'no': use 'true' or 'false'
    """
    for name, value in options.items():
        is_valid, use = _CHECKS.get(name.lower(), _ANYTHING)
        if not is_valid(str(value)):
            raise ArgumentError(f"the option {name} is {value!r}: use {use}")


def _number(least: int, most: int) -> tuple[Callable[[str], bool], str]:
    def is_valid(text: str) -> bool:
        return re.fullmatch(r"\+?[0-9]+", text) is not None and least <= int(text) <= most

    return is_valid, f"an integer from {least} to {most}"


def _one_of(*words: str) -> tuple[Callable[[str], bool], str]:
    return lambda text: text.lower() in words, " or ".join(map(repr, words))


def _by_partition(least: int, what: str, *words: str) -> tuple[Callable[[str], bool], str]:
    """Return the check of one of some words, or a JSON object of topics, partitions and numbers."""
    number = Annotated[int, msgspec.Meta(ge=least, le=_LONG)]
    partition = Annotated[int, msgspec.Meta(ge=0, le=_INT)]
    decode = msgspec.json.Decoder(dict.__class_getitem__((str, dict[partition, number]))).decode

    def is_valid(text: str) -> bool:
        if text.lower() in words:
            return True
        try:
            decode(text)
        except msgspec.DecodeError:
            return False
        return True

    listed = "".join(f"{word!r}, " for word in words) + ("or " if words else "")
    return is_valid, f"{listed}{what} as JSON, as in {_EXAMPLE}"


_ANYTHING = (lambda text: True, "")
_POSITIVE, _NATURAL = _number(1, _LONG), _number(0, _LONG)
_CHECKS: dict[str, tuple[Callable[[str], bool], str]] = {
    "startingoffsets": _by_partition(-2, "offsets", "earliest", "latest"),
    "endingoffsets": _by_partition(-1, "offsets", "latest"),
    "startingoffsetsbytimestamp": _by_partition(0, "milliseconds"),
    "endingoffsetsbytimestamp": _by_partition(0, "milliseconds"),
    "startingoffsetsbytimestampstrategy": _one_of("error", "latest"),
    "startingtimestamp": _NATURAL,
    "endingtimestamp": _NATURAL,
    "maxoffsetspertrigger": _POSITIVE,
    "minoffsetspertrigger": _POSITIVE,
    "maxrecordsperpartition": _POSITIVE,
    "minpartitions": _number(1, _INT),
    "maxtriggerdelay": (
        lambda text: _DURATION.fullmatch(text.lower()) is not None,
        "a number with a unit, as in '15m'",
    ),
    "failondataloss": _one_of("true", "false"),
    "includeheaders": _one_of("true", "false"),
    "fetchoffset.numretries": _number(0, _INT),
    "fetchoffset.retryintervalms": _NATURAL,
    "kafkaconsumer.polltimeoutms": _NATURAL,
}
