"""The recorded topics: their format and options, source tables, and known differences."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.paths import TOPICS as SMALL
from tests.support.replay import differences as of, producers, truth
from tests.support.replay.differences import Difference
from tests.support.replay.producers import As, Producer

FOLDER = Path(os.environ.get("CDC_TOPICS") or SMALL)
"""The folder of the recordings."""

AVRO = "debezium-avro-confluent"
"""The format whose schemas are in ``records/avro-schemas.json``, by id; a test registry serves that
file."""

NO_PLACEHOLDER = "no such text"
"""The workload writes ``__debezium_unavailable_value`` into ordinary columns. Tables without TOAST
set this unused placeholder."""


@dataclass(frozen=True, kw_only=True)
class Topic:
    """A table in a recorded topic.

    Parameters
    ----------
    recording : str
        The file's name, without its suffix.
    format : str
    options : mapping
        The format's options.
    database, table : str
        The truth.
    producer : callable
        From a source column to the declared type.
    types : mapping
        Declared types that differ from the producer's.
    additional : mapping
        Columns in the message that the table does not have (any more): their declared type, and the
        function from the truth's row to the value; None for a column that is not compared.
    written : mapping
        Key columns that the producer writes otherwise: the function from the truth's value to the
        producer's.
    key : tuple of str
        The primary key, if it differs from the table's.
    differences : tuple of Difference
    mode : str
    before_images : bool
        Whether the messages have complete before-images, encoded like after-images.
    """

    recording: str
    format: str
    database: str
    table: str
    producer: Producer
    options: Mapping[str, Any] = field(default_factory=dict)
    types: Mapping[str, As] = field(default_factory=dict)
    additional: Mapping[str, tuple[As, Callable[[Mapping[str, Any]], Any] | None]] = field(
        default_factory=dict
    )
    written: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    key: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()
    mode: str = "FAILFAST"
    before_images: bool = False

    @property
    def name(self) -> str:
        """The test's name."""
        by = f"-by-{'-'.join(self.key)}" if self.key else ""
        return f"{self.recording}-{self.table}{by}"

    def options_at(self, registry: str) -> Mapping[str, Any]:
        """The format's options, with the URL of a registry if required."""
        return {**self.options, **registry_options(self.format, registry)}

    @property
    def path(self) -> Path:
        """The recording."""
        return FOLDER / "records" / f"{self.recording}.jsonl.gz"

    @property
    def exists(self) -> bool:
        """Whether the folder has the recording and the table."""
        return self.path.exists() and truth.truth_file(FOLDER, self.database, self.table).exists()

    @cached_property
    def source(self) -> truth.Table:
        """The source table."""
        return truth.load(FOLDER, self.database, self.table)

    @cached_property
    def columns(self) -> dict[str, As]:
        """The declared columns."""
        of_table = {
            column.name: self.types.get(column.name) or self.producer(column)
            for column in self.source.columns
        }
        return {**of_table, **{name: column for name, (column, _) in self.additional.items()}}

    @property
    def schema(self) -> str:
        """The declared columns as DDL."""
        required = {column.name for column in self.source.columns if not column.nullable}
        return ", ".join(
            f"`{name}` {column.type}{' NOT NULL' * (name in required)}"
            for name, column in self.columns.items()
        )

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify rows."""
        return self.key or self.source.primary_key

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The truth's rows, with the additional columns and the producer's key."""
        additional = {
            name: value for name, (_, value) in self.additional.items() if value is not None
        }
        written = [
            {**row, **{name: write(row[name]) for name, write in self.written.items()}}
            for row in self.source.rows
        ]
        return [
            {**row, **{name: value(row) for name, value in additional.items()}} for row in written
        ]


def registry_options(format: str, registry: str) -> dict[str, str]:
    """Return the required options of a format."""
    return {"url": registry} if format == AVRO else {}


# -------------------------------------------------------------------------------------------------
# Debezium, for MariaDB

MARIADB = {
    "decimal_handling_mode": "precise",
    "time_precision_mode": "adaptive_time_microseconds",
    "bigint_unsigned_handling_mode": "long",
    "unavailable_value_placeholder": NO_PLACEHOLDER,
}
_SCHEMA_BLOCK = {
    "schema_include": True,
    "bigint_unsigned_handling_mode": "long",
    "unavailable_value_placeholder": NO_PLACEHOLDER,
    # Not the connector's mode: the schema block's `bytes` are base64, regardless of the options.
    "binary_handling_mode": "hex",
}

_ADDED = of.added_later("c_added", "added é")
_ADDED_NULL = of.default_for_null("c_added", "added é")
_EXTRA = of.added_later("extra", "1.500")
_EXTRA_NULL = of.default_for_null("extra", "1.500")
_RENAMED = of.renamed_later("new_name", "old_name")
OLD_NAME = {"old_name": (As("STRING"), None)}

MARIADB_ALL_TYPES = (of.ENUM_COMMA, of.YEAR_0, _ADDED, _ADDED_NULL)


def _mariadb(table: str, *differences: Difference, **more: Any) -> Topic:
    return Topic(
        recording=f"dbz34-mariadb-json.inventory.{table}",
        format="debezium-json",
        options=MARIADB,
        database="mariadb",
        table=table,
        producer=producers.debezium_mysql,
        differences=differences,
        # all_types: a snapshot encodes some types differently from the stream.
        before_images=table not in ("all_types", "no_pk"),
        **more,
    )


def _schema_block(table: str, *differences: Difference) -> Topic:
    return Topic(
        recording=f"dbz34-mariadb-jsonschema.inventory.{table}",
        format="debezium-json",
        options=_SCHEMA_BLOCK,
        database="mariadb",
        table=table,
        producer=producers.debezium_mysql,
        differences=differences,
    )


def _avro(table: str, *differences: Difference, **more: Any) -> Topic:
    return Topic(
        recording=f"dbz34-mariadb-avro.inventory.{table}",
        format=AVRO,
        options={"bigint_unsigned_handling_mode": "long"},
        database="mariadb",
        table=table,
        producer=producers.debezium_mysql,
        differences=differences,
        before_images=table not in ("all_types", "no_pk"),
        **more,
    )


def _in_avro(column: str, default: str, *schemas: int) -> tuple[Difference, ...]:
    """Return the differences of a column added with a default, in the schemas with these ids."""
    return of.added_later(column, default, schemas), of.default_for_null(column, default, schemas)


def _plain(table: str, *differences: Difference, **more: Any) -> list[Topic]:
    # Read in its own format, and as upserts of plain JSON.
    recording = f"dbz34b-mariadb-upsertplain.inventory.{table}"
    flat = Topic(
        recording=recording,
        format="debezium-flat-json",
        options=MARIADB,
        database="mariadb3",
        table=table,
        producer=producers.debezium_mysql,
        differences=differences,
        **more,
    )
    return [
        flat,
        replace(
            flat,
            format="upsert-kafka",
            options={"json_null": "delete"},
            producer=producers.flattened_mysql,
        ),
    ]


def _unwrap(table: str, *differences: Difference, **more: Any) -> Topic:
    return Topic(
        recording=f"dbz34-mariadb-unwrap.inventory.{table}",
        format="debezium-flat-json",
        options=MARIADB,
        database="mariadb",
        table=table,
        producer=producers.debezium_mysql,
        differences=differences,
        **more,
    )


def _upsert(table: str, *differences: Difference, **more: Any) -> Topic:
    return Topic(
        recording=f"dbz34-mariadb-upsert.inventory.{table}",
        format="debezium-flat-json",
        options=_SCHEMA_BLOCK,
        database="mariadb",
        table=table,
        producer=producers.debezium_mysql,
        differences=differences,
        **more,
    )


_DEBEZIUM_MARIADB = [
    _mariadb("all_types", *MARIADB_ALL_TYPES),
    _mariadb("ci_names"),
    _mariadb("customers"),
    _mariadb("evolving", _EXTRA, _EXTRA_NULL, _RENAMED, additional=OLD_NAME),
    _mariadb("no_pk"),
    _mariadb("odd_keys"),
    _mariadb("order_lines"),
    _mariadb("tags"),
    _mariadb("truncated", of.truncated_at(1795266845149)),
    _schema_block("all_types", *MARIADB_ALL_TYPES),
    _schema_block("customers"),
    _schema_block("order_lines"),
    _avro("all_types", of.ENUM_COMMA, of.YEAR_0, *_in_avro("c_added", "added é", 24)),
    _avro("ci_names"),
    _avro("customers"),
    _avro("evolving", *_in_avro("extra", "1.500", 20, 21, 22, 23), _RENAMED, additional=OLD_NAME),
    _avro("no_pk"),
    _avro("odd_keys"),
    _avro("order_lines"),
    _avro("tags"),
    _avro("truncated", of.truncated_at(1795266854789)),
    *_plain(
        "all_types", of.ENUM_COMMA, of.YEAR_0, of.YEAR_0_OF_SNAPSHOT, of.FLOAT_OF_SNAPSHOT, _ADDED
    ),
    *_plain("ci_names"),
    *_plain("customers"),
    *_plain("evolving", _EXTRA, _RENAMED, additional=OLD_NAME),
    *_plain("odd_keys"),
    *_plain("order_lines"),
    *_plain("tags"),
    *_plain("truncated", of.truncated_at(1795272217843)),
    _unwrap("all_types", *MARIADB_ALL_TYPES),
    _unwrap("ci_names"),
    _unwrap("customers"),
    _unwrap("evolving", _EXTRA, _EXTRA_NULL, _RENAMED, additional=OLD_NAME),
    _unwrap("odd_keys"),
    _unwrap("order_lines"),
    _unwrap("tags"),
    _unwrap("truncated", of.truncated_at(1795266847359)),
    _upsert("all_types", *MARIADB_ALL_TYPES, of.CONNECT_TIME, of.cut_to_milliseconds("c_dt6")),
    _upsert("ci_names"),
    _upsert("customers", of.cut_to_milliseconds("updated")),
    _upsert("evolving", _EXTRA, _EXTRA_NULL, _RENAMED, additional=OLD_NAME),
    _upsert("odd_keys", written={"k_dt": of.milliseconds}),
    _upsert("order_lines"),
    _upsert("tags"),
    _upsert("truncated", of.truncated_at(1795266851429)),
]

# -----------------------------------------------------------------------------------------------
# Debezium, for PostgreSQL

POSTGRES = {"decimal_handling_mode": "precise", "time_precision_mode": "adaptive"}
POSTGRES_TYPES = {
    # Values that no DATE, TIME or TIMESTAMP of Spark can hold: years before 1, infinities, 24:00.
    "c_date": As("INT", truth.postgres_date),
    "c_time": As("BIGINT", truth.postgres_clock),
    "c_ts": As("BIGINT", truth.postgres_micros),
    "c_tstz": As("STRING", truth.postgres_iso),
    "c_bit1": As("BOOLEAN", lambda value: str(int(value))),
    "c_interval": As("INTERVAL DAY TO SECOND", truth.in_micros),
}
POSTGRES_ALL_TYPES = (of.INTERVAL, of.TIMETZ, of.HOSTS, of.NUMERIC, _ADDED, _ADDED_NULL)


def _postgres(
    table: str,
    *differences: Difference,
    version: str = "34",
    placeholder: str = NO_PLACEHOLDER,
    **more: Any,
) -> Topic:
    return Topic(
        recording=f"dbz{version}-postgres-json.inventory.{table}",
        format="debezium-json",
        options={**POSTGRES, "unavailable_value_placeholder": placeholder},
        database="postgres19" if version == "19" else "postgres",
        table=table,
        producer=producers.debezium_postgres,
        types=POSTGRES_TYPES if table == "all_types" else {},
        differences=differences,
        before_images=table in ("order_lines", "toasted_full"),
        **more,
    )


def _newer(source: str, table: str, *differences: Difference, avro: bool = False) -> Topic:
    """Return a table of Debezium 3.6, whose columns have newer types."""
    of_mysql = source == "mysql"
    return Topic(
        recording=f"dbz36-{source}-{'avro' if avro else 'json'}.inventory.{table}",
        format=AVRO if avro else "debezium-json",
        database=f"{source}36",
        table=table,
        producer=producers.debezium_mysql if of_mysql else producers.debezium_postgres,
        differences=differences,
        before_images=table == "places",
    )


_NEWER = [
    _newer("mysql", "places"),
    _newer("postgres", "places"),
    _newer("postgres", "places", avro=True),
    _newer("postgres", "embeddings", of.unchanged_vectors("emb", "half")),
]

_TOAST = "__debezium_unavailable_value"


def _temporal(mode: str, **options: str) -> Topic:
    """Return a table of times of Debezium 3.7, from the year 1 to 9999."""
    duration = As("INTERVAL DAY TO SECOND", truth.in_micros)
    return Topic(
        recording=f"dbz37-postgres-{mode}.inventory.temporal",
        format="debezium-json",
        options=options,
        database="postgres37",
        table="temporal",
        producer=producers.debezium_postgres,
        additional={"ttz": (As("STRING"), None), "iv": (duration, None)},
    )


_DEBEZIUM_37 = [
    _temporal("json", **POSTGRES),
    _temporal("structured", time_precision_mode="structured"),
    _temporal("structuredschema"),
    Topic(
        recording="dbz37-postgres-json.inventory.indexed",
        format="debezium-json",
        database="postgres37",
        table="indexed",
        producer=producers.debezium_postgres,
        differences=of.toast_of_the_old_key(),
        mode="PERMISSIVE",
    ),
]
_DEBEZIUM_POSTGRES = [
    _postgres("all_types", *POSTGRES_ALL_TYPES),
    _postgres("customers"),
    _postgres("evolving", _EXTRA, _EXTRA_NULL, _RENAMED, additional=OLD_NAME),
    _postgres("no_pk"),
    _postgres("odd_keys"),
    _postgres("order_lines"),
    _postgres("tags"),
    _postgres("toasted", *of.toast_of_the_old_key(), placeholder=_TOAST, mode="PERMISSIVE"),
    _postgres("toasted_full", placeholder=_TOAST),
    _postgres("truncated", of.truncated_at(1795268092362)),
    _postgres("uniq_ident", of.fake_keys("code")),
    _postgres("uniq_ident", key=("code",)),
    _postgres("all_types", *POSTGRES_ALL_TYPES, of.JULIAN, version="19"),
    _postgres("customers", version="19"),
    _postgres("order_lines", version="19"),
]

# --------------------------------------------------------------------------------------------------
# Maxwell, Canal


def _maxwell(recording: str, table: str, *differences: Difference, **more: Any) -> Topic:
    return Topic(
        recording=recording,
        format="maxwell-json",
        options={"table_include": table, "time_zone": "UTC"},
        database="mariadb2",
        table=table,
        producer=producers.maxwell,
        differences=differences,
        # customers: the bootstrap read rows that the stream then changed. The other recording's
        # keys move between partitions.
        before_images=table not in ("customers", "no_pk") and recording == "maxwell-mariadb",
        **more,
    )


def _maxwells(
    recording: str, truncated_at: int, tables: Mapping[str, tuple[Difference, ...]]
) -> list[Topic]:
    return [
        _maxwell(recording, "all_types", *_MAXWELL_ALL_TYPES, *tables.get("all_types", ())),
        _maxwell(recording, "ci_names"),
        _maxwell(
            recording, "customers", of.bootstrapped_zone("created"), *tables.get("customers", ())
        ),
        _maxwell(
            recording,
            "evolving",
            _EXTRA,
            _RENAMED,
            *tables.get("evolving", ()),
            additional=OLD_NAME,
        ),
        _maxwell(recording, "no_pk", of.bootstrapped_again(150)),
        _maxwell(recording, "odd_keys"),
        _maxwell(recording, "order_lines"),
        _maxwell(recording, "tags", of.nested_json("doc")),
        _maxwell(
            recording, "truncated", of.truncated_at(truncated_at), *tables.get("truncated", ())
        ),
    ]


_MAXWELL_ALL_TYPES = (
    of.WRAPPED_TIME,
    of.BINARY_ZEROS,
    of.BIT_64,
    of.ENUM_QUOTE,
    of.YEAR_0,
    of.nested_json("c_json"),
    _ADDED,
)
MOVED = {
    table: (of.torn_between_partitions(table),)
    for table in ("all_types", "customers", "evolving", "truncated")
}
"""The differences of ``maxwell-mariadb-full``, whose keys move between partitions, unless positions
order the changes."""


def _canal(table: str, *differences: Difference, **more: Any) -> Topic:
    return Topic(
        recording="canal-mariadb-flat",
        format="canal-json",
        options={"table_include": table, "time_zone": "UTC"},
        database="mariadb2",
        table=table,
        producer=producers.canal,
        differences=differences,
        before_images=table != "no_pk",
        **more,
    )


_CANAL = [
    _canal("all_types", of.BINARY_ZEROS, of.misread_json("c_json"), of.LATIN1, _ADDED),
    _canal("ci_names"),
    _canal("customers"),
    _canal("evolving", _EXTRA, _RENAMED, additional=OLD_NAME),
    _canal("no_pk"),
    _canal("odd_keys"),
    _canal("order_lines"),
    _canal("tags", of.misread_json("doc")),
    _canal("truncated", of.truncated_at(1795269629823)),
]

# --------------------------------------------------------------------------------------------------
# Flink

_FLINK = [
    Topic(
        recording="flink-ogg.tags",
        format="ogg-json",
        database="mysql",
        table="tags",
        producer=producers.debezium_mysql,
        differences=(of.respaced_json("doc"),),
    ),
    Topic(
        recording="flink-upsert.tags",
        format="upsert-kafka",
        options={"key_format": "raw"},
        database="mysql",
        table="tags",
        producer=producers.debezium_mysql,
        differences=(of.respaced_json("doc"),),
    ),
    Topic(
        recording="flink-upsert-exceptkey.customers",
        format="upsert-kafka",
        options={"value_fields_include": "EXCEPT_KEY"},
        database="mysql",
        table="customers",
        producer=producers.debezium_mysql,
        types={
            "created": As("TIMESTAMP_NTZ(3)", truth.mysql_stamp(3)),
            "updated": As("TIMESTAMP(6)", truth.mysql_stamp(6)),
        },
        # Columns that the job's SQL computed in addition to the table's.
        additional={
            "dbl": (As("DOUBLE"), lambda row: float(row["balance"])),
            "rawb": (
                As("BINARY", truth.in_base64),
                lambda row: truth.in_base64(row["name"].encode()),
            ),
            "arr": (As("ARRAY<INT>"), lambda row: [row["id"], None]),
            "st": (
                As("STRUCT<id: INT, email: STRING>"),
                lambda row: {"id": row["id"], "email": row["email"]},
            ),
            "mp": (As("MAP<STRING, STRING>"), lambda row: {"k": row["name"]}),
            "d": (As("DATE", truth.iso), lambda row: row["created"][:10]),
            "nb": (As("STRING"), lambda row: None),
        },
        differences=(of.cut_to_milliseconds("updated"),),
    ),
]

TOPICS = [
    *_DEBEZIUM_MARIADB,
    *_DEBEZIUM_POSTGRES,
    *_NEWER,
    *_DEBEZIUM_37,
    *_maxwells("maxwell-mariadb", 1795269628174, {}),
    *_maxwells("maxwell-mariadb-full", 1795269628472, MOVED),
    *_CANAL,
    *_FLINK,
]
"""Every table of every recorded topic in a supported format."""

CONTROL = {
    "__debezium-heartbeat.dbz34-mariadb-strings": ("debezium-json", "HEARTBEAT"),
    "__debezium-heartbeat.dbz34-mysql-strings": ("debezium-json", "HEARTBEAT"),
    "__debezium-heartbeat.dbz34-postgres-strings": ("debezium-json", "HEARTBEAT"),
    "dbz34-mariadb-avro": (AVRO, "DDL"),
    "dbz34-mariadb-json": ("debezium-json", "DDL"),
    "dbz34-mariadb-unwrap": ("debezium-json", "DDL"),
    "dbz34-mariadb-upsert": ("debezium-json", "DDL"),
    "dbz34b-mariadb-upsertplain": ("debezium-json", "DDL"),
    "dbz34-postgres-json.message": ("debezium-json", "MESSAGE"),
    "maxwell-mariadb-ddl": ("maxwell-json", "DDL"),
}
"""Topics without rows: their format, and why their records are ignored."""

SIGNALS = {
    "dbz34-mariadb-avro.inventory.dbz_signal": (AVRO, 39),
    "dbz34-mariadb-json.inventory.dbz_signal": ("debezium-json", 39),
    "dbz34-postgres-json.inventory.dbz_signal": ("debezium-json", 31),
    "dbz34-mariadb-unwrap.inventory.dbz_signal": ("debezium-flat-json", 39),
    "dbz34-mariadb-upsert.inventory.dbz_signal": ("debezium-flat-json", 39),
    "dbz34b-mariadb-upsertplain.inventory.dbz_signal": ("upsert-kafka", 1),
}
"""Signalling tables, which have no truth: their format, and the number of rows that the connector
inserted."""

KEYLESS = {
    "dbz34-mariadb-unwrap.inventory.no_pk": {
        "+I": 1932,
        "-D": 1186,
        "TOMBSTONE": 1186,
        "MISSING_BEFORE_IMAGE": 3585,
    },
    "dbz34-mariadb-upsert.inventory.no_pk": {
        "+I": 1932,
        "MISSING_FIELD": 1186,
        "MISSING_BEFORE_IMAGE": 3585,
    },
    "dbz34b-mariadb-upsertplain.inventory.no_pk": {
        "+I": 410,
        "MISSING_FIELD": 98,
        "MISSING_BEFORE_IMAGE": 390,
    },
}
"""Flattened tables without a primary key, and their number of rows, ignored and refused records. No
reader can end in the truth, because updates do not identify the replaced row, and nulls do not
identify the deleted one."""


def topics() -> list[Topic]:
    """Return the tables that the folder of recordings has."""
    return [topic for topic in TOPICS if topic.exists]


def recordings() -> list[str]:
    """Return the names of all recordings in the folder."""
    return sorted(
        path.name.removesuffix(".jsonl.gz") for path in (FOLDER / "records").glob("*.jsonl.gz")
    )
