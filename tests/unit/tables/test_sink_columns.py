"""Missing or narrower table columns: what is added, ignored or refused, tested without a table."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from cdc_formats.errors import ArgumentError, SchemaError
from normalize import DeltaDatabase
from normalize.tables.layout import Layout
from normalize.tables.table_options import TableOptions
from normalize.tables.table_spec import (
    TableSpec,
    is_narrower,
    missing_columns,
    require_no_narrowing,
    wider,
    written_spec,
)
from normalize.tables.targets import TRIES, ConflictError, TargetError, repeat_conflicts
from normalize.tables.writers.delta import DeltaTarget
from normalize.tables.writers.iceberg import IcebergTarget
from normalize.tables.writers.lake import LakeTarget, column_definition, create_statement
from tests.support.error_texts import error_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql.types import DataType, StructField


def fields(*names: str) -> tuple[StructField, ...]:
    from pyspark.sql.types import IntegerType, StructField

    return tuple(StructField(name, IntegerType()) for name in names)


def parsed(kind: str) -> DataType:
    """A type, by its name in Spark SQL."""
    from pyspark.sql import types

    if kind.startswith("decimal"):
        return types.DecimalType(
            *map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
        )
    plain = [
        types.BooleanType,
        types.ByteType,
        types.ShortType,
        types.IntegerType,
        types.LongType,
        types.FloatType,
        types.DoubleType,
    ]
    plain += [types.StringType, types.DateType, types.TimestampType, types.TimestampNTZType]
    return next(each() for each in plain if each().simpleString() == kind)


def altered(missing: Sequence[StructField]) -> list[str]:
    return [f"ADD {field.name}" for field in missing]


ROWS = TableSpec(fields("id", "Name", "weight"), ("id",), True, "fail")
SOFT = replace(ROWS, fields=fields("id", "deleted_at"), deleted_column="deleted_at")
VERSIONS = replace(
    ROWS, fields=fields("id", "__START_AT", "__END_AT"), versions=True, on_new_column="add"
)


@pytest.mark.parametrize(
    ("spec", "columns", "added"),
    [
        (ROWS, ["ID", "name", "WEIGHT", "more"], []),
        (replace(ROWS, on_new_column="add"), ["id"], ["Name", "weight"]),
        (replace(SOFT, on_new_column="add"), ["id"], ["deleted_at"]),
        (
            replace(VERSIONS, fields=fields("id", "v", "__START_AT", "__END_AT")),
            ["id", "__start_at", "__end_at"],
            ["v"],
        ),
        # A feed has no key: it may hold the rows of a history.
    ],
)
def test_a_missing_column_is_added(spec: TableSpec, columns: list[str], added: list[str]) -> None:
    assert [field.name for field in missing_columns("t", spec, columns, altered)] == added


@pytest.mark.parametrize(
    ("spec", "columns", "written"),
    [
        (ROWS, ["id"], ["id", "Name", "weight"]),  # only on_new_column="ignore" leaves a column out
        (
            replace(ROWS, on_new_column="ignore"),
            None,
            ["id", "Name", "weight"],
        ),  # the table is created with it
        (replace(ROWS, on_new_column="ignore"), ["ID", "NAME"], ["id", "Name"]),
        # Never the key, nor a column that the sink computes.
        (replace(ROWS, on_new_column="ignore"), ["name"], ["id", "Name"]),
        (replace(SOFT, on_new_column="ignore"), ["id"], ["id", "deleted_at"]),
        (replace(VERSIONS, on_new_column="ignore"), ["id"], ["id", "__START_AT", "__END_AT"]),
    ],
)
def test_an_ignored_column_is_not_written(
    spec: TableSpec, columns: list[str] | None, written: list[str]
) -> None:
    assert written_spec("t", spec, columns).names == written


# --------------------------------------------------------------------------------------------------
# narrower types

LOSES = [
    # the table's type, the type of the changes, a type that has every value of both
    ("int", "decimal(10,2)", "decimal(12,2)"),
    ("tinyint", "decimal(3,1)", "decimal(4,1)"),
    ("bigint", "decimal(38,20)", None),
    ("smallint", "float", "double"),
    ("int", "double", "double"),
    ("bigint", "double", None),
    ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
    ("decimal(38,2)", "decimal(8,4)", None),
    ("decimal(10,2)", "float", None),
    ("decimal(10,2)", "double", None),
    ("date", "timestamp", "timestamp"),
    ("date", "timestamp_ntz", "timestamp_ntz"),
    ("boolean", "int", None),
    ("boolean", "decimal(1,0)", None),
    ("boolean", "float", None),
]
KEEPS = [
    ("int", "bigint"),  # a value that is too large is an error of the table
    ("int", "decimal(10,0)"),
    ("decimal(10,2)", "decimal(38,2)"),
    ("decimal(10,2)", "int"),
    ("double", "decimal(38,18)"),
    ("float", "double"),  # approximate by definition
    ("timestamp", "date"),
    ("string", "timestamp"),
    ("date", "date"),
    ("boolean", "boolean"),
]


@pytest.mark.parametrize(("kind", "value_type", "wide"), LOSES)
def test_a_type_that_loses_part_of_a_value(kind: str, value_type: str, wide: str | None) -> None:
    types = parsed(kind), parsed(value_type)
    both = wider(*types)
    assert (is_narrower(*types), both and both.simpleString()) == (True, wide)
    assert both is None or not any(is_narrower(both, each) for each in types)


@pytest.mark.parametrize(("kind", "value_type"), KEEPS)
def test_a_type_that_keeps_or_refuses_each_value(kind: str, value_type: str) -> None:
    assert not is_narrower(parsed(kind), parsed(value_type))


def nested(kind: str) -> list[DataType]:
    """Types with this type at some depth."""
    from pyspark.sql.types import ArrayType, MapType, StringType, StructField, StructType

    leaf, text = parsed(kind), StringType()
    # The names of fields differ in case, which Spark ignores.
    struct = StructType(
        [
            StructField("S" if kind == "int" else "s", text),
            StructField("N" if kind == "int" else "n", leaf),
        ]
    )
    return [
        ArrayType(leaf),
        MapType(leaf, text),
        MapType(text, leaf),
        struct,
        ArrayType(MapType(text, struct)),
    ]


def test_types_are_compared_at_every_depth() -> None:
    for narrow, same, wide in zip(nested("int"), nested("int"), nested("double"), strict=True):
        pairs = ((narrow, wide), (narrow, same), (wide, narrow))
        assert [is_narrower(*pair) for pair in pairs] == [True, False, False], narrow
        assert wider(narrow, wide) is None, narrow


def test_the_error_names_the_column_as_the_table_spells_it() -> None:
    from pyspark.sql.types import DoubleType, IntegerType, StructField

    spec = TableSpec(
        (
            StructField("id", DoubleType()),
            StructField("VAL", DoubleType()),
            StructField("new", DoubleType()),
        ),
        ("id",),
        True,
        "add",
    )
    table: dict[str, Any] = {"id": None, "Val": IntegerType(), "other": IntegerType()}

    def widen(old: StructField, new: StructField) -> list[str]:
        assert (old, new) == (StructField("Val", IntegerType()), StructField("Val", DoubleType()))
        return ["ALTER Val", "AND MORE"]

    with pytest.raises(SchemaError) as refused:
        require_no_narrowing("t", spec, table, widen)
    assert str(refused.value).endswith(
        "t has the column `Val` as INT, which cuts values of DOUBLE: run ALTER Val; AND MORE, or "
        "convert the column to INT"
    )
    with pytest.raises(SchemaError, match="which cuts values of DOUBLE: convert the column to INT"):
        require_no_narrowing("t", spec, table, lambda old, new: [])
    require_no_narrowing("t", spec, {"id": None, "val": DoubleType()}, widen)


@pytest.mark.parametrize("table", [DeltaTarget("/lake/t"), IcebergTarget("lake.db.t")])
def test_a_time_is_a_type_of_no_lake_and_a_variant_of_both(table: LakeTarget) -> None:
    from pyspark.sql.types import StructField, TimeType, VariantType

    with pytest.raises(SchemaError, match=r"`at` has the type time\(3\), which .* cast it first"):
        column_definition(StructField("at", TimeType(3)), table)
    assert column_definition(StructField("doc", VariantType()), table) == "`doc` variant"


def test_a_table_with_text_is_no_table_of_variants() -> None:
    from pyspark.sql.types import IntegerType, StringType, VariantType

    variant, text = VariantType(), StringType()
    pairs = ((variant, text), (text, variant), (variant, IntegerType()), (variant, variant))
    assert [is_narrower(*pair) for pair in pairs] == [True, True, True, False]
    assert wider(VariantType(), StringType()) is None


# --------------------------------------------------------------------------------------------------
# A commit that another writer prevented is retried after growing pauses
class Losing:
    """A commit that another writer prevents several times."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.calls, self.pauses = times, error, 0, list[float]()

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error


def test_a_conflict_is_logged_and_retried_after_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "normalize")
    commit = Losing(TRIES - 1, ConflictError("another writer changed t at the same time (X)"))
    repeat_conflicts(commit, pause=commit.pauses.append)
    lines = [
        f"another writer changed t at the same time (X): attempt {attempt} of 10"
        for attempt in range(1, TRIES)
    ]
    assert (caplog.messages, commit.calls, len(commit.pauses)) == (lines, TRIES, TRIES - 1)
    for tried, pause in enumerate(commit.pauses):
        longest = min(0.2 * 2**tried, 10)
        assert longest / 2 <= pause <= longest


def test_an_endless_conflict_is_an_error_of_one_sentence() -> None:
    commit = Losing(TRIES, ConflictError("another writer changed t at the same time (X)"))
    with pytest.raises(ConflictError) as caught:
        repeat_conflicts(commit, pause=commit.pauses.append)
    # There is no pause after the last attempt.
    assert (commit.calls, len(commit.pauses)) == (TRIES, TRIES - 1)
    assert str(caught.value) == (
        "[CONFLICT] another writer changed t at the same time (X), in each of 10 attempts: let "
        "fewer queries write this table at a time, and restart this query"
    )


def test_another_error_is_not_retried() -> None:
    commit = Losing(1, TargetError("no"))
    with pytest.raises(TargetError, match="no"):
        repeat_conflicts(commit, pause=commit.pauses.append)
    assert commit.calls == 1


# --------------------------------------------------------------------------------------------------
# The layout's options: what is read, what each table format refuses, and `CREATE TABLE`
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
    assert table.differences(of, (["ID"], [], {"a": "1"})) == []
    (text,) = table.differences(of, (["at"], [], {"a": "1"}))
    assert text.startswith("no statement changes the partitions of a Delta table, which are (at)")


def test_the_partitions_of_iceberg_are_replaced() -> None:
    of = Layout.of(["month(at)"], [], {})
    assert IcebergTarget("shop.orders").differences(of, (["days(at)"], [], {})) == [
        "ALTER TABLE `shop`.`orders` DROP PARTITION FIELD days(at)",
        "ALTER TABLE `shop`.`orders` ADD PARTITION FIELD months(`at`)",
    ]


test_error_texts = error_test(
    __file__,
    {
        **{
            f"a missing column is refused, {number}": lambda spec=spec, columns=columns: (
                missing_columns("t", spec, columns, altered)
            )
            for number, (spec, columns) in enumerate(
                [
                    (ROWS, ["id", "NAME"]),
                    (ROWS, ["id"]),
                    (replace(ROWS, on_new_column="ignore"), ["Name", "weight"]),
                    (replace(ROWS, on_new_column="add"), ["Name", "weight"]),
                    (replace(ROWS, on_new_column="add"), ["id", "__start_at"]),
                    (SOFT, ["id"]),
                    (replace(SOFT, on_new_column="ignore"), ["id"]),
                    (VERSIONS, ["id"]),
                    (VERSIONS, ["id", "__START_AT"]),
                ],
                1,
            )
        },
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
