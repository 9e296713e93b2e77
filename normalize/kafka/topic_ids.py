"""The ids of topics, compared by a task while a query runs.

A stream's plan has the ids of its topics when the query was defined. In each micro-batch, the first
task of the first pass compares them, so that it fails before anything is written. Its Python worker
keeps the connection to the brokers open for its next tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from cdc_formats.topics.client import TopicDescription
from normalize.core.guard import require_same_topic

from .topics import TopicMonitor


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
        from pyspark import TaskContext

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
