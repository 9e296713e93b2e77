"""Delta tables merged by delta-rs (the package ``deltalake``), in this process and without Spark.

It reads the files that may have the keys of the changes, and writes each anew that has one. It is
used for tables of which the tests prove that it merges right, and that Spark reads the same rows
afterwards (`unsupported`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from decimal import Decimal
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from warnings import warn

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from cdc_formats import __version__
from cdc_formats.values.schema import backquoted
from normalize.core.order import redelivery_condition
from normalize.core.output import ROW_KIND
from normalize.tables.merge import ABSENT_COLUMN, ADDS, MergePlan, Side, SparkSql, missing_row
from normalize.tables.targets import ConflictError, RefusedError, TargetError

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties

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
_OF_PARTITIONS = frozenset({"boolean", "byte", "short", "integer", "long", "string", "date"})
"""The types of partition columns that it writes as Spark does. A negative DECIMAL becomes
``0.-25``, and a time has another text."""
_WITH_STATISTICS = re.compile(
    r"boolean|byte|short|integer|long|string|date|timestamp(_ntz)?|decimal\((\d|1[0-5]),\d+\)"
)
"""The types whose statistics it writes right. Those of a DECIMAL are 64-bit floats, with 15 exact
digits, and those of a FLOAT or DOUBLE ignore NaN, which is Spark's greatest value."""
MARK = "changelog"
"""The name by which a commit's information has the version of this library."""
_EXACT_DIGITS = 15
_CLAMPED = (Decimal(2**63 - 1), Decimal(-(2**63)))
_TRUNCATED = 64
_FOOTERS_AT_ONCE = 8
_MOST_FOOTERS = 10_000
_CUT = pa.scalar(timedelta(milliseconds=1))
"""Statistics of timestamps are cut to milliseconds."""
_FILE = ["path", "size_bytes"]
_INT96 = (
    "its files have timestamps of the type INT96, of which delta-rs changes those before 1677 and "
    "after 2262 (OPTIMIZE ... ZORDER BY with "
    "spark.sql.parquet.outputTimestampType=TIMESTAMP_MICROS writes another type)"
)
_LOST = "a partial row without its row: "
_NOT_CAST = re.compile(rf"{_LOST}(\d+ [^\s']+)")
_EXCLUSIVE = ("abfs", "abfss", "az", "adl", "azure", "gs", "wasb", "wasbs")
"""The schemes of storages on which Spark commits only if the version is not there yet."""
LOCAL_DISKS = ("btrfs", "ext2", "ext3", "ext4", "overlay", "tmpfs", "xfs", "zfs")
"""The file systems of one machine, on which a hard link to a version that exists fails."""
_OTHERS = {"": "other local", "file": "other local", "s3": "S3", "s3a": "S3", "s3n": "S3"}
_CHECKED = "failed validation check"
_GAP = "Expected contiguous commit files"
"""In the error of a listing of the log while another writer commits fast."""
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
    """Return why the package cannot be used; empty if it can.

    The first call warns of a version that the tests did not run with.
    """
    try:
        reason = untested(version("deltalake"))
    except PackageNotFoundError:
        return (
            "the package deltalake is not installed (pip install 'pyspark-kafka-changelog[delta]')"
        )
    if reason:
        # The caller of a target's constructor, whose frames are those of a dataclass.
        warn(f"Spark writes all Delta tables, since {reason}", stacklevel=4)
    return reason


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
    """Return why a commit of Spark could replace one of delta-rs without a notice; empty if not.

    On a local disk, Delta's own log store looks for a version and then renames its file to it.
    delta-rs makes a hard link, which fails if the version is there, and so it replaces nothing. A
    commit of Spark could replace one of delta-rs in between: it is read back (`OwnCommits.has`).

    Examples
    --------
    >>> unsafe_storage("gs://lake/orders"), unsafe_storage("hdfs://lake/orders")
    ('', 'storage of hdfs: is not tested')
    """
    scheme = re.match("([A-Za-z][A-Za-z0-9+.-]*):", location)
    name = scheme[1].lower() if scheme else ""
    if name in _EXCLUSIVE or (is_local(location) and _mounted(location) in LOCAL_DISKS):
        return ""
    if name not in _OTHERS:
        return f"storage of {name}: is not tested"
    return (
        f"on {_OTHERS[name]} storage, a commit that another Spark makes at the same moment could "
        "replace one of delta-rs (only_writer=True says that there is none)"
    )


def is_local(location: str) -> bool:
    """Return whether a table is in a folder of this machine."""
    return location.startswith(("/", "file:"))


def _without_scheme(location: str) -> str:
    """Return the path of a local location, which a catalog has as a URI; another one as it is."""
    if location.startswith("file:"):
        return unquote(re.sub("^file:/+", "/", location))
    return location


def _mounted(location: str) -> str:
    """Return the type of the file system of a local folder; empty where Linux does not name it."""
    try:
        mounts = Path("/proc/mounts").read_text("utf-8").splitlines()
    except OSError:
        return ""
    folder = Path(_without_scheme(location)).resolve()
    types = {
        point.encode().decode("unicode_escape"): kind
        for _, point, kind, *_ in map(str.split, mounts)
    }
    return types[max((each for each in types if folder.is_relative_to(each)), key=len)]


def unsupported(table: DeltaTable) -> Iterator[str]:
    """Yield what delta-rs is not known to write of a table."""
    # The protocol comes first: delta-rs may not read the schema of a newer one.
    protocol = table.protocol()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if protocol.min_writer_version > _WRITER_WITH_FEATURES or protocol.min_reader_version > 3:
        yield "its protocol is newer than that of the tests"
    yield from (f"it has the feature {name}" for name in sorted(features - FEATURES))
    metadata = table.metadata()
    if metadata.configuration.get("delta.columnMapping.mode", "none") not in ("none", "name"):
        yield "its columns are mapped by id"
    if metadata.configuration.get("delta.appendOnly") == "true":
        yield "it is append-only"
    types = {field["name"]: field["type"] for field in column_fields(table)}
    for name in metadata.partition_columns:
        if types[name] not in _OF_PARTITIONS:
            yield f"it is partitioned by {name}, whose type is {types[name]}"
    text = table.schema().to_json()
    yield from (f"it has {what}" for name, what in _COLUMN_METADATA.items() if f'"{name}"' in text)


def column_fields(table: DeltaTable) -> list[dict[str, Any]]:
    """Return a table's columns, as the JSON of Spark's fields."""
    fields: list[dict[str, Any]] = json.loads(table.schema().to_json())["fields"]
    return fields


def _name_in_files(field: Mapping[str, Any]) -> str:
    """Return the name of a column in files and statistics."""
    return str(field["metadata"].get("delta.columnMapping.physicalName", field["name"]))


def touched_files(
    table: DeltaTable, key: str, keys: Callable[[], pa.ChunkedArray], most: int
) -> pa.Table:
    """Return the files that may have keys of the changes, with their ``path`` and ``size_bytes``.

    Parameters
    ----------
    table : DeltaTable
    key : str
        A column of the primary key.
    keys : callable
        Returns values of this column with the least and the greatest of the changes.
    most : int
        All files are returned if they have at most these bytes: then the keys are not asked for.
    """
    files = pa.table(table.get_add_actions(flatten=True))
    touched = files.select(_FILE)
    # The log has statistics by the names that columns have in files.
    own = {field["name"]: _name_in_files(field) for field in column_fields(table)}
    bounds = [f"{of}.{own[key]}" for of in ("min", "max")]
    total = int(pc.sum(touched.column("size_bytes")).as_py() or 0)
    if total <= most or not set(bounds) <= set(files.column_names):
        return touched
    try:
        least, greatest = (files.column(name) for name in bounds)
        if pa.types.is_timestamp(greatest.type):
            greatest = pc.add(greatest, _CUT)
        first, last = pc.min_max(keys()).values()
        apart = pc.or_kleene(pc.greater(least, last), pc.less(greatest, first))
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid, KeyError):
        return touched  # types that Arrow does not compare, or two columns of one dotted name
    # A file without statistics may have every key.
    return touched.filter(pc.fill_null(pc.invert(apart), True))


def unreadable(
    table: DeltaTable, files: pa.Table, options: Mapping[str, str], int96: dict[str, bool]
) -> str:
    """Return why delta-rs is not known to read files right; empty if it reads them right.

    Parameters
    ----------
    table : DeltaTable
    files : pyarrow.Table
        As `touched_files` returns them.
    options : mapping
        Same as in `open_table`.
    int96 : dict of str to bool
        Whether a file has timestamps of the type INT96, by path, for those that were read before.
        Those that this call reads are added.
    """
    sizes = dict(zip(*(files.column(each).to_pylist() for each in _FILE), strict=True))
    if any(not path.isascii() for path in sizes):
        # Spark's log has such a path as it is, and delta-rs would remove an encoded one.
        return "a path of its files is not ASCII"
    if '"timestamp"' not in table.schema().to_json():
        return ""
    if len(int96) > _MOST_FOOTERS + 2 * len(sizes):
        int96.clear()
    unread = {path: size for path, size in sizes.items() if path not in int96}
    try:
        footers = read_footers(table, unread, options)
    except Exception as error:
        return f"it cannot read the footer of a file ({' '.join(str(error).split())[:200]})"
    for path, footer in footers.items():
        leaves = map(footer.schema.column, range(len(footer.schema)))
        int96[path] = any(leaf.physical_type == "INT96" for leaf in leaves)
    return _INT96 if any(map(int96.__getitem__, sizes)) else ""


def unwritable(table: DeltaTable, changes: pa.Table) -> str:
    """Return which change delta-rs does not write as Spark does; empty if none.

    Spark writes an empty text in a partition column as NULL.
    """
    for name in {*table.metadata().partition_columns} & {*changes.column_names}:
        values = changes.column(name)
        if pa.types.is_string(values.type) and pc.any(pc.equal(values, "")).as_py():
            return f"changes have an empty text in the partition column {name}"
    return ""


def wrong_statistics(table: DeltaTable, options: Mapping[str, str]) -> dict[str, int]:
    """Return how many files have wrong statistics in the log, for each such DECIMAL column.

    delta-rs writes them as 64-bit floats, also in its newest version 1.6.6: in another program, and
    in an earlier version of this library. A MERGE or a filter, also of Spark, skips such a file
    although it has the row.

    Parameters
    ----------
    table : DeltaTable
    options : mapping
        Same as in `open_table`.
    """
    log = pa.table(table.get_add_actions(flatten=True))
    suspects: dict[str, dict[str, tuple[Decimal | None, Decimal | None]]] = {}
    for each in log.schema:
        leaf = each.name.removeprefix("min.")
        names = ["path", *(f"{of}.{leaf}" for of in ("min", "max", "null_count")), "num_records"]
        # A dotted name may be two columns.
        if (
            pa.types.is_decimal(each.type)
            and each.type.precision > _EXACT_DIGITS
            and all(len(log.schema.get_all_field_indices(name)) == 1 for name in names)
        ):
            rows = zip(*(log.column(name).to_pylist() for name in names), strict=True)
            suspects[leaf] = {
                path: (least, greatest)
                for path, least, greatest, nulls, count in rows
                if _may_be_float(least, greatest, nulls, count)
            }
    sizes = dict(zip(*(log.column(name).to_pylist() for name in _FILE), strict=True))
    read = {path: sizes[path] for path in set().union(*suspects.values())}
    footers = read_footers(table, read, options)
    own = {_name_in_files(field): field["name"] for field in column_fields(table)}
    counts = {
        own.get(leaf, leaf): sum(
            _is_wrong(footers[path], leaf, *bounds) for path, bounds in files.items()
        )
        for leaf, files in suspects.items()
    }
    return {name: count for name, count in counts.items() if count}


def _may_be_float(
    least: Decimal | None, greatest: Decimal | None, nulls: int | None, rows: int | None
) -> bool:
    """Return whether the bounds of a DECIMAL column in a file may be those of floats.

    A bound that delta-rs cannot read may be one, too.
    """
    if least is None or greatest is None:
        return nulls is not None and rows is not None and nulls < rows
    return any(
        len(bound.as_tuple().digits) > _EXACT_DIGITS
        and (bound in _CLAMPED or bound in (Decimal(repr(float(bound))), Decimal(float(bound))))
        for bound in (least, greatest)
    )


def _is_wrong(
    footer: pq.FileMetaData, leaf: str, least: Decimal | None, greatest: Decimal | None
) -> bool:
    """Return whether a file has values of a column outside of its bounds in the log."""
    groups = map(footer.row_group, range(footer.num_row_groups))
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    own = [
        each.statistics
        for each in chunks
        if each.path_in_schema == leaf and each.is_stats_set and each.statistics.has_min_max
    ]
    if not own:
        return False
    first, last = min(each.min for each in own), max(each.max for each in own)
    if least is None or greatest is None:
        # Spark reads a bound that delta-rs does not.
        lossy = any(Decimal(repr(float(each))) != each for each in (first, last))
        return lossy and footer.created_by.startswith("delta-rs")
    return bool(first < least or last > greatest)


def read_footers(
    table: DeltaTable, sizes: Mapping[str, int], options: Mapping[str, str]
) -> dict[str, pq.FileMetaData]:
    """Return the footers of a table's files, of which the log has these paths and sizes."""
    from deltalake.fs import DeltaStorageHandler
    from pyarrow.fs import PyFileSystem

    names = {unquote(path): size for path, size in sizes.items()}
    files = PyFileSystem(DeltaStorageHandler(table.table_uri, dict(options), names))
    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as threads:
        footers = list(threads.map(partial(pq.read_metadata, filesystem=files), names))
    return dict(zip(sizes, footers, strict=True))


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

    location = _without_scheme(location)
    if "%" in location:
        raise TargetError("its path has the character %, which deltalake decodes")
    return DeltaTable(re.sub("^s3[an]:", "s3:", location), storage_options=dict(options) or None)


def merge(
    table: DeltaTable,
    plan: MergePlan,
    changes: pa.Table,
    transaction: tuple[str, int] | None,
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
    transaction : (str, int) or None
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
    from deltalake import CommitProperties, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError

    transactions = [Transaction(*transaction)] if transaction is not None else None
    merger = table.merge(
        changes,
        plan.same.render(DELTA_RS_SQL.column),
        source_alias="s",
        target_alias="t",
        # Otherwise the keys of the changes exclude no files.
        streamed_exec=False,
        max_spill_size=spill,
        writer_properties=_writer_properties(table),
        commit_properties=CommitProperties(
            app_transactions=transactions, custom_metadata={MARK: __version__}
        ),
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
        if _GAP in text:
            raise ConflictError(f"another writer changed {name} at the same time") from None
        if lost := _NOT_CAST.search(text):
            raise missing_row(lost[1].split()[1]) from None
        if _CHECKED in text and (violated := _violated(table, changes)):
            raise RefusedError(
                f"{name}: {violated}: correct it in its source, or drop the constraint"
            ) from None
        reason = " ".join(text.partition("Preview")[0].split())[:300]
        raise TargetError(f"{name}: delta-rs cannot write it: {reason}") from None


def _writer_properties(table: DeltaTable) -> WriterProperties:
    """Return the properties of files that have statistics only of columns where they are right.

    deltalake has no name for a nested column: these have none.
    """
    from deltalake import ColumnProperties, WriterProperties

    with_statistics = ColumnProperties(statistics_enabled="PAGE")
    names = (
        _name_in_files(field)
        for field in column_fields(table)
        if isinstance(field["type"], str) and _WITH_STATISTICS.fullmatch(field["type"])
    )
    return WriterProperties(
        compression="SNAPPY",
        statistics_truncate_length=_TRUNCATED,
        default_column_properties=ColumnProperties(statistics_enabled="NONE"),
        column_properties=dict.fromkeys(names, with_statistics),
    )


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
