"""The layout of a table that the library creates: partitions, order of rows, properties.

==============  =======================================  ======================================
option          Delta                                    Iceberg
==============  =======================================  ======================================
partition_by    columns; ``day(at)`` is a generated      columns and transforms (hidden
                column ``at_day``                        partitions)
cluster_by      liquid clustering                        the sort order of the rows in a file
properties      ``TBLPROPERTIES``                        ``TBLPROPERTIES``
==============  =======================================  ======================================

A table that exists is compared, and never laid out again: `differences` returns the statements.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted, name_parts
from normalize.arguments import names_of

Properties = Mapping[str, str | bool | int]
_GENERATED = {
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
        is_known = name in _SIZED if size else name in ("", *_GENERATED)
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
        fields = tuple(map(PartitionField.of, names_of(partition_by)))
        return cls(fields, names_of(cluster_by), tuple(properties.items()))

    def or_of(self, database: Layout, columns: Collection[str]) -> Layout:
        """Return the layout of a table, with what it does not say from its database.

        A database's partitions and order are those of the tables that have all columns of them.
        """
        has = {*_lower(columns)}
        fields, order = database.partition_by, database.cluster_by
        default = Layout(
            fields if {*_lower([each.column for each in fields])} <= has else (),
            order if {*_lower(order)} <= has else (),
        )
        laid = self if self.partition_by or self.cluster_by else default
        merged = {**dict(database.properties), **dict(self.properties)}
        return replace(laid, properties=tuple(merged.items()))

    def check(self, provider: str) -> None:
        """Raise an error for what a table format does not have.

        Raises
        ------
        ArgumentError
        """
        if provider != "delta":
            return
        if self.partition_by and self.cluster_by:
            raise ArgumentError(
                "partition_by and cluster_by cannot be combined for Delta: remove one of them"
            )
        sized = [each for each in self.partition_by if each.size is not None]
        if sized:
            raise ArgumentError(
                f"partition_by has {sized[0].iceberg()}, which Delta does not have: write "
                f"cluster_by=[{sized[0].column!r}]"
            )

    def require_columns(self, columns: Collection[str], provider: str) -> None:
        """Raise an error for a column that the table lacks, or has with a generated one's name.

        Raises
        ------
        ArgumentError
        """
        has = {*_lower(columns)}
        for option, names in (
            ("partition_by", [each.column for each in self.partition_by]),
            ("cluster_by", self.cluster_by),
        ):
            if lost := [name for name in names if name.lower() not in has]:
                raise ArgumentError(
                    f"{option} has {lost[0]!r}, which is not one of the columns: "
                    f"{', '.join(columns)}"
                )
        taken = [each.generated for each in self.partition_by if each.generated.lower() in has]
        if taken and provider == "delta":
            raise ArgumentError(
                f"partition_by adds the column {taken[0]!r}, which the table has: partition by it"
            )

    def generated_columns(self, provider: str) -> list[str]:
        """Return the definitions of the generated columns."""
        if provider != "delta":
            return []
        of = [(each, *_GENERATED[each.transform]) for each in self.partition_by if each.transform]
        return [
            f"{backquoted(each.generated)} {kind} GENERATED ALWAYS AS "
            f"({expression.format(backquoted(each.column))})"
            for each, kind, expression in of
        ]

    def clauses(self, provider: str) -> str:
        """Return the clauses of ``CREATE TABLE``, which follow the provider."""
        if provider == "delta":
            names = [backquoted(each.generated or each.column) for each in self.partition_by]
            clustered = ", ".join(map(backquoted, self.cluster_by))
        else:
            names, clustered = [each.iceberg() for each in self.partition_by], ""
        return (f" PARTITIONED BY ({', '.join(names)})" if names else "") + (
            f" CLUSTER BY ({clustered})" if clustered else ""
        )

    def statements(self, provider: str, table: str) -> list[str]:
        """Return the statements that follow ``CREATE TABLE``."""
        ordered = provider == "iceberg" and self.cluster_by
        return [_order(f"ALTER TABLE {table}", self.cluster_by)] if ordered else []


NO_LAYOUT = Layout()


class StoredLayout(NamedTuple):
    """The layout that a table has.

    Attributes
    ----------
    partition_by : list of str
        The partition columns of Delta, or Iceberg's fields in its SQL.
    cluster_by : list of str
        The columns; of Iceberg, as in its property ``sort-order``.
    properties : dict of str to str
    """

    partition_by: list[str]
    cluster_by: list[str]
    properties: Mapping[str, str]


def differences(layout: Layout, stored: StoredLayout, provider: str, table: str) -> list[str]:
    """Return the statements that give a table a layout, or a sentence if there is none.

    Examples
    --------
    >>> stored = StoredLayout(["days(at)"], [], {})
    >>> differences(Layout.of(["month(at)"], [], {}), stored, "iceberg", "`shop`.`orders`")
    ['ALTER TABLE `shop`.`orders` DROP PARTITION FIELD days(at)', 'ALTER TABLE `shop`.`orders` ADD PARTITION FIELD months(`at`)']
    """
    alter = f"ALTER TABLE {table}"
    of_provider = _delta_differences if provider == "delta" else _iceberg_differences
    other = [
        (name, value)
        for name, value in layout.properties
        if stored.properties.get(name) != value and not name.startswith(_OF_PROTOCOL)
    ]
    listed = ", ".join(sql_property(*each) for each in other)
    properties = [f"{alter} SET TBLPROPERTIES ({listed})"] if other else []
    return [*of_provider(layout, stored, alter), *properties]


def _iceberg_differences(layout: Layout, stored: StoredLayout, alter: str) -> list[str]:
    fields = {_plain(each.iceberg()): each.iceberg() for each in layout.partition_by}
    has = {_plain(each): each for each in stored.partition_by if fields}
    statements = [f"{alter} DROP PARTITION FIELD {has[each]}" for each in has.keys() - fields]
    statements += [
        f"{alter} ADD PARTITION FIELD {text}" for each, text in fields.items() if each not in has
    ]
    is_ordered = _lower(layout.cluster_by) in ([], _lower(stored.cluster_by))
    return statements if is_ordered else [*statements, _order(alter, layout.cluster_by)]


def _delta_differences(layout: Layout, stored: StoredLayout, alter: str) -> list[str]:
    names = [each.generated or each.column for each in layout.partition_by]
    if _lower(names) not in ([], _lower(stored.partition_by)):
        return [
            "no statement changes the partitions of a Delta table, which are "
            f"({', '.join(stored.partition_by)}): write a new table in a query of its own"
        ]
    if _lower(layout.cluster_by) not in ([], _lower(stored.cluster_by)):
        return [f"{alter} CLUSTER BY ({', '.join(map(backquoted, layout.cluster_by))})"]
    return []


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


def _order(alter: str, names: Sequence[str]) -> str:
    return f"{alter} WRITE LOCALLY ORDERED BY {', '.join(map(backquoted, names))}"


def _plain(field: str) -> str:
    return field.replace("`", "").replace(" ", "").lower()


def _lower(names: Iterable[str]) -> list[str]:
    return [name.lower() for name in names]
