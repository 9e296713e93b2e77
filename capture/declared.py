"""The columns of a stream: the table's when the stream starts, or those that the user declares."""

from __future__ import annotations

import pyarrow as pa

from cdc_formats.errors import SchemaError

from .rows import METADATA, ROW_KIND, spark_ddl
from .table import Table


def require_declared(table: Table, changelog: pa.Schema, declared: pa.Schema) -> None:
    """Check that declared columns have the table's types; columns not there yet may have any type.

    Parameters
    ----------
    changelog : pa.Schema
        All columns of the table's changelog.

    Raises
    ------
    SchemaError
        If a column has another type than declared, or if ``row_kind`` or a key column is not
        declared.
    """
    spark_ddl(table)  # raises an error for a column named like one of the changelog
    types = {field.name.lower(): field.type for field in changelog}
    ddl = {
        ROW_KIND: "STRING",
        **METADATA,
        **{column.name.lower(): str(column.column.type) for column in table.columns},
    }
    for field in declared:
        name = field.name.lower()
        if name in types and field.type != types[name]:
            raise SchemaError(
                f"column `{field.name}` of {table.qualified} has another type than declared: "
                f"declare it {ddl[name]}"
            )
    keys = {table.columns[place].name for place in (*table.primary_key, *table.chunk_key)}
    lacking = missing_names([ROW_KIND, *sorted(keys)], declared.names)
    if lacking:
        raise SchemaError(
            f"the schema declared for {table.qualified} lacks {', '.join(lacking)}: declare the "
            "row kind and the key columns"
        )


def missing_names(names: list[str], present: list[str]) -> list[str]:
    """Return the names that are not known, ignoring case."""
    lower = {name.lower() for name in present}
    return [name for name in names if name.lower() not in lower]


def project(batch: pa.RecordBatch, declared: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the declared columns; those the table did not have yet are NULL."""
    by_name = {
        name.lower(): array for name, array in zip(batch.schema.names, batch.columns, strict=True)
    }
    arrays = [
        by_name[field.name.lower()]
        if field.name.lower() in by_name
        else pa.nulls(len(batch), field.type)
        for field in declared
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=declared)
