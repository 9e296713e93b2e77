"""`aggregate_changes`: a query over a changelog agrees with Spark's query over the resulting table."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats.errors import ArgumentError
from normalize import aggregate_changes
from normalize.retraction import retracting

COLUMNS = ["row_kind", "id", "name", "weight", "price"]
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
        kinds = {(False, True): ["+I"], (True, True): ["-U", "+U"], (True, False): ["-D"], (False, False): []}
        for kind in kinds[before is not None, row is not None]:
            changes.append((kind, story, key, *(before if kind in ("-U", "-D") else row)))
    return changes, [("+I", story, key, *row) for key, row in table.items()]


QUERIES = [
    "SELECT story, name, SUM(weight) AS weight, COUNT(*) AS n, COUNT(weight) AS weighed, AVG(weight) AS mean FROM t GROUP BY story, name",
    "SELECT story, SUM(price), AVG(price), SUM(weight * price) FROM t GROUP BY story",
    "SELECT story, coalesce(upper(p.NAME), '-') AS g, ROUND(SUM(p.weight) / COUNT(1), 2) FROM products p WHERE price > -5 GROUP BY 1, g",
    "SELECT story, COUNT(*) FILTER (WHERE price > 0) AS up, SUM(weight) FILTER (WHERE name = 'a') AS a FROM t GROUP BY story",
    "SELECT story, name FROM t GROUP BY story, name HAVING SUM(price) > 3 OR COUNT(*) >= 2",
    "SELECT COUNT(*), SUM(weight), AVG(price) FROM t",
    "SELECT SUM(price) FROM t WHERE price > 100",
]


@pytest.mark.spark
def test_every_query_agrees_with_the_query_on_the_table(spark):
    changes, table = [], []

    @settings(max_examples=80, database=None)
    @given(writes)
    def collect(history):
        of_changelog, of_table = changelog(len(changes), history)
        changes.extend(of_changelog)
        table.extend(of_table)

    collect()
    assert len(table) < len(changes)
    left = spark.createDataFrame(table, DDL).repartition(2)
    of_changes = spark.createDataFrame(changes, DDL).repartition(3)
    for query in QUERIES:
        answer = aggregate_changes(of_changes, query)
        for name in ("t", "products"):
            left.createOrReplaceTempView(name)
        expected = spark.sql(query)
        assert answer.drop("row_kind").schema.simpleString() == expected.schema.simpleString(), query
        assert {row.row_kind for row in answer.collect()} <= {"+U"}
        assert sorted(map(repr, answer.drop("row_kind").collect())) == sorted(map(repr, expected.collect())), query


@pytest.mark.spark
def test_a_changelog_without_update_before_is_refused(spark):
    from normalize import ChangelogNormalize

    changes = spark.createDataFrame([("+I", 1, 2)], "row_kind STRING, id INT, n INT")
    upserts = ChangelogNormalize(primary_key="id", generate_update_before=False)(changes)
    with pytest.raises(ArgumentError, match="read it with changelog_mode='all'"):
        aggregate_changes(upserts, "SELECT SUM(n) FROM t")
    retracts = ChangelogNormalize(primary_key="id")(changes)
    assert aggregate_changes(retracts, "SELECT SUM(n) AS n FROM t").collect()[0].n == 2


@pytest.mark.spark
def test_a_row_that_is_not_in_the_table_fails_the_query_unless_filtered_out(spark):
    changes = spark.createDataFrame([("+I", 1), (None, None)], "row_kind STRING, n INT")
    with pytest.raises(Exception, match="filter such rows out, WHERE row_kind IS NOT NULL"):
        aggregate_changes(changes, "SELECT SUM(n) AS n FROM t").collect()
    assert aggregate_changes(changes, "SELECT SUM(n) AS n FROM t WHERE row_kind IS NOT NULL").collect()[0].n == 1


@pytest.mark.spark
def test_sparks_other_aggregates_are_recognised(spark):
    changes = spark.createDataFrame([("+I", 1)], "row_kind STRING, n INT")
    with pytest.raises(Exception, match="n is neither in GROUP BY"):
        aggregate_changes(changes, "SELECT histogram_numeric(n, 3) FROM t").collect()


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT name, MAX(weight) FROM t GROUP BY name", r"MAX\(weight\) cannot be retracted"),
        ("SELECT name, collect_list(id) FROM t GROUP BY name", "cannot be retracted"),
        ("SELECT COUNT(DISTINCT id) FROM t", "DISTINCT cannot be retracted"),
        ("SELECT name, weight, COUNT(*) FROM t GROUP BY name", "weight is neither in GROUP BY nor in an aggregate"),
        ("SELECT name, MY_SUM(weight) FROM t GROUP BY name", "weight is neither in GROUP BY nor in an aggregate"),
        ("SELECT * FROM t", r"SELECT \* is not an aggregate"),
        ("SELECT a FROM", "the query cannot be parsed"),
        ("DROP TABLE t", "the query is not a SELECT"),
        ("SELECT name, COUNT(*) FROM t JOIN u GROUP BY name", "FROM one table"),
        ("SELECT COUNT(*) FROM (SELECT * FROM t)", "FROM one table"),
        ("SELECT COUNT(*) FROM t WHERE id IN (SELECT id FROM u)", "FROM one table"),
        ("SELECT name, COUNT(*) FROM t GROUP BY name ORDER BY name LIMIT 3", "the query has LIMIT, ORDER"),
        ("SELECT DISTINCT name FROM t", "the query has DISTINCT"),
        ("SELECT name, COUNT(*) FROM t GROUP BY ALL", "GROUP BY supports only expressions"),
        ("SELECT name, COUNT(*) FROM t GROUP BY CUBE(name)", "GROUP BY supports only expressions"),
        ("SELECT name, COUNT(*) FROM t GROUP BY 3", "GROUP BY 3: the query has only 2 columns"),
        ("SELECT SUM(weight) OVER (PARTITION BY name) FROM t", "a window function"),
    ],
)
def test_queries_that_cannot_follow_a_changelog_are_refused(query, what):
    with pytest.raises(ArgumentError, match=what):
        retracting(query, COLUMNS)


def test_a_column_of_the_table_comes_before_an_alias_as_in_spark():
    assert retracting("SELECT upper(name) AS name FROM t GROUP BY name", COLUMNS).keys == {"_key_0": "name"}
    assert retracting("SELECT upper(name) AS n FROM t GROUP BY n", COLUMNS).keys == {"_key_0": "UPPER(name)"}


def test_equal_sums_are_kept_once():
    plan = retracting("SELECT COUNT(*), AVG(weight), SUM(weight), SUM(weight) / COUNT(weight) FROM t", COLUMNS)
    assert len(plan.sums) == 4  # the group's rows, all rows, weighed rows, weights
