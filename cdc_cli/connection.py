"""How to connect to Kafka: the options that every command has which does, and their secrets, which are nowhere shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from cdc_formats.errors import ArgumentError

from .errors import FileError
from .given import from_environment, pairs
from .terminal import tell

_PANEL = "Connection"
_SHOWN = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "enable.ssl.certificate.verification",
        "isolation.level",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "security.protocol",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.location",
        "ssl.keystore.location",
    }
)
"""Properties whose values may be seen."""

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar="CDC_BOOTSTRAP_SERVERS",
        metavar="SERVERS",
        help="Kafka's brokers: host:port, with commas between them.",
        rich_help_panel=_PANEL,
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="A property of librdkafka, such as security.protocol=SASL_SSL; may stand more than once. "
        "sasl.password=env:NAME takes it from the environment, where no list of processes has it.",
        rich_help_panel=_PANEL,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config", "-F", metavar="FILE", help="A file of librdkafka's properties, name=value on each line.", rich_help_panel=_PANEL
    ),
]
Timeout = Annotated[
    float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="How long to wait for Kafka.", rich_help_panel=_PANEL)
]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Tell how it connects, and what brokers say; no secrets.", rich_help_panel=_PANEL)
]


@dataclass(frozen=True)
class Connection:
    """A way to Kafka.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    config : mapping
        The other properties of librdkafka; passwords may be among them.
    timeout_seconds : float
    verbose : bool
        Whether to tell what brokers say.
    """

    servers: str
    config: Mapping[str, Any] = field(repr=False)
    timeout_seconds: float
    verbose: bool

    def __str__(self) -> str:
        """Return all properties, with the values of those alone that are no secrets."""
        given = {"bootstrap.servers": self.servers, **self.config}
        return ", ".join(f"{name}={value if name in _SHOWN else '***'}" for name, value in sorted(given.items()))

    def client_config(self, hear: Callable[[Any], None] | None = None) -> dict[str, Any]:
        """Return the properties for a client that tells what its brokers say, where that is wanted, and tells it `hear` in any case."""
        listeners = [*([hear] if hear else []), *([_teller()] if self.verbose else [])]
        return {**self.config, "error_cb": lambda error: [listen(error) for listen in listeners]} if listeners else dict(self.config)


def _teller() -> Callable[[Any], None]:
    said: set[str] = set()

    def hear(error: Any) -> None:
        # It is said again with each attempt to connect, and how long that took.
        text = f"brokers: {error.name()}: {error.str().partition(' (after ')[0]}"
        if text not in said:
            said.add(text)
            tell(text)

    return hear


def connection(
    servers: str, config: Path | None = None, properties: Sequence[str] | None = None, timeout_seconds: float = 10.0, verbose: bool = False
) -> Connection:
    """Return the way to Kafka that was given; ``-X`` wins over the file, ``-b`` over both.

    Raises
    ------
    typer.BadParameter
        When there are no servers, or what is given is no property.
    FileError, ArgumentError
        When the file cannot be read, a line of it is no property, or a variable of the environment is not there.
    """
    given = {**(_file(config) if config else {}), **pairs(properties or (), "-X")}
    found = servers or given.pop("bootstrap.servers", "")
    given.pop("bootstrap.servers", None)
    if not found:
        raise typer.BadParameter("which Kafka? Give -b host:port, or set CDC_BOOTSTRAP_SERVERS")
    made = Connection(found, given, timeout_seconds, verbose)
    if verbose:
        tell(f"connecting with {made}")
    return made


def _file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
        raise FileError(f"the properties of Kafka's client cannot be read from {path}: {reason}") from None
    found = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals or not name.strip():
                raise ArgumentError(f"line {number} of {path} is no property: name=value")
            found[name.strip()] = from_environment(name.strip(), value.strip())
    return found
