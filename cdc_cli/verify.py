"""``cdc verify``: compares a target table with its source table."""

from __future__ import annotations

import json as json_text
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cdc_formats.topics.client import from_environment

from .arguments import Json, WhichColor, names, pairs
from .job_text import TargetKind
from .terminal import Color, print_result, status_line

if TYPE_CHECKING:
    from normalize.tables.targets import TableTarget
    from normalize.verify.verification import Verification

_SOURCE, _TARGET = "Source", "Target"
_EXIT = {True: 0, False: 1, None: 2}
_STYLES = {True: "green", False: "red", None: "yellow"}


User = Annotated[
    str,
    typer.Option(metavar="NAME", help="The user of the source database.", rich_help_panel=_SOURCE),
]
Password = Annotated[
    str,
    typer.Option(
        envvar="CDC_SOURCE_PASSWORD",
        show_envvar=True,
        metavar="env:NAME",
        help=(
            "Its password: the environment variable that has it. On a terminal, cdc asks for a "
            "missing password."
        ),
        rich_help_panel=_SOURCE,
    ),
]


def verify(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help=(
                "The source database: jdbc:mysql://host:3306/db, jdbc:mariadb://... or "
                "jdbc:postgresql://..."
            ),
            show_default=False,
        ),
    ],
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", help="The source table: table or schema.table.", show_default=False
        ),
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="The target table: a name, a path of a Delta table, or a table of --target-url.",
            show_default=False,
        ),
    ],
    *,
    kind: Annotated[
        TargetKind,
        typer.Option("--kind", help="The kind of target table.", rich_help_panel=_TARGET),
    ] = TargetKind.DELTA,
    user: User = "",
    password: Password = "",
    source_option: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="An option of mysql-changelog, or of PostgreSQL's JDBC driver. Can be repeated.",
            rich_help_panel=_SOURCE,
        ),
    ] = None,
    target_url: Annotated[
        str,
        typer.Option(
            metavar="URL", help="The target database, with --kind jdbc.", rich_help_panel=_TARGET
        ),
    ] = "",
    target_user: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="The user of the target database.", rich_help_panel=_TARGET
        ),
    ] = "",
    target_password: Annotated[
        str,
        typer.Option(
            envvar="CDC_TARGET_PASSWORD",
            show_envvar=True,
            metavar="env:NAME",
            help="Its password, as --password.",
            rich_help_panel=_TARGET,
        ),
    ] = "",
    target_where: Annotated[
        str,
        typer.Option(
            metavar="SQL",
            help="Compare only these rows of the target: '__END_AT IS NULL'.",
            rich_help_panel=_TARGET,
        ),
    ] = "",
    deleted_column: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help=(
                "The target's column of soft deletes; '' if it has hard deletes. Known of Delta "
                "and Iceberg tables that this package made."
            ),
            show_default=False,
            rich_help_panel=_TARGET,
        ),
    ] = None,
    keys: Annotated[
        str,
        typer.Option(
            metavar="NAME,...",
            help="The columns that identify a row. By default, the source's primary key.",
        ),
    ] = "",
    exclude: Annotated[
        str, typer.Option(metavar="NAME,...", help="Columns of the source that are not compared.")
    ] = "",
    max_lag: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="SECONDS",
            help="The longest time that the target may be behind the source.",
        ),
    ] = 60.0,
    limit: Annotated[int, typer.Option(min=0, help="The most differences that are listed.")] = 20,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="Write the source's rows of the keys that differ to the target."
        ),
    ] = False,
    conf: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE", help="A setting of Spark, such as a catalog. Can be repeated."
        ),
    ] = None,
    json: Json = False,
    color: WhichColor = Color.AUTO,
) -> None:
    """Compare a target table with its source table, at one position of the source's log.

    Neither the writes to the source nor the query that writes the target need to be paused. Spark
    runs on this machine.

    Exit codes: 0 if the tables are equal, 1 if they are not, 2 if it is not known or cannot be
    found out.
    """
    if (kind is TargetKind.JDBC) != bool(target_url):
        raise typer.BadParameter("--target-url and --kind jdbc require each other")
    from normalize import JdbcSource, local_session, verify_table

    source = JdbcSource(
        url,
        table,
        user or None,
        password_of("source", user, password),
        options=pairs(source_option or (), "--source-option"),
    )
    copy = _target(kind, target, target_url, target_user, target_password)
    with status_line("starting Spark"):
        settings = {"spark.sql.session.timeZone": "UTC", **pairs(conf or (), "--conf")}
        # MySQL and MariaDB sources need no JDBC driver.
        databases = {url.split(":")[1]} & {"postgresql"} | {*target_url.split(":")[1:2]}
        packages = [*([] if kind is TargetKind.JDBC else [kind.value]), *sorted(databases)]
        spark = local_session("cdc verify", packages=packages, **settings)
    with status_line(f"comparing {target} with {table}"):
        result = verify_table(
            spark,
            source,
            copy,
            keys=names(keys),
            exclude=names(exclude),
            target_where=target_where,
            deleted_column=deleted_column,
            max_lag_seconds=max_lag,
            limit=limit,
            repair="merge" if repair else None,
        )
    _print(result, json=json, color=color)
    raise typer.Exit(_EXIT[result.equal])


def _print(result: Verification, *, json: bool, color: Color) -> None:
    if json:
        differences = [
            {"kind": each.kind, "key": dict(each.key), "columns": each.columns}
            for each in result.differences
        ]
        typer.echo(
            json_text.dumps({"equal": result.equal, **asdict(result), "differences": differences})
        )
    else:
        print_result(str(result), color, f"bold {_STYLES[result.equal]}")


def _target(kind: TargetKind, target: str, url: str, user: str, password: str) -> TableTarget:
    from normalize import DeltaTarget, IcebergTarget, JdbcTarget

    if kind is TargetKind.JDBC:
        return JdbcTarget(url, target, user or None, password_of("target", user, password))
    return DeltaTarget(target) if kind is TargetKind.DELTA else IcebergTarget(target)


def password_of(of: str, user: str, password: str) -> str | None:
    """Return a password: of an environment variable, or typed on the terminal."""
    if password:
        return from_environment(f"the password of the {of}", password)
    if user and sys.stdin.isatty():
        return str(
            typer.prompt(
                f"Password of {user} in the {of} database",
                hide_input=True,
                default="",
                show_default=False,
                err=True,
            )
        )
    return None
