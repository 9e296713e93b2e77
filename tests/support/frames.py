"""Frames of records for `decode_changelog`."""

import json
from datetime import datetime, timedelta

from tests.support.events import A0, event
from tests.support.histories import records_of

RECORD = "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP"

BEGIN = datetime(2024, 5, 1)


def messages(history: list) -> list[tuple[int, bytes]]:
    return [(json.loads(key)["id"], value) for key, value in records_of(history)]


def kafka_records(history: list) -> list[tuple]:
    """The records of a topic with three partitions."""
    offsets, records = [0, 0, 0], []
    for number, (key, value) in enumerate(messages(history)):
        partition = key % 3
        records.append(
            (
                str(key).encode(),
                value,
                "orders",
                partition,
                offsets[partition],
                BEGIN + timedelta(milliseconds=number // 7),
            )
        )
        offsets[partition] += 1
    return records


def frame(spark, values: list[bytes], columns: str = "value", partitions: int = 1):
    """Return a bounded DataFrame of messages.

    The timestamps are a second apart, unless there are offsets.
    """
    rows = [
        (value, 0, offset, BEGIN + timedelta(seconds=offset)) for offset, value in enumerate(values)
    ]
    df = spark.createDataFrame(
        rows, "value BINARY, partition INT, offset BIGINT, timestamp TIMESTAMP"
    )
    return df.select(*columns.split(", ")).coalesce(partitions)


def values_of(history: list) -> list[bytes]:
    return [value for _, value in history]


A0_MESSAGE = values_of([event("c", 1, None, A0)])[0]
BAD = [A0_MESSAGE, b"no json"]
