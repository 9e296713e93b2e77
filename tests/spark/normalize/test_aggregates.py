"""`aggregate_changes` and the signed columns agree with Spark's query over the resulting table."""

from functools import partial

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats.errors import ArgumentError
from normalize import aggregate_changes, signed_avg, signed_count, signed_sum
from tests.support.examples import examples

DDL = "row_kind STRING, story INT, id INT, name STRING, weight DECIMAL(10,3), price INT"

rows = st.tuples(
    st.sampled_from(["a", "b", None]),
    st.none() | st.decimals("-99", "99", places=3),
    st.none() | st.integers(-9, 9),
)
writes = st.lists(st.tuples(st.integers(1, 4), st.none() | rows), max_size=12)


def changelog(story: int, history: list) -> tuple[list, list]:
    """The changelog of a table, and its final rows."""
    table, changes = {}, []
    for key, row in history:
        before = table.pop(key, None)
        if row is not None:
            table[key] = row
        kinds = {
            (False, True): ["+I"],
            (True, True): ["-U", "+U"],
            (True, False): ["-D"],
            (False, False): [],
        }
        for kind in kinds[before is not None, row is not None]:
            changes.append((kind, story, key, *(before if kind in ("-U", "-D") else row)))
    return changes, [("+I", story, key, *row) for key, row in table.items()]


def ratios(df):
    """WHERE, a key that is computed, and an expression over aggregates."""
    from pyspark.sql import functions as F

    group = F.coalesce(F.upper("name"), F.lit("-")).alias("g")
    ratio = F.round(signed_sum("weight") / signed_count("*"), 2).alias("ratio")
    return aggregate_changes(df.where("price > -5"), ["story", group], ratio, changelog_mode="all")


def conditions(df):
    from pyspark.sql import functions as F

    up, a = (
        signed_count(F.when(F.col("price") > 0, 1)),
        signed_sum(F.when(F.col("name") == "a", F.col("weight"))),
    )
    return aggregate_changes(df, "story", up.alias("up"), a.alias("a"), changelog_mode="all")


def having(df):
    from pyspark.sql import functions as F

    totals = aggregate_changes(
        df,
        ["story", "name"],
        signed_sum("price").alias("p"),
        signed_count("*").alias("n"),
        changelog_mode="all",
    )
    return totals.where((F.col("p") > 3) | (F.col("n") >= 2))


def everything(df):
    columns = (
        signed_count("*").alias("n"),
        signed_sum("weight").alias("weight"),
        signed_avg("price").alias("mean"),
    )
    return aggregate_changes(df, [], *columns, changelog_mode="all")


QUERIES = {
    """SELECT story, COALESCE(UPPER(name), '-') AS g, ROUND(SUM(weight) / COUNT(*), 2) AS ratio FROM t WHERE price > -5
    GROUP BY story, COALESCE(UPPER(name), '-')""": ratios,
    (
        "SELECT story, COUNT(*) FILTER (WHERE price > 0) AS up, SUM(weight) FILTER (WHERE name = "
        "'a') AS a FROM t GROUP BY story"
    ): conditions,
    """SELECT story, name, SUM(price) AS p, COUNT(*) AS n FROM t GROUP BY story, name
    HAVING SUM(price) > 3 OR COUNT(*) >= 2""": having,
    "SELECT COUNT(*) AS n, SUM(weight) AS weight, AVG(price) AS mean FROM t": everything,
}


@pytest.fixture(scope="module")
def histories():
    """Random changelogs, and the rows of the tables."""
    changes, table = [], []

    @settings(max_examples=examples(80), database=None)
    @given(writes)
    def collect(history):
        of_changelog, of_table = changelog(len(changes), history)
        changes.extend(of_changelog)
        table.extend(of_table)

    collect()
    assert len(table) < len(changes)
    return changes, table


def test_every_aggregate_agrees_with_the_query_on_the_table(spark, histories):
    changes, table = histories
    spark.createDataFrame(table, DDL).repartition(2).createOrReplaceTempView("t")
    of_changes = spark.createDataFrame(changes, DDL).repartition(3).cache()
    for query, aggregate in QUERIES.items():
        answer, expected = aggregate(of_changes), spark.sql(query)
        assert answer.columns == ["row_kind", *expected.columns], query
        assert {row[0] for row in answer.collect()} <= {"+U"}
        assert sorted(map(repr, answer.drop("row_kind").collect())) == sorted(
            map(repr, expected.collect())
        ), query


def test_the_columns_agree_with_the_query(spark, histories):
    from pyspark.sql import functions as F

    changes = spark.createDataFrame(histories[0], DDL).repartition(3)
    spark.createDataFrame(histories[1], DDL).repartition(2).createOrReplaceTempView("t")
    answer = spark.sql("""
        SELECT story, name, COUNT(*) AS n, SUM(weight) AS weight, COUNT(weight) AS weighed, AVG(weight) AS mean, SUM(price) AS price,
        AVG(price) AS mean_price, SUM(weight * price) AS value, COUNT(*) FILTER (WHERE price > 0) AS up,
        SUM(weight) FILTER (WHERE price > 0) AS up_weight FROM t GROUP BY story, name""")
    total, count, mean = (
        partial(signed, row_kind="row_kind") for signed in (signed_sum, signed_count, signed_avg)
    )
    groups = changes.groupBy("story", "name").agg(
        count("*").alias("n"),
        total("weight").alias("weight"),
        count("weight").alias("weighed"),
        mean("weight").cast("DECIMAL(14,7)").alias("mean"),
        total("price").alias("price"),
        mean("price").alias("mean_price"),
        total(F.col("weight") * F.col("price")).alias("value"),
        count(F.when(F.col("price") > 0, 1)).alias("up"),
        total(F.when(F.col("price") > 0, F.col("weight"))).alias("up_weight"),
    )
    assert groups.schema.simpleString() == answer.schema.simpleString()
    rows = groups.where("n > 0").collect()
    assert 0 < len(rows) < groups.count()
    assert sorted(map(repr, rows)) == sorted(map(repr, answer.collect()))


def test_the_columns_have_names_and_fail_for_a_row_that_is_not_in_the_table(spark):
    changes = spark.createDataFrame([("+I", 1), (None, None)], "row_kind STRING, n INT")
    columns = [
        signed_sum("n", row_kind="row_kind"),
        signed_count("*", row_kind="row_kind"),
        signed_avg("n", row_kind="row_kind"),
    ]
    assert changes.agg(*columns).columns == ["signed_sum(n)", "signed_count(*)", "signed_avg(n)"]
    for column in columns:
        with pytest.raises(Exception, match="filter such rows out, WHERE row_kind IS NOT NULL"):
            changes.agg(column).collect()
    assert tuple(changes.where("row_kind IS NOT NULL").agg(*columns).collect()[0]) == (1, 1, 1.0)
    assert tuple(changes.where("FALSE").agg(*columns).collect()[0]) == (None, 0, None)


def test_a_changelog_without_update_before_is_refused(spark):
    from normalize import ChangelogNormalize

    changes = spark.createDataFrame([("+I", 1, 2)], "row_kind STRING, id INT, n INT")
    upserts = ChangelogNormalize(primary_key="id", changelog_mode="upsert")(changes)
    with pytest.raises(ArgumentError, match="read it with changelog_mode='all'"):
        aggregate_changes(upserts, [], signed_sum("n"))
    retracts = ChangelogNormalize(primary_key="id")(changes)
    assert aggregate_changes(retracts, [], signed_sum("n").alias("n")).collect()[0].n == 2
