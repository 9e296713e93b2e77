"""The query that reads Kafka for `sync_table` or `sync_database`: what all of its tables share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from threading import Lock
from typing import Any, Literal

import msgspec
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError
from cdc_formats.format import Format, option_name
from cdc_formats.topics.client import TopicDescription
from normalize.arguments import as_format, as_mode, check_choice
from normalize.core.output import Destination, Mode
from normalize.kafka.dead_letter import DeadLetter, destination_of
from normalize.kafka.reader_options import reader_options, reads_topic
from normalize.kafka.topics import UNKNOWN_IDS, TopicDescriber, TopicMonitor, describer
from normalize.monitoring.watch import Notice, log
from normalize.spark.micro_batch import Batch, running_batch, seconds_since_commit
from normalize.spark_versions import check_files, check_kafka_source, check_version, load_kafka

from .database_target import Database
from .facts import QueryFacts, checked_topics, require_same_address
from .resync_state import Offsets, offsets_between
from .route import RECORD_DDL
from .schema_store import SchemaStore
from .targets import TableTarget


@dataclass(frozen=True)
class Query:
    """What all tables of a query share.

    Parameters
    ----------
    spark : SparkSession
        The session of all statements (`TableTarget.session`). A streaming query's own has no
        adaptive execution, which small MERGEs need. And Iceberg caches tables in each session: one
        does not see what another writes.
    user_session : SparkSession
        The session of the call, which sees the rows of a micro-batch after it.
    kafka : dict of str to str
        Options of Spark's Kafka source.
    format : Format
    passed_options : frozenset of str
        The format options that the user passed.
    store : SchemaStore
    topics : KnownTopics
    on_new_column : {"add", "ignore", "fail"}
    on_truncate : {"fail", "ignore"}
    mode : {"FAILFAST", "DROPMALFORMED"}
    dead_letters : Destination or None
    """

    spark: SparkSession
    user_session: SparkSession
    kafka: dict[str, str] = field(repr=False)
    format: Format
    passed_options: frozenset[str]
    store: SchemaStore
    topics: KnownTopics = field(repr=False)
    on_new_column: Literal["add", "ignore", "fail"]
    on_truncate: Literal["fail", "ignore"]
    mode: Mode
    dead_letters: Destination | None

    @classmethod
    def of(
        cls,
        spark: SparkSession,
        target: Database | TableTarget,
        topic: Any,
        format: Any,
        format_options: Any,
        options: Mapping[str, Any],
        schema_location: str,
        mode: Any,
        on_new_column: Literal["add", "ignore", "fail"] = "ignore",
        on_truncate: Literal["fail", "ignore"] = "fail",
    ) -> Query:
        """Return the query of these arguments; raises as `sync_database`."""
        check_choice("on_truncate", on_truncate, ("fail", "ignore"))
        chosen, kafka = as_format(format, format_options), reader_options(topic, options)
        check_version(spark, tables=True)
        check_kafka_source(spark)
        check_files(spark.sparkContext.listFiles)
        dead_letters = None
        chosen_mode: Mode = "FAILFAST"
        if not isinstance(mode, DeadLetter):
            chosen_mode = as_mode(mode, ("FAILFAST", "DROPMALFORMED"))
        elif reads_topic(mode.topic, kafka):
            raise ArgumentError(
                f"{mode.topic!r} is also a topic that is read, so that dead letters would loop: "
                "choose another topic"
            )
        else:
            dead_letters = destination_of(mode, chosen.identifier, kafka)
        store = SchemaStore(spark, schema_location)
        require_same_address(store.read_query(), target.address, store.query_file)
        kind = target if isinstance(target, TableTarget) else target.of
        return cls(
            kind.session(spark),
            spark,
            kafka,
            chosen,
            # Of a `Format`, all options are those of the user.
            frozenset(map(option_name, format_options or {}))
            if not isinstance(format, Format)
            else frozenset(each.name for each in fields(format)),
            store,
            KnownTopics(
                spark,
                store,
                TopicMonitor(kafka),
                target.address,
                tombstones=chosen.traits.reads_tombstones,
            ),
            on_new_column,
            on_truncate,
            chosen_mode,
            dead_letters,
        )

    @cached_property
    def describer(self) -> TopicDescriber:
        """What describes the topics."""
        return describer(self.kafka)

    def behind(self, ends: Offsets) -> int:
        """Return how many records topics have after some offsets."""
        return offsets_between(ends, self.describer.ends(ends.keys()))

    def records(self) -> DataFrame:
        """Return the stream of Kafka's records."""
        return load_kafka(
            self.user_session.readStream.format("kafka").options(
                **self.kafka, includeHeaders="true"
            )
        )

    def records_between(self, start: Offsets, end: Offsets) -> DataFrame:
        """Return the records of some offsets, by topic and partition."""
        kafka = {
            name: value
            for name, value in self.kafka.items()
            if name.lower().startswith(("kafka.", "groupidprefix"))
        }
        ranges = {
            "assign": {topic: sorted(partitions) for topic, partitions in end.items()},
            "startingOffsets": start,
            "endingOffsets": end,
        }
        texts = {name: msgspec.json.encode(value).decode() for name, value in ranges.items()}
        return load_kafka(
            self.spark.read.format("kafka").options(**kafka, **texts, includeHeaders="true")
        )


@dataclass
class KnownTopics:
    """The topics of a query, as Kafka describes them.

    Parameters
    ----------
    spark : SparkSession
    store : SchemaStore
    monitor : TopicMonitor
    address : str
        Where the query's table or database is, which is kept with the ids.
    compares : bool
        Whether the ids are compared and kept.
    tombstones : bool
        Whether the deletes of the format are tombstones.
    """

    spark: SparkSession
    store: SchemaStore
    monitor: TopicMonitor = field(repr=False)
    address: str
    compares: bool = True
    tombstones: bool = False
    _seen: set[str] = field(default_factory=set)
    _batch: Batch | None = None
    _kept: QueryFacts | None = None
    _lock: Lock = field(default_factory=Lock, repr=False)

    def __call__(self, topics: set[str]) -> Mapping[str, TopicDescription]:
        """Return the descriptions, and compare the topics' ids with those of earlier runs.

        The first micro-batch of a run also warns of deletes that compaction may have removed.

        The ids are compared in each micro-batch, with descriptions that are at most
        `topics.INTERVAL` seconds old, and when a topic appears.

        Raises
        ------
        TopicReplacedError
        """
        batch = running_batch(self.spark)
        with self._lock:  # tables are written at the same time
            if (
                not self.compares
                or batch is None
                or (batch == self._batch and topics <= self._seen)
            ):
                return self.monitor.described
            described = self.monitor(topics - self._seen)
            if self.monitor.problem:
                text = f"{UNKNOWN_IDS} {self.monitor.problem}"
                log([Notice((f"{self.store.query_file} ids",), text)])
            if self._batch is None:
                self.monitor.warn_of_lost_deletes(
                    seconds_since_commit(self.spark, batch), tombstones=self.tombstones
                )
            self._batch, self._seen = batch, self._seen | topics | described.keys()
            kept = self._kept or self.store.read_query()
            self._kept = checked_topics(kept, batch.query, described, self.address)
            if self._kept != kept:
                self.store.write_query(self._kept)
            return described


_FEW_RECORDS = 100_000


def are_few(records: int | None) -> bool:
    """Return whether records are so few that the driver may decode them; None: it is unknown."""
    return records is not None and records <= _FEW_RECORDS


def records_of(batch: DataFrame) -> DataFrame:
    """Return the records of a micro-batch with the columns of `RECORD_DDL`.

    Few records are read by as many tasks as Spark runs at a time, whatever the number of
    partitions: a task takes tens of ms, also without records.
    """
    spark, headers = batch.sparkSession, RECORD_DDL.partition("headers ")[2]
    running = running_batch(spark)
    if running is not None and are_few(running.records):
        batch = batch.coalesce(spark.sparkContext.defaultParallelism)
    # As text: each function of PySpark is a call of the JVM.
    return batch.selectExpr(
        "CAST(key AS BINARY) AS key",
        "CAST(value AS BINARY) AS value",
        "topic",
        "partition",
        "offset",
        "unix_millis(timestamp) AS stamp",
        f"CAST(headers AS {headers}) AS headers",
    )
