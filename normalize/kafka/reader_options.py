"""The options of Spark's Kafka source for a call of `from_kafka_changelog`, with their checks."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from typing import Annotated, Any

import msgspec

from cdc_formats.errors import ArgumentError
from normalize.arguments import check_mapping

from .topics import subscribed_topics

_LONG, _INT = 2**63 - 1, 2**31 - 1
# --------------------------------------------------------------------------------------------------
# Values of the options of Spark's Kafka source, checked before a query starts.
#
# Spark itself reads most of them in the first micro-batch. It does not check the sign of a number:
# with a negative ``maxOffsetsPerTrigger``, a query runs and reads nothing.

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
    "nativedecoder": _one_of("true", "false"),
    "fetchoffset.numretries": _number(0, _INT),
    "fetchoffset.retryintervalms": _NATURAL,
    "kafkaconsumer.polltimeoutms": _NATURAL,
}


_log = logging.getLogger("normalize")

# --------------------------------------------------------------------------------------------------
# Names of Kafka options: a misspelt one is refused, since Spark and Kafka would ignore it.

SOURCE_OPTIONS = frozenset(
    """
    assign subscribe subscribePattern startingOffsets startingOffsetsByTimestamp startingOffsetsByTimestampStrategy startingTimestamp
    endingOffsets endingOffsetsByTimestamp endingTimestamp failOnDataLoss fetchOffset.numRetries fetchOffset.retryIntervalMs groupIdPrefix
    includeHeaders kafkaConsumer.pollTimeoutMs maxOffsetsPerTrigger maxRecordsPerPartition maxTriggerDelay minOffsetsPerTrigger
    minPartitions
    """.split()  # noqa: SIM905 - a list would be three times as long
)
"""The options of Spark's Kafka source (``KafkaSourceProvider`` of Spark 4.0 to 4.2); it ignores
others."""
NATIVE_DECODER = "nativeDecoder"
"""Our own option, which Spark ignores: with ``false``, Python decodes."""
SINK_OPTIONS = frozenset({"checkpointLocation", "includeHeaders", "topic"})
"""The options of Spark's Kafka sink."""
KAFKA_OPTIONS = frozenset(
    """
    acks allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset batch.size bootstrap.servers
    buffer.memory check.crcs client.dns.lookup client.id client.rack compression.gzip.level compression.lz4.level compression.type
    compression.zstd.level connections.max.idle.ms default.api.timeout.ms delivery.timeout.ms enable.auto.commit enable.idempotence
    enable.metrics.push exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id group.instance.id
    group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes isolation.level key.deserializer key.serializer
    linger.ms max.block.ms max.in.flight.requests.per.connection max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    max.request.size metadata.max.age.ms metadata.max.idle.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partition.assignment.strategy partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms
    reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.client.callback.handler.class
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin sasl.kerberos.service.name
    sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor sasl.login.callback.handler.class sasl.login.class
    sasl.login.connect.timeout.ms sasl.login.read.timeout.ms sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms
    sasl.mechanism sasl.oauthbearer.clock.skew.seconds sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer
    sasl.oauthbearer.header.urlencode sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.scope.claim.name
    sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url security.protocol security.providers send.buffer.bytes
    session.timeout.ms socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms ssl.cipher.suites
    ssl.enabled.protocols ssl.endpoint.identification.algorithm ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm
    ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol
    ssl.provider ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type transaction.timeout.ms transactional.id value.deserializer value.serializer
    """.split()  # noqa: SIM905 - a list would be three times as long
)
"""The options of Kafka's consumer and producer (3.9). Other versions and plug-ins have more."""

_PREFIX = "kafka."
_SIMILAR_SPARK, _SIMILAR_KAFKA = 0.8, 0.9


def check_option_names(
    options: Mapping[str, Any], *, supported: Iterable[str] = SOURCE_OPTIONS
) -> None:
    """Raise an error for an option named much like a known one; warn of others that Spark ignores.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source or sink.
    supported : iterable of str
        Spark's own options.

    Raises
    ------
    ArgumentError

    Examples
    --------
    >>> check_option_names({"startingOffset": "earliest"})
    Traceback (most recent call last):
    cdc_formats.errors.ArgumentError: [ARGUMENT] options has 'startingOffset', which Spark would ignore: did you mean 'startingOffsets'?
    """
    for name in options:
        if name.lower().startswith(_PREFIX):
            _check(name, name[len(_PREFIX) :], KAFKA_OPTIONS, _SIMILAR_KAFKA, prefix=_PREFIX)
        elif name in KAFKA_OPTIONS:
            raise ArgumentError(
                f"options has {name!r}, which Spark would ignore: did you mean {_PREFIX + name!r}?"
            )
        elif not _check(name, name, {*supported, NATIVE_DECODER}, _SIMILAR_SPARK):
            _log.warning(
                (
                    "options has %r, which is not an option of Spark's Kafka source or sink: Spark "
                    "ignores it"
                ),
                name,
            )


def _check(name: str, part: str, supported: Iterable[str], cutoff: float, prefix: str = "") -> bool:
    """Return whether a name is known; raises if it is nearly a known one. Spark ignores case."""
    spelled = {_plain(each): each for each in supported}
    if part.lower() in {each.lower() for each in supported}:
        return True
    similar = get_close_matches(_plain(part), spelled, n=1, cutoff=cutoff)
    if similar:
        ignored_by = "Kafka" if prefix else "Spark"
        raise ArgumentError(
            f"options has {name!r}, which {ignored_by} would ignore: did you mean "
            f"{prefix + spelled[similar[0]]!r}?"
        )
    return False


def _plain(name: str) -> str:
    """Return a name without case and punctuation.

    Examples
    --------
    >>> _plain("bootstrap.servers") == _plain("bootstrapServers") == _plain("bootstrap_servers")
    True
    """
    return "".join(filter(str.isalnum, name)).lower()


READER_DEFAULTS = {
    # Spark's default is "latest": a changelog that begins in the middle has updates of rows that
    # were never inserted.
    "startingOffsets": "earliest",
    # Kafka's consumer fetches 500 records at a time by default; these values nearly double the
    # speed of reading alone.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": "16777216",
    "kafka.fetch.max.bytes": "67108864",
    "kafka.receive.buffer.bytes": "4194304",
    # At the end of a partition, Spark's source waits until the broker answers the consumer's next
    # fetch: for 500 ms by Kafka's default (docs/speed.md).
    "kafka.fetch.max.wait.ms": "1",
    # Kafka's default also returns the records of transactions that were aborted.
    "kafka.isolation.level": "read_committed",
}
"""Defaults for options of Spark's Kafka source; `options` of a call override them."""

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_SPLITS = ("minPartitions", "maxRecordsPerPartition")


def require_servers(options: Mapping[str, Any]) -> None:
    """Raise an error for options without Kafka's servers.

    Raises
    ------
    ArgumentError
    """
    if "kafka.bootstrap.servers" not in options:
        raise ArgumentError(
            "options lack 'kafka.bootstrap.servers': add, for example, {'kafka.bootstrap.servers': "
            "'localhost:9092'}"
        )


def reader_options(
    topic: str | Sequence[str] | re.Pattern[str] | None, options: Mapping[str, Any] | None
) -> dict[str, str]:
    """Return the options of Spark's Kafka source, with the topics and `READER_DEFAULTS`.

    Raises
    ------
    ArgumentError
        When the servers are missing, an option has an invalid value, or the topics are missing or
        passed twice.
    """
    check_mapping("options", options)
    options = options or {}
    check_option_names(options)
    check_option_values(options)
    require_servers(options)
    reader = {name: str(value) for name, value in options.items()}
    if topic is not None:
        option, value = _subscription(topic)
        if option in reader:
            raise ArgumentError(
                f"topic and the option {option} cannot be combined: remove one of them"
            )
        reader[option] = value
    named = [name for name in _SUBSCRIPTIONS if reader.get(name)]
    if len(named) != 1:
        got = f"got {' and '.join(named)}" if named else "got none"
        raise ArgumentError(
            f"pass exactly one of topic and the options {', '.join(_SUBSCRIPTIONS)}; {got}"
        )
    return {**READER_DEFAULTS, **reader}


def _subscription(topic: str | Sequence[str] | re.Pattern[str]) -> tuple[str, str]:
    """Return Spark's option for topics, and its value."""
    if not isinstance(topic, re.Pattern):
        if not isinstance(topic, (str, Sequence)) or not all(isinstance(t, str) for t in topic):
            raise ArgumentError(
                f"topic is {topic!r}: pass a name, a list of names, or a compiled pattern"
            )
        return "subscribe", topic if isinstance(topic, str) else ",".join(topic)
    if not isinstance(topic.pattern, str):
        raise ArgumentError("topic is a pattern of bytes: compile a str, re.compile('shop[.].*')")
    if topic.flags != re.compile(topic.pattern).flags:
        raise ArgumentError(
            "topic has flags that Kafka would not see: write them into the pattern, as in "
            f"re.compile('(?i){topic.pattern}')"
        )
    return "subscribePattern", topic.pattern


def decodes_natively(options: Mapping[str, str]) -> bool:
    """Return whether the native decoder may read."""
    values = {name.lower(): value for name, value in options.items()}
    return values.get(NATIVE_DECODER.lower(), "true").lower() == "true"


def only_topic(options: Mapping[str, str]) -> str | None:
    """Return the topic that the query reads, or None if it may read several."""
    topics = subscribed_topics(options)
    return topics[0] if len(topics) == 1 else None


def splits_partitions(options: Mapping[str, str]) -> bool:
    """Return whether several tasks may read one Kafka partition."""
    return any(name in options for name in _SPLITS)


def reads_topic(topic: str, options: Mapping[str, str]) -> bool:
    """Return whether the query reads a topic; invalid options are left to Spark, which raises."""
    if topic in subscribed_topics(options):
        return True
    with suppress(re.error):
        if re.fullmatch(options.get("subscribePattern") or "(?!)", topic):
            return True
    with suppress(msgspec.DecodeError):
        return topic in msgspec.json.decode(options.get("assign") or "{}", type=dict[str, Any])
    return False
