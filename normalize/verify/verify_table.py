"""`verify_table`: whether a target table equals its source table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal
from urllib.parse import urlsplit

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField

from cdc_formats.errors import ArgumentError, MissingDependencyError, SchemaError, refuse
from cdc_formats.values.masks import HMAC, Masks, masks_of
from cdc_formats.values.schema import backquoted
from normalize.arguments import names_of
from normalize.spark.sessions import require_jvm
from normalize.tables.database_target import lake_target
from normalize.tables.targets import TableTarget
from normalize.tables.writers.jdbc import JdbcTable
from normalize.tables.writers.lake import LakeTarget

from .canonical import ComparedColumn, compared_column, masked_column
from .comparison import ComparableTable, Comparison, LakeTable, Looks, TargetTable
from .database_table import DatabaseTable, JdbcSource
from .repair import DebeziumSignal, check_repair, is_time, merge_source_rows
from .verification import Verification

_SCANS = 3


def verify_table(
    spark: SparkSession,
    source: JdbcSource,
    target: TableTarget | str,
    *,
    keys: str | Sequence[str] = (),
    exclude: str | Sequence[str] = (),
    target_where: str = "",
    deleted_column: str | None = None,
    mask: Mapping[str, str] | None = None,
    mask_key_env: str | None = None,
    mask_key_file: str | None = None,
    max_lag_seconds: float = 60.0,
    limit: int = 20,
    repair: Literal["merge"] | DebeziumSignal | None = None,
) -> Verification:
    """Return whether a target table equals its source table at one position of the source's log.

    Neither the writes to the source nor the query that writes the target need to be paused.

    Parameters
    ----------
    spark : SparkSession
        A classic session. For PostgreSQL and for a `JdbcTarget` it needs the database's JDBC
        driver.
    source : JdbcSource
        For MySQL and MariaDB, the server must write its binary log as for ``mysql-changelog``, and
        the extra ``capture`` is required.
    target : DeltaTarget, IcebergTarget, JdbcTarget or str
        A string is the name of a Delta or Iceberg table.
    keys : str or sequence of str
        The columns that identify a row, with the source's names; by default the source's primary
        key. They must not be NULL in the source.
    exclude : str or sequence of str
        Columns of the source that are not compared. Columns that only the target has, and those
        that ``TableOptions(select=...)`` computes in a table that the query created, are never
        compared, and are listed in the result.
    target_where : str
        SQL that selects the target's rows to compare: ``__END_AT IS NULL`` for a history.
    deleted_column : str or None
        The target's column of soft deletes: rows in which it is not NULL are not compared, and a
        repair sets it instead of deleting a row. None: the column that this package wrote into the
        properties of a Delta or Iceberg table. Empty: the target has hard deletes.
    mask : mapping or None
        The masks of the target's columns, with the source's names: the format option of the query
        that writes it. The mask of the source's value is compared for ``hmac``, of text, integers,
        BOOLEAN, DATE and BINARY. Columns with ``redact`` or ``drop`` are not compared.
    mask_key_env, mask_key_file : str or None
        The key of ``hmac``, as in `cdc_formats.message_format.MessageFormat`.
    max_lag_seconds : float
        The longest time that the target may be behind the source. A key that differs all that time,
        and whose source row did not change in that time, is a difference. 0 is right only if the
        writes are paused and the target has applied all changes.
    limit : int
        The most differences that the result lists.
    repair : "merge", DebeziumSignal or None
        What happens to the rows that differ. ``"merge"`` writes the source's rows of these keys to
        the target, deletes those that only the target has, and compares them again: the result has
        what still differs. It is refused for histories, for change feeds, and for a target with a
        TIMESTAMP column that the source lacks, unless `deleted_column` is known. A
        `DebeziumSignal` asks the connector of the source table to read these rows again.

    Returns
    -------
    Verification

    Raises
    ------
    ArgumentError, SchemaError, TargetError
        When the tables cannot be compared: no key, a column that the target lacks, or types without
        an exact common type.
    CaptureError
        When a MySQL or MariaDB source cannot be read.
    FormatOptionError
        When the masks or their key are not valid.
    MissingDependencyError

    Notes
    -----
    The whole source table is read once, and the whole target table once; ranges that differ, twice.
    Keys and hashes (some 50 bytes a row) are kept on the executors' disks meanwhile. The hashes are
    64 bits long (``xxhash64``): a row that differs goes unnoticed with a probability of 1 in
    1.8e19. They do not protect from somebody who constructs equal hashes.

    Each further look at keys that differed reads those keys from a database, and a whole Delta or
    Iceberg table.

    A key that the source changed and changed back between two looks counts as unchanged.
    """
    require_jvm(spark, "verify_table", "run it in a classic session")
    refuse((max_lag_seconds < 0 or limit < 0, "max_lag_seconds and limit must not be negative"))
    began = time.monotonic()
    masks = masks_of(mask or (), env=mask_key_env, file=mask_key_file)
    comparison = comparison_of(
        spark,
        source_table(spark, source),
        target_table(spark, target),
        names_of(keys, "keys"),
        names_of(exclude, "exclude"),
        target_where,
        deleted_column,
        masks,
    )
    if repair is not None:
        check_repair(repair, comparison)
    for _ in range(_SCANS):
        scan = comparison.scan()
        looks = Looks(max_lag_seconds)
        looks.run(comparison.look, scan.differing)
        if scan.is_complete or looks.proven:
            break
    repaired = 0
    if repair is not None and looks.proven:
        kinds = looks.kinds
        if isinstance(repair, DebeziumSignal):
            repaired = repair.send(spark, source, comparison.keys, kinds)
        else:
            merge_source_rows(comparison, target, kinds)
            repaired_keys, looks.proven = looks.proven, {}
            looks.run(comparison.look, repaired_keys)
            repaired = len(kinds) - len(looks.proven) - len(looks.unsettled)
    return comparison.result(scan, looks, limit, time.monotonic() - began, repaired)


def comparison_of(
    spark: SparkSession,
    read: ComparableTable,
    copy: TargetTable,
    keys: Sequence[str],
    exclude: Sequence[str],
    target_where: str,
    deleted_column: str | None,
    masks: Masks,
) -> Comparison:
    """Return how a source table and its copy are compared; the parameters are `verify_table`'s.

    Raises
    ------
    ArgumentError, SchemaError, TargetError
    """
    for table in (read, copy):
        _require_distinct_names(table)
    key = _key(read, keys, exclude)
    exclude = (*exclude, *_without_values(read, key, masks, exclude))
    computed = [name for name in read.schema.fieldNames() if name.lower() in copy.computed_columns]
    exclude = (*exclude, *(name for name in computed if name not in exclude))
    columns = _compared_columns(read, copy, exclude, masks)
    of_source = {name.lower() for name in read.schema.fieldNames()}
    only_target = [name for name in copy.schema.fieldNames() if name.lower() not in of_source]
    deleted = _deleted_column(copy, only_target, deleted_column)
    return Comparison(
        spark, read, copy, columns, key, (*exclude, *only_target), target_where, deleted
    )


def _deleted_column(
    copy: TargetTable, only_target: Sequence[str], passed: str | None
) -> str | None:
    """Return the target's column of soft deletes; empty for hard deletes, None if not known.

    Raises
    ------
    ArgumentError
        When it is not a TIMESTAMP column that only the target has.
    """
    name = copy.deleted_column if passed is None else passed
    if not name:
        return name
    for field in copy.schema.fields:
        if field.name.lower() == name.lower() and field.name in only_target and is_time(field):
            return field.name
    raise ArgumentError(
        f"deleted_column is {name!r}, which is not a TIMESTAMP column of {copy.name} alone: pass "
        "the column that has the time of soft deletes, or '' if the target has hard deletes"
    )


def _without_values(
    read: ComparableTable, key: Sequence[str], masks: Masks, exclude: Sequence[str]
) -> list[str]:
    """Return the columns that cannot be compared because the target does not have their values.

    Raises
    ------
    ArgumentError
        When a mask is of no column, or of the key.
    """
    columns = read.schema.fieldNames()
    of_columns = masks.of_columns(columns).pairs
    refuse(
        *(
            (True, f"mask: {read.name} has no column {backquoted(name)}")
            for name in masks.unused({"": columns})
        ),
        *(
            (
                name in key,
                f"mask: {backquoted(name)} is part of the key, and rows with a masked key cannot "
                "be looked up: pass other keys",
            )
            for name, _ in of_columns
        ),
    )
    return [name for name, kind in of_columns if kind != HMAC and name not in exclude]


def _compared_columns(
    read: ComparableTable, copy: ComparableTable, exclude: Sequence[str], masks: Masks
) -> tuple[ComparedColumn, ...]:
    fields = [field for field in read.schema.fields if field.name not in exclude]
    copied = {field.name.lower(): field for field in copy.schema.fields}
    if absent := [field.name for field in fields if field.name.lower() not in copied]:
        raise SchemaError(
            f"{copy.name} has no column {', '.join(map(backquoted, absent))}, which {read.name} "
            "has: add it to the target, or exclude it"
        )
    return tuple(compared(read, field, copied[field.name.lower()], masks) for field in fields)


def compared(
    read: ComparableTable, field: StructField, same: StructField, masks: Masks
) -> ComparedColumn:
    """Return how a column of the source is compared with its copy.

    Raises
    ------
    SchemaError
        When the types have no exact common type.
    """
    column = (
        compared_column if masks.kind(field.name) is None else partial(masked_column, masks=masks)
    )
    is_json = field.name in read.json_columns
    return column(field.name, field.dataType, same.name, same.dataType, is_json=is_json)


def _key(read: ComparableTable, keys: Sequence[str], exclude: Sequence[str]) -> tuple[str, ...]:
    """Return the columns that identify a row of the source.

    Raises
    ------
    ArgumentError
        When there are none, or the arguments do not fit the source's columns.
    """
    key, columns = tuple(keys) or read.primary_key, read.schema.fieldNames()
    if not key:
        raise ArgumentError(
            f"{read.name} has no primary key: add one, or call verify_table with keys=..., the "
            "columns that identify a row"
        )
    for argument, names in (("keys", key), ("exclude", exclude)):
        if unknown := [name for name in names if name not in columns]:
            raise ArgumentError(
                f"{argument}: {read.name} has no column {', '.join(map(backquoted, unknown))}"
            )
    if excluded := [name for name in key if name in exclude]:
        raise ArgumentError(
            f"exclude: {', '.join(map(backquoted, excluded))} is part of the key, which cannot be "
            "excluded"
        )
    return key


def _require_distinct_names(table: ComparableTable) -> None:
    """Raise an error for column names that differ only in case: Spark treats them as one."""
    names = sorted(table.schema.fieldNames(), key=str.lower)
    for name, other in pairwise(names):
        if name.lower() == other.lower():
            raise SchemaError(
                f"{table.name} has the columns {backquoted(name)} and {backquoted(other)}, whose "
                "names Spark cannot tell apart: compare a view that renames one of them"
            )


def source_table(spark: SparkSession, source: JdbcSource) -> ComparableTable:
    """Return the source table.

    Raises
    ------
    ArgumentError, MissingDependencyError
    """
    if source.url.startswith("jdbc:postgresql:"):
        return DatabaseTable(spark, source)
    try:
        from .mysql_table import MySqlTable
    except ImportError as error:
        raise MissingDependencyError(
            f"{error}; pip install 'pyspark-kafka-changelog[capture,spark]'"
        ) from error
    address = urlsplit(source.url.removeprefix("jdbc:"))
    *schema, table = source.table.split(".")
    database = schema[0] if schema else address.path.strip("/")
    if not address.hostname or not database:
        raise ArgumentError(
            f"JdbcSource has the url {source.url!r}: it must have a host and a database, as in "
            "jdbc:mysql://db:3306/shop"
        )
    options = {
        "hostname": address.hostname,
        "port": str(address.port or 3306),
        "username": source.user or "",
        "password": source.password or "",
    }
    return MySqlTable.of(
        spark, {**options, "database-name": database, "table-name": table, **source.options}
    )


def target_table(spark: SparkSession, target: TableTarget | str) -> TargetTable:
    """Return the target table.

    Raises
    ------
    ArgumentError, TargetError
    """
    if isinstance(target, JdbcTable):
        return DatabaseTable(spark, target)
    if isinstance(target, LakeTarget):
        return LakeTable(spark, target)
    if isinstance(target, str):
        return LakeTable(spark, lake_target(spark, target))
    raise ArgumentError(
        f"target is {target!r}: pass a DeltaTarget, an IcebergTarget, a JdbcTarget or the name of "
        "a table"
    )
