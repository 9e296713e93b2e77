"""The ids of topics while a query runs: compared at an interval, over one connection."""

import threading
from typing import Any

import pytest

from cdc_formats.errors import TopicReplacedError
from normalize.kafka.topics import INTERVAL, TopicIds, TopicMonitor
from tests.support.streams import new_topic, recreate_topic


@pytest.mark.parametrize("option", ["subscribe", "subscribePattern"])
def test_ids_are_compared_at_an_interval_over_one_connection(kafka: Any, option: str) -> None:
    topic, now = new_topic(kafka, []), [0.0]
    options = {"kafka.bootstrap.servers": kafka.bootstrap_servers, option: topic}
    monitor = TopicMonitor(options, clock=lambda: now[0])
    ids = TopicIds.of(options, monitor())
    threads = threading.active_count()
    for _ in range(3):
        now[0] += INTERVAL
        ids.compare(monitor)
    assert threading.active_count() == threads
    recreate_topic(kafka, topic, [])
    ids.compare(monitor)  # asks no broker
    now[0] += INTERVAL
    with pytest.raises(TopicReplacedError, match=f"topic {topic} was deleted and created again"):
        ids.compare(monitor)
    # Of a topic that appears later, the first id counts.
    of_none = TopicIds.of(options, {})
    of_none.compare(monitor)
