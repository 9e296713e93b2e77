"""What the clients of all schema registries share: the cache, the retries and Avro's parser.

Requests to a registry that does not answer are repeated for `RegistryOptions.retry_seconds`, and
then raise `SchemaRegistryError`. So are requests whose answer takes longer than `request_seconds`.
This is never a bad record, so no mode drops records because of it. A schema that the registry does
not have is an error of the record, `WriterSchemaError`. A schema is fetched and parsed once, since
its id never changes its meaning.
"""

from __future__ import annotations

import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, fields
from importlib.util import find_spec
from threading import Thread
from typing import Any, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from cdc_formats.decoding.other_messages import OF_REGISTRY as PROTOBUF
from cdc_formats.errors import (
    FormatOptionError,
    MissingDependencyError,
    SchemaRegistryError,
    WriterSchemaError,
    refuse,
)
from cdc_formats.values.frames import SchemaId

from .records import AvroSchema

# --------------------------------------------------------------------------------------------------
# The options of a schema registry.


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


T = TypeVar("T")
Answer = TypeVar("Answer")

REQUEST_SECONDS = 10
BUSY = (408, 425, 429, 500, 502, 503, 504)
"""The statuses of answers after which a request is repeated."""
MOST_TEXT = 200
"""The most characters of a registry's own text in an error."""
_FIRST_WAIT, _MOST_WAIT = 0.5, 8.0  # seconds between two requests


class RegistryClient(ABC, Generic[Answer]):
    """A caching client of one registry.

    Parameters
    ----------
    options : RegistryOptions

    Attributes
    ----------
    request_seconds : float
        The most seconds of a request: for each URL three times the most seconds without a byte.
    """

    def __init__(self, options: RegistryOptions) -> None:
        self.options = options
        timeout = dict(options.properties).get("timeout")
        # The client refuses another type, without its value.
        silence = timeout if isinstance(timeout, int | float) else REQUEST_SECONDS
        self.request_seconds = 3 * silence * (1 + options.url.count(","))
        self._schemas: dict[SchemaId, AvroSchema] = {}

    @abstractmethod
    def number(self, subject: str, schema: Mapping[str, Any] | list[Any], *, register: bool) -> int:
        """Return the id of a schema under a subject; register a missing schema.

        Raises
        ------
        SchemaRegistryError
            When the request fails, the registry rejects the schema (it is incompatible with those
            of the subject), or it does not have it and `register` is False.
        """

    @abstractmethod
    def newest(self, subject: str) -> AvroSchema | None:
        """Return the newest schema of a subject, or None if the registry does not have the subject.

        Raises
        ------
        WriterSchemaError, SchemaRegistryError
            As `schema`.
        """

    @abstractmethod
    def get(self, name: SchemaId) -> Answer:
        """Request the schema with an id."""

    @abstractmethod
    def text_of(self, answer: Answer) -> tuple[str, str]:
        """Return the type (``AVRO``, ``JSON``, ``PROTOBUF``) and the text of an answer's schema."""

    @abstractmethod
    def once(self, what: str, question: Callable[[], T]) -> tuple[T | None, str]:
        """Send one request; return the answer, or the reason to repeat it.

        The answer is None if the registry does not have the object.

        Raises
        ------
        SchemaRegistryError
            When the request need not be repeated.
        """

    def refuse_id(self, name: SchemaId) -> None:
        """Raise if an id is not one of this kind of registry.

        Raises
        ------
        WriterSchemaError
        """

    def references(self, answer: Answer) -> Sequence[str]:
        """Return the texts of all schemas that a schema references, each after its references."""
        return ()

    def schema(self, name: SchemaId) -> AvroSchema:
        """Return the schema with an id.

        Raises
        ------
        WriterSchemaError
            When the registry does not have it, or it is not a readable Avro schema.
        SchemaRegistryError
            When the registry cannot be asked.
        """
        schema = self._schemas.get(name)
        if schema is None:
            self.refuse_id(name)
            answer = self.ask(f"schema {name}", lambda: self.get(name))
            if answer is None:
                raise WriterSchemaError(
                    f"the schema registry at {self.options.url} has no schema {name}"
                )
            try:
                schema = self._schemas[name] = self.parsed(answer)
            except WriterSchemaError as error:
                raise WriterSchemaError(f"schema {name}: {error.reason}") from None
        return schema

    def json_schema(self, name: SchemaId) -> Any:
        """Return the parsed JSON Schema with an id.

        It is None if it is a schema of another type, or if the registry does not have it.

        Raises
        ------
        WriterSchemaError, SchemaRegistryError
            As `schema`.
        """
        self.refuse_id(name)
        answer = self.ask(f"schema {name}", lambda: self.get(name))
        kind, text = ("", "") if answer is None else self.text_of(answer)
        try:
            return json.loads(text) if kind == "JSON" else None
        except (ValueError, TypeError, RecursionError):
            return None

    def parsed(self, answer: Answer) -> AvroSchema:
        """Return the Avro schema in an answer.

        Raises
        ------
        WriterSchemaError
            When it is not a readable Avro schema.
        """
        kind, text = self.text_of(answer)
        if kind == "PROTOBUF":
            raise WriterSchemaError(PROTOBUF)
        if kind != "AVRO":
            raise WriterSchemaError(f"it is a {kind} schema, not an Avro schema")
        texts = [text, *self.references(answer)]
        try:
            schema, *references = map(json.loads, texts)
        except (ValueError, TypeError, RecursionError):
            raise WriterSchemaError("its writer's schema is not JSON") from None
        return AvroSchema(schema, references)

    def ask(self, what: str, question: Callable[[], T]) -> T | None:
        """Return the registry's answer, or None if it does not have the object.

        Raises
        ------
        SchemaRegistryError
            When the registry cannot be asked.
        """
        began, pause = time.monotonic(), _FIRST_WAIT
        while True:
            answer, problem = self._timed(what, question)
            waited = time.monotonic() - began
            if not problem:
                return answer
            if waited >= self.options.retry_seconds:
                raise SchemaRegistryError(
                    f"the schema registry at {self.options.url} does not answer ({what}) after "
                    f"{waited:.0f} s of retries: {problem}. No record was skipped: restart the "
                    "query when it answers"
                )
            time.sleep(min(pause, self.options.retry_seconds - waited))
            pause = min(2 * pause, _MOST_WAIT)

    def _timed(self, what: str, question: Callable[[], T]) -> tuple[T | None, str]:
        """Send one request, as `once`; an answer that takes too long is a reason to repeat it."""
        future: Future[tuple[T | None, str]] = Future()

        def send() -> None:
            try:
                future.set_result(self.once(what, question))
            except Exception as error:
                future.set_exception(error)

        # The clients' own timeouts limit the time between two parts of an answer, not their number.
        Thread(target=send, daemon=True).start()
        if not wait([future], self.request_seconds).done:
            return None, f"its answer is not complete after {self.request_seconds:g} s"
        return future.result()
