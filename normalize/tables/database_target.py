"""The databases that `sync_database` writes: where their tables are, and how they are named."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Formatter
from typing import ClassVar, Literal

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from cdc_formats.errors import ArgumentError, refuse
from cdc_formats.values.schema import backquoted, name_parts
from normalize.arguments import check_choice

from .layout import Properties
from .table_options import DELETED_AT, Maintenance, TableOptions, TablePolicy, Verify
from .targets import TableTarget, TargetError, Writer
from .writers.delta import DeltaTarget, is_path, require_absolute
from .writers.delta_rs import not_installed
from .writers.iceberg import IcebergTarget
from .writers.jdbc import JdbcTarget
from .writers.lake import LakeTarget, provider_of

MAX_TABLES, MAX_COLUMNS = 10_000, 2_000
OnQuestion = Literal["fail", "stop_table", "guess"]
_LONGEST_FOLDER = 255
_PLACES = ("database", "schema", "table")
_FOLDERS_OF_TABLES = frozenset(
    {
        "_delta_log",
        "_change_data",
        "_delta_index",
        "_symlink_format_manifest",
        "_spark_metadata",
        "_temporary",
    }
)
"""Folders that Delta and Spark make in a table's folder: with a table of this name, they would take
its database for a table."""


@dataclass(frozen=True, kw_only=True)
class Database(ABC):
    """Where the tables of `sync_database` are, and how they are named and kept by default."""

    table: str = "{table}"
    deletes: Literal["hard", "soft"] = "hard"
    deleted_column: str = DELETED_AT
    max_tables: int = MAX_TABLES
    max_columns: int = MAX_COLUMNS
    on_question: OnQuestion = "guess"
    verify: Verify | None = field(default=None, hash=False)
    of: ClassVar[type[TableTarget]]

    @property
    @abstractmethod
    def address(self) -> str:
        """Where the tables are, without accounts and secrets."""

    @property
    def table_options(self) -> TableOptions:
        """How tables are kept whose options say nothing else."""
        return TableOptions(
            deletes=self.deletes, deleted_column=self.deleted_column, verify=self.verify
        )

    def __post_init__(self) -> None:
        check_template(self.table)
        self.of.check_layout(TablePolicy.of(self.table_options).layout)
        limits = {"max_tables": self.max_tables, "max_columns": self.max_columns}
        refuse(
            *(
                (
                    not isinstance(limit, int) or limit < 1,
                    f"{name} is {limit!r}: pass a number of at least 1",
                )
                for name, limit in limits.items()
            )
        )
        check_choice("on_question", self.on_question, ("fail", "stop_table", "guess"))

    @abstractmethod
    def target(self, name: str) -> TableTarget:
        """Return the table with this name.

        Raises
        ------
        TargetError
            When the name cannot be one of a table here.
        """


@dataclass(frozen=True)
class LakeDatabase(Database):
    """A namespace of the session's catalogs; Spark's ``MERGE INTO`` writes its tables."""

    name: str
    scd_type: Literal[1, 2] = field(default=1, kw_only=True)
    partition_by: str | Sequence[str] = field(default=(), kw_only=True, hash=False)
    cluster_by: str | Sequence[str] = field(default=(), kw_only=True, hash=False)
    properties: Properties = field(default_factory=dict, kw_only=True, hash=False)
    maintenance: Maintenance | None = field(default=None, kw_only=True)
    of: ClassVar[type[LakeTarget]]

    @property
    def address(self) -> str:
        return f"{self.of.provider} {self.name.rstrip('/')}"

    @property
    def table_options(self) -> TableOptions:
        return replace(
            super().table_options,
            scd_type=self.scd_type,
            partition_by=self.partition_by,
            cluster_by=self.cluster_by,
            properties=self.properties,
            maintenance=self.maintenance,
        )

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ArgumentError(
                f"{type(self).__name__} requires the name of a database, got {self.name!r}"
            )
        super().__post_init__()

    def target(self, name: str) -> TableTarget:
        _require_short(name)
        return self.of(f"{self.name}.{backquoted(name)}")


@dataclass(frozen=True)
class DeltaDatabase(LakeDatabase):
    """A folder or a database of Delta tables.

    Parameters
    ----------
    name : str
        A path (with a ``/``), in which each table is a folder, or a database of the session's
        catalogs (``shop``, ``catalog.shop``).
    table : str
        The template of the tables' names, with ``{table}``, and optionally ``{schema}`` and
        ``{database}`` of the source table: ``"{database}_{table}"``.
    deletes, deleted_column
        Same as `apply_changes`, for all tables. `TableOptions` has them for one table.
    scd_type : {1, 2}
        2: all tables are histories, with a row for each version of a row, as in `apply_changes`.
        The offset in Kafka orders them. `TableOptions` has it for one table.
    writer, only_writer, storage_options
        Same as in `DeltaTarget`, for all tables.
    max_tables, max_columns : int
        How many tables `sync_database` creates files for, and how many columns it gives a table
        whose columns are not declared: a producer names them. More are an error of the table.
    on_question : {"fail", "stop_table", "guess"}
        What happens to a new table or column with a question that the messages do not answer, such
        as the scale of a decimal in base64. ``guess`` writes the inferred type, with a warning.
        ``fail`` and ``stop_table`` are those of `sync_database`'s `on_table_error`, and nothing is
        written until `TableOptions.types` has the answer. Job files have ``stop_table``.
    partition_by, cluster_by : str or sequence of str
        Same as in `TableOptions`, for the new tables that have all columns of them.
    properties : mapping
        Same as in `TableOptions`, for all new tables; those of a table take precedence.
    maintenance : Maintenance or None
        Same as in `TableOptions`, for all tables.
    verify : Verify or None
        Same as in `TableOptions`, for all tables.
    """

    writer: Writer | None = field(default=None, kw_only=True)
    only_writer: bool = field(default=False, kw_only=True)
    storage_options: Mapping[str, str] = field(
        default_factory=dict, kw_only=True, repr=False, hash=False
    )
    of: ClassVar[type[LakeTarget]] = DeltaTarget

    def __post_init__(self) -> None:
        super().__post_init__()
        require_absolute(self.name)
        if self.writer != "spark":
            not_installed()

    def target(self, name: str) -> TableTarget:
        """Return the table with this name; in a path, a name cannot leave the folder."""
        _require_short(name)
        is_outside = "/" in name or "\\" in name or name in ("", ".", "..")
        remedy = "pass tables={...: TableOptions(name=...)}"
        refuse(
            (
                name.lower() in _FOLDERS_OF_TABLES,
                f"the table name {name!r} is that of a folder in Delta tables: {remedy}",
            ),
            (
                is_path(self.name) and is_outside,
                f"the table name {name!r} cannot be a folder's name: {remedy}",
            ),
            error=TargetError,
        )
        in_path = f"{self.name.rstrip('/')}/{name}"
        return DeltaTarget(
            in_path if is_path(self.name) else f"{self.name}.{backquoted(name)}",
            writer=self.writer,
            only_writer=self.only_writer,
            storage_options=self.storage_options,
        )


@dataclass(frozen=True)
class IcebergDatabase(LakeDatabase):
    """A namespace of Iceberg tables.

    Parameters
    ----------
    name : str
        As ``catalog.namespace``.
    table : str
        The template of the tables' names, as in `DeltaDatabase`.
    deletes, deleted_column, scd_type, max_tables, max_columns, on_question
        Same as `DeltaDatabase`.
    partition_by, cluster_by, properties, maintenance, verify
        Same as `DeltaDatabase`.
    """

    of: ClassVar[type[LakeTarget]] = IcebergTarget


@dataclass(frozen=True)
class JdbcDatabase(Database):
    """A database of PostgreSQL, MySQL or MariaDB.

    Parameters
    ----------
    url, user, password, options
        Same as `JdbcTarget`.
    schema : str or None
        The schema of the tables; None: the connection's default.
    table : str
        The template of the tables' names, as in `DeltaDatabase`.
    deletes, deleted_column, max_tables, max_columns, on_question, verify
        Same as `DeltaDatabase`.
    """

    url: str
    schema: str | None = None
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    options: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)
    of: ClassVar[type[TableTarget]] = JdbcTarget

    @property
    def address(self) -> str:
        return " ".join(filter(None, [self.url.partition("?")[0], self.schema]))

    def __post_init__(self) -> None:
        super().__post_init__()
        self.target("table")  # checks the url

    def target(self, name: str) -> TableTarget:
        if "." in name:
            raise TargetError(
                f"the table name {name!r} has a dot: pass tables={{...: TableOptions(name=...)}}"
            )
        qualified = name if self.schema is None else f"{self.schema}.{name}"
        return JdbcTarget(self.url, qualified, self.user, self.password, self.options)


def lake_target(spark: SparkSession, name: str) -> LakeTarget:
    """Return an existing Delta or Iceberg table of the session's catalogs.

    Raises
    ------
    TargetError
    """
    kinds = {kind.provider: kind for kind in (DeltaTarget, IcebergTarget)}
    if not isinstance(name, str) or not name:
        raise ArgumentError(
            f"target is {name!r}: pass DeltaTarget(...), IcebergTarget(...), JdbcTarget(...), or "
            "the name of a Delta or Iceberg table"
        )
    try:
        provider = provider_of(spark, IcebergTarget(name).sql_name)
    except AnalysisException:
        raise TargetError(
            f"table {name!r} is not in the session's catalogs: to create it, pass DeltaTarget(...) "
            "or IcebergTarget(...)"
        ) from None
    if provider not in kinds:
        raise TargetError(
            f"table {name!r} has the provider {provider}: supported are {', '.join(kinds)} and "
            "JdbcTarget(...)"
        )
    return kinds[provider](name)


def _require_short(name: str) -> None:
    if len(name.encode()) > _LONGEST_FOLDER:
        raise TargetError(
            f"the table name {name[:40]!r}... has {len(name.encode())} bytes, and a folder's name "
            f"at most {_LONGEST_FOLDER}: pass tables={{...: TableOptions(name=...)}}"
        )


def check_template(template: str) -> None:
    """Raise an error for a template of names that names something else than a source table.

    Raises
    ------
    ArgumentError
    """
    try:
        names = {name for _, name, _, _ in Formatter().parse(template) if name is not None}
    except ValueError:
        names = set()
    if "table" not in names or not names.issubset(_PLACES):
        raise ArgumentError(
            f"the template of table names is {template!r}: write {{table}}, and optionally "
            "{schema} and {database}"
        )


def table_name(template: str, source: str) -> str:
    """Return the name of a source table's target.

    Parameters
    ----------
    template : str
    source : str
        Same as `cdc_formats.values.schema.source_id`, or a topic. Its last part is the table, the part before it the schema,
        and the first of three the database. A producer that writes two parts has no schema of its
        own, and so ``{schema}`` and ``{database}`` are the same.

    Raises
    ------
    TargetError
        When the source table lacks a part of the template.

    Examples
    --------
    >>> table_name("{database}_{table}", "shop.orders")
    'shop_orders'
    """
    *above, table = name_parts(source) or (source,)
    places = {"table": table}
    if above:
        places |= {"schema": above[-1], "database": above[-2] if len(above) > 1 else above[-1]}
    try:
        return template.format(**places)
    except KeyError as error:
        raise TargetError(
            f"the source table {source!r} has no {error.args[0]} for the template {template!r}: "
            "remove it"
        ) from None
