"""The columns that a stream has, which Spark fixes when it starts: those of the table then, or those that a user declares."""

from __future__ import annotations

import pyarrow as pa

from cdc_formats.errors import SchemaError

from .rows import METADATA, ROW_KIND, spark_ddl
from .table import Table


def require_declared(table: Table, found: pa.Schema, declared: pa.Schema) -> None:
    """Refuse declared columns that are not the table's; one that it does not have yet may be of any type.

    Parameters
    ----------
    found : pa.Schema
        All columns of the table's changelog.

    Raises
    ------
    SchemaError
        When a column has another type than declared, or the kind of row or a column of the key is not declared.
    """
    spark_ddl(table)  # refuses names that the changelog has itself
    types = {field.name.lower(): field.type for field in found}
    ddl = {ROW_KIND: "STRING", **METADATA, **{column.name.lower(): str(column.column.type) for column in table.columns}}
    for field in declared:
        name = field.name.lower()
        if name in types and field.type != types[name]:
            raise SchemaError(f"column `{field.name}` of {table.qualified} has another type than declared: declare it {ddl[name]}")
    keys = {table.columns[place].name for place in (*table.primary_key, *table.chunk_key)}
    lacking = absent([ROW_KIND, *sorted(keys)], declared.names)
    if lacking:
        raise SchemaError(f"the schema declared for {table.qualified} lacks {', '.join(lacking)}, which tell what a change is of")


def absent(names: list[str], known: list[str]) -> list[str]:
    """Return the names of columns that are not among others, in upper or lower case."""
    others = {name.lower() for name in known}
    return [name for name in names if name.lower() not in others]


def fitted(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
    """Return a batch's declared columns, NULL where the table did not have one yet."""
    there = {name.lower(): array for name, array in zip(batch.schema.names, batch.columns, strict=True)}
    arrays = [there[field.name.lower()] if field.name.lower() in there else pa.nulls(len(batch), field.type) for field in declared]
    return pa.RecordBatch.from_arrays(arrays, schema=declared)
