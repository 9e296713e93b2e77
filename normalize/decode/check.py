"""The check at the call, on the driver: broker, login, topic, and a sample of the records to read.

Spark would find a wrong password or topic after a minute or more, and a wrong format or type in a
worker, with hundreds of lines. The check takes tens of milliseconds, and at most
`_TIMEOUT_SECONDS`. It joins no consumer group and commits nothing.

==========================================================  ======================================
broker, login, certificate or topic                         an error
a topic pattern that matches no topic                       a warning
FAILFAST: a bad record, on which the query would fail       the same error; a warning if only old
                                                            records of a stream are bad, since the
                                                            checkpoint of a restarted query may be
                                                            past them
other modes: all records are bad                            a warning
declared columns in no record, undeclared columns           warnings, as while the query runs
a column that a schema block or registry spells otherwise   an error with that name
no record has a row, and a filter or another format is why  a warning
connection options that only Java's clients understand      a warning: no check
confluent-kafka is not installed                            a warning: no check
==========================================================  ======================================
"""

from __future__ import annotations

import json
import logging
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cdc_formats.errors import (
    DECODE_CONDITIONS,
    ArgumentError,
    ChangelogError,
    DecodeError,
    MissingDependencyError,
    SchemaError,
    TlsError,
)
from cdc_formats.events import Ignored
from cdc_formats.format import Format
from cdc_formats.values.schema import backquoted
from normalize.core.records import DECODE_COUNTS
from normalize.kafka.client_options import librdkafka_options
from normalize.kafka.topics import selected_topics
from normalize.monitoring.watch import Notice, log_check, read_counts

from .collectors import Blocks, Collector, TypedRows
from .decode_pass import decode_pass
from .plan import DecodePlan, needed_columns

if TYPE_CHECKING:
    from cdc_formats.decoder import NameDifference
    from cdc_formats.topics.kafka import TopicEnds
    from cdc_formats.topics.sampler import SampledRecord

_log = logging.getLogger("normalize")

_SAMPLE = 50
_NEAR = 0.7  # of `get_close_matches`: status and state are near, created and updated are not
_TIMEOUT_SECONDS = 8.0
_SKIPPED = "broker, login, topic and records are not checked before the query starts: %s"
_TIMES = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
)
_HINT = "This is the check before the query starts; check=False skips it."
_WITHOUT_ROWS = {*(reason.value for reason in Ignored), *DECODE_CONDITIONS, DecodeError.condition}
_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "stamp": pa.int64(),
    "timestamp": pa.int64(),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}


def check_records(
    plan: DecodePlan, options: Mapping[str, str], *, keyed: bool, bounded: bool
) -> None:
    """Raise the error that a query would end with, as far as the topic shows it, and log warnings.

    Parameters
    ----------
    plan : DecodePlan
    options : mapping
        Options of Spark's Kafka source.
    keyed : bool
        Whether the query has a keyed stage.
    bounded : bool

    Raises
    ------
    SampleError
        When no broker answers, the login is refused, or a topic does not exist or cannot be read.
    DecodeError
        When the query would fail at a sampled record.
    ArgumentError
        When the records are in another format.
    """
    try:
        ends = _sampled(options)
        if ends is None:
            return
        if not ends.topics:
            _log.warning("no topic matches the pattern %r yet", options.get("subscribePattern"))
        records = [*ends.oldest, *ends.newest]
        if not records:
            return
        # A schema registry that does not answer is not waited for.
        waits = ("retry_seconds", "avro_confluent_retry_seconds")
        patience: Any = {name: 0 for name in waits if hasattr(plan.format, name)}
        if patience:
            plan = replace(plan, format=replace(plan.format, **patience))
        collector: type[Collector] = Blocks if keyed else TypedRows
        if plan.mode != "FAILFAST" or plan.dead_letters is not None:
            _Check(replace(plan, mode="DROPMALFORMED", dead_letters=None), collector).run(records)
        elif first := _error_in(plan, collector, records):
            newest = first if bounded else _error_in(plan, collector, ends.newest)
            _fail(plan.format, records, first, newest)
        _check_names(plan, records)
    except MissingDependencyError as error:
        _log.warning(_SKIPPED, error)
    except ChangelogError as error:
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(_HINT)
        raise error.with_traceback(
            None
        ) from None  # the sentence alone, without the client's and decoder's frames


def check_readable(
    options: Mapping[str, str],
    read: Callable[..., Any],
    *,
    fail: bool,
    error_excerpt: bool = True,
) -> TopicEnds | None:
    """Raise an error if the broker, the login, a topic or a sampled record cannot be read.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source.
    read : callable
        From a record's topic, key, value and headers; raises a DecodeError.
    fail : bool
        Whether the query fails at a record that cannot be read.
    error_excerpt : bool
        Whether errors may show values of a message.

    Returns
    -------
    TopicEnds or None
        The sample; None if there is none, for which a warning gives the reason.

    Raises
    ------
    SampleError, DecodeError
    """
    ends = None
    try:
        ends = _sampled(options)
        for record in [*ends.oldest, *ends.newest] if ends is not None and fail else ():
            try:
                read(record.topic, record.key, record.value, record.headers)
            except DecodeError as error:
                shown = error if error_excerpt else error.without_data()
                raise shown.at(
                    where=f"{record.topic}[{record.partition}]@{record.offset}"
                ) from None
    except MissingDependencyError as error:
        _log.warning(_SKIPPED, error)
    except ChangelogError as error:
        if hasattr(error, "add_note"):  # Python 3.11
            error.add_note(_HINT)
        raise error.with_traceback(None) from None
    return ends


def _check_names(plan: DecodePlan, records: Sequence[SampledRecord]) -> None:
    """Raise an error for a column that no sampled declaration has.

    The error is raised if a declaration has a column with nearly this name.

    Other columns that are missing are a warning (`watch`): the source may get them later, or may
    have dropped them.
    """
    from cdc_formats.topics.sampler import sampler_of

    decoder, sampler = plan.decoder(), sampler_of(plan.format)
    differences: list[tuple[NameDifference, str]] = []
    for record in records:
        try:
            difference = decoder.compare_names(record.key, record.value, record.headers)
            declared_by = (
                sampler.declaration(record.key, record.value or b"", record.headers).source
                if difference
                else ""
            )
        except ChangelogError:  # a bad record, of which the mode decides
            continue
        if difference is not None and declared_by:
            differences.append((difference, f"the {declared_by} of {record.where}"))
    if not differences:
        return
    absent = set.intersection(*(set(difference.absent) for difference, _ in differences))
    places = {
        name.casefold(): (name, place)
        for difference, place in differences
        for name in difference.unknown
    }
    for name in sorted(absent):
        for near in get_close_matches(name.casefold(), places, 1, _NEAR):
            other, place = places[near]
            raise SchemaError(
                f"schema has the column {backquoted(name)}, and {place} has {backquoted(other)}: "
                "did you mean this one?"
            )


def _error_in(
    plan: DecodePlan, collector: type[Collector], records: Sequence[SampledRecord]
) -> ChangelogError | None:
    try:
        _Check(plan, collector).run(records)
    except ChangelogError as error:
        return error
    return None


def _fail(
    format: Format,
    records: Sequence[SampledRecord],
    first: ChangelogError,
    newest: ChangelogError | None,
) -> None:
    """Raise the error of a sample; log a warning if only old records are bad."""
    if isinstance(first, DecodeError) and (other := _other_format(format, records)):
        raise ArgumentError(
            f"format is {format.identifier!r}, but {other}. The first error: {first}"
        )
    if newest is not None:
        raise newest
    _log.warning("%s. The query fails at this old record, unless its checkpoint is past it", first)


# --------------------------------------------------------------------------------------------------
# the sample


def _sampled(options: Mapping[str, str]) -> TopicEnds | None:
    """Return a sample of the topics; None if the driver cannot connect as Java does."""
    from cdc_formats.topics.kafka import sample_ends  # imports inference, which workers do not need

    try:
        config = librdkafka_options(options)
        topics = selected_topics(options)
    except ArgumentError as error:
        _log.warning(_SKIPPED, error.args[0])
        return None
    servers = config.pop("bootstrap.servers")
    starts = _starts(options)
    isolation = {name.lower(): value for name, value in options.items()}.get(
        "kafka.isolation.level", "read_committed"
    )
    try:
        return sample_ends(
            servers,
            topics,
            sample=0 if starts is None else _SAMPLE,
            config={**config, "isolation.level": isolation},
            starts=starts,
            timeout_seconds=_TIMEOUT_SECONDS,
        )
    except TlsError as error:
        if any(name.startswith("ssl.ca.") for name in config):
            raise
        # Java trusts the authorities of its JVM, and librdkafka those of the operating system.
        _log.warning(_SKIPPED, error)
        return None


def _starts(options: Mapping[str, str]) -> dict[str, dict[int, int]] | None:
    """Return the query's starting offsets; None if its options do not determine what it reads.

    Examples
    --------
    >>> _starts({"startingOffsets": '{"orders": {"0": 23, "1": -2}}'}), _starts({"startingOffsets": "latest"})
    ({'orders': {0: 23}}, None)
    """
    by_name = {name.lower(): value for name, value in options.items()}
    start = by_name.get("startingoffsets", "earliest").strip()
    if (
        "assign" in by_name
        or any(name.lower() in by_name for name in _TIMES)
        or start.lower() == "latest"
    ):
        return None
    if start.lower() == "earliest":
        return {}
    earliest, latest = -2, -1
    try:
        return {
            topic: {
                int(number): sys.maxsize if at == latest else at
                for number, at in offsets.items()
                if at != earliest
            }
            for topic, offsets in json.loads(start).items()
        }
    except (ValueError, AttributeError):
        return None  # Spark raises


# --------------------------------------------------------------------------------------------------
# the decoder


class _Check:
    """Decodes a sample as the query would."""

    def __init__(self, plan: DecodePlan, collector: type[Collector]) -> None:
        self.plan, self.collector = plan, collector
        self.notices: list[Notice] = []

    def run(self, records: Sequence[SampledRecord]) -> None:
        """Decode, and log notices; raises the error of a bad record."""
        counts = Counter[str]()
        batches = iter([_batch(self.plan, records)])
        for batch in decode_pass(
            batches, plan=self.plan, collector=self.collector, report=self.notices.extend
        ):
            counts.update(read_counts(batch, DECODE_COUNTS))
        log_check(self.notices)
        without_rows = {
            name: count for name, count in counts.items() if name in _WITHOUT_ROWS and count
        }
        if sum(without_rows.values()) == len(records):
            self._explain(records, without_rows)

    def _explain(self, records: Sequence[SampledRecord], reasons: Mapping[str, int]) -> None:
        other = _other_format(self.plan.format, records)
        if other or Ignored.OTHER_TABLE.value in reasons:
            counted = ", ".join(f"{reason} {count}" for reason, count in reasons.items())
            advice = (
                f"Format {self.plan.format.identifier!r} may be wrong: {other}"
                if other
                else "Check the format's table filters"
            )
            _log.warning(
                "none of %s sampled records has a row (%s). %s", len(records), counted, advice
            )


def _batch(plan: DecodePlan, records: Sequence[SampledRecord]) -> pa.RecordBatch:
    """Return records as Spark's Kafka source does."""
    ordered = sorted(records, key=lambda record: (record.topic, record.partition, record.offset))
    columns = needed_columns(plan)
    rows = [
        {
            "key": record.key,
            "value": record.value,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "stamp": record.timestamp,
            "timestamp": record.timestamp * 1000,
            "timestampType": 0,
            "headers": [{"key": name, "value": value} for name, value in record.headers] or None,
        }
        for record in ordered
    ]
    return pa.RecordBatch.from_arrays(
        [pa.array([row[name] for row in rows], _TYPES[name]) for name in columns], names=columns
    )


def _other_format(format: Format, records: Sequence[SampledRecord]) -> str:
    """Return which format records have if the given one reads none of them; empty if unknown."""
    from cdc_formats.topics.profile import profile_records  # imports all formats

    if not any(record.value for record in records):
        return ""
    try:
        profile = profile_records(
            [record for record in records if record.topic == records[0].topic]
        )
    except ChangelogError:
        return ""
    tried = {candidate.identifier: candidate for candidate in profile.candidates}
    own = tried.get(format.identifier)
    detected = tried.get(profile.format or "")
    if (
        detected is None
        or not detected.specific
        or detected.identifier == format.identifier
        or (own is not None and own.read)
    ):
        return ""
    return (
        f"the records look like {detected.identifier!r} ({profile.reason}): pass "
        f"format={detected.identifier!r}"
    )
