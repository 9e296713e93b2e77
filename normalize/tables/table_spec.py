"""The columns that a sink writes.

Table columns that would silently lose part of a value, which Spark and databases round or cut.

=====================  ============================================  ==============================
the table's type       the type of the changes                       what would be written
=====================  ============================================  ==============================
an integer             DECIMAL with a scale, FLOAT, DOUBLE           the integer part, or a rounded
                                                                     value
DECIMAL                DECIMAL with a larger scale, FLOAT, DOUBLE    a rounded value
DATE                   TIMESTAMP, TIMESTAMP_NTZ                      the day
BOOLEAN                a number                                      TRUE for all numbers but 0
=====================  ============================================  ==============================

A value that is too large for its type is not such a case, since it raises an error. FLOAT and
DOUBLE are approximate by definition.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    MapType,
    StructField,
    StructType,
    TimestampType,
)

from cdc_formats.errors import SchemaError, refuse
from cdc_formats.values.schema import Column, SqlType, backquoted
from cdc_formats.values.types import cuts, wider as wider_type
from normalize.monitoring.watch import Notice, log, shown_names

from .layout import NO_LAYOUT, Layout, in_lower
from .merge import MergePlan, merge_plan
from .table_options import TablePolicy

START_AT, END_AT = "__START_AT", "__END_AT"
"""The columns of a version's validity, as AUTO CDC names them."""
OnNewColumn = Literal["add", "ignore", "fail"]
"""What happens to a column that a table lacks."""


@dataclass(frozen=True)
class TableSpec:
    """The columns and key that a table requires, and whether it may be created or altered.

    Parameters
    ----------
    fields : tuple of StructField
    primary_key : tuple of str
    create : bool
    on_new_column : {"add", "ignore", "fail"}
    deleted_column : str or None
        The column with the time of a soft delete; None for hard deletes.
    versions : bool
        Whether a row is a version, with ``__START_AT`` and ``__END_AT``.
    partial_rows : bool
        Whether the changes have the column of `partial_rows`.
    position_column : str or None
        The column with the position of the last change (`core.order.stored_position`): a change whose
        position is not after it is not applied, and a delete of a key that the table lacks is
        stored as a deleted row. Only with a `deleted_column`.
    layout : Layout
        Of a table that is created.
    written : tuple of str
        The columns that the query has written, which an existing table must have.
    """

    fields: tuple[StructField, ...]
    primary_key: tuple[str, ...]
    create: bool = True
    on_new_column: OnNewColumn = "add"
    deleted_column: str | None = None
    versions: bool = False
    partial_rows: bool = False
    position_column: str | None = None
    layout: Layout = NO_LAYOUT
    written: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        policy: TablePolicy,
        fields: Iterable[StructField],
        primary_key: tuple[str, ...],
        create: bool = True,
        on_new_column: OnNewColumn = "add",
        validity: Iterable[StructField] = (),
    ) -> TableSpec:
        """Return what a table requires that is kept by a policy.

        Parameters
        ----------
        policy : TablePolicy
        fields : iterable of StructField
            The columns of the changes.
        primary_key, create, on_new_column
            Same as in the class.
        validity : iterable of StructField
            ``__START_AT`` and ``__END_AT``, of a history.
        """
        deleted = policy.deleted_column
        written = [*fields, *([] if deleted is None else [StructField(deleted, TimestampType())])]
        return cls(
            (*written, *validity),
            primary_key,
            create,
            on_new_column,
            deleted,
            policy.is_history,
            position_column=policy.position_column,
            layout=policy.layout_of([field.name for field in written]),
        )

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [field.name for field in self.fields]

    @property
    def required(self) -> set[str]:
        """The columns that are never left out: the key, and those that the sink computes."""
        computed = (
            {START_AT, END_AT}
            if self.versions
            else {name for name in (self.deleted_column, self.position_column) if name}
        )
        return computed.union(self.primary_key)

    def plan(self, spelled: Callable[[str], str] = str) -> MergePlan:
        """Return what a MERGE does.

        Parameters
        ----------
        spelled : callable
            Returns a column's name with the table's upper and lower case.
        """
        return merge_plan(
            map(spelled, self.names),
            [*map(spelled, self.primary_key)],
            deleted_column=self.deleted_column and spelled(self.deleted_column),
            position_column=self.position_column and spelled(self.position_column),
            partial_rows=self.partial_rows,
            place=(START_AT, END_AT) if self.versions else (),
        )

    def lacking(self, names: Iterable[str]) -> list[StructField]:
        """Return the columns that a table with columns of these names lacks."""
        lower = {*in_lower(names)}
        return [field for field in self.fields if field.name.lower() not in lower]


def with_comments(
    fields: Iterable[StructField], comments: Mapping[str, str]
) -> tuple[StructField, ...]:
    """Return fields with the comments of the source's columns, by column."""
    return tuple(
        StructField(each.name, each.dataType, each.nullable, {"comment": comments[each.name]})
        if each.name in comments
        else each
        for each in fields
    )


def written_spec(table: Any, spec: TableSpec, names: Iterable[str] | None) -> TableSpec:
    """Return what is written to a table: without the columns that it lacks, if they are ignored.

    A warning names these columns, once for each table.

    Parameters
    ----------
    table : LakeTarget or JdbcTarget
    spec : TableSpec
    names : iterable of str or None
        The table's columns; None: the table does not exist.
    """
    if names is None or spec.on_new_column != "ignore":
        return spec
    ignored = [each.name for each in spec.lacking(names) if each.name not in spec.required]
    if ignored:
        text = (
            f"{table} has no column {shown_names(ignored)}, which the changes have: it is not "
            "written (on_new_column='ignore')"
        )
        log([Notice(tuple(f"ignored {table} {name}" for name in ignored), text)])
    return replace(spec, fields=tuple(field for field in spec.fields if field.name not in ignored))


def missing_columns(
    table: Any,
    spec: TableSpec,
    names: Collection[str],
    alter: Callable[[Sequence[StructField]], list[str]],
) -> list[StructField]:
    """Return the columns that a table lacks.

    Parameters
    ----------
    table : LakeTarget or JdbcTarget
    spec : TableSpec
    names : collection of str
        The table's columns.
    alter : callable
        Returns the statements that add columns.

    Raises
    ------
    SchemaError
        When they may not be added, or are part of the primary key, or were written before, or when
        the table is a history and the rows are not versions.
    """
    missing = spec.lacking(names)

    def lost(columns: Collection[str | None]) -> list[StructField]:
        return [field for field in missing if field.name in columns]

    def shown(fields: Sequence[StructField]) -> str:
        return f"no column {', '.join(field.name for field in fields)}"

    def run(fields: Sequence[StructField]) -> str:
        return f"run {'; '.join(alter(fields))}"

    keys, dropped = lost(spec.primary_key), lost(spec.written)
    # Not added here: the rows that the table has would be at no place of the history.
    validity = lost((START_AT, END_AT)) if spec.versions else []
    of_history = START_AT.lower() in {*in_lower(names)} - {*in_lower(spec.names)}
    deleted, new = (
        ([], []) if spec.on_new_column == "add" else (lost([spec.deleted_column]), missing)
    )
    refuse(
        (keys, f"{table} has {shown(keys)}, which is part of the primary key"),
        (
            # A change would overwrite every version of its row.
            spec.primary_key and of_history,
            f"{table} is a history, with the column {START_AT}: pass scd_type=2, or name another "
            "table",
        ),
        (
            dropped,
            f"{table} no longer has the column {', '.join(backquoted(each.name) for each in dropped)}, "
            f"which this query has written: if it was renamed, rename it back. If it was dropped, "
            f"{run(dropped)}, after which it is NULL in each row until that row changes",
        ),
        (
            validity,
            f"{table} has {shown(validity)}, which scd_type=2 requires: {run(validity)}, and then "
            f"set {START_AT} of the rows that the table has to a value before their first change",
        ),
        (deleted, f"{table} has {shown(deleted)}, which deletes='soft' requires: {run(deleted)}"),
        (
            new,
            f"{table} has {shown(new)}: {run(new)}, or pass on_new_column='add', which does this, "
            "or 'ignore', which does not write it",
        ),
        error=SchemaError,
    )
    return missing


def require_no_narrowing(
    table: Any,
    spec: TableSpec,
    columns: Mapping[str, DataType | None],
    widen: Callable[[StructField, StructField], list[str]],
) -> None:
    """Raise an error if the table would silently lose part of a value.

    Parameters
    ----------
    table : LakeTarget or JdbcTarget
    spec : TableSpec
    columns : mapping
        The type of each of the table's columns; None: not compared.
    widen : callable
        Returns the statements that give a column, spelled as in the table, a wider type. It gets
        the column as it is and as it should be, and returns an empty list if no statement does
        this.

    Raises
    ------
    SchemaError
    """
    spelled = {name.lower(): name for name in columns}  # Spark ignores case by default
    for field in spec.fields:
        name = spelled.get(field.name.lower())
        kind = None if name is None else columns[name]
        if name is None or kind is None or not is_narrower(kind, field.dataType):
            continue
        wide = wider(kind, field.dataType)
        statements = [] if wide is None else widen(StructField(name, kind), StructField(name, wide))
        first = f"run {'; '.join(statements)}, or convert" if statements else "convert"
        have, type_of_values = kind.simpleString().upper(), field.dataType.simpleString().upper()
        raise SchemaError(
            f"{table} has the column {backquoted(name)} as {have}, which cuts values of {type_of_values}: "
            f"{first} the column to {have}"
        )


def is_narrower(kind: DataType, value_type: DataType) -> bool:
    """Return whether a `kind` column silently loses part of a `value_type` (`cuts`)."""
    return cuts(_sql_type(kind), _sql_type(value_type))


def wider(kind: DataType, other: DataType) -> DataType | None:
    """Return a type for a column with all values of both; None for nested types or without one.

    Examples
    --------
    >>> from pyspark.sql.types import DecimalType, IntegerType, LongType
    >>> wider(DecimalType(10, 2), DecimalType(8, 4)), wider(IntegerType(), DecimalType(8, 4))
    (DecimalType(12,4), DecimalType(14,4))
    >>> wider(IntegerType(), LongType()), wider(DecimalType(10, 2), DecimalType(12, 1))
    (LongType(), DecimalType(13,2))
    """
    if isinstance(kind, DateType) and other.simpleString().startswith("timestamp"):
        return other  # a table can convert its days, while a message's DATE is no timestamp
    wide = wider_type(_sql_type(kind), _sql_type(other))
    if wide is None or wide.fields:
        return None
    if wide.name == "DECIMAL":
        return DecimalType(wide.precision or 10, wide.scale or 0)
    return next((each for each in (kind, other) if _sql_type(each) == wide), DoubleType())


def _sql_type(kind: DataType) -> SqlType:
    """Return a Spark type for comparisons; one that no changelog column has keeps its name."""
    if isinstance(kind, DecimalType):
        return SqlType("DECIMAL", kind.precision, kind.scale)
    parts: dict[str, DataType] = {}
    if isinstance(kind, StructType):
        parts = {field.name: field.dataType for field in kind.fields}
    elif isinstance(kind, MapType):
        parts = {"key": kind.keyType, "value": kind.valueType}
    elif isinstance(kind, ArrayType):
        parts = {"element": kind.elementType}
    name = kind.simpleString().partition("<")[0].upper()
    return SqlType(name, fields=tuple(Column(part, _sql_type(of)) for part, of in parts.items()))
