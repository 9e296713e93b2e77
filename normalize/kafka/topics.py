"""The topics that a query reads, Kafka's descriptions of them, and their ids."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import wait
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, cast

import msgspec
from pyspark import TaskContext

from cdc_formats.errors import (
    ArgumentError,
    KafkaUnavailableError,
    MissingDependencyError,
    SampleError,
)
from cdc_formats.topics.client import (
    INSTALL,
    UNKNOWN_TOPIC,
    BrokerErrors,
    TopicDescription,
    refused_property,
    topic_settings,
    typed_error,
)
from normalize.core.guard import require_same_topic

from .client_options import librdkafka_options

_log = logging.getLogger(__name__)
INTERVAL = 5.0
"""So many seconds are between two requests for the descriptions of a query's topics."""
PART = 20
"""The requests take at most the twentieth part of the time."""
UNKNOWN_IDS = (
    "Kafka did not describe the topics: this query cannot detect a topic that was deleted and "
    "created again, or partitions that were added."
)

_SHORT_STOP_SECONDS = 60.0
"""A stop that is shorter is not looked at: Kafka compacts closed segments only, every 15 seconds."""
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
_DESCRIBE_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 10.0


def subscribed_topics(options: Mapping[str, str]) -> list[str]:
    """Return the topics that the option ``subscribe`` names."""
    return [name.strip() for name in options.get("subscribe", "").split(",") if name.strip()]


class TopicDescriber:
    """Returns the id and the number of partitions of each topic that exists, and their offsets.

    Its connection to the brokers stays open: the first call connects, and a later one is a request
    of a few milliseconds.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    topics : collection of str or re.Pattern
        Names, or a pattern that a whole name must match.
    config : mapping
        The connection options, with librdkafka's names.
    uncommitted : bool
        Whether a partition ends after records of open transactions, which a query with
        ``read_committed`` does not read yet.

    Raises
    ------
    MissingDependencyError, ArgumentError
    """

    def __init__(
        self,
        servers: str,
        topics: Collection[str] | re.Pattern[str],
        config: Mapping[str, Any],
        *,
        uncommitted: bool = False,
    ) -> None:
        self._topics, self._brokers, self._answered = topics, BrokerErrors(), False
        self._uncommitted = uncommitted
        try:
            import confluent_kafka
            from confluent_kafka import admin
        except ImportError as error:
            raise MissingDependencyError(
                f"describing topics requires confluent-kafka: {INSTALL}"
            ) from error
        self._kafka: Any = confluent_kafka
        self._admin: Any = admin
        options: dict[str, Any] = {
            "log_level": 0,
            **config,
            "bootstrap.servers": servers,
            "error_cb": self._brokers.hear,
        }
        try:
            self._client = admin.AdminClient(options)
        except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
            raise refused_property(error, config) from None

    def __call__(self) -> dict[str, TopicDescription]:
        """Return the descriptions.

        Raises
        ------
        SampleError
        """
        client, brokers, topics = self._client, self._brokers, self._topics
        if self._answered:
            # Errors since then are of the past: a broker closed an idle connection.
            client.poll(0)
            brokers.names.clear()
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        subject = topics.pattern if isinstance(topics, re.Pattern) else ", ".join(topics)
        try:
            if isinstance(topics, re.Pattern):
                existing = client.list_topics(timeout=_TIMEOUT_SECONDS).topics
                topics = list(filter(topics.fullmatch, existing))
            pending = (
                client.describe_topics(self._kafka.TopicCollection(list(topics))) if topics else {}
            )
            described = {
                name: self._described(name, future, deadline) for name, future in pending.items()
            }
        except self._kafka.KafkaException as error:
            raise typed_error(error.args[0], subject) from None
        self._answered = True
        return {name: each for name, each in described.items() if each is not None}

    def offsets(self, topics: Collection[str]) -> dict[str, dict[int, tuple[int, int]]]:
        """Return the first offset of each partition, and the one after the last.

        Parameters
        ----------
        topics : collection of str

        Raises
        ------
        SampleError
        """
        spec = self._admin.OffsetSpec
        listed = self._client.list_topics(timeout=_TIMEOUT_SECONDS).topics
        partitions = [
            self._kafka.TopicPartition(name, partition)
            for name in topics
            if name in listed
            for partition in listed[name].partitions
        ]
        offsets: dict[str, dict[int, tuple[int, int]]] = {name: {} for name in topics}
        if not partitions:
            return offsets
        levels = self._kafka.IsolationLevel
        level = levels.READ_UNCOMMITTED if self._uncommitted else levels.READ_COMMITTED
        bounds = [
            self._client.list_offsets(
                dict.fromkeys(partitions, of),
                isolation_level=level,
                request_timeout=_TIMEOUT_SECONDS,
            )
            for of in (spec.earliest(), spec.latest())
        ]
        for each in partitions:
            first, end = (self._answer(each.topic, bound[each]).offset for bound in bounds)
            offsets[each.topic][each.partition] = first, end
        return offsets

    def ends(self, topics: Collection[str]) -> dict[str, dict[int, int]]:
        """Return the offset after the last record of each partition; raises as `offsets`."""
        return {
            topic: {partition: end for partition, (_, end) in partitions.items()}
            for topic, partitions in self.offsets(topics).items()
        }

    def is_compacted(self, topic: str) -> bool:
        """Return whether Kafka keeps the last record of each key of a topic for ever.

        Raises
        ------
        SampleError
            Also when this user may not read the topic's settings.
        """
        return str(self.settings(topic)["cleanup.policy"].value) == "compact"

    def settings(self, topic: str) -> Mapping[str, Any]:
        """Return the settings of a topic, each with its `value`; raises as `is_compacted`."""
        answer = self._answer(topic, topic_settings(self._client, topic, _TIMEOUT_SECONDS))
        return cast("Mapping[str, Any]", answer)

    def _answer(self, topic: str, future: Any) -> Any:
        """Return the answer of a request."""
        try:
            return future.result(_TIMEOUT_SECONDS)
        except self._kafka.KafkaException as error:
            raise typed_error(error.args[0], topic, brokers=self._brokers) from None
        except TimeoutError:
            raise KafkaUnavailableError(f"Kafka does not describe topic {topic!r}") from None

    def _described(self, topic: str, future: Any, deadline: float) -> TopicDescription | None:
        """Return the description of a topic, None if it does not exist."""
        client, brokers = self._client, self._brokers
        while not wait([future], _DESCRIBE_POLL_SECONDS).done:
            client.poll(0)  # receives errors of the connection
            if time.monotonic() >= deadline or brokers.refusal() or brokers.all_down:
                errors = ", ".join(sorted(brokers.names)) or "no answer"
                raise brokers.refusal() or KafkaUnavailableError(
                    f"Kafka does not describe topic {topic!r}: {errors}"
                )
        try:
            described = future.result()
        except self._kafka.KafkaException as error:
            if error.args[0].name() in UNKNOWN_TOPIC:
                return None
            raise
        topic_id = str(described.topic_id)
        return TopicDescription("" if topic_id == _NO_ID else topic_id, len(described.partitions))


class TopicMonitor:
    """Kafka's descriptions of the topics that a stream reads, which it asks for at an interval.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source.
    clock : callable
        Returns seconds.

    Attributes
    ----------
    described : dict
        The last descriptions. A topic that was deleted keeps its own.
    problem : str
        Why Kafka did not describe the topics; empty if it did.
    """

    def __init__(
        self, options: Mapping[str, str], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._options, self._clock = dict(options), clock
        self._describer: TopicDescriber | None = None
        self._next = float("-inf")
        self.described: dict[str, TopicDescription] = {}
        self.problem = ""

    def __call__(self, topics: Collection[str] = ()) -> dict[str, TopicDescription]:
        """Return the descriptions, which are new if the last ones are `INTERVAL` seconds old.

        Parameters
        ----------
        topics : collection of str
            They are new as well if one of these topics has none yet.
        """
        started = self._clock()
        if started < self._next and self.described.keys() >= set(topics):
            return self.described
        try:
            self._describer = self._describer or describer(self._options)
            self.described = {**self.described, **self._describer()}
            self.problem = ""
        except (ArgumentError, MissingDependencyError, SampleError) as error:
            self.problem, self._describer = str(error), None
        # A broker that does not answer takes at most a part of the time.
        ended = self._clock()
        self._next = ended + max(INTERVAL, PART * (ended - started))
        return self.described

    def warn_of_lost_deletes(self, stopped: float, *, tombstones: bool) -> None:
        """Warn of topics whose compaction may have removed deletes while the query was stopped.

        Kafka keeps a tombstone for ``delete.retention.ms`` after its compaction, and any other
        record for ``min.compaction.lag.ms`` only if its key has a newer record.

        Parameters
        ----------
        stopped : float
            Seconds since the query's last commit.
        tombstones : bool
            Whether the deletes of the format are tombstones.
        """
        if stopped < _SHORT_STOP_SECONDS or self._describer is None:
            return
        setting = "delete.retention.ms" if tombstones else "min.compaction.lag.ms"
        for topic in self.described:
            try:
                settings = self._describer.settings(topic)
            except SampleError as error:  # many users may not read the settings of a topic
                _log.info("whether compaction removed deletes is unknown: %s", error)
                return
            milliseconds = int(settings[setting].value)
            if "compact" in settings["cleanup.policy"].value and stopped * 1000 > milliseconds:
                _log.warning(
                    "the last commit of the query is %.0f s old, and Kafka compacts topic %s, with "
                    "%s=%d: if the query was stopped that long, Kafka may have removed deletes "
                    "before they were read, and their rows stay. Verify the table, and set %s "
                    "longer than the longest stop",
                    stopped,
                    topic,
                    setting,
                    milliseconds,
                    setting,
                )


def topic_descriptions(options: Mapping[str, str]) -> dict[str, TopicDescription]:
    """Return Kafka's descriptions of the topics that a stream reads.

    If Kafka does not describe them, the result is empty and a warning names the checks that are
    skipped.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source.
    """
    monitor = TopicMonitor(options)
    described = monitor()
    if monitor.problem:
        _log.warning("%s %s", UNKNOWN_IDS, monitor.problem)
    return described


def describer(options: Mapping[str, str]) -> TopicDescriber:
    """Return what describes the topics that a stream reads.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source.

    Raises
    ------
    ArgumentError, MissingDependencyError
    """
    connection = librdkafka_options(options)
    return TopicDescriber(
        connection.pop("bootstrap.servers"),
        selected_topics(options),
        connection,
        uncommitted=options.get("kafka.isolation.level") == "read_uncommitted",
    )


def selected_topics(options: Mapping[str, str]) -> Collection[str] | re.Pattern[str]:
    """Return the topics' names, or their pattern; Java's patterns are parsed as Python's."""
    if "subscribePattern" in options:
        try:
            return re.compile(options["subscribePattern"])
        except re.error:
            raise ArgumentError(
                "the topic pattern is not a regular expression in Python, and so the topics cannot "
                "be looked up"
            ) from None
    return named_topics(options)


def named_topics(options: Mapping[str, str]) -> list[str]:
    """Return the topics of the options ``subscribe`` and ``assign``."""
    if "assign" in options:
        try:
            return sorted(msgspec.json.decode(options["assign"], type=dict[str, list[int]]))
        except msgspec.DecodeError:
            raise ArgumentError(
                "the option assign is not JSON of topics and partitions: write, for example, "
                '{"orders": [0, 1]}'
            ) from None
    return subscribed_topics(options)


# --------------------------------------------------------------------------------------------------
# The ids of topics, compared by a task while a query runs.
#
# A stream's plan has the ids of its topics when the query was defined. In each micro-batch, the first
# task of the first pass compares them, so that it fails before anything is written. Its Python worker
# keeps the connection to the brokers open for its next tasks.


@dataclass(frozen=True)
class TopicIds:
    """The ids of a stream's topics; built on the driver, sent to the workers.

    Parameters
    ----------
    options : tuple of (str, str)
        The options of Spark's Kafka source.
    described : tuple of (str, TopicDescription)
        Kafka's description of each topic when the query was defined. A topic that has none is
        compared with the first one of this process.
    """

    options: tuple[tuple[str, str], ...] = field(repr=False)  # may contain a password
    described: tuple[tuple[str, TopicDescription], ...]

    @classmethod
    def of(cls, options: Mapping[str, str], described: Mapping[str, TopicDescription]) -> TopicIds:
        """Return the ids of descriptions."""
        return cls(tuple(options.items()), tuple(described.items()))

    def check(self) -> str:
        """Compare the ids in the first task of a micro-batch, at most once in `topics.INTERVAL`.

        Returns
        -------
        str
            Why they cannot be compared; empty if they are equal, and in other tasks.

        Raises
        ------
        TopicReplacedError
            When a topic was deleted and created again.
        """
        task = TaskContext.get()
        if task is None or task.partitionId() != 0:
            return ""
        monitor = _monitor(self)
        self.compare(monitor)
        return monitor.problem

    def compare(self, monitor: TopicMonitor) -> None:
        """Compare the ids with those of a monitor.

        Raises
        ------
        TopicReplacedError
        """
        earlier = {**monitor.described, **dict(self.described)}
        for name, topic in monitor().items():
            if name in earlier:
                require_same_topic(name, earlier[name].topic_id, topic.topic_id)


@lru_cache(maxsize=4)
def _monitor(ids: TopicIds) -> TopicMonitor:
    """Return the monitor of this process for a query's topics."""
    return TopicMonitor(dict(ids.options))
