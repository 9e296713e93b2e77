"""`read_state` on checkpoints with state made by hand."""

import shutil
from decimal import Decimal

import pytest
from pyspark.errors import PythonException

from cdc_formats import columns
from cdc_formats.errors import ArgumentError, StateDamagedError
from normalize import ChangelogNormalize
from normalize.checkpoint.read_state import read_state
from normalize.core.arrow import pack
from normalize.core.state import Layout
from tests.support.states import LAYOUT, NOON_MS, group_of, rows_of, stored_by_hand
from tests.support.streams import run_stream


def test_groups_from_before_and_after_a_schema_change(spark, tmp_path):
    then = Layout(2, columns("id INT, name STRING, old DATE"), ("id",))
    now = Layout(2, columns("id BIGINT, name STRING, price DECIMAL(10,2)"), ("id",), with_ttl=True)
    groups = {
        0: group_of(then, [pack((1,))], [1], ["a"], [20_000], [0]),
        1: group_of(now, [pack((2,))], [2], ["b"], [Decimal("1.50")], [NOON_MS], [0]),
    }
    stored_by_hand(spark, groups, tmp_path / "checkpoint")
    state = read_state(spark, str(tmp_path / "checkpoint"))
    types = {
        "id": "bigint",
        "name": "string",
        "old": "date",
        "price": "decimal(10,2)",
        "_key_group": "int",
        "_written": "timestamp",
    }
    assert dict(state.dtypes) == types
    seconds = state.selectExpr(
        "id", "name", "cast(old AS STRING)", "price", "unix_millis(_written)"
    )
    assert rows_of(seconds) == [
        (1, "a", "2024-10-04", None, None),
        (2, "b", None, Decimal("1.50"), NOON_MS),
    ]


def test_positions_and_remembered_deletes(spark, tmp_path):
    layout = Layout(2, columns("name STRING, id INT, day DATE"), ("id", "day"), with_positions=True)
    keys = [pack((number, 20_000)) for number in (1, 2, 3)]
    most = 2**64 - 1
    group = group_of(
        layout,
        keys,
        ["a", None, "c"],
        [1, None, 3],
        [20_000, None, 20_000],
        [1, 2, 0],
        [5, most, 0],
        [6, 7, 0],
        [0, NOON_MS, 0],
    )
    stored_by_hand(spark, {1: group}, tmp_path / "checkpoint")
    state = read_state(spark, str(tmp_path / "checkpoint"))
    plain = state.selectExpr(
        "id",
        "name",
        "cast(day AS STRING)",
        "_key_group",
        "unix_millis(_deleted_at)",
        "_epoch",
        "_high",
        "_low",
    )
    assert rows_of(plain) == [
        (1, "a", "2024-10-04", 1, None, 1, Decimal(5), Decimal(6)),
        (2, None, "2024-10-04", 1, NOON_MS, 2, Decimal(most), Decimal(7)),
        (3, "c", "2024-10-04", 1, None, None, None, None),
    ]


def test_other_stateful_operators_are_distinguished(spark, tmp_path):
    ddl = "row_kind STRING, id INT, name STRING"
    spark.createDataFrame([("+I", 1, "a"), ("+I", 2, "b")], ddl).write.parquet(
        str(tmp_path / "rows")
    )
    stream = spark.readStream.schema(ddl).parquet(str(tmp_path / "rows")).dropDuplicates(["id"])
    run_stream(stream.transform(ChangelogNormalize("id", key_groups=2)), tmp_path / "checkpoint")
    assert rows_of(read_state(spark, str(tmp_path / "checkpoint")), "id", "name") == [
        (1, "a"),
        (2, "b"),
    ]
    with pytest.raises(
        ArgumentError,
        match=r"operator 1 is not a ChangelogNormalize.* 0 \(applyInPandasWithState\), 1 \(dedupe\)",
    ):
        read_state(spark, str(tmp_path / "checkpoint"), operator_id=1)


def test_a_folder_without_state_is_an_error_and_is_not_changed(spark, tmp_path):
    with pytest.raises(ArgumentError, match="is not a checkpoint"):
        read_state(spark, str(tmp_path))
    assert not list(tmp_path.iterdir())
    spark.createDataFrame([(1,)], "id INT").write.parquet(str(tmp_path / "rows"))
    run_stream(
        spark.readStream.schema("id INT").parquet(str(tmp_path / "rows")), tmp_path / "checkpoint"
    )
    with pytest.raises(ArgumentError, match="has no state"):
        read_state(spark, str(tmp_path / "checkpoint"))


def test_a_state_without_rows_has_no_columns(spark, tmp_path):
    ddl = "row_kind STRING, id INT"
    spark.createDataFrame([("+I", 1), ("-D", 1)], ddl).coalesce(1).write.parquet(
        str(tmp_path / "rows")
    )
    run_stream(
        spark.readStream.schema(ddl)
        .parquet(str(tmp_path / "rows"))
        .transform(ChangelogNormalize("id")),
        tmp_path / "checkpoint",
    )
    with pytest.raises(ArgumentError, match="has no rows after batch 0"):
        read_state(spark, str(tmp_path / "checkpoint"))


def test_a_version_that_this_release_does_not_read_is_an_error(spark, tmp_path):
    stored_by_hand(spark, {0: b"\x99\x7f"}, tmp_path / "checkpoint")
    with pytest.raises(PythonException, match=r"\[STATE_VERSION\].*version 127"):
        read_state(spark, str(tmp_path / "checkpoint"))


# --------------------------------------------------------------------------------------------------
# One-sentence errors of `read_state` for checkpoints with no micro-batch yet or with cut files
def test_a_checkpoint_without_a_micro_batch_and_one_with_cut_files(spark, tmp_path):
    checkpoint = tmp_path / "whole"
    stored_by_hand(spark, {0: group_of(LAYOUT, [pack((1,))], [1], ["a"], [0])}, checkpoint)
    begun, cut = tmp_path / "begun", tmp_path / "cut"
    for copy in (begun, cut):
        shutil.copytree(checkpoint, copy)
    for file in (begun / "commits").iterdir():
        file.unlink()
    with pytest.raises(ArgumentError, match="has not committed a micro-batch yet"):
        read_state(spark, str(begun))
    for file in (cut / "state").rglob("*.delta"):
        file.write_bytes(file.read_bytes()[:10])
    with pytest.raises(
        StateDamagedError,
        match=f"^.STATE_DAMAGED. Spark cannot read the state in {cut}: .*EOFException",
    ) as damaged:
        read_state(spark, str(cut))
    assert "\n" not in str(damaged.value)
