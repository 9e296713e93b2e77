"""Values of two types are equal exactly if they mean the same."""

import pytest
from pyspark.sql import SparkSession

from cdc_formats.values.masks import MaskKey, Masks
from normalize.verify.canonical import ROW, compared_column, hashed, masked_column
from tests.support.masks import KEY, hashed as mask_of

SAME = [
    ("1", "CAST(1 AS BIGINT)"),
    ("TRUE", "CAST(1 AS TINYINT)"),
    ("1.50BD", "1.5BD"),
    ("CAST(1 AS INT)", "1.00BD"),
    ("CAST(1e37 AS DECIMAL(38,0))", "CAST(1e37 AS DECIMAL(38,0))"),
    ("CAST(1.1 AS FLOAT)", "1.1D"),
    ("CAST(1.1 AS FLOAT)", "CAST(CAST(1.1 AS FLOAT) AS DOUBLE)"),
    ("0.5D", "CAST(0.5 AS FLOAT)"),
    ("CAST('Infinity' AS FLOAT)", "CAST('Infinity' AS DOUBLE)"),
    ("CAST('NaN' AS DOUBLE)", "CAST('NaN' AS DOUBLE)"),
    ("0.0D", "-0.0D"),
    ("TIMESTAMP'2026-10-25 00:30:00.000001Z'", "TIMESTAMP_NTZ'2026-10-25 00:30:00.000001'"),
    ("TIMESTAMP'1901-01-01 00:00:00Z'", "TIMESTAMP_NTZ'1901-01-01 00:00:00'"),
    ("'12'", "12"),
    ("-5", "'-5'"),
    ("'12.500'", "CAST(12.5 AS DECIMAL(10,2))"),
    ("CAST(0 AS DECIMAL(30,20))", "'0.00'"),
    ("DATE'2026-11-24'", "'2026-11-24'"),
    ("CAST(NULL AS STRING)", "CAST(NULL AS INT)"),
    ("X'00FF'", "X'00FF'"),
]
DIFFERENT = [
    ("1", "2"),
    ("1.50BD", "1.501BD"),
    ("CAST(2 AS INT)", "TRUE"),
    ("0.1D", "0.1000000000000001D"),
    ("CAST(1.1 AS FLOAT)", "1.1000000001D"),
    ("1.1000000001D", "CAST(1.1 AS FLOAT)"),
    ("CAST('Infinity' AS FLOAT)", "1e300D"),
    ("concat('5', chr(10))", "CAST(5 AS DECIMAL(10,0))"),
    ("concat('5', chr(10))", "5"),
    ("concat('2026-11-24', chr(10))", "DATE'2026-11-24'"),
    ("timestamp_micros(1200000000000000000)", "timestamp_micros(1200000000000000001)"),
    ("timestamp_micros(1200000000000000000)", "timestamp_micros(1100000000000000000)"),
    ("''", "CAST(NULL AS STRING)"),
    ("'a'", "'A'"),
    ("'a'", "'a '"),
    ("X''", "CAST(NULL AS BINARY)"),
    ("'05'", "5"),
    ("'no number'", "CAST(NULL AS DECIMAL(10,2))"),
    ("'12.505'", "12.50BD"),
    ("'1e2'", "CAST(100 AS DECIMAL(10,2))"),
    ("0", "CAST(NULL AS INT)"),
    ("TIMESTAMP'2026-10-25 00:30:00Z'", "TIMESTAMP_NTZ'2026-10-25 00:30:00.000001'"),
]


def are_equal(spark: SparkSession, source: str, target: str, *, is_json: bool = False) -> bool:
    rows = (
        spark.sql(f"SELECT 1 AS id, {source} AS `a.b`"),
        spark.sql(f"SELECT 1L AS ID, {target} AS `A.b`"),
    )
    kinds = [{field.name.lower(): field.dataType for field in side.schema.fields} for side in rows]
    columns = [
        compared_column(
            *(
                part
                for side, kind in zip(names, kinds, strict=True)
                for part in (side, kind[side.lower()])
            ),
            is_json=is_json,
        )
        for names in (("id", "ID"), ("a.b", "A.b"))
    ]
    sides = [
        hashed(side, columns, ["id"], of_target=bool(number), detailed=True)
        for number, side in enumerate(rows)
    ]
    # Python has no timestamps after the year 9999, which a row may have.
    hashes = [side.drop(ROW).first() for side in sides]
    assert hashes[0].k0 == hashes[1].k0 == "1"
    assert (hashes[0].hashes == hashes[1].hashes) == (hashes[0].row_hash == hashes[1].row_hash)
    return hashes[0].row_hash == hashes[1].row_hash


@pytest.mark.cross_section
@pytest.mark.parametrize("zone", ["UTC", "America/New_York"])
def test_values_that_mean_the_same_are_equal(spark: SparkSession, zone: str) -> None:
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        assert [
            (source, target) for source, target in SAME if not are_equal(spark, source, target)
        ] == []
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_values_that_differ_are_not_equal(spark: SparkSession) -> None:
    assert [
        (source, target) for source, target in DIFFERENT if are_equal(spark, source, target)
    ] == []


def test_the_settings_of_ansi_do_not_matter(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", str(before != "true").lower())
    try:
        assert [
            (source, target) for source, target in SAME if not are_equal(spark, source, target)
        ] == []
        assert [
            (source, target) for source, target in DIFFERENT if are_equal(spark, source, target)
        ] == []
    finally:
        spark.conf.set("spark.sql.ansi.enabled", before)


def test_json_is_compared_by_its_meaning(spark: SparkSession) -> None:
    some = """'{"b": [1, 2], "a": null}'"""
    assert are_equal(spark, some, """'{"a":null,"b":[1,2]}'""", is_json=True)
    assert not are_equal(spark, some, """'{"a":null,"b":[2,1]}'""", is_json=True)
    assert not are_equal(spark, some, """'{"b":[1,2]}'""", is_json=True)
    assert not are_equal(spark, some, """'{"a":null,"b":[1,2]}'""")
    assert not are_equal(spark, "'{'", "CAST(NULL AS STRING)", is_json=True)
    assert not are_equal(spark, "'[1e400]'", "'[1e401]'", is_json=True)


def test_a_mask_is_that_of_the_source_value(spark: SparkSession) -> None:
    masks = Masks((("a", "hmac"),), MaskKey("MASK_KEY", secret=KEY.encode()))
    values = {
        "'é'": "é",
        "42L": "42",
        "TRUE": "true",
        "DATE'2026-11-24'": "2026-11-24",
        "X'00FF'": b"\0\xff",
    }
    for value, text in values.items():
        source = spark.sql(f"SELECT {value} AS a UNION ALL SELECT NULL")
        target = spark.createDataFrame([(mask_of(text),), (None,)], "A STRING")
        column = masked_column(
            "a", source.schema[0].dataType, "A", target.schema[0].dataType, masks
        )
        hashes = [
            sorted(
                row.row_hash for row in hashed(side, [column], ["a"], of_target=of_target).collect()
            )
            for side, of_target in ((source, False), (target, True))
        ]
        assert hashes[0] == hashes[1]
        plan = hashed(source, [column], ["a"], of_target=False)._jdf.queryExecution().toString()
        assert "mask(" in plan
        assert KEY not in plan
