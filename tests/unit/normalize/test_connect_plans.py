"""What the relations of a Spark Connect client show: the changelog mode, and operations that change the order of rows."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.connect import proto

from normalize.connect import changelog_mode
from normalize.unresolved_plan import UnresolvedNode

MARKS: dict[str, Any] = {"changelog_all": "all", "changelog_upsert": "upsert"}


def relation(kind: str, **fields: Any) -> Any:
    """A relation of one kind."""
    found = proto.Relation()
    message = getattr(found, kind)
    message.SetInParent()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(message, name).extend(value)
        elif hasattr(value, "DESCRIPTOR"):
            getattr(message, name).CopyFrom(value)
        else:
            setattr(message, name, value)
    return found


def text(expression: str) -> Any:
    """An expression in SQL."""
    return proto.Expression(expression_string=proto.Expression.ExpressionString(expression=expression))


def column(name: str) -> Any:
    return proto.Expression(unresolved_attribute=proto.Expression.UnresolvedAttribute(unparsed_identifier=name))


def call(name: str) -> Any:
    return proto.Expression(unresolved_function=proto.Expression.UnresolvedFunction(function_name=name))


def named(expression: Any, name: str) -> Any:
    return proto.Expression(alias=proto.Expression.Alias(expr=expression, name=[name]))


SOURCE = relation("read", data_source=proto.Read.DataSource(format="kafka"))
CHANGES, UPSERTS = (relation("subquery_alias", input=SOURCE, alias=f"changelog_{mode}") for mode in ("all", "upsert"))
UNION = proto.SetOperation.SET_OP_TYPE_UNION


@pytest.mark.parametrize(
    ("plan", "mode"),
    [
        (CHANGES, "all"),
        (UPSERTS, "upsert"),
        (SOURCE, None),
        (relation("filter", input=CHANGES, condition=text("id > 1")), "all"),
        (relation("subquery_alias", input=UPSERTS, alias="t"), "upsert"),
        (relation("project", input=CHANGES, expressions=[column("row_kind"), column("id")]), "all"),
        (relation("project", input=CHANGES, expressions=[column("changelog_all.row_kind")]), "all"),
        (relation("project", input=CHANGES, expressions=[text("*")]), "all"),
        (relation("project", input=CHANGES, expressions=[named(text("upper(row_kind)"), "row_kind")]), None),
        (relation("project", input=CHANGES, expressions=[column("id")]), None),
        (relation("with_columns", input=CHANGES, aliases=[named(column("id"), "x").alias]), "all"),
        (relation("with_columns", input=CHANGES, aliases=[named(column("id"), "Row_Kind").alias]), None),
        (relation("drop", input=CHANGES, column_names=["id"]), "all"),
        (relation("drop", input=CHANGES, column_names=["`row_kind`"]), None),
        (relation("join", left=CHANGES, right=SOURCE), "all"),
        (relation("join", left=CHANGES, right=UPSERTS), "upsert"),
        (relation("join", left=CHANGES, right=SOURCE, using_columns=["row_kind"]), None),
        (relation("set_op", left_input=CHANGES, right_input=CHANGES, set_op_type=UNION, is_all=True), "all"),
        (relation("set_op", left_input=CHANGES, right_input=UPSERTS, set_op_type=UNION, is_all=True), "upsert"),
        (relation("set_op", left_input=CHANGES, right_input=SOURCE, set_op_type=UNION, is_all=True), None),
        (relation("set_op", left_input=CHANGES, right_input=CHANGES, set_op_type=UNION, is_all=False), None),
        (relation("sql", query="SELECT * FROM changelog_all"), None),
    ],
)
def test_the_changelog_mode_is_that_of_a_marked_input_whose_row_kind_is_unchanged(plan: Any, mode: str | None) -> None:
    assert changelog_mode(plan, MARKS) == mode


@pytest.mark.parametrize(
    ("plan", "name"),
    [
        (SOURCE, "Kafka"),
        (relation("read", data_source=proto.Read.DataSource(format="parquet")), "a table, a view or files"),
        (relation("set_op", left_input=SOURCE, right_input=SOURCE, set_op_type=UNION, is_all=True), "Union"),
        (relation("set_op", left_input=SOURCE, right_input=SOURCE, set_op_type=UNION, is_all=False), "SetOperation"),
        (relation("filter", input=SOURCE, condition=text("id > 1 AND upper(name) IN ('A', 'B')")), "Filter"),
        (relation("filter", input=SOURCE, condition=text("id IN (SELECT id FROM t)")), "Subquery"),
        (relation("filter", input=SOURCE, condition=text("my_function(id) > 1")), "UnresolvedFunction"),
        (relation("project", input=SOURCE, expressions=[text("row_number() OVER (ORDER BY id)")]), "Window"),
        (relation("project", input=SOURCE, expressions=[text("explode(tags)")]), "Generate"),
        (relation("project", input=SOURCE, expressions=[call("upper"), call("posexplode")]), "Generate"),
        (relation("project", input=SOURCE, expressions=[call("a_query")]), "UnresolvedFunction"),
        (relation("project", input=SOURCE, expressions=[call("upper"), column("id")]), "Project"),
        (relation("sample", input=SOURCE), "sample"),
    ],
)
def test_a_node_has_another_name_if_the_analysis_may_add_an_operation(plan: Any, name: str) -> None:
    assert UnresolvedNode(plan).name == name


def test_groups_are_followed_through_renamed_columns() -> None:
    groups = relation(
        "aggregate",
        input=SOURCE,
        group_type=proto.Aggregate.GROUP_TYPE_GROUPBY,
        grouping_expressions=[column("id"), named(call("upper"), "name")],
        aggregate_expressions=[named(call("sum"), "total")],
    )
    renamed = relation("project", input=groups, expressions=[named(column("id"), "key"), column("name"), column("total")])
    one_to_one = {"Project", "Filter"}
    assert UnresolvedNode(renamed).groups_within(["KEY", "name"], one_to_one)
    assert not UnresolvedNode(renamed).groups_within(["id", "name"], one_to_one)
    assert not UnresolvedNode(renamed).groups_within(["key"], one_to_one)
    assert not UnresolvedNode(relation("filter", input=SOURCE)).groups_within(["key"], one_to_one)
    computed = relation("with_columns", input=groups, aliases=[named(call("lower"), "name").alias])
    assert not UnresolvedNode(computed).groups_within(["id", "name"], one_to_one)
    assert UnresolvedNode(relation("filter", input=groups, condition=text("total > 0"))).groups_within(["id", "name"], one_to_one)
