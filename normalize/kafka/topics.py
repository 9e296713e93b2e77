"""The topics that a query reads, and Kafka's description of them when the query is defined."""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping

import msgspec

from cdc_formats.errors import ArgumentError, MissingDependencyError, SampleError
from cdc_formats.topics.client import TopicDescription, describe_topics

from .client_options import librdkafka_options

_log = logging.getLogger(__name__)


def subscribed_topics(options: Mapping[str, str]) -> list[str]:
    """Return the topics that the option ``subscribe`` names."""
    return [name.strip() for name in options.get("subscribe", "").split(",") if name.strip()]


def topic_descriptions(options: Mapping[str, str]) -> dict[str, TopicDescription]:
    """Return Kafka's descriptions of the topics that a stream reads.

    If Kafka does not describe them, the result is empty and a warning names the checks that are
    skipped.

    Parameters
    ----------
    options : mapping
        Options of Spark's Kafka source.
    """
    try:
        connection = librdkafka_options(options)
        return describe_topics(
            connection.pop("bootstrap.servers"), selected_topics(options), connection
        )
    except (ArgumentError, MissingDependencyError, SampleError) as error:
        _log.warning(
            "Kafka did not describe the topics: this query cannot detect a topic that was deleted "
            "and created again, or partitions that were added. %s",
            error,
        )
        return {}


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
