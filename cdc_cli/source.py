"""What ``cdc init`` asks the source: the modes of its connector, and the types and keys of tables."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from cdc_formats.errors import ArgumentError
from cdc_formats.topics.inference import ColumnEvidence
from cdc_formats.topics.inference.infer import VALUES
from cdc_formats.topics.inference.source_types import catalog_type
from cdc_formats.topics.profile import TableProfile, TopicProfile
from cdc_formats.values import times

from .terminal import print_message, status_line

if TYPE_CHECKING:
    from normalize.verify.chunk import DatabaseColumn

_MODES = {
    "decimal_handling_mode": "precise",
    "time_precision_mode": "adaptive",
    "binary_handling_mode": "bytes",
}
"""The options that are modes of a connector, with Debezium's defaults."""
_MYSQL_MODES = {
    "time_precision_mode": "adaptive_time_microseconds",
    "bigint_unsigned_handling_mode": "long",
}
_CLASS = re.compile(
    r"(?:io\.debezium\..*\.)?(MySql|MariaDb|Postgres|SqlServer|Oracle|Db2|Informix)(?:Connector)?"
)
OF_SOURCE = "source"
"""The certainty of a type, and the reason for a primary key, that the database has."""


def connector_modes(url: str, timeout_seconds: float) -> dict[str, str]:
    """Return the modes of a Debezium connector, as options of its format.

    Only the modes are kept of the connector's configuration, which has passwords.

    Parameters
    ----------
    url : str
        ``http://connect:8083/connectors/shop``. A user and password in it are never shown.
    timeout_seconds : float

    Raises
    ------
    ArgumentError
        When it is not the URL of one of Debezium's connectors, or Kafka Connect does not answer.
    """
    address = urlsplit(url)
    user, _, host = address.netloc.rpartition("@")
    shown = f"{address.scheme}://{host}{address.path}"
    if address.scheme not in ("http", "https") or "/connectors/" not in address.path:
        raise ArgumentError(
            f"--connector is {shown!r}: pass the address of a connector in Kafka Connect's REST "
            "interface, http://connect:8083/connectors/NAME"
        )
    login = {"Authorization": f"Basic {b64encode(unquote(user).encode()).decode()}"} if user else {}
    try:
        kind = HTTPSConnection if address.scheme == "https" else HTTPConnection
        with closing(kind(host, timeout=timeout_seconds)) as connection:
            connection.request("GET", address.path, headers=login)
            response = connection.getresponse()
            answer = json.loads(response.read()) if response.status == 200 else None
    except (OSError, HTTPException, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ArgumentError(f"Kafka Connect does not answer at {shown}: {reason}") from None
    if not isinstance(answer, dict):
        raise ArgumentError(
            f"Kafka Connect answers {response.status} at {shown}: check the name of the connector, "
            "and the user and password in the address"
        )
    config = answer.get("config", answer)
    connector = _CLASS.fullmatch(str(config.get("connector.class")))
    if connector is None:
        raise ArgumentError(
            f"the connector at {shown} has the class {config.get('connector.class')!r}, which is "
            "none of Debezium's: pass the options of the format with -o"
        )
    modes = _MODES | (_MYSQL_MODES if connector[1] in ("MySql", "MariaDb") else {})
    return {
        option: str(config.get(option.replace("_", "."), default)).lower()
        for option, default in modes.items()
    }


# --------------------------------------------------------------------------------------------------
# The source's tables


def with_source(
    profiles: Sequence[TopicProfile], url: str, user: str | None, password: str | None
) -> list[TopicProfile]:
    """Return profiles with the types and primary keys that the tables have in their database.

    Only types that the messages do not declare are replaced. Spark runs on this machine.

    Parameters
    ----------
    profiles : sequence of TopicProfile
    url : str
        ``jdbc:postgresql://host/database``, ``jdbc:mysql://...`` or ``jdbc:mariadb://...``.
    user, password : str or None

    Raises
    ------
    ArgumentError, TargetError
        When the URL is not one of a database, or the database does not answer.
    """
    from normalize import JdbcSource, local_session
    from normalize.verify.database_table import DatabaseTable

    source = JdbcSource(url, "table", user, password)
    with status_line("starting Spark"):
        spark = local_session("cdc init", packages=[url.split(":")[1]])

    def answered(table: TableProfile) -> TableProfile:
        # Debezium's messages of PostgreSQL name the database, too.
        name, schema = ".".join(table.name.split(".")[-2:]), table.schema
        if schema is None or not name or "`" in name:
            return table
        of_source = DatabaseTable(spark, replace(source, table=name))
        if not of_source.exists:
            print_message(f"the source has no table {name}: its questions are still open", "yellow")
            return table
        columns = {column.name: column for column in of_source.columns}
        typed = tuple(_typed(each, columns.get(each.column.name)) for each in schema.evidence)
        key, reason = schema.primary_key, schema.primary_key_reason
        if not key and {each.column.name for each in typed}.issuperset(of_source.primary_key):
            key, reason = of_source.primary_key, OF_SOURCE
        schema = replace(schema, evidence=typed, primary_key=key, primary_key_reason=reason)
        return replace(table, schema=schema)

    with status_line("reading the tables of the source"):
        return [replace(each, tables=tuple(map(answered, each.tables))) for each in profiles]


def _typed(evidence: ColumnEvidence, column: DatabaseColumn | None) -> ColumnEvidence:
    """Return the evidence with the database's type, if it says more than the messages."""
    guessed = evidence.column.type
    of_catalog = None if column is None else catalog_type(column.kind, column.full)
    if (
        of_catalog is None
        or evidence.certainty != VALUES
        or (of_catalog == guessed and not evidence.questions)
        # MySQL's BOOLEAN is a TINYINT, and the messages show how times are written as text.
        or guessed.name == "BOOLEAN"
        or {guessed.name, of_catalog.name} <= set(times.TYPES)
    ):
        return evidence
    return replace(evidence, column=replace(evidence.column, type=of_catalog), certainty=OF_SOURCE)
