"""A table of a running query is read again from its source, at one position of the source's log."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from pyspark.sql import DataFrame, SparkSession

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.tables.database_target import Database
from normalize.tables.expressions import selected
from normalize.tables.resync import failed_at_error, resync_table, wait_while
from normalize.tables.resync_state import Resync
from normalize.tables.schema_store import SchemaStore
from normalize.tables.table_options import TableOptions

from .canonical import as_copied
from .database_table import JdbcSource
from .repair import write_rows
from .verify_table import source_table


def resync_from_source(
    spark: SparkSession,
    table: str,
    source: JdbcSource,
    *,
    database: Database,
    schema_location: str,
    options: TableOptions | None = None,
    remove_missing: bool = False,
    dry_run: bool = False,
    again: bool = False,
    report: Callable[[Resync], None] = lambda resync: None,
) -> Resync:
    """Let the running query read one of its tables again, from the rows of its source table.

    This call writes the source's rows to a new table, in its own session. The query applies the
    changes since then to it, and replaces the old table once it has caught up. The topic need not
    have all rows.

    Parameters
    ----------
    spark : SparkSession
        A classic session.
    table : str
        The source table, as in the query's files.
    source : JdbcSource
        The same table in its database.
    database, schema_location
        Those of the query.
    options : TableOptions or None
        Those of the table.
    remove_missing, dry_run, again
        Same as in `resync_table`.
    report : callable
        Gets the request while it waits for the query.

    Returns
    -------
    Resync
        The request after the source's rows are written, or when it is refused.

    Raises
    ------
    ArgumentError
        As `resync_table`; and when the source lacks a column of the table.
    TargetError, CaptureError
        When the source or the new table cannot be read or written.
    """
    resync = resync_table(
        spark,
        table,
        schema_location=schema_location,
        remove_missing=remove_missing,
        dry_run=dry_run,
        from_source=True,
        again=again,
    )
    store = SchemaStore(spark, schema_location)
    resync = wait_while(store, resync, lambda each: each.phase == "requested", report)
    if resync.phase != "loading":
        return resync
    options = options or TableOptions()
    with failed_at_error(store, resync, "the source's rows were not written"):
        schema = store.beside(resync, spark).read(resync.table)
        policy = database.of.policy(options, database.table_options)
        assert schema is not None  # the query wrote it before this phase
        target = database.target(resync.new)
        copies = target.sink(spark).fields()
        read = source_table(spark, source)
        of_source = {name.lower() for name in read.schema.fieldNames()}
        copied = {each.name.lower() for each in copies}
        columns = [each.name for each in schema.columns if each.name.lower() in copied]
        lacking = [name for name in columns if name.lower() not in of_source]
        if lacking:
            raise ArgumentError(
                f"{read.name} has no column {', '.join(map(backquoted, lacking))}, which the table has: "
                "read it again from its topic"
            )

        with read.snapshot() as snapshot:
            values = as_copied(read.schema.fields, copies, columns)
            changes: DataFrame = snapshot.rows.selectExpr(f"'+U' AS {ROW_KIND}", *values)
            rows = selected(changes, policy.where, policy.select)
            written = [*columns, *policy.select]
            write_rows(rows, target, schema.primary_key, written, policy.deleted_column)
    loaded = msgspec.structs.replace(resync, phase="reading")
    store.write_resync(loaded)
    return loaded
