"""Rewrite a ``SELECT ... GROUP BY`` so that it retracts rows: pure SQL text, parsed and written by sqlglot.

A query becomes two: sums of signed values by key, which an aggregation keeps, and the query's expressions over these sums. With a sign of
1 for ``+I`` and ``+U``, -1 for ``-U`` and ``-D``::

    COUNT(*)    SUM(sign)
    COUNT(x)    SUM(sign), of the rows in which x is not NULL
    SUM(x)      SUM(sign * x), NULL if COUNT(x) is 0
    AVG(x)      SUM(sign * x) / COUNT(x)

Other aggregates cannot be retracted from their state (``MAX`` does not keep the second largest value), and are errors.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from sqlglot import expressions as exp, parse_one
from sqlglot.errors import SqlglotError

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import quote
from normalize.dataframe import unused

ROWS = "_rows"
"""The sum that every query has: the number of rows of a group."""

_GROUPINGS = (exp.Cube, exp.Rollup, exp.GroupingSets)
_CLAUSES = {"kind", "expressions", "from_", "from", "where", "group", "having"}


@dataclass(frozen=True)
class RetractingQuery:
    """A query that retracts rows, in parts of Spark SQL.

    Attributes
    ----------
    sign : str
        The name of the column with the sign, which the changelog does not have.
    where : str or None
        The condition of the aggregated rows.
    keys : dict
        Grouping expressions by name; empty if all rows are one group.
    sums : dict
        Aggregates over the changelog's columns and the sign, by name.
    outputs : list of str
        The query's columns, as expressions over keys and sums.
    there : str
        The condition, over keys and sums, that a group is in the result.
    table_outputs, table_keys : list of str
        The original columns and keys of the query, for their names and types.
    """

    sign: str
    where: str | None
    keys: dict[str, str]
    sums: dict[str, str]
    outputs: list[str]
    there: str
    table_outputs: list[str]
    table_keys: list[str]


def retracting_query(query: str, columns: Sequence[str]) -> RetractingQuery:
    """Return a query over a table, rewritten for its changelog.

    Parameters
    ----------
    query : str
        The query in Spark SQL.
    columns : sequence of str
        Names of the changelog's columns.

    Raises
    ------
    ArgumentError
        When the query has another form, or an aggregate that cannot be retracted.

    Examples
    --------
    >>> found = retracting_query("SELECT name, SUM(weight) AS w FROM t GROUP BY name", ["row_kind", "name", "weight"])
    >>> found.keys, found.outputs, found.there
    ({'_key_0': 'name'}, ['_key_0', 'CASE WHEN COALESCE(_sum_0, 0) > 0 THEN _sum_1 END'], '_rows > 0')
    >>> retracting_query("SELECT name, MAX(weight) FROM t GROUP BY name", ["name", "weight"])
    Traceback (most recent call last):
    cdc_formats.errors.ArgumentError: [ARGUMENT] MAX(weight) cannot be retracted: use SUM, COUNT or AVG, or aggregate the table that \
apply_changes writes
    """
    select = _with_whole_keys(_spelled(_parsed(query), columns), columns)
    table_keys = [_text(key) for key in _keys(select)]
    sums = _Sums(unused("_sign", columns), {f"_key_{place}": key for place, key in enumerate(table_keys)})
    outputs = [sums.over(each.unalias()) for each in select.expressions]
    having = select.args.get("having")
    conditions = [*([f"{ROWS} > 0"] if table_keys else []), *([f"COALESCE({sums.over(having.this)}, FALSE)"] if having else [])]
    where = select.args.get("where")
    return RetractingQuery(
        sign=sums.sign,
        where=_text(where.this) if where else None,
        keys=sums.keys,
        sums={ROWS: f"COALESCE(SUM({sums.sign}), 0)", **{name: text for text, name in sums.names.items()}},
        outputs=outputs,
        there=" AND ".join(conditions) or "TRUE",
        table_outputs=[_text(each) for each in select.expressions],
        table_keys=table_keys,
    )


def _text(expression: exp.Expr) -> str:
    return expression.sql("spark")


def _keys(select: exp.Select) -> list[exp.Expr]:
    group = select.args.get("group")
    return group.expressions if group else []


# ----------------------------------------------------------------------------------------------------------- supported queries


def _parsed(query: str) -> exp.Select:
    try:
        select = parse_one(query, read="spark")
    except SqlglotError as error:
        raise ArgumentError(f"the query cannot be parsed: {str(error).splitlines()[0]}") from None
    if not isinstance(select, exp.Select):
        raise ArgumentError(f"the query is not a SELECT: {query!r}")
    others = ", ".join(sorted(name for name, value in select.args.items() if value and name not in _CLAUSES)).upper()
    group = select.args.get("group")
    for refused, why in {
        bool(others): f"the query has {others}: only SELECT, FROM, WHERE, GROUP BY and HAVING are supported",
        len(list(select.find_all(exp.Table, exp.Select))) != 2: "the query must be FROM one table, the changelog, without subqueries",
        any(each.is_star for each in select.expressions): "SELECT * is not an aggregate: name the columns",
        select.find(exp.Window) is not None: "a window function cannot be retracted, since each row changes its whole window: remove it",
        bool(group and (any(value for name, value in group.args.items() if name != "expressions") or group.find(*_GROUPINGS))): (
            "GROUP BY supports only expressions: remove ALL, ROLLUP, CUBE or GROUPING SETS"
        ),
    }.items():
        if refused:
            raise ArgumentError(why)
    return select


def _spelled(select: exp.Select, columns: Sequence[str]) -> exp.Select:
    """Return the query with columns spelled as in the table and without its name, so that keys can be matched by their text."""
    table = next(select.find_all(exp.Table)).alias_or_name.lower()
    spelled = {name.lower(): name for name in columns}
    for column in select.find_all(exp.Column):
        if column.table.lower() == table:
            column.set("table", None)
        outermost = column.parts[0]
        name = spelled.get(outermost.name.lower(), outermost.name)
        outermost.replace(exp.to_identifier(name, quoted=outermost.args.get("quoted") or quote(name) != name))
    return select


def _with_whole_keys(select: exp.Select, columns: Sequence[str]) -> exp.Select:
    """Return the query with numbers and aliases in GROUP BY replaced by the column that they refer to, as in Spark."""
    aliases = {each.alias.lower(): each.this for each in select.expressions if isinstance(each, exp.Alias)}
    known = {name.lower() for name in columns}
    for key in _keys(select):
        key.replace(_meant(key, select.expressions, aliases, known).copy())
    return select


def _meant(key: exp.Expr, shown: Sequence[exp.Expr], aliases: dict[str, exp.Expr], known: Container[str]) -> exp.Expr:
    if isinstance(key, exp.Literal) and not key.is_string:
        place = int(key.this)
        if not 1 <= place <= len(shown):
            raise ArgumentError(f"GROUP BY {place}: the query has only {len(shown)} columns")
        return shown[place - 1].unalias()
    is_alias = isinstance(key, exp.Column) and not key.table and key.name.lower() not in known
    return aliases.get(key.name.lower(), key) if is_alias else key


# ------------------------------------------------------------------------------------------------------------------ the sums


@dataclass
class _Sums:
    """Rewrites expressions, and collects the sums that they require.

    Attributes
    ----------
    sign : str
    keys : dict
        The text of each key, by name.
    names : dict
        The name of each sum, by text.
    """

    sign: str
    keys: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)

    def over(self, expression: exp.Expr) -> str:
        """Return an expression over the keys and sums."""
        return _text(expression.copy().transform(self._node))

    def _node(self, node: exp.Expr) -> exp.Expr:
        text = _text(node)
        for name, key in self.keys.items():
            if text == key:
                return exp.column(name)
        if isinstance(node, exp.Filter):
            return self._aggregate(node.this, _text(node.expression.this))
        if isinstance(node, exp.AggFunc):
            return self._aggregate(node, None)
        if isinstance(node, exp.Column):
            raise ArgumentError(f"{text} is neither in GROUP BY nor in an aggregate: add it to one of them")
        return node

    def _aggregate(self, node: exp.Expr, condition: str | None) -> exp.Expr:
        build = next((build for aggregate, build in _BUILDERS.items() if isinstance(node, aggregate)), None)
        if build is None:
            raise ArgumentError(
                f"{_text(node)} cannot be retracted: use SUM, COUNT or AVG, or aggregate the table that apply_changes writes"
            )
        if node.find(exp.Distinct):
            raise ArgumentError(f"{_text(node)}: DISTINCT cannot be retracted; aggregate by that column, then count the groups")
        every = isinstance(node, exp.Count) and isinstance(node.this, exp.Star | exp.Literal)
        values = [] if every else [_text(each) for each in (node.this, *node.expressions)]
        taken = " AND ".join([*(f"({value}) IS NOT NULL" for value in values), *([f"({condition})"] if condition else [])]) or "TRUE"
        return parse_one(build(self, taken, *values), read="spark")

    def _count(self, taken: str, *_: str) -> str:
        return f"COALESCE({self._sum(f'SUM(CASE WHEN {taken} THEN {self.sign} END)')}, 0)"

    def _total(self, taken: str, value: str) -> str:
        return f"CASE WHEN {self._count(taken)} > 0 THEN {self._signed(taken, value)} END"

    def _mean(self, taken: str, value: str) -> str:
        count = self._count(taken)
        return f"CASE WHEN {count} > 0 THEN {self._signed(taken, value)} / {count} END"

    def _signed(self, taken: str, value: str) -> str:
        # With CASE: a product would have a wider DECIMAL type.
        return self._sum(f"SUM(CASE WHEN {taken} THEN CASE WHEN {self.sign} > 0 THEN {value} ELSE -({value}) END END)")

    def _sum(self, text: str) -> str:
        return self.names.setdefault(text, f"_sum_{len(self.names)}")


_BUILDERS: dict[type[exp.Expr], Callable[..., str]] = {exp.Count: _Sums._count, exp.Sum: _Sums._total, exp.Avg: _Sums._mean}
