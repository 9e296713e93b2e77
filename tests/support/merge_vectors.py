"""What a MERGE does: rows before, the last change of their key, and rows after, by policy.

Each renderer of a plan has to end in these rows (`tests/e2e/tables/test_merge_vectors.py`).
"""

from datetime import datetime, timezone
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.events import Position
from normalize.core.order import stored_position
from normalize.tables.merge import ABSENT_COLUMN
from normalize.tables.table_spec import TableSpec

Row = dict[str, Any]
SHARD = "Shard"
_ARROW = {
    "INT": pa.int32(),
    "STRING": pa.string(),
    "BINARY": pa.binary(),
    "TIMESTAMP": pa.timestamp("us", "UTC"),
}
COLUMNS = {"Id": "INT", "a.name": "STRING", "note": "STRING"}
MORE = {
    "shard": {"Shard": "STRING"},
    "position": {"position": "BINARY"},
    "deleted": {"deleted_at": "TIMESTAMP"},
    "versions": {"__START_AT": "INT", "__END_AT": "INT"},
}


class Vector(NamedTuple):
    """A row, its change, and the row that the table then has."""

    before: Row | None
    kind: str
    change: Row
    after: Row | None


def _row(name: str | None = None, note: str | None = None, **more: Any) -> Row:
    return {"a.name": name, "note": note, **more}


def at(number: int, history: str = "db") -> bytes:
    """The position with a number in the log of a source."""
    return stored_position(Position(history, number, 0, None))


def hour(number: int) -> datetime:
    return datetime(2024, 3, 31, number, tzinfo=timezone.utc)


_HARD = [
    Vector(_row("a", "n"), "+U", _row("b"), _row("b")),
    Vector(_row("a", "n"), "+I", _row("b", "m"), _row("b", "m")),
    Vector(_row("a", "n"), "-D", _row(), None),
    Vector(_row("a", "n"), "-U", _row("a", "n"), None),
    Vector(None, "+I", _row("b"), _row("b")),
    Vector(None, "+U", _row("b", "m"), _row("b", "m")),
    Vector(None, "-D", _row("b"), None),
]
_GONE, _LATER = {"deleted_at": hour(1)}, {"deleted_at": hour(2)}
_SOFT = [
    *(vector for vector in _HARD if vector.kind in ("+I", "+U")),
    Vector(_row("a", "n"), "-D", _row(**_GONE), _row("a", "n", **_GONE)),
    Vector(_row("a", **_GONE), "-D", _row(**_LATER), _row("a", **_GONE)),
    Vector(_row("a", **_GONE), "+I", _row("b"), _row("b")),
    Vector(None, "-D", _row(**_GONE), None),
]
_ONE, _TWO, _THREE = ({"position": at(number)} for number in (1, 2, 3))
_POSITIONS = [
    Vector(_row("a", **_TWO), "+U", _row("b", **_THREE), _row("b", **_THREE)),
    # A redelivery, also of the same change.
    Vector(_row("a", **_TWO), "+U", _row("b", **_TWO), _row("a", **_TWO)),
    Vector(_row("a", **_TWO), "+I", _row("b", **_ONE), _row("a", **_TWO)),
    Vector(_row("a", **_TWO), "-D", _row(**_ONE, **_GONE), _row("a", **_TWO)),
    # The row has no position, the change has none, and the change is of another log.
    Vector(_row("a"), "+U", _row("b", **_ONE), _row("b", **_ONE)),
    Vector(_row("a", **_TWO), "+U", _row("b"), _row("b")),
    Vector(
        _row("a", **_TWO), "+U", _row("b", position=at(1, "new")), _row("b", position=at(1, "new"))
    ),
    Vector(_row("a", **_ONE), "-D", _row(**_TWO, **_GONE), _row("a", **_TWO, **_GONE)),
    Vector(
        _row("a", **_TWO, **_GONE), "-D", _row(**_THREE, **_LATER), _row("a", **_THREE, **_GONE)
    ),
    Vector(_row("a", **_TWO, **_GONE), "+I", _row("b", **_ONE), _row("a", **_TWO, **_GONE)),
    Vector(_row("a", **_TWO, **_GONE), "+I", _row("b", **_THREE), _row("b", **_THREE)),
    # A delete of an unknown key is kept: the insert before it may be delivered again.
    Vector(None, "-D", _row(**_TWO, **_GONE), _row(**_TWO, **_GONE)),
    Vector(None, "+I", _row("b", **_ONE), _row("b", **_ONE)),
]


def _lacking(flags: str) -> Row:
    return {ABSENT_COLUMN: f"{flags} shop[0]@8"}


_PARTIAL = [
    Vector(_row("a", "n"), "+U", _row("b", **_lacking("001")), _row("b", "n")),
    Vector(_row("a", "n"), "+U", _row(None, "m", **_lacking("010")), _row("a", "m")),
    Vector(_row("a", "n"), "+U", _row("b"), _row("b")),
]
_PARTIAL_REDELIVERY = Vector(
    _row("a", **_TWO, **_GONE),
    "+U",
    _row("b", **_ONE, **_lacking("001")),
    _row("a", **_TWO, **_GONE),
)
_OF_SHARDS = [
    vector._replace(
        before=None if vector.before is None else {**vector.before, SHARD: "x"},
        change={**vector.change, SHARD: "x"},
        after=None if vector.after is None else {**vector.after, SHARD: "x"},
    )
    for vector in _HARD
]
_STARTED, _ENDED = {"__START_AT": 1}, {"__START_AT": 1, "__END_AT": 5}
_VERSIONS = [
    Vector(_row("a", **_STARTED), "+U", _row("a", **_ENDED), _row("a", **_ENDED)),
    Vector(_row("a", **_ENDED), "-D", _row(**_STARTED), None),
    Vector(None, "+I", _row("b", __START_AT=5), _row("b", __START_AT=5)),
    Vector(_row("a", __END_AT=5), "+U", _row("a", __START_AT=5), _row("a", __START_AT=5)),
]
VECTORS = {
    "hard": _HARD,
    "soft deleted": _SOFT,
    "hard partial": [*_HARD, *_PARTIAL],
    "deleted position partial": [*_POSITIONS, *_PARTIAL, _PARTIAL_REDELIVERY],
    "shard": _OF_SHARDS,
    "versions": _VERSIONS,
}
"""The vectors of each policy."""
FAILING = {
    "hard partial": [(None, _row("b", **_lacking("001")))],
    "deleted partial": [
        (None, _row("b", **_lacking("001"))),
        (_row("a", **_GONE), _row("b", **_lacking("001"))),
    ],
}
"""Rows and partial changes that they cannot complete."""


def columns_of(policy: str) -> dict[str, str]:
    """The columns of a policy with their types."""
    added = (name for part, names in MORE.items() if part in policy for name in names.items())
    return {**COLUMNS, **dict(added)}


def spec_of(spark: SparkSession, policy: str) -> TableSpec:
    """The table of a policy."""
    columns = columns_of(policy)
    return TableSpec(
        tuple(_frame(spark, [], columns).schema.fields),
        ("Id", SHARD) if policy == "shard" else ("Id",),
        create=True,
        on_new_column="fail",
        deleted_column="deleted_at" if "deleted" in policy else None,
        versions=policy == "versions",
        partial_rows="partial" in policy,
        position_column="position" if "position" in policy else None,
    )


def _frame(spark: SparkSession, rows: list[Row], columns: dict[str, str]) -> DataFrame:
    # Spark knows the size of a local relation, and joins it without a shuffle.
    arrays = {
        name: pa.array([row.get(name) for row in rows], _ARROW[kind])
        for name, kind in columns.items()
    }
    ddl = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return spark.createDataFrame(pa.table(arrays), ddl)


def frames(
    spark: SparkSession, policy: str, vectors: list[Vector]
) -> tuple[DataFrame, DataFrame, list[tuple[Any, ...]]]:
    """Return the rows before, the changes, and the rows after, as `shown` returns them."""
    columns = columns_of(policy)
    changes = {"row_kind": "STRING", **({ABSENT_COLUMN: "STRING"} if "partial" in policy else {})}
    numbered = [
        tuple(row if row is None else {"Id": number, **row} for row in (before, change, after))
        for number, (before, _, change, after) in enumerate(vectors)
    ]
    return (
        _frame(spark, [before for before, _, _ in numbered if before], columns),
        _frame(
            spark,
            [
                {"row_kind": vector.kind, **change}
                for vector, (_, change, _) in zip(vectors, numbered, strict=True)
                if change
            ],
            changes | columns,
        ),
        shown(_frame(spark, [after for _, _, after in numbered if after], columns), policy),
    )


def shown(rows: DataFrame, policy: str) -> list[tuple[Any, ...]]:
    """Return rows, sorted; times in seconds, positions in hexadecimal."""
    forms = {"TIMESTAMP": "unix_seconds(CAST({} AS TIMESTAMP))", "BINARY": "hex({})"}
    columns = [
        forms.get(kind, "{}").format(f"`{name}`") for name, kind in columns_of(policy).items()
    ]
    return sorted((tuple(row) for row in rows.selectExpr(*columns).collect()), key=repr)
