"""The benchmarked reader settings: the plain ones, a production job's, and the last change per key.

A name is one of `NAMES`, or several joined by ``+``: ``metadata+validate+source``. ``mini_batch``
and ``native`` return the same rows: the last change of a key in a micro-batch, on key groups and on
the native engine. ``python`` leaves an installed native decoder unused.
"""

from __future__ import annotations

import argparse
from typing import Any, Literal, NamedTuple

from cdc_formats import get_format
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.stage_options import NativeEngine

from .history import SCHEMA, Expected
from .spark import use_native
from .topics import Topic, producer_of, records

PLAIN = "plain"
NATIVE, MINI_BATCH, PYTHON = "native", "mini_batch", "python"
NAMES = (PLAIN, "metadata", "validate", "source", MINI_BATCH, NATIVE, PYTHON)
_METADATA = {
    "debezium-json": {"event_time": "source.timestamp", "source_table": "source.table"},
    "canal-json": {"event_time": "event-timestamp", "source_table": "table"},
    "maxwell-json": {"event_time": "ingestion-timestamp", "source_table": "table"},
}
_RECORD = {"kafka_partition": "partition", "kafka_offset": "offset"}


class Settings(NamedTuple):
    """The reader's arguments.

    Attributes
    ----------
    format_options, metadata : dict
        As in `from_kafka_changelog`; ``validate`` adds ``validate=True``, and ``metadata`` adds two
        columns of the source and two of Kafka.
    order : {"arrival", "source"}
        As in `ChangelogNormalize`.
    """

    format_options: dict[str, Any]
    metadata: dict[str, str]
    order: Literal["arrival", "source"]


def settings_of(name: str, format: str) -> Settings:
    """Return the settings with a name, for a format."""
    names = name.split("+")
    return Settings(
        {**producer_of(format).options, **({"validate": True} if "validate" in names else {})},
        {**_METADATA.get(format, {}), **_RECORD} if "metadata" in names else {},
        "source" if "source" in names else "arrival",
    )


def stage_of(
    name: str, options: argparse.Namespace, order: Literal["arrival", "source"]
) -> ChangelogNormalize:
    """Return the options of the stage for settings with a name, and the order of `settings_of`."""
    names = name.split("+")
    if NATIVE in names:
        # The producer writes each key to one partition.
        return ChangelogNormalize(engine=NativeEngine(repartition=False))
    return ChangelogNormalize(
        key_groups=options.key_groups, order=order, mini_batch=MINI_BATCH in names
    )


def changes_of(
    spark: Any, options: argparse.Namespace, format: str, topic: Topic, settings: str = PLAIN
) -> Any:
    """Return a topic as a changelog."""
    chosen = settings_of(settings, format)
    use_native(spark, native=PYTHON not in settings.split("+"))
    return from_kafka_changelog(
        spark,
        topic.name,
        format=format,
        format_options=chosen.format_options,
        schema=SCHEMA,
        primary_key=["id"],
        options=topic.reader_options(options.batch),
        metadata=chosen.metadata,
        normalize=stage_of(settings, options, chosen.order),
    )


def try_settings(name: str, format: str) -> None:
    """Raise an error if a format cannot be read with the settings: no positions or JSON Schema."""
    settings = settings_of(name, format)
    decoder = get_format(format, **settings.format_options).decoder(
        SCHEMA, unique_key=["id"], positions=settings.order == "source"
    )
    for record in records(producer_of(format), 1, 1, Expected()):
        decoder.upserts(record.key, record.value)
