"""SQL text that applies a micro-batch, in both dialects and MERGE, and names that databases refuse.

What the statements do is tested in real tables: `tests/e2e/sinks`.
"""

from __future__ import annotations

import pytest

from cdc_formats.errors import SchemaError
from normalize.core.stored_position import redelivery_condition
from normalize.sinks.dialects import Dialect, MySql
from normalize.sinks.lake import DeltaTarget, merge_statement
from normalize.sinks.table_spec import TableSpec

POSTGRESQL, MYSQL = Dialect(), MySql("bin")
COLUMNS = {"id": "c0", "v": "c1", "gone": "c2"}
"""The names in the target and in the staging table."""
KEY = {"id": "c0"}
RETRACTED, ADDED = "NOT IN ('+I', '+U')", "IN ('+I', '+U')"
REDELIVERED = redelivery_condition("s.c3", 't."p"'), redelivery_condition("s.c3", "t.`p`")


def statements(dialect: Dialect) -> dict[str, str]:
    """The statements of a table t with the staging table s, by what they do."""
    return {
        "delete": dialect.delete("s", "t", KEY),
        "soft delete": dialect.soft_delete("s", "t", KEY, ("gone", "c2")),
        "upsert": dialect.upsert("s", "t", COLUMNS, KEY),
        "append": dialect.insert("s", "t", COLUMNS),
        "redeliveries": dialect.redelivered("s", "t", KEY, ("p", "c3")),
        "positions of deletes": dialect.place_deletes("s", "t", KEY, ("p", "c3")),
        "deletes of unknown keys": dialect.insert_deletes("s", "t", COLUMNS, KEY),
        "equal keys": dialect.twins("s", KEY),
        "partial rows without a target": dialect.incomplete("s", "t", KEY, None),
        "or of a soft delete": dialect.incomplete("s", "t", KEY, "gone"),
    }


def test_the_statements_of_postgresql() -> None:
    lost = (
        'SELECT MIN(s.__absent) FROM "s" AS s LEFT JOIN "t" AS t ON t."id" = s.c0 WHERE '
        f's."row_kind" {ADDED} AND s.__absent IS NOT NULL'
    )
    assert statements(POSTGRESQL) == {
        "delete": f'DELETE FROM "t" AS t USING "s" AS s WHERE t."id" = s.c0 AND s."row_kind" {RETRACTED}',
        "soft delete": 'UPDATE "t" AS t SET "gone" = s.c2 FROM "s" AS s WHERE t."id" = s.c0 AND s."row_kind" '
        f'{RETRACTED} AND t."gone" IS NULL',
        "upsert": 'INSERT INTO "t" ("id", "v", "gone") SELECT c0, c1, c2 FROM "s" WHERE "row_kind" '
        f'{ADDED} ON CONFLICT ("id") DO UPDATE SET "id" = EXCLUDED."id", "v" = EXCLUDED."v", '
        '"gone" = EXCLUDED."gone"',
        "append": 'INSERT INTO "t" ("id", "v", "gone") SELECT c0, c1, c2 FROM "s"',
        "redeliveries": f'DELETE FROM "s" AS s USING "t" AS t WHERE t."id" = s.c0 AND {REDELIVERED[0]}',
        "positions of deletes": (
            'UPDATE "t" AS t SET "p" = s.c3 FROM "s" AS s WHERE t."id" = s.c0 AND s."row_kind" '
            f"{RETRACTED}"
        ),
        "deletes of unknown keys": 'INSERT INTO "t" ("id", "v", "gone") SELECT c0, c1, c2 FROM "s" AS s WHERE '
        f's."row_kind" {RETRACTED} AND NOT EXISTS (SELECT 1 FROM "t" AS t WHERE t."id" = s.c0)',
        "equal keys": (
            f'SELECT COUNT(*) FROM (SELECT 1 AS one FROM "s" WHERE "row_kind" {ADDED} GROUP BY c0 '
            "HAVING COUNT(*) > 1) AS twins"
        ),
        "partial rows without a target": f'{lost} AND (t."id" IS NULL)',
        "or of a soft delete": f'{lost} AND (t."id" IS NULL OR t."gone" IS NOT NULL)',
    }


def test_the_statements_of_mysql() -> None:
    lost = (
        "SELECT MIN(s.__absent) FROM `s` AS s LEFT JOIN `t` AS t ON t.`id` = s.c0 WHERE "
        f"s.`row_kind` {ADDED} AND s.__absent IS NOT NULL"
    )
    assert statements(MYSQL) == {
        "delete": f"DELETE t FROM `t` AS t JOIN `s` AS s ON t.`id` = s.c0 WHERE s.`row_kind` {RETRACTED}",
        "soft delete": "UPDATE `t` AS t JOIN `s` AS s ON t.`id` = s.c0 SET t.`gone` = s.c2 WHERE "
        f"s.`row_kind` {RETRACTED} AND t.`gone` IS NULL",
        "upsert": "INSERT INTO `t` (`id`, `v`, `gone`) SELECT c0, c1, c2 FROM `s` WHERE `row_kind` "
        f"{ADDED} ON DUPLICATE KEY UPDATE `id` = VALUES(`id`), `v` = VALUES(`v`), `gone` = "
        "VALUES(`gone`)",
        "append": "INSERT INTO `t` (`id`, `v`, `gone`) SELECT c0, c1, c2 FROM `s`",
        "redeliveries": f"DELETE s FROM `s` AS s JOIN `t` AS t ON t.`id` = s.c0 WHERE {REDELIVERED[1]}",
        "positions of deletes": (
            "UPDATE `t` AS t JOIN `s` AS s ON t.`id` = s.c0 SET t.`p` = s.c3 WHERE s.`row_kind` "
            f"{RETRACTED}"
        ),
        "deletes of unknown keys": "INSERT INTO `t` (`id`, `v`, `gone`) SELECT c0, c1, c2 FROM `s` AS s WHERE "
        f"s.`row_kind` {RETRACTED} AND NOT EXISTS (SELECT 1 FROM `t` AS t WHERE t.`id` = s.c0)",
        "equal keys": (
            f"SELECT COUNT(*) FROM (SELECT 1 AS one FROM `s` WHERE `row_kind` {ADDED} GROUP BY c0 "
            "HAVING COUNT(*) > 1) AS twins"
        ),
        "partial rows without a target": f"{lost} AND (t.`id` IS NULL)",
        "or of a soft delete": f"{lost} AND (t.`id` IS NULL OR t.`gone` IS NOT NULL)",
    }


def merged(spec: TableSpec) -> list[str]:
    return merge_statement(DeltaTarget("t"), "s", spec).splitlines()


def test_the_merge_of_positions() -> None:
    from pyspark.sql.types import StringType, StructField

    fields = tuple(StructField(name, StringType()) for name in ("id", "p", "gone"))
    newer = f"NOT coalesce({redelivery_condition('s.`p`', 't.`p`')}, false)"
    assert merged(TableSpec(fields, ("id",), True, "fail", "gone", position_column="p"))[1:] == [
        (
            f"WHEN MATCHED AND {newer} AND s.row_kind {RETRACTED} THEN UPDATE SET t.`gone` = "
            "coalesce(t.`gone`, s.`gone`), t.`p` = s.`p`"
        ),
        (
            f"WHEN MATCHED AND {newer} AND s.row_kind {ADDED} THEN UPDATE SET t.`id` = s.`id`, "
            "t.`p` = s.`p`, t.`gone` = s.`gone`"
        ),
        "WHEN NOT MATCHED THEN INSERT (`id`, `p`, `gone`) VALUES (s.`id`, s.`p`, s.`gone`)",
    ]


def test_the_merge_of_soft_deletes_and_of_versions() -> None:
    from pyspark.sql.types import StringType, StructField

    fields = tuple(StructField(name, StringType()) for name in ("id", "gone"))
    soft = merged(TableSpec(fields, ("id",), True, "fail", "gone"))
    sets = "t.`id` = s.`id`, t.`gone` = s.`gone`"
    assert soft == [
        "MERGE INTO `t` AS t USING s AS s ON t.`id` = s.`id`",
        (
            f"WHEN MATCHED AND s.row_kind {RETRACTED} AND t.`gone` IS NULL THEN UPDATE SET "
            "t.`gone` = s.`gone`"
        ),
        f"WHEN MATCHED AND s.row_kind {ADDED} THEN UPDATE SET {sets}",
        (
            f"WHEN NOT MATCHED AND s.row_kind {ADDED} THEN INSERT (`id`, `gone`) VALUES (s.`id`, "
            "s.`gone`)"
        ),
    ]
    versions = merged(TableSpec(fields, ("id",), True, "fail", versions=True))
    assert versions[0] == (
        "MERGE INTO `t` AS t USING s AS s ON t.`id` = s.`id` AND coalesce(t.`__START_AT`, "
        "t.`__END_AT`) = coalesce(s.`__START_AT`, s.`__END_AT`)"
    )
    assert versions[1:] == [f"WHEN MATCHED AND s.row_kind {RETRACTED} THEN DELETE", *soft[2:]]


@pytest.mark.parametrize(
    ("dialect", "refused", "accepted"),
    [
        (POSTGRESQL, ["", "a\0b", "x" * 64, "é" * 32], ["x" * 63, "é" * 31, "x ", "😀"]),
        (MYSQL, ["", "a\0b", "x" * 65, "x ", "😀"], ["x" * 64, "é" * 64, " x"]),
    ],
)
def test_a_name_that_a_database_cannot_hold_is_refused(
    dialect: Dialect, refused: list[str], accepted: list[str]
) -> None:
    for name in refused:
        with pytest.raises(
            SchemaError, match=r"^\[SCHEMA\] the column name '.*: choose another name$"
        ):
            dialect.require_name(name)
    for name in accepted:
        dialect.require_name(name)


def test_a_type_of_the_database() -> None:
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DecimalType,
        IntegerType,
        StringType,
        StructField,
        TimestampType,
        VariantType,
    )

    text, time = StructField("s", StringType()), StructField("at", TimestampType())
    assert MYSQL.type(text, in_key=True) == "VARCHAR(255) CHARACTER SET utf8mb4 COLLATE bin"
    assert MYSQL.type(text, in_key=False) == "LONGTEXT CHARACTER SET utf8mb4"
    assert MYSQL.type(StructField("b", BinaryType()), in_key=True) == "VARBINARY(255)"
    assert (MYSQL.type(time, in_key=True), MYSQL.type(time, in_key=False)) == (
        "TIMESTAMP(6)",
        "TIMESTAMP(6) NULL",
    )
    assert POSTGRESQL.type(text, in_key=True) == POSTGRESQL.type(text, in_key=False) == "TEXT"
    assert POSTGRESQL.type(StructField("d", DecimalType(20, 4)), in_key=False) == "DECIMAL(20,4)"
    with pytest.raises(
        SchemaError,
        match=(
            r"column `a` is array<int>, which has no type in the database: convert it to text with "
            r"to_json"
        ),
    ):
        POSTGRESQL.type(StructField("a", ArrayType(IntegerType())), in_key=False)
    with pytest.raises(
        SchemaError, match=r"`v` is variant, which has no type .* declare it as STRING"
    ):
        MYSQL.type(StructField("v", VariantType()), in_key=False)
