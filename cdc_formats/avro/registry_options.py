"""Schema registry options: declared, checked and documented once, for every format with them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from typing import Any
from urllib.parse import unquote, urlsplit

from cdc_formats.errors import FormatOptionError, MissingDependencyError, refuse

GLUE = "glue://"
"""The beginning of the URL of AWS Glue's registries; a region follows."""


def require_fastavro(what: str) -> None:
    """Raise if the package that reads and writes Avro is not installed.

    Raises
    ------
    MissingDependencyError
    """
    if find_spec("fastavro") is None:
        raise MissingDependencyError(
            f"{what} needs fastavro: pip install 'pyspark-kafka-changelog[avro]'"
        )


@dataclass(frozen=True, kw_only=True)
class RegistryOptions:
    """The options of a schema registry, which formats have, too.

    Parameters
    ----------
    url : str
        ``http://...`` or ``https://...``, several separated by commas; ``glue://`` and a region
        are AWS Glue's registries, whose login is only that of AWS's own chain (the environment, a
        profile or a role); ``mock://...`` is an in-process registry for tests.
    basic_auth_user_info : str or None
        ``user:password``; also taken out of the URL.
    bearer_auth_token : str or None
        A static token of OAuth 2.0.
    ssl_ca_location : str or None
        A PEM file or a folder of trusted certificates.
    ssl_certificate_location, ssl_key_location, ssl_key_password : str or None
        The client's certificate and key as PEM files, and the key's password.
    properties : mapping or sequence of (str, Any)
        Other options of confluent_kafka's SchemaRegistryClient, by its own names (``proxy``,
        ``bearer.auth.*``, ``timeout``). ``timeout``, by default 10, is the most seconds without a
        byte of an answer. The limit of a whole request is three times that, for each URL.
    retry_seconds : float
        How long requests are repeated if the registry does not answer.
    """

    url: str = ""
    basic_auth_user_info: str | None = field(default=None, repr=False)
    bearer_auth_token: str | None = field(default=None, repr=False)
    ssl_ca_location: str | None = None
    ssl_certificate_location: str | None = None
    ssl_key_location: str | None = None
    ssl_key_password: str | None = field(default=None, repr=False)
    properties: Any = field(default=(), repr=False)
    retry_seconds: float = 30.0

    def __post_init__(self) -> None:
        urls = [part.strip() for part in self.url.split(",")] if self.url else []
        other = next(
            (url for url in urls if not url.startswith(("http://", "https://", "mock://", GLUE))),
            None,
        )
        users = {unquote(urlsplit(url).netloc.rpartition("@")[0]) for url in urls if other is None}
        user, *more = sorted({*users, self.basic_auth_user_info or ""} - {""}) or (None,)
        refuse(
            (
                other is not None,
                f"url {_without_user(other or '')!r} is not a registry's URL: it must begin with "
                "http://, https:// or glue://",
            ),
            (more, "url and basic_auth_user_info name different users: set only one of them"),
            (
                user and self.bearer_auth_token,
                "basic_auth_user_info and bearer_auth_token cannot be combined: remove one of them",
            ),
            (user and ":" not in user, "basic_auth_user_info is 'user:password'"),
            error=FormatOptionError,
        )
        read = {
            "url": ",".join(map(_without_user, urls)),
            "basic_auth_user_info": user,
            "properties": _pairs(self.properties),
            "retry_seconds": _seconds(self.retry_seconds),
        }
        for name, value in read.items():
            object.__setattr__(self, name, value)
        unused = [
            option.name
            for option in fields(RegistryOptions)
            if option.name not in ("url", "retry_seconds")
            and getattr(self, option.name) != option.default
        ]
        refuse(
            (
                self.is_glue and not re.fullmatch(GLUE + "[a-z0-9-]*", self.url),
                f"url {self.url!r} is not AWS Glue's: it must be glue:// and one region, such as "
                "'glue://eu-central-1'",
            ),
            (
                self.is_glue and unused,
                f"{', '.join(unused)} cannot be combined with glue://, whose login is that of "
                "AWS's own chain (the environment, a profile or a role): remove them",
            ),
            error=FormatOptionError,
        )

    @property
    def is_glue(self) -> bool:
        """Whether it is AWS Glue's registry."""
        return GLUE in self.url


def _without_user(url: str) -> str:
    head, slashes, rest = url.partition("://") if "://" in url else ("", "", url)
    host, slash, path = rest.partition("/")
    return head + slashes + host.rpartition("@")[2] + slash + path


def _pairs(properties: Any) -> tuple[tuple[str, Any], ...]:
    try:
        pairs = tuple(sorted(dict(properties).items()))
        hash(pairs)
        return pairs
    except (TypeError, ValueError):
        raise FormatOptionError(
            "properties must be a mapping of options of confluent_kafka's SchemaRegistryClient"
        ) from None


def _seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < 86_400:
        raise FormatOptionError(
            f"retry_seconds is {value!r}; it must be a number of seconds, 0 for no second request"
        )
    return seconds
