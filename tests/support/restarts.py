"""The page `docs/restarts.md`: what its cells say, and what happens to a query.

The tests of its cells are in `tests/spark/tables/test_restarts*.py`, a file for each function.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from deltalake import DeltaTable
from pyspark.errors import PySparkException

from cdc_formats.errors import ChangelogError
from cdc_formats.format import get_format
from cdc_formats.topics.client import TopicDescription
from normalize import (
    ChangelogNormalize,
    DeltaDatabase,
    DeltaTarget,
    apply_changes,
)
from normalize.core.guard import PartitionSummary, SourceTable, check
from normalize.decode.plan import RecordInput
from normalize.engines.condition import require_condition
from normalize.monitoring.explain_error import explain_error
from normalize.query import Request
from normalize.spark.plans import iceberg_table
from normalize.tables.facts import QueryFacts, checked_topics
from normalize.tables.table_options import TableOptions
from normalize.tables.writers.lake import LakeTarget
from tests.support.databases import Message, maxwell, new_tables
from tests.support.delta_files import delta_rows
from tests.support.json_bytes import json_bytes
from tests.support.paths import REPOSITORY
from tests.support.sinking import changelog
from tests.support.streams import settings
from tests.support.syncing import BoundedSync, idle_query, micro_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STOPPED, RUNS = "While the query is stopped", "While the query runs"
SCHEMA = "id INT, name STRING"
DECLARED = {"schema": SCHEMA, "primary_key": "id"}


def cells() -> list[tuple[str, str, str, str]]:
    """Return the section, change, function and content of each cell of the page."""
    page = (REPOSITORY / "docs" / "restarts.md").read_text("utf-8")
    found = []
    for section, text in re.findall(r"^## (.*)\n((?:(?!## ).*\n)*)", page, re.MULTILINE):
        header, _, *rows = (
            [cell.strip() for cell in line.strip("|\n").split("|")]
            for line in text.splitlines()
            if line.startswith("|")
        )
        functions = [name.strip("`") for name in header[1:]]
        for change, *contents in rows:
            for function, content in zip(functions, contents, strict=True):
                found.append((section, change, function, content))
    return found


def insert(key: int, name: str, table: str = "orders", **more: Any) -> Message:
    return maxwell(table, "insert", {"id": key, "name": name, **more})


FIRST = [insert(1, "a"), insert(2, "b"), insert(3, "c")]
SECOND = [
    maxwell("orders", "update", {"id": 1, "name": "x"}, {"name": "a"}),
    maxwell("orders", "delete", {"id": 2, "name": "b"}),
    insert(4, "d"),
]
_FIRST_NUMBER = 3
BEFORE = {1: "a", 2: "b", 3: "c"}
AFTER = {1: "x", 3: "c", 4: "d"}
WIDE_KEY: Message = (
    json_bytes({"database": "shop", "table": "orders", "pk.id": 4, "pk.name": "d"}),
    insert(4, "d")[1],
)


class Query:
    """The function of a query of one kind in a folder, which is set back for each change."""

    def __init__(self, spark: SparkSession, function: str, folder: Path) -> None:
        self.spark, self.function, self.folder = spark, function, folder / "now"
        self.saved, self.first = folder / "saved", ""
        self.idle = idle_query(spark, folder / "now")
        self.sync = BoundedSync(spark, new_tables(spark, "delta-rs", self.folder), self.folder)

    def job(self, **options: Any) -> Any:
        """Return the function of a started query; `table` are the options of its table."""
        table = options.pop("table", {})
        if self.function == "sync_database":
            tables = {"shop.orders": TableOptions(**table)} if table else {}
            return self.sync.job(tables=tables, **options)
        arguments = {name: table.get(name, value) for name, value in DECLARED.items()}
        rest = {name: value for name, value in table.items() if name not in DECLARED}
        return self.sync.table_job(table=TableOptions(**rest), **arguments, **options)

    def restore(self, first: Mapping[str, Any]) -> None:
        """Let the folder be as after the first micro-batch of a query with these options."""
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
        shutil.rmtree(self.folder, ignore_errors=True)
        if repr(first) == self.first:
            shutil.copytree(self.saved, self.folder)
            for name, value in self.state.items():
                setattr(self.sync, name, copy(value))
            return
        self.folder.mkdir()
        self.sync = BoundedSync(
            self.spark, new_tables(self.spark, "delta-rs", self.folder), self.folder
        )
        self.sync.produce("t", FIRST)
        self.sync.number, self.sync.query = _FIRST_NUMBER, str(self.idle.id)
        self.sync.apply(self.job(**first))
        assert self.rows() == BEFORE
        shutil.rmtree(self.saved, ignore_errors=True)
        shutil.copytree(self.folder, self.saved)
        names = ("number", "offsets", "stamp", "last", "query", "planned", "written")
        self.state = {name: copy(getattr(self.sync, name)) for name in names}
        self.first = repr(first)

    @property
    def target(self) -> Path:
        """The folder of the table."""
        return self.folder / "lake" / "orders"

    def rows(self) -> dict[int, str]:
        """The names in the rows that are not deleted; empty if the table is missing."""
        if not self.target.exists():
            return {}
        return {
            row["id"]: row.get("name") or row["label"]
            for row in self.sync.rows("orders")
            if "deleted_at" not in row and "__END_AT" not in row
        }

    @property
    def checkpoint(self) -> Path:
        """The folder of the checkpoint."""
        return self.folder / "checkpoint"

    def write_more(self) -> None:
        """Apply a micro-batch that the checkpoint then lacks."""
        self.sync.produce("t", [insert(9, "z")])
        self.sync.apply(self.job())
        self.sync.number -= 1

    @property
    def table_file(self) -> Path:
        """The table's file."""
        name = "orders" if self.function == "sync_table" else "shop.orders"
        return self.sync.path(name)

    @property
    def query_file(self) -> Path:
        """The query's file."""
        return self.folder / "schemas" / "query" / "facts.json"


@dataclass(frozen=True)
class Change:
    """What is changed between two micro-batches of `sync_table` or `sync_database`.

    Parameters
    ----------
    options : mapping
        The options of the second run; `table` has those of `TableOptions`.
    first : mapping
        The options of the first run.
    act : callable
        Changes files or the target.
    messages : sequence of Message
        The second micro-batch.
    partitions : int
    """

    options: Mapping[str, Any] = field(default_factory=dict)
    first: Mapping[str, Any] = field(default_factory=dict)
    act: Callable[[Query], object] = lambda query: None
    messages: Sequence[Message] = tuple(SECOND)
    partitions: int = 1
    kept: Mapping[int, str] = field(default_factory=lambda: BEFORE)
    """The rows after an error."""
    of_query: Callable[[Query], dict[str, Any]] = lambda query: {}
    """Options that depend on the query."""


def of_table(**options: Any) -> dict[str, Any]:
    """Options of the table."""
    return {"table": options}


def read_again(query: Query) -> None:
    """Let the query read the topic from its beginning, as without a checkpoint."""
    query.sync.written, query.sync.number = [*query.sync.last], 0
    query.sync.query = str(uuid4())


def set_back(query: Query) -> None:
    """Let the query go on from an earlier checkpoint."""
    query.sync.number = _FIRST_NUMBER - 1


def remove_target(query: Query) -> None:
    shutil.rmtree(query.target)


def another_target(query: Query) -> dict[str, Any]:
    """Options with another target."""
    other = query.folder / "other"
    is_table = query.function == "sync_table"
    return {"target": DeltaTarget(str(other / "orders")) if is_table else DeltaDatabase(str(other))}


def add_column(query: Query) -> None:
    target = query.sync.tables.database.target("orders")
    query.spark.sql(f"ALTER TABLE {target.sql_name} ADD COLUMNS (own STRING)")


def sql_name(table: Query | Stream) -> str:
    """The name of the target in SQL."""
    return table.table.sql_name if isinstance(table, Stream) else f"delta.`{table.target}`"


def by_owner(*statements: str) -> Callable[[Query | Stream], None]:
    """Return what runs statements as the owner of the target, whose name is ``{t}``."""

    def run(table: Query | Stream) -> None:
        # VACUUM would start 10,000 tasks.
        with settings(
            table.spark, {"spark.sql.sources.parallelPartitionDiscovery.parallelism": "2"}
        ):
            for statement in statements:
                table.spark.sql(statement.format(t=sql_name(table))).collect()

    return run


rename_column = by_owner(
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
    "ALTER TABLE {t} RENAME COLUMN name TO label",
)
overwrite = by_owner("INSERT OVERWRITE {t} SELECT * FROM {t}")
other_commits = by_owner(
    "UPDATE {t} SET name = 'c' WHERE id = 3",
    "OPTIMIZE {t}",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 9 days')",
    "VACUUM {t}",
)


def iceberg(table: Query | Stream) -> Any:
    """Java's object of an Iceberg table; None for Delta."""
    if not isinstance(table, Stream) or isinstance(table.table, DeltaTarget):
        return None
    return iceberg_table(table.spark.table(sql_name(table)))[0]


def version_of(table: Query | Stream) -> int:
    """The newest version of the target, as `restore` has it."""
    java = iceberg(table)
    at = java.currentSnapshot().snapshotId() if java else DeltaTable(str(table.target)).version()
    return int(at)


def restore(table: Query | Stream, version: int) -> None:
    """Let the target be as at a version or snapshot."""
    statement = f"RESTORE TABLE {{t}} TO VERSION AS OF {version}"
    if iceberg(table):
        statement = f"CALL lake.system.set_current_snapshot('{{t}}', {version})"
    by_owner(statement)(table)


def restore_older(table: Query | Stream) -> None:
    java = iceberg(table)
    restore(table, java.history()[0].snapshotId() if java else 0)


def undo(table: Query | Stream) -> None:
    """Restore an older version of the target, and then the newest one."""
    version = version_of(table)
    restore_older(table)
    restore(table, version)


def forget(table: Query | Stream) -> None:
    """Let Spark read the log of the target again, as in a new session."""
    table.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]


def create_again(table: Query | Stream) -> None:
    """Replace the target by a new table with the same rows."""
    rows = table.spark.createDataFrame(table.spark.table(sql_name(table)).collect())
    if iceberg(table):
        by_owner("DROP TABLE {t} PURGE")(table)
        rows.writeTo(sql_name(table)).using("iceberg").create()
        return
    shutil.rmtree(table.target)
    forget(table)
    rows.write.format("delta").save(str(table.target))


def last_commit(table: Query | Stream) -> Path:
    """The newest file of the log, without what Delta and Hadoop keep of its content."""
    file = max((table.target / "_delta_log").glob("*.json"))
    for each in (file.with_suffix(".crc"), file.with_name(f".{file.name}.crc")):
        each.unlink(missing_ok=True)
    return file


def replace_commit(table: Query | Stream) -> None:
    """Let the last commit be one of another writer."""
    file = last_commit(table)
    lines = file.read_text("utf-8").splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith('{"txn"')), "utf-8")
    forget(table)


def remove_commit(table: Query | Stream) -> None:
    """Let the target be as in a backup that is older than the last commit."""
    last_commit(table).unlink()
    forget(table)


def clean_up(table: Query | Stream) -> None:
    """Let the log of the target begin with a checkpoint, after a commit of its owner."""
    by_owner("ALTER TABLE {t} SET TBLPROPERTIES ('own' = 'a')")(table)
    DeltaTable(str(table.target)).create_checkpoint()
    *older, _ = sorted((table.target / "_delta_log").glob("*.json"))
    for each in older:
        each.unlink()
    forget(table)


def restore_both(table: Query | Stream) -> None:
    """Set the target and the checkpoint back to one moment."""
    checkpoint = table.checkpoint / "changelog"
    backup = shutil.copytree(checkpoint, table.checkpoint / "backup")
    version = version_of(table)
    table.write_more()
    restore(table, version)
    shutil.rmtree(checkpoint)
    backup.rename(checkpoint)


def accept(table: Query | Stream) -> None:
    """Accept the target as it is, as its owner."""
    java, value = iceberg(table), ""
    if java:
        value = f"{java.uuid().toString()}:{java.snapshots()[-1].sequenceNumber()}"
    else:
        log = DeltaTable(str(table.target))
        value = f"{log.metadata().id}:{log.version()}"
    by_owner(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('changelog.accepted' = '{value}')")(table)


def and_then(*acts: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return what changes the target in several ways."""

    def run(table: Query | Stream) -> None:
        for act in acts:
            act(table)

    return run


def keep_older(table: Query | Stream) -> None:
    """Let the query be killed before it keeps its last commit."""
    for file in (table.checkpoint / "changelog" / "commits").rglob("*.json"):
        kept = json.loads(file.read_text("utf-8"))
        file.write_text(json.dumps({**kept, "since": 0, "record": kept["record"] - 2**32}), "utf-8")


ON_LOG: dict[str, tuple[Callable[[Any], None], Mapping[int, str]]] = {
    "the target was restored to an older version": (restore_older, {}),
    "the same, and its owner accepts it": (and_then(restore_older, accept), {}),
    "the target was restored, and this was undone": (undo, BEFORE),
    "the target and the checkpoint were set back to one moment": (restore_both, BEFORE),
    "both, and the owner of the target accepts it": (and_then(restore_both, accept), BEFORE),
    "the target was overwritten": (overwrite, BEFORE),
    "the target was overwritten, and its owner accepts it": (and_then(overwrite, accept), BEFORE),
    "the target has commits of others": (other_commits, BEFORE),
    "the target is a new table of this name": (create_again, BEFORE),
    "another writer replaced the last commit": (replace_commit, BEFORE),
    "an old backup of the target is in its place": (remove_commit, {}),
    "the log of the target was cleaned up": (clean_up, BEFORE),
    "the query was killed before it kept its commit": (keep_older, BEFORE),
}
"""What happens to the log of a Delta table, and the rows after an error."""
update = by_owner("UPDATE {t} SET name = 'c' WHERE id = 3")
rewrite = by_owner(
    "CALL lake.system.rewrite_data_files(table => '{t}', options => map('rewrite-all', 'true'))"
)
expire = by_owner(
    "CALL lake.system.expire_snapshots(table => '{t}', older_than => TIMESTAMP '2100-01-01', "
    "retain_last => 1)"
)
replace_table = by_owner("CREATE OR REPLACE TABLE {t} USING iceberg AS SELECT * FROM {t}")


ON_SNAPSHOTS = {
    "the target was restored to an older version": (restore_older, {1: "a"}),
    "the same, and its owner accepts it": (and_then(restore_older, accept), {1: "a"}),
    "the target was restored, and this was undone": (undo, BEFORE),
    "the target and the checkpoint were set back to one moment": (restore_both, BEFORE),
    "both, and the owner of the target accepts it": (and_then(restore_both, accept), BEFORE),
    "the target was overwritten": (replace_table, BEFORE),
    "the target was overwritten, and its owner accepts it": (
        and_then(replace_table, accept),
        BEFORE,
    ),
    "the target has commits of others": (and_then(update, rewrite), BEFORE),
    "the target is a new table of this name": (create_again, BEFORE),
    "an old backup of the target is in its place": (and_then(restore_older, expire), {1: "a"}),
    "the log of the target was cleaned up": (and_then(update, rewrite, expire), BEFORE),
    "the query was killed before it kept its commit": (keep_older, BEFORE),
}
"""The same for an Iceberg table."""


def edit(query: Query) -> None:
    text = query.table_file.read_text()
    query.table_file.write_text(text.replace('"name STRING"', '"name STRING", "note STRING"'))


def write_facts(query: Query, text: str) -> None:
    query.query_file.parent.mkdir(exist_ok=True)
    query.query_file.write_text(text)


CHANGES = {
    "nothing": Change(),
    "the target is missing": Change(act=remove_target, kept={}),
    "the target is another one": Change(of_query=another_target),
    "the checkpoint was set back": Change(act=set_back),
    "`primary_key` is another": Change(of_table(primary_key="name")),
    "the key that the records name is wider": Change(messages=[WIDE_KEY]),
    "the schema has another column": Change(
        of_table(schema=f"{SCHEMA}, note STRING", primary_key="id"), of_table(**DECLARED)
    ),
    "the schema lacks a column": Change(
        of_table(schema="id INT", primary_key="id"), of_table(**DECLARED)
    ),
    "the schema has another type": Change(
        of_table(schema="id INT, name DATE", primary_key="id"), of_table(**DECLARED)
    ),
    "two columns of the schema differ in case alone": Change(
        of_table(schema="id INT, name STRING, NAME STRING", primary_key="id")
    ),
    "`format` is another": Change({"format": "debezium-json"}),
    "a column has another mask": Change({"format_options": {"mask": {"name": "redact"}}}),
    "`where` is new": Change(of_table(where="id < 4")),
    "`where` is removed": Change(first=of_table(where="id < 4")),
    '`deletes="soft"` is removed': Change(first=of_table(deletes="soft")),
    "`deleted_column` is another": Change(
        of_table(deletes="soft", deleted_column="gone_at"), of_table(deletes="soft")
    ),
    "`scd_type=2` is new": Change(of_table(scd_type=2)),
    "`scd_type=2` is removed": Change(first=of_table(scd_type=2)),
    "`mode` and `on_truncate` are others": Change(
        {"mode": "DROPMALFORMED", "on_truncate": "ignore"}
    ),
    "the topic has more partitions": Change(partitions=3),
    "the topic has records of a second table": Change(
        messages=[*SECOND, insert(1, "z", table="items")]
    ),
    "the checkpoint was deleted": Change(act=read_again),
    "the table's file was deleted": Change(act=lambda query: query.table_file.unlink()),
    "`schema_location` is an empty folder": Change(
        act=lambda query: shutil.rmtree(query.folder / "schemas")
    ),
    "`schema_location` is a file": Change({"schema_location": __file__}),
    "the table's file is damaged": Change(act=lambda query: query.table_file.write_text("{")),
    "the table's file is one of a newer release": Change(
        act=lambda query: query.table_file.write_text(
            query.table_file.read_text().replace('"facts": {', '"facts": {"later": 1,')
        )
    ),
    "the query's file was deleted": Change(
        act=lambda query: query.query_file.unlink(missing_ok=True)
    ),
    "the query's file is damaged": Change(act=lambda query: write_facts(query, "{")),
    "a column was added to the target": Change(act=add_column),
    "a column of the target was renamed": Change(act=rename_column),
    "a column was added to the table's file": Change(act=edit),
    **{name: Change(act=act, kept=kept) for name, (act, kept) in ON_LOG.items()},
}


def outcome(query: Query, change: Change, *, stopped: bool, caplog: Any) -> str:
    """Return the content of a cell: what happens to the rows, with the warnings or the error."""
    query.restore(change.first)
    running = None if stopped else query.job(**change.first)
    change.act(query)
    caplog.clear()
    try:
        options = {**change.options, **change.of_query(query)}
        job = query.job(**options) if running is None else running
        query.sync.produce("t", change.messages, partitions=change.partitions)
        query.sync.apply(job)
    except (ChangelogError, PySparkException) as error:
        assert query.rows() == change.kept
        return f"error: {explain_error(error)}"
    assert query.rows() == AFTER
    return "\n".join(["same rows", *caplog.messages])


def topics_outcome() -> str:
    """Return what happens to a query whose topic was created again."""
    kept = QueryFacts("q", {"t": "first"})
    try:
        checked_topics(kept, "q", {"t": TopicDescription("second", 1)}, "")
    except ChangelogError as error:
        return f"error: {error}"
    return "same rows"


def guard_outcome(spark: SparkSession, before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return what the keyed stage's guard in a checkpoint does, without a stream."""

    def checked(
        stored: bytes | None, topic: str = "first", table: str = "orders", **options: Any
    ) -> bytes:
        stage_options = {
            name: options.pop(name) for name in ("where", "key_groups") if name in options
        }
        arguments: dict[str, Any] = {
            "format": get_format("maxwell-json", **options.pop("format_options", {})),
            "schema": SCHEMA,
            "primary_key": "id",
            "normalize": ChangelogNormalize(**stage_options),
            "mode": "FAILFAST",
            "metadata": (),
            "changelog_mode": "all",
            "control_events": (),
            "on_truncate": "fail",
            "observation": None,
            **options,
        }
        stage = Request.check(RecordInput(True, topic="t"), {}, **arguments).stage()
        where = stage_options.get("where")
        expected = replace(
            stage.expected,
            topics={"t": TopicDescription(topic, 1)},
            condition=""
            if where is None
            else require_condition(spark, where, stage.shape.columns, ()),
        )
        tables = [SourceTable({"database": "shop", "table": table}, "t", "t[0]@1")]
        return check(stored, [PartitionSummary("t", 0, 1, tables)], stage.layout, expected, 0)

    try:
        checked(checked(None, **before), **now)
    except ChangelogError as error:
        return f"error: {error}"
    return "same rows"


GUARDED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "nothing": ({}, {}),
    "`primary_key` is another": ({}, {"primary_key": "name"}),
    "the schema has another column": ({}, {"schema": f"{SCHEMA}, note STRING"}),
    "the schema lacks a column": ({}, {"schema": "id INT"}),
    "the schema has another type": ({}, {"schema": "id INT, name DATE"}),
    "two columns of the schema differ in case alone": ({}, {"schema": f"{SCHEMA}, NAME STRING"}),
    "a column has another mask": ({}, {"format_options": {"mask": {"name": "redact"}}}),
    "`where` is new": ({}, {"where": "id < 4"}),
    "`where` is removed": ({"where": "id < 4"}, {}),
    "`mode` and `on_truncate` are others": ({}, {"mode": "DROPMALFORMED", "on_truncate": "ignore"}),
    "`key_groups` is another": ({}, {"key_groups": 7}),
    "the topic was created again": ({}, {"topic": "second"}),
    "the topic has more partitions": ({}, {}),
    "the topic has records of a second table": ({}, {"table": "items"}),
}


class Stream:
    """The function of a query of `apply_changes` into a table, that of a path in Delta by default."""

    def __init__(self, spark: SparkSession, folder: Path, table: LakeTarget | None = None) -> None:
        self.spark, self.target, self.number = spark.newSession(), folder / "table", 0
        self.checkpoint, self.table = (
            folder / "checkpoint",
            table or DeltaTarget(str(self.target), writer="spark"),
        )
        self.query = idle_query(spark, folder)

    def write_more(self) -> None:
        """Apply a micro-batch that the checkpoint then lacks."""
        self.apply([("+I", 9, "z", 10)])
        self.number -= 1

    def apply(self, changes: Sequence[tuple[Any, ...]], **options: Any) -> None:
        """Apply a micro-batch in a query that is started with these options."""
        stream = self.spark.readStream.format("rate").load()
        typed = stream.selectExpr(
            "'+I' AS row_kind", "INT(value) AS id", "STRING(value) AS name", "INT(value) AS at"
        )
        order = {} if "sequence_by" in options else {"order_by": "at"}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(
                "pyspark.sql.streaming.DataStreamWriter.foreachBatch", lambda _, function: function
            )
            function: Any = apply_changes(
                typed, **{"target": self.table, "keys": "id", **order, **options}
            )
        rows = changelog(self.spark, f"{SCHEMA}, at INT", changes)
        with micro_batch(self.spark, str(self.query.id), self.number):
            function(rows, self.number)
        self.number += 1

    def rows(self) -> dict[int, str]:
        """The names in the rows that are valid; empty if the table is missing."""
        is_delta = isinstance(self.table, DeltaTarget)
        listed: Sequence[Any] | None = delta_rows(self.target) if self.target.exists() else []
        if listed is None or not is_delta:
            listed = [row.asDict() for row in self.spark.table(self.table.sql_name).collect()]
        return {
            row["id"]: row.get("name") or row["label"]
            for row in listed
            if row.get("__END_AT") is None
        }


def target_outcome(
    spark: SparkSession,
    folder: Path,
    before: Mapping[str, Any],
    now: Mapping[str, Any],
    act: Callable[[Stream], object] = lambda stream: None,
    kept: Mapping[int, str] = BEFORE,
    table: LakeTarget | None = None,
) -> str:
    """Return what happens in a target, whose last changes are applied after something changed."""
    stream = Stream(spark, folder, table)
    first = [("+I", key, name, key) for key, name in BEFORE.items()]
    for part in (first[:1], first[1:]):
        stream.apply(part, **before)
    act(stream)
    try:
        stream.apply([("+U", 1, "x", 11), ("-D", 2, "b", 12), ("+I", 4, "d", 13)], **now)
    except (ChangelogError, PySparkException) as error:
        assert stream.rows() == kept
        return f"error: {explain_error(error)}"
    finally:
        stream.query.stop()
    assert stream.rows() == AFTER
    return "same rows"


def other_folder(stream: Stream) -> None:
    stream.table = DeltaTarget(f"{stream.target}2", writer="spark")


def earlier_number(stream: Stream) -> None:
    stream.number = 0


HISTORY = {"scd_type": 2, "sequence_by": "at"}
TARGETS: dict[str, tuple[Any, ...]] = {
    "the target is missing": ({}, {}, lambda stream: shutil.rmtree(stream.target), {}),
    "the target is another one": ({}, {}, other_folder),
    "the checkpoint was set back": ({}, {}, earlier_number),
    "`scd_type=2` is new": ({}, HISTORY),
    "`scd_type=2` is removed": (HISTORY, {}),
    "a column was added to the target": (
        {},
        {},
        lambda stream: stream.spark.sql(
            f"ALTER TABLE {stream.table.sql_name} ADD COLUMNS (own STRING)"
        ),
    ),
    "a column of the target was renamed": ({}, {}, rename_column),
    **{name: ({}, {}, act, kept) for name, (act, kept) in ON_LOG.items()},
    # The first of its two commits is left.
    "an old backup of the target is in its place": ({}, {}, remove_commit, {1: "a"}),
}


# --------------------------------------------------------------------------------------------------
# the page


def happened_to_sync(
    query: Query, section: str, change: str, caplog: pytest.LogCaptureFixture
) -> str | None:
    """Return what happens to `sync_table` or `sync_database`; None if there is nothing to run."""
    if change == "the topic was created again":
        return topics_outcome()
    if change not in CHANGES:
        return None
    with caplog.at_level(logging.WARNING, "normalize"):
        return outcome(query, CHANGES[change], stopped=section == STOPPED, caplog=caplog)


def happened_to_apply(spark: SparkSession, change: str, folder: Path) -> str | None:
    """Return what happens to `apply_changes`; None if there is nothing to run."""
    if change in TARGETS:
        return target_outcome(spark, folder, *TARGETS[change])
    return guard_outcome(spark, *GUARDED[change]) if change in GUARDED else None


BY_SPARK = {
    ("apply_changes", change)
    for change in (
        "the target was restored to an older version",
        "the target was overwritten",
        "the target is a new table of this name",
        "another writer replaced the last commit",
    )
}
"""What happens to the log concerns code that all functions share. With `sync_table`, delta-rs
writes; here Spark does. `make soak` runs the other cells."""


def cells_of(function: str, *, on_log: bool | None = None) -> pytest.MarkDecorator:
    """Give a test the cells of a function: their section, change and content.

    With `on_log`, those in which something happens to the log of the target, or the others.
    """
    return pytest.mark.parametrize(
        ("section", "change", "content"),
        [
            pytest.param(
                section,
                change,
                content,
                marks=[pytest.mark.soak]
                * (
                    change in ON_LOG
                    and function != "sync_table"
                    and (function, change) not in BY_SPARK
                ),
            )
            for section, change, of, content in cells()
            if of == function and on_log in (None, change in ON_LOG)
        ],
    )


def check_cell(happened: str | None, content: str) -> None:
    """Check that what happened is the content of a cell."""
    if content == "–":
        assert happened is None
        return
    kind, _, text = content.partition(": ")
    assert happened.startswith("same rows" if kind == "warning" else kind)
    assert text.strip("`") in happened
