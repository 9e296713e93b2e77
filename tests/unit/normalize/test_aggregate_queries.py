"""The queries of `aggregate_changes`, parsed: what retracts, and what is refused."""

from __future__ import annotations

import pytest

from cdc_formats.errors import ArgumentError
from normalize.aggregates.retraction import retracting_query

COLUMNS = ["row_kind", "id", "name", "weight", "price"]


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
        retracting_query(query, COLUMNS)


def test_a_column_of_the_table_comes_before_an_alias_as_in_spark():
    assert retracting_query("SELECT upper(name) AS name FROM t GROUP BY name", COLUMNS).keys == {"_key_0": "name"}
    assert retracting_query("SELECT upper(name) AS n FROM t GROUP BY n", COLUMNS).keys == {"_key_0": "UPPER(name)"}


def test_equal_sums_are_kept_once():
    plan = retracting_query("SELECT COUNT(*), AVG(weight), SUM(weight), SUM(weight) / COUNT(weight) FROM t", COLUMNS)
    assert len(plan.sums) == 4  # the group's rows, all rows, weighed rows, weights
