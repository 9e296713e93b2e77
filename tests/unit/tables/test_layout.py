"""The layout's options: what is read, what each table format refuses, and `CREATE TABLE`."""

import pytest

from cdc_formats.errors import ArgumentError
from normalize import DeltaDatabase, DeltaTarget, IcebergTarget
from normalize.tables.layout import Layout, StoredLayout
from normalize.tables.table_options import TableOptions
from normalize.tables.writers.lake import create_statement
from tests.support.error_texts import error_test


def test_the_statements_of_a_new_table_quote_every_name() -> None:
    from pyspark.sql.types import DateType, IntegerType, StructField

    fields = [StructField("i`d", IntegerType()), StructField("at", DateType())]
    of = Layout.of(["bucket(4, `i``d`)", "hours(at)"], ["i`d"], {"a'b": True, "n": 1})
    table = IcebergTarget("lake.db.t")
    assert create_statement(table, fields, None, of) == (
        "CREATE TABLE IF NOT EXISTS `lake`.`db`.`t` (`i``d` int, `at` date) USING iceberg "
        "PARTITIONED BY (bucket(4, `i``d`), hours(`at`)) TBLPROPERTIES ('a\\'b' = 'true', 'n' = '1')"
    )
    assert table.after_create(of) == ["ALTER TABLE `lake`.`db`.`t` WRITE LOCALLY ORDERED BY `i``d`"]
    months = Layout.of("month(at)", (), {})
    assert create_statement(DeltaTarget("/lake/t"), fields, None, months) == (
        "CREATE TABLE IF NOT EXISTS `delta`.`/lake/t` (`i``d` int, `at` date, `at_month` STRING "
        "GENERATED ALWAYS AS (DATE_FORMAT(`at`, 'yyyy-MM'))) USING delta PARTITIONED BY (`at_month`)"
    )


def test_the_columns_of_a_layout() -> None:
    of = Layout.of("day(at)", (), {})
    of.require_columns(["AT"])
    DeltaTarget.check_layout(of, ["AT"])
    with pytest.raises(ArgumentError, match="partition_by has 'at', which is not one of the"):
        of.require_columns(["id"])
    with pytest.raises(ArgumentError, match="adds the column 'at_day', which the table has"):
        DeltaTarget.check_layout(of, ["at", "at_day"])


def test_a_table_takes_precedence_over_its_database() -> None:
    database = Layout.of("day(at)", "id", {"a": 1, "b": 1})
    none, own = Layout.of((), (), {"b": 2}), Layout.of("id", (), {})
    assert none.or_of(database, ["at"]) == Layout.of("day(at)", (), {"a": 1, "b": 2})
    assert own.or_of(database, ["at", "id"]) == Layout.of("id", (), {"a": 1, "b": 1})


def test_partitions_of_delta_have_no_statement_and_protocol_features_are_no_difference() -> None:
    of, table = Layout.of("id", (), {"delta.feature.x": "supported", "a": "1"}), DeltaTarget("t")
    same = StoredLayout(["ID"], [], {"a": "1"})
    assert table.differences(of, same) == []
    (text,) = table.differences(of, same._replace(partition_by=["at"]))
    assert text.startswith("no statement changes the partitions of a Delta table, which are (at)")


def test_the_partitions_of_iceberg_are_replaced() -> None:
    of, stored = Layout.of(["month(at)"], [], {}), StoredLayout(["days(at)"], [], {})
    assert IcebergTarget("shop.orders").differences(of, stored) == [
        "ALTER TABLE `shop`.`orders` DROP PARTITION FIELD days(at)",
        "ALTER TABLE `shop`.`orders` ADD PARTITION FIELD months(`at`)",
    ]


test_error_texts = error_test(
    __file__,
    {
        **{
            f"a partition that no table has is refused, {number}": lambda partition_by=partition_by: (
                TableOptions(partition_by=[partition_by])
            )
            for number, partition_by in enumerate(
                ["week(at)", "bucket(id)", "day(3, at)", "day(a.b)", "bucket(0, id)"], 1
            )
        },
        **{
            f"what delta refuses, {number}": lambda options=options: DeltaDatabase(
                "/lake", **options
            )
            for number, options in enumerate(
                [
                    {"partition_by": "bucket(4, id)"},
                    {"partition_by": "id", "cluster_by": "id"},
                ],
                1,
            )
        },
    },
)
