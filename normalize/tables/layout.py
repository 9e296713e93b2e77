"""The layout of a table that the library creates: partitions, order of rows, properties.

==============  =======================================  ======================================
option          Delta                                    Iceberg
==============  =======================================  ======================================
partition_by    columns; ``day(at)`` is a generated      columns and transforms (hidden
                column ``at_day``                        partitions)
cluster_by      liquid clustering                        the sort order of the rows in a file
properties      ``TBLPROPERTIES``                        ``TBLPROPERTIES``
==============  =======================================  ======================================

A table that exists is compared, and never laid out again: `LakeTarget.differences` returns the
statements. The SQL of each table format is that of its target.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cdc_formats.errors import ArgumentError, refuse
from cdc_formats.values.schema import backquoted, name_parts
from normalize.arguments import names_of

Properties = Mapping[str, str | bool | int]
GENERATED = {
    "year": ("INT", "YEAR({})"),
    "month": ("STRING", "DATE_FORMAT({}, 'yyyy-MM')"),
    "day": ("DATE", "CAST({} AS DATE)"),
    "hour": ("STRING", "DATE_FORMAT({}, 'yyyy-MM-dd-HH')"),
}
"""The type and the expression of Delta's generated column: those by which Delta reads only the
partitions of a condition on the column itself."""
_SIZED = ("bucket", "truncate")
_FIELD = re.compile(r"\s*(\w+)\(\s*(?:(\d+)\s*,\s*)?(.+?)\s*\)\s*")
_WRITTEN = "a column, year(x), month(x), day(x), hour(x), bucket(16, x) or truncate(4, x)"


_OF_PROTOCOL = ("delta.feature.", "delta.minReaderVersion", "delta.minWriterVersion")
"""Properties that Delta does not keep as properties."""


class PartitionField(NamedTuple):
    """What a table is partitioned by: a column, or a transform of one."""

    column: str
    transform: str = ""
    size: int | None = None

    @classmethod
    def of(cls, text: str) -> PartitionField:
        """Read a field.

        Raises
        ------
        ArgumentError

        Examples
        --------
        >>> PartitionField.of("day(created_at)")
        PartitionField(column='created_at', transform='day', size=None)
        """
        called = _FIELD.fullmatch(text)
        name = called[1].lower().removesuffix("s") if called else ""
        parts = name_parts(called[3].strip() if called else text.strip())
        size = int(called[2]) if called and called[2] else None
        is_known = name in _SIZED if size else name in ("", *GENERATED)
        if not is_known or len(parts) != 1:
            raise ArgumentError(f"partition_by has {text!r}: write {_WRITTEN}")
        return cls(parts[0], name, size)

    @property
    def generated(self) -> str:
        """The name of Delta's generated column; empty for a column."""
        return self.transform and f"{self.column}_{self.transform}"

    def iceberg(self) -> str:
        """Return the field in Iceberg's SQL."""
        name = backquoted(self.column)
        if self.size is not None:
            return f"{self.transform}({self.size}, {name})"
        return f"{self.transform}s({name})" if self.transform else name


@dataclass(frozen=True)
class Layout:
    """The layout of a table.

    Parameters
    ----------
    partition_by : tuple of PartitionField
    cluster_by : tuple of str
    properties : tuple of (str, str)
    """

    partition_by: tuple[PartitionField, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls, partition_by: str | Sequence[str], cluster_by: str | Sequence[str], of: Properties
    ) -> Layout:
        """Read the options of a table or a database.

        Raises
        ------
        ArgumentError
        """
        properties = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in of.items()
        }
        return cls(
            tuple(map(PartitionField.of, names_of(partition_by))),
            names_of(cluster_by),
            tuple(properties.items()),
        )

    def or_of(self, database: Layout, columns: Collection[str]) -> Layout:
        """Return the layout of a table, with what it does not say from its database.

        A database's partitions and order are those of the tables that have all columns of them.
        """
        has = {*in_lower(columns)}
        fields, order = database.partition_by, database.cluster_by
        default = Layout(
            fields if {*in_lower([each.column for each in fields])} <= has else (),
            order if {*in_lower(order)} <= has else (),
        )
        laid = self if self.partition_by or self.cluster_by else default
        properties = dict(database.properties) | dict(self.properties)
        return replace(laid, properties=tuple(properties.items()))

    def require_columns(self, columns: Collection[str]) -> None:
        """Raise an error for a column that the table lacks.

        Raises
        ------
        ArgumentError
        """
        has = {*in_lower(columns)}
        fields = [each.column for each in self.partition_by]
        options = {"partition_by": fields, "cluster_by": self.cluster_by}
        refuse(
            *(
                (
                    name.lower() not in has,
                    f"{option} has {name!r}, which is not one of the columns: {', '.join(columns)}",
                )
                for option, names in options.items()
                for name in names
            )
        )


NO_LAYOUT = Layout()
StoredLayout = tuple[Sequence[str], Sequence[str], Mapping[str, str]]
"""The layout that a table has: what it is partitioned by (Delta's columns, or Iceberg's fields in its
SQL), the columns that order its rows (of Iceberg, as in its property ``sort-order``), and its
properties."""


def other_properties(layout: Layout, stored: Mapping[str, str], alter: str) -> list[str]:
    """Return the statement that sets the properties that a table does not have."""
    other = [
        (name, value)
        for name, value in layout.properties
        if stored.get(name) != value and not name.startswith(_OF_PROTOCOL)
    ]
    listed = ", ".join(sql_property(*each) for each in other)
    return [f"{alter} SET TBLPROPERTIES ({listed})"] if other else []


def sql_property(name: str, value: str) -> str:
    """Return a property in SQL."""
    return f"{sql_literal(name)} = {sql_literal(value)}"


def sql_literal(text: str) -> str:
    r"""Return text as a literal, in which Spark replaces no ``${...}``: it could be a secret.

    Examples
    --------
    >>> print(sql_literal("it's ${env:SECRET}"))
    'it\'s \u0024{env:SECRET}'
    """
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("${", "\\u0024{")
    return f"'{escaped}'"


def in_lower(names: Iterable[str]) -> list[str]:
    """Return names in lower case: Spark ignores case by default."""
    return [name.lower() for name in names]
