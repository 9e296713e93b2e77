"""`sync_table` on bounded micro-batches.

It gives the rows of the source, whatever comes in one micro-batch, and errors instead of wrong
rows.
"""

from typing import Any

import pytest
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cdc_formats import get_format
from cdc_formats.errors import ArgumentError, ChangelogError, SchemaError
from cdc_formats.values.schema import columns
from normalize import DeltaTarget
from normalize.decode.plan import DecodePlan
from normalize.monitoring.explain_error import explain_error
from normalize.spark.micro_batch import Batch
from normalize.spark.plans import computed, count
from normalize.tables.batches import Record
from normalize.tables.changes import TableDecoder, changes_on_spark
from normalize.tables.job import ROUTED_COLUMNS
from normalize.tables.route import RECORD_DDL
from normalize.tables.table_options import TableOptions
from tests.support.databases import maxwell
from tests.support.syncing import BoundedSync, NewBoundedSync

TABLE: dict[str, Any] = {"schema": "id INT, name STRING, qty INT", "primary_key": "id"}


def orders(kind: str, row: dict[str, Any], old: dict[str, Any] | None = None, **more: Any) -> Any:
    return maxwell("orders", kind, row, old, **more)


@pytest.mark.parametrize("kind", ["delta", "delta-rs", "iceberg"])
def test_delete_and_rebirth_in_one_micro_batch_and_a_repeated_one(
    new_sync: NewBoundedSync, kind: str
) -> None:
    sync = new_sync(kind)
    changes = [orders("insert", {"id": key, "name": "a", "qty": 1}) for key in range(4)]
    changes += [
        orders("delete", {"id": 1, "name": "a", "qty": 1}),
        orders("insert", {"id": 1, "name": "b", "qty": 2}),
    ]
    changes += [
        orders("update", {"id": 2, "name": "c", "qty": 1}, {"name": "a"}),
        orders("delete", {"id": 2, "name": "c", "qty": 1}),
    ]
    sync.produce("t", changes, partitions=3)
    sync.apply(sync.table_job(**TABLE))
    rows = [
        {"id": 0, "name": "a", "qty": 1},
        {"id": 1, "name": "b", "qty": 2},
        {"id": 3, "name": "a", "qty": 1},
    ]
    assert sync.rows("orders") == rows
    # A kill between the table's commit and Spark's.
    sync.forget_last_commit()
    sync.apply(sync.table_job(**TABLE))
    assert sync.rows("orders") == rows
    # A producer repeats all records, and one task decodes them.
    sync.produce("t", changes)
    sync.apply(sync.table_job(**TABLE))
    assert sync.rows("orders") == rows


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"schema": "id INT, ID STRING"}, "columns id and ID differ in case alone"),
        ({"table": TableOptions(where="qty >")}, r"where is not a condition .*\[PARSE_SYNTAX"),
        ({"table": TableOptions(where="lost > 1")}, r"where is not a condition .*\[UNRESOLVED"),
        ({"table": TableOptions(where="qty")}, r"where is not a condition .*\[DATATYPE_MISMATCH"),
        ({"table": TableOptions(where="max(qty) > 1")}, r"where is not a condition .*\[INVALID_"),
        ({"table": TableOptions(where="rand() > 0.5")}, "where is not deterministic"),
        (
            {"table": TableOptions(deletes="soft", deleted_column="ID")},
            r"its column id has the name of deleted_column: pass table=TableOptions\(deleted_column",
        ),
        (
            {"table": TableOptions(scd_type=2, track_history="lost")},
            "track_history has 'lost', which is not one of its columns: id, name, qty",
        ),
        ({"schema_location": __file__}, "schema_location '.*' is a file: pass a folder"),
        ({"format_options": {"mask": {"nmae": "drop"}}}, "mask has 'nmae', which is not one of"),
        ({"primary_key": ()}, "primary_key is missing"),
        ({"primary_key": "no"}, "primary_key has 'no', which is not one of the columns: id"),
        ({"mode": "PERMISSIVE"}, "mode is 'PERMISSIVE'"),
        (
            {"table": TableOptions(track_history="name")},
            "track_history requires scd_type=2: pass it too",
        ),
    ],
)
def test_arguments_that_cannot_be_used_are_refused_at_the_call(
    sync: BoundedSync, options: dict[str, Any], text: str
) -> None:
    with pytest.raises((ArgumentError, SchemaError), match=text):
        sync.table_job(**{**TABLE, **options})
    assert not sync.path("orders").exists()


def test_restarted_query_refuses_a_null_key_and_has_the_schema_of_its_file(
    sync: BoundedSync, caplog: pytest.LogCaptureFixture
) -> None:
    # `test_restarts` has what else contradicts the file.
    row = {"id": 1, "name": "a", "qty": 1}
    sync.produce("t", [orders("insert", row)])
    sync.apply(sync.table_job(**TABLE))
    assert sync.file("orders")["schema"] == ["id INT NOT NULL", "name STRING", "qty INT"]
    sync.produce("t", [(None, orders("insert", row | {"id": None})[1])])
    with pytest.raises((ChangelogError, PySparkException)) as failed:
        sync.apply(sync.table_job(**TABLE))
    assert "[MISSING_FIELD]" in explain_error(failed.value)
    caplog.clear()
    with caplog.at_level("WARNING", "normalize"):
        sync.table_job(**TABLE)
        job = sync.table_job(schema="id INT, name DATE, other STRING", primary_key="other")
    assert caplog.messages == [
        "orders: primary_key is ['other'] and not ['id']; the column name is DATE and not STRING; "
        "the column other is new. The table's file decides: to change the table, edit "
        f"{sync.path('orders')} while the query is stopped"
    ]
    assert (job.schema.primary_key, sync.rows("orders")) == (("id",), [row])


@pytest.mark.parametrize(("tasks", "shuffles"), [(1, 0), (3, 1)])
def test_changes_are_shuffled_only_where_several_tasks_may_have_a_key(
    spark: SparkSession, tasks: int, shuffles: int
) -> None:
    source = DecodePlan(
        format=get_format("maxwell-json"),
        columns=columns("id INT NOT NULL"),
        unique_key=("id",),
        record_columns=ROUTED_COLUMNS,
    )
    records = spark.createDataFrame([], RECORD_DDL)
    plan: Any = changes_on_spark(records, tasks, TableDecoder(source))
    assert (
        plan._jdf.queryExecution().executedPlan().toString().count("Exchange hashpartitioning")
        == shuffles
    )


def test_few_stored_changes_are_broadcast_and_the_table_is_not_shuffled(
    spark: SparkSession,
) -> None:
    # The size of these rows is not known before they are stored.
    changes = spark.createDataFrame(spark.sparkContext.parallelize([(1,)]), "id BIGINT")
    with computed(changes, count) as (stored, _):
        plan: Any = spark.range(10**9).join(stored, "id")
        text = plan._jdf.queryExecution().executedPlan().toString()
    assert "BroadcastHashJoin" in text
    assert "hashpartitioning" not in text


@pytest.mark.parametrize(("kind", "setting"), [("delta", "none"), ("iceberg", "auto")])
def test_delta_does_not_store_the_changes_again(
    new_sync: NewBoundedSync, kind: str, setting: str
) -> None:
    sync, name = new_sync(kind), "spark.databricks.delta.merge.materializeSource"
    jobs = sync.table_job(**TABLE), sync.job().live
    assert [job.query.spark.conf.get(name, "auto") for job in jobs] == [setting, setting]
    # The user's own MERGEs are as before.
    assert sync.spark.conf.get(name, "auto") == "auto"


@pytest.mark.parametrize(
    ("cores", "of_user", "tasks"),
    [(2, None, "8"), (20, None, "20"), (200, None, "50"), (2, 1, "1")],
)
def test_delta_computes_the_state_of_a_table_in_as_many_tasks_as_spark_runs_at_once(
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    cores: int,
    of_user: int | None,
    tasks: str,
) -> None:
    name = "spark.databricks.delta.snapshotPartitions"
    users = spark.newSession()
    if of_user is None:
        users.conf.unset(name)
    else:
        users.conf.set(name, of_user)
    monkeypatch.setattr(SparkContext, "defaultParallelism", cores)
    own = DeltaTarget.session(users)
    assert own.conf.get(name) == tasks
    assert own.conf.get("spark.sql.parquet.outputTimestampType") == "TIMESTAMP_MICROS"
    assert users.conf.get(name, None) == (None if of_user is None else str(of_user))


def test_delta_computes_the_state_of_a_table_with_the_settings_of_the_queries_own_session(
    new_sync: NewBoundedSync,
) -> None:
    sync, setting = new_sync("delta"), "spark.databricks.delta.snapshotPartitions"
    sync.produce("t", [orders("insert", {"id": 1, "name": "a", "qty": 1})])
    job = sync.table_job(**TABLE)
    sync.apply(job)
    # Delta has to compute the state of another writer's commit.
    target = sync.tables.database.target("orders")
    sync.spark.sql(f"DELETE FROM {target.sql_name}")
    own, context = job.query.spark, sync.spark.sparkContext
    own.conf.set(setting, 5)
    context.setJobGroup("record", "reads the record of a table")
    try:
        record = target.sink(own).record(Batch(sync.query, 0))
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type] # it removes
    assert record == Record(0)
    tracker = context.statusTracker()
    jobs = map(tracker.getJobInfo, tracker.getJobIdsForGroup("record"))
    stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
    assert 5 in [stage.numTasks for stage in stages if stage]
    # The thread goes on with its session.
    assert SparkSession.getActiveSession().conf.get(setting) != "5"
