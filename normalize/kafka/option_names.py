"""Names of Kafka options: a misspelt one is refused, since Spark and Kafka would ignore it."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from cdc_formats.errors import ArgumentError

_log = logging.getLogger("normalize")

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
        elif not _check(name, name, supported, _SIMILAR_SPARK):
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
