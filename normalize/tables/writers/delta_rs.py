"""Delta tables merged by delta-rs (the package ``deltalake``), in this process and without Spark.

It reads the files that may have the keys of the changes, and writes each anew that has one. It is
used for tables of which the tests prove that it merges right, and that Spark reads the same rows
afterwards (`unsupported`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from cdc_formats.values.schema import backquoted
from normalize.core.order import redelivery_condition
from normalize.core.output import ROW_KIND
from normalize.tables.merge import ABSENT_COLUMN, ADDS, MergePlan, Side, SparkSql, missing_row
from normalize.tables.targets import ConflictError, RefusedError, TargetError

if TYPE_CHECKING:
    from deltalake import DeltaTable

_FIRST, _NEXT = (1, 6), (1, 7)
"""The versions of the package that the tests ran with: from the first, before the second."""
FEATURES = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "columnMapping",
        "deletionVectors",
        "invariants",
        "timestampNtz",
    }
)
"""The features of the protocol whose tables the tests merge."""
_WRITER_WITH_FEATURES = 7
"""The version of the protocol that lists its features. Earlier ones have all of a few features,
which a table uses only if its columns or properties say so."""
_COLUMN_METADATA = {
    "delta.generationExpression": "a generated column",
    "delta.identity.start": "an identity column",
    "CURRENT_DEFAULT": "a column with a default value",
    "delta.invariants": "a column with an invariant",
    "delta.typeChanges": "a column with a widened type",
    "__COLLATIONS": "a column with a collation",
    "__CHAR_VARCHAR_TYPE_STRING": "a CHAR or VARCHAR column",
}
_LOST = "a partial row without its row: "
_NOT_CAST = re.compile(rf"{_LOST}(\d+ [^\s']+)")
_EXCLUSIVE = ("abfs", "abfss", "az", "adl", "azure", "gs", "wasb", "wasbs")
"""The schemes of storages on which Spark commits only if the version is not there yet."""
_OTHERS = {"": "local", "file": "local", "s3": "S3", "s3a": "S3", "s3n": "S3"}
_CHECKED = "failed validation check"
_CONSTRAINT = "delta.constraints."


class DeltaRsSql(SparkSql):
    """DataFusion's SQL."""

    def redelivery(self, name: str) -> str:
        # DataFusion has no parts of bytes, only of text.
        sides: tuple[Side, ...] = ("s", "t")
        position, stored = (f"encode({self.column(side, name)}, 'hex')" for side in sides)
        return redelivery_condition(position, stored, digits=2)

    def failing(self, condition: str, value: str) -> str:
        # DataFusion has no function that raises an error: this text is no number.
        number = f"CAST(concat('{_LOST}', s.{ABSENT_COLUMN}) AS BIGINT)"
        return (
            f"CASE WHEN {condition} THEN CASE WHEN {number} = 0 THEN {value} END ELSE {value} END"
        )


DELTA_RS_SQL = DeltaRsSql()


@cache
def not_installed() -> str:
    """Return why the package cannot be used; empty if it can."""
    try:
        return untested(version("deltalake"))
    except PackageNotFoundError:
        return (
            "the package deltalake is not installed (pip install 'pyspark-kafka-changelog[delta]')"
        )


def untested(installed: str) -> str:
    """Return why a version of the package is not used; empty if the tests ran with it.

    Examples
    --------
    >>> untested("1.6.6")
    ''
    >>> untested("1.7.0")
    'the package deltalake is 1.7.0, and tested are 1.6 and later, before 1.7'
    """
    numbers = tuple(int(part) for part in re.findall(r"\d+", installed)[:2])
    if _FIRST <= numbers < _NEXT:
        return ""
    first, following = (".".join(map(str, each)) for each in (_FIRST, _NEXT))
    return f"the package deltalake is {installed}, and tested are {first} and later, before {following}"


def unsafe_storage(location: str) -> str:
    """Return why a commit of Spark could replace one of delta-rs on a storage; empty if none can.

    Examples
    --------
    >>> unsafe_storage("gs://lake/orders"), unsafe_storage("hdfs://lake/orders")
    ('', 'storage of hdfs: is not tested')
    """
    scheme = re.match("([A-Za-z][A-Za-z0-9+.-]*):", location)
    name = scheme[1].lower() if scheme else ""
    if name in _EXCLUSIVE:
        return ""
    if name not in _OTHERS:
        return f"storage of {name}: is not tested"
    return (
        f"on {_OTHERS[name]} storage, a commit that another Spark makes at the same moment could "
        "replace one of delta-rs (only_writer=True says that there is none)"
    )


def unsupported(table: DeltaTable) -> str:
    """Return what delta-rs is not known to write of a table; empty if nothing."""
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if protocol.min_writer_version > _WRITER_WITH_FEATURES or protocol.min_reader_version > 3:
        return "its protocol is newer than that of the tests"
    configuration = table.metadata().configuration
    unknown = sorted(features - FEATURES)
    if unknown:
        return f"it has the feature {unknown[0]}"
    if configuration.get("delta.columnMapping.mode", "none") not in ("none", "name"):
        return "its columns are mapped by id"
    if configuration.get("delta.appendOnly") == "true":
        return "it is append-only"
    text = table.schema().to_json()
    for metadata, what in _COLUMN_METADATA.items():
        if f'"{metadata}"' in text:
            return f"it has {what}"
    return ""


def column_fields(table: DeltaTable) -> list[dict[str, Any]]:
    """Return a table's columns, as the JSON of Spark's fields."""
    fields: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    return fields


def rewritten_bytes(
    table: DeltaTable, key: str, keys: Callable[[], pa.ChunkedArray], most: int
) -> int:
    """Return the bytes of the files that may have keys of the changes.

    Parameters
    ----------
    table : DeltaTable
    key : str
        A column of the primary key.
    keys : callable
        Returns values of this column with the least and the greatest of the changes.
    most : int
        The size of all files if they have at most these bytes: then the keys are not asked for.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    sizes, bounds = files.column("size_bytes"), [f"{of}.{key}" for of in ("min", "max")]
    total = int(pc.sum(sizes).as_py() or 0)
    if total <= most or not set(bounds) <= set(files.column_names):
        return total
    least, greatest = (files.column(name) for name in bounds)
    try:
        first, last = pc.min_max(keys()).values()
        apart = pc.or_kleene(pc.greater(least, last), pc.less(greatest, first))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # types that Arrow does not compare
        return total
    # A file without statistics may have every key.
    touched = sizes.filter(pc.fill_null(pc.invert(apart), True))
    return int(pc.sum(touched).as_py() or 0)


def open_table(location: str, options: Mapping[str, str]) -> DeltaTable:
    """Return the newest version of a table.

    Parameters
    ----------
    location : str
        A path, or a URI as Hadoop writes it: ``file:/lake/orders``, ``s3a://lake/orders``.
    options : mapping
        Of delta-rs for the storage.
    """
    from deltalake import DeltaTable

    if location.startswith("file:"):
        location = unquote(re.sub("^file:/+", "/", location))
    return DeltaTable(re.sub("^s3[an]:", "s3:", location), storage_options=dict(options) or None)


class Transaction(NamedTuple):
    """The application and its version that a commit stores."""

    application: str
    version: int


def merge(
    table: DeltaTable,
    plan: MergePlan,
    changes: pa.Table,
    transaction: Transaction | None,
    *,
    name: str = "",
    spill: int | None = None,
) -> dict[str, Any]:
    """Merge changes in one commit, and return its numbers.

    Parameters
    ----------
    table : DeltaTable
    plan : MergePlan
    changes : pyarrow.Table
    transaction : Transaction or None
    name : str
        The table's name in errors; empty for its location.
    spill : int or None
        The bytes of memory after which the join writes to disk.

    Raises
    ------
    PartialImageError
        When a change cannot be completed by its row.
    RefusedError
        When a row violates a constraint of the table.
    ConflictError
        When another writer committed a change of the same rows: nothing is written.
    TargetError
        For another error of delta-rs, in a text without the values of rows that it previews.
    """
    from deltalake import CommitProperties, Transaction as AppTransaction
    from deltalake.exceptions import CommitFailedError, DeltaError

    transactions = [AppTransaction(*transaction)] if transaction is not None else None
    merger = table.merge(
        changes,
        plan.same.render(DELTA_RS_SQL.column),
        source_alias="s",
        target_alias="t",
        # Otherwise the keys of the changes exclude no files.
        streamed_exec=False,
        max_spill_size=spill,
        commit_properties=CommitProperties(app_transactions=transactions),
    )
    for kind, when, values in DELTA_RS_SQL.clauses(plan):
        named = {backquoted(name): value for name, value in values.items()}
        if kind == "delete":
            merger = merger.when_matched_delete(when)
        elif kind == "update":
            merger = merger.when_matched_update(named, when)
        else:
            merger = merger.when_not_matched_insert(named, when)
    name = name or table.table_uri
    try:
        return dict(merger.execute())
    except CommitFailedError as error:
        reason = " ".join(str(error).split())[:200]
        raise ConflictError(f"another writer changed {name} at the same time ({reason})") from None
    except DeltaError as error:
        text = str(error)
        if lost := _NOT_CAST.search(text):
            raise missing_row(lost[1].split()[1]) from None
        if _CHECKED in text and (violated := _violated(table, changes)):
            raise RefusedError(
                f"{name}: {violated}: correct it in its source, or drop the constraint"
            ) from None
        reason = " ".join(text.partition("Preview")[0].split())[:300]
        raise TargetError(f"{name}: delta-rs cannot write it: {reason}") from None


def _violated(table: DeltaTable, changes: pa.Table) -> str:
    """Return which constraint a change violates, as Spark names it; empty if it has none."""
    rows = changes.filter(pc.is_in(changes.column(ROW_KIND), pa.array(ADDS)))
    for field in column_fields(table):
        name = field["name"]
        if not field["nullable"] and (
            name not in rows.column_names or rows.column(name).null_count
        ):
            return f"NOT NULL constraint violated for column: {name}"
    configuration = table.metadata().configuration
    checks = [
        f"{name.removeprefix(_CONSTRAINT)} ({condition})"
        for name, condition in configuration.items()
        if name.startswith(_CONSTRAINT)
    ]
    return f"CHECK constraint {' or '.join(checks)} violated by row" if checks else ""


# --------------------------------------------------------------------------------------------------
# credentials

_S3 = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
}
_AZURE = {
    "fs.azure.account.key.{host}": "AZURE_STORAGE_ACCOUNT_KEY",
    "fs.azure.account.oauth2.client.id.{host}": "AZURE_STORAGE_CLIENT_ID",
    "fs.azure.account.oauth2.client.secret.{host}": "AZURE_STORAGE_CLIENT_SECRET",
    "fs.azure.sas.fixed.token.{host}": "AZURE_STORAGE_SAS_KEY",
}
_GOOGLE = {
    "fs.gs.auth.service.account.json.keyfile": "GOOGLE_SERVICE_ACCOUNT",
    "google.cloud.auth.service.account.json.keyfile": "GOOGLE_SERVICE_ACCOUNT",
}


def storage_options(location: str, setting: Callable[[str], str | None]) -> dict[str, str]:
    """Return the options of delta-rs with the credentials that Hadoop has for a location.

    Parameters
    ----------
    location : str
    setting : callable
        Returns a setting of Hadoop, or None.

    Examples
    --------
    >>> settings = {"fs.s3a.access.key": "me", "fs.s3a.bucket.lake.endpoint": "http://localhost:9000"}
    >>> storage_options("s3a://lake/orders", settings.get)
    {'AWS_ACCESS_KEY_ID': 'me', 'AWS_ENDPOINT_URL': 'http://localhost:9000', 'AWS_ALLOW_HTTP': 'true'}
    """
    parts = re.match("([A-Za-z0-9+.-]+)://(?:[^/@]*@)?([^/]*)", location)
    if parts is None:
        return {}
    scheme, host = parts[1].lower(), parts[2]
    names: Iterable[tuple[str, str]]
    if scheme in ("s3", "s3a", "s3n"):
        names = [
            (f"fs.s3a.{of}{name}", option)
            for name, option in _S3.items()
            for of in ("", f"bucket.{host}.")  # a bucket's own settings come last, and win
        ]
    elif scheme.startswith(("abfs", "wasb")):
        names = [(name.format(host=host), option) for name, option in _AZURE.items()]
    else:
        names = _GOOGLE.items() if scheme == "gs" else ()
    options = {option: value for name, option in names if (value := setting(name))}
    endpoint = options.get("AWS_ENDPOINT_URL", "")
    if endpoint and "://" not in endpoint:
        options["AWS_ENDPOINT_URL"] = f"https://{endpoint}"
    if endpoint.startswith("http:"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options
