"""A table that differs from its source is repaired: rows are merged, or Debezium reads them again."""

from collections.abc import Callable

from pyspark.sql import SparkSession

from normalize import DeltaTarget
from tests.support.verifying import CHANGED, Database, differences, verify


def test_rows_that_differ_are_found_and_repair_merges_them(
    spark: SparkSession, database: Database, delta: Callable[..., DeltaTarget]
) -> None:
    rows = len(CHANGED) + 3
    missing = rows - 1
    source, target = database.table(rows), delta(rows)
    spark.sql(f"ALTER TABLE {target.sql_name} ADD COLUMN loaded STRING")
    # A row for each column, in which only that value is another.
    changes = [
        f"{column} = CASE id WHEN {number} THEN {value} ELSE {column} END"
        for number, (column, value) in enumerate(CHANGED.items(), 1)
    ]
    spark.sql(
        f"UPDATE {target.sql_name} SET loaded = 'mine', {', '.join(changes)} WHERE id <= "
        f"{len(CHANGED)}"
    )
    spark.sql(f"DELETE FROM {target.sql_name} WHERE id = {missing}")
    spark.sql(f"INSERT INTO {target.sql_name} (id) VALUES (77), ({rows}), (NULL)")
    result = verify(spark, database.source(source), target)
    changed = [("different", str(number), (column,)) for number, column in enumerate(CHANGED, 1)]
    assert [each for each in differences(result) if each[0] == "different"] == changed
    kinds = [
        ("missing", str(missing), ()),
        ("extra", "77", ()),
        ("duplicate", str(rows), ()),
        ("extra", None, ()),
    ]
    assert sorted(differences(result), key=str) == sorted([*changed, *kinds], key=str)
    assert (result.equal, result.is_complete) == (False, True)
    assert result.counts == {"different": len(CHANGED), "missing": 1, "extra": 2, "duplicate": 1}
    assert "`id` = 77" in str(result)
    assert "NOT equal" in str(result)

    spark.sql(f"DELETE FROM {target.sql_name} WHERE id IS NULL")
    before = spark.sql(f"DESCRIBE HISTORY {target.sql_name}").count()
    result = verify(spark, database.source(source), target, repair="merge")
    assert (result.equal, result.repaired, result.differences) == (True, len(CHANGED) + 3, ()), str(
        result
    )
    assert f"repaired         {len(CHANGED) + 3} keys" in str(result)
    # One commit for the duplicate, one for all others; and columns that only the target has keep
    # their values.
    assert spark.sql(f"DESCRIBE HISTORY {target.sql_name}").count() == before + 2
    assert spark.table(target.sql_name).where("loaded = 'mine'").count() == len(CHANGED)
    assert verify(spark, database.source(source), target, repair="merge").repaired == 0
    assert spark.sql(f"DESCRIBE HISTORY {target.sql_name}").count() == before + 2
