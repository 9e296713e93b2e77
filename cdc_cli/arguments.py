"""What commands share: their options, the values of these, and the connection to Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from cdc_formats.errors import ArgumentError, ChangelogError, FormatOptionError
from cdc_formats.format import Format, format_class, get_format, list_formats, option_name
from cdc_formats.topics.client import from_environment

from .terminal import Color, print_message


def pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Return ``name=value`` texts as a mapping; ``env:NAME`` is an environment variable's value.

    Parameters
    ----------
    texts : sequence of str
    option : str
        The option that they were passed with, for errors. Errors never contain a value.

    Raises
    ------
    typer.BadParameter
        When there is no ``=``.
    ArgumentError
        When the environment variable is not set.

    Examples
    --------
    >>> pairs(["security.protocol=SASL_SSL", "sasl.username=orders=1"], "-X")
    {'security.protocol': 'SASL_SSL', 'sasl.username': 'orders=1'}
    """
    refusal = typer.BadParameter(f"{option} requires name=value")
    return dict(_named_value(text, refusal) for text in texts)


def _named_value(text: str, refusal: Exception) -> tuple[str, str]:
    """Return the name and the value of ``name=value``; raise `refusal` for other text."""
    name, equals, value = map(str.strip, text.partition("="))
    if not equals or not name:
        raise refusal
    return name, from_environment(name, value)


def names(text: str) -> tuple[str, ...]:
    """Return the names in a comma-separated text."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def complete_format(incomplete: str) -> list[str]:
    """Return the formats whose names begin with `incomplete`, for shell completion."""
    return [name for name in list_formats() if name.startswith(incomplete)]


def make_format(identifier: str, options: Mapping[str, str]) -> Format:
    """Return a format with options that are given as text.

    Raises
    ------
    UnknownFormatError, AmbiguousFormatError, MissingDependencyError
    FormatOptionError
        When an option does not exist (the error suggests the nearest one), or its value is not
        valid.
    """
    types = {field.name: field.type for field in fields(format_class(identifier))}
    texts = {option_name(name): text for name, text in options.items()}
    values = {
        name: _value(identifier, name, types.get(name, str), text) for name, text in texts.items()
    }
    try:
        return get_format(identifier, **values)
    except TypeError as error:
        raise FormatOptionError(f"{identifier}: {error}") from None


def format_arguments(
    identifier: str, options: Sequence[str] | None, modes: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Return the arguments of a profile that say how a topic is read.

    Without a format, each one that is tried uses the options that it declares. `modes` are those of
    a connector, which the options override.
    """
    passed = pairs(options or (), "--option")
    values = {**modes, **{option_name(name): text for name, text in passed.items()}}
    return {"format": make_format(identifier, values)} if identifier else values


def _value(identifier: str, name: str, declared: Any, text: str) -> Any:
    """Return text as the option's declared type; the format itself checks the value."""
    kind = getattr(declared, "__name__", str(declared))
    try:
        if kind in ("int", "float"):
            return {"int": int, "float": float}[kind](text)
        if kind == "Any":
            return json.loads(text)
    except ValueError:
        expected = "JSON" if kind == "Any" else f"a number ({kind})"
        raise FormatOptionError(
            f"{identifier}: {name} must be {expected}; the given text is not"
        ) from None
    return {"true": True, "false": False}.get(text.lower(), text) if "bool" in kind else text


class FileError(ChangelogError, OSError):
    """A file cannot be read."""

    def __str__(self) -> str:  # OSError has its own
        return ChangelogError.__str__(self)


# --------------------------------------------------------------------------------------------------
# Connection options shared by the commands. Secrets in them are never shown.

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
"""Properties whose values may be printed; all others are masked."""

Servers = Annotated[
    str,
    typer.Option(
        "--bootstrap-servers",
        "-b",
        envvar="CDC_BOOTSTRAP_SERVERS",
        metavar="SERVERS",
        help="Kafka brokers as host:port, separated by commas.",
        rich_help_panel=_PANEL,
    ),
]
Properties = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="NAME=VALUE",
        help="A librdkafka property, such as security.protocol=SASL_SSL. Can be repeated. "
        "sasl.password=env:NAME reads the value from an environment variable, which keeps it "
        "out of process lists.",
        rich_help_panel=_PANEL,
    ),
]
Config = Annotated[
    Path | None,
    typer.Option(
        "--config",
        "-F",
        metavar="FILE",
        help="A file of librdkafka properties, one name=value per line.",
        rich_help_panel=_PANEL,
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout",
        min=0.1,
        metavar="SECONDS",
        help="How long to wait for Kafka.",
        rich_help_panel=_PANEL,
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        "-v",
        help="Print how cdc connects and what the brokers answer, without secrets.",
        rich_help_panel=_PANEL,
    ),
]

# --------------------------------------------------------------------------------------------------
# Other options that several commands share.

FormatOption = Annotated[
    list[str] | None,
    typer.Option(
        "--option", "-o", metavar="NAME=VALUE", help="An option of the format. Can be repeated."
    ),
]
Sample = Annotated[int, typer.Option(min=1, help="How many records to sample.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON.")]
WhichColor = Annotated[Color, typer.Option("--color", help="When to use colours.")]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic.", show_default=False)]


def format_option(help: str) -> typer.models.OptionInfo:
    """Return the option for a format's name, with shell completion."""
    made: typer.models.OptionInfo = typer.Option(
        "--format", "-f", help=help, metavar="FORMAT", autocompletion=complete_format
    )
    return made


@dataclass(frozen=True)
class Connection:
    """How to connect to Kafka.

    Parameters
    ----------
    servers : str
        ``bootstrap.servers``.
    config : mapping
        The other librdkafka properties; may include passwords.
    timeout_seconds : float
    verbose : bool
        Whether to print what the brokers answer.
    """

    servers: str
    config: Mapping[str, Any] = field(repr=False)
    timeout_seconds: float
    verbose: bool

    def __str__(self) -> str:
        """Return all properties; values that may be secret are masked."""
        properties = {"bootstrap.servers": self.servers, **self.config}
        return ", ".join(
            f"{name}={value if name in _SHOWN else '***'}"
            for name, value in sorted(properties.items())
        )

    def client_config(self, hear: Callable[[Any], None] | None = None) -> dict[str, Any]:
        """Return a client's properties; its errors go to `hear`, and are printed if `verbose`."""
        listeners = [*([hear] if hear else []), *([_printer()] if self.verbose else [])]
        return (
            {**self.config, "error_cb": lambda error: [listen(error) for listen in listeners]}
            if listeners
            else dict(self.config)
        )


def _printer() -> Callable[[Any], None]:
    printed: set[str] = set()

    def hear(error: Any) -> None:
        # librdkafka repeats it at each attempt to connect, with the duration.
        text = f"brokers: {error.name()}: {error.str().partition(' (after ')[0]}"
        if text not in printed:
            printed.add(text)
            print_message(text)

    return hear


def connection(
    servers: str,
    config: Path | None = None,
    properties: Sequence[str] | None = None,
    timeout_seconds: float = 10.0,
    verbose: bool = False,
) -> Connection:
    """Return the command line's connection; ``-X`` overrides the file, and ``-b`` overrides both.

    Raises
    ------
    typer.BadParameter
        When no servers are given, or a property is not ``name=value``.
    FileError, ArgumentError
        When the file cannot be read, a line in it is not ``name=value``, or an environment variable
        is not set.
    """
    values = {**(_file(config) if config else {}), **pairs(properties or (), "-X")}
    brokers = servers or values.pop("bootstrap.servers", "")
    values.pop("bootstrap.servers", None)
    if not brokers:
        raise typer.BadParameter(
            "no Kafka broker is given: pass -b host:port, or set CDC_BOOTSTRAP_SERVERS"
        )
    result = Connection(brokers, values, timeout_seconds, verbose)
    if verbose:
        print_message(f"connecting with {result}")
    return result


def _file(path: Path) -> dict[str, str]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise FileError(
            f"the Kafka client's properties cannot be read from {path}: {reason}"
        ) from None
    return dict(
        _named_value(
            line, ArgumentError(f"line {number} of {path} is not a property: write name=value")
        )
        for number, line in enumerate(map(str.strip, lines), 1)
        if line and not line.startswith("#")
    )
