"""Schemas from a registry with Confluent's API (Confluent, Apicurio, Karapace, Redpanda), and how records name them.

A key or a value names its writer's schema in front of its Avro, or in a header of the record (`schema_id`)::

    0x00 <id: 4 bytes, big-endian> <Avro>                                 in front
    0x01 <GUID: 16 bytes>                                                 in the header __value_schema_id or __key_schema_id

A registry that does not answer is asked again, for `Registry.retry_seconds`, and is then a `SchemaRegistryError`: never a bad record, so
that no mode of reading drops what could not be looked up. A schema that the registry does not have is the record's error,
`WriterSchemaError`.

The client is Confluent's (``pip install 'pyspark-kafka-changelog[avro]'``), made when it is first needed, once in each process for
each `Registry`; a schema is fetched and parsed once, since an id never means another one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit
from uuid import UUID

from .avro import AvroSchema
from .base import Headers
from .errors import FormatOptionError, MalformedMessageError, MissingDependencyError, SchemaRegistryError, WriterSchemaError

T = TypeVar("T")
SchemaId = int | UUID

_FIRST_WAIT, _MOST_WAIT = 0.5, 8.0  # seconds between two questions
_REQUEST_SECONDS = 10
_NOT_FOUND = (40400, 40401, 40402, 40403)
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_INSTALL = "pip install 'pyspark-kafka-changelog[avro]'"


# --------------------------------------------------------------------------------------------------------------- framing


def schema_id(part: str, data: bytes, headers: Headers = ()) -> tuple[SchemaId, int]:
    """Return which schema a key or a value was written with, and where its Avro begins.

    Parameters
    ----------
    part : str
        ``key`` or ``value``.
    data : bytes
    headers : sequence of (str, bytes or None)
        The record's. The first that names the part's schema counts, before what stands in front of the Avro.

    Raises
    ------
    MalformedMessageError
        When nothing names a schema.
    """
    for name, value in headers:
        if name == f"__{part}_schema_id" and value is not None:
            found = _read_id(bytes(value))
            if found is None or found[1] != len(value):
                raise MalformedMessageError(f"the header {name} is no schema id: 0x01 and 16 bytes, or 0x00 and 4 bytes")
            return found[0], 0
    found = _read_id(data)
    if found is None:
        raise MalformedMessageError("not in a schema registry's framing: it does not begin with 0x00 and a schema's id of 4 bytes")
    return found


def _read_id(data: bytes) -> tuple[SchemaId, int] | None:
    if len(data) >= 5 and data[0] == 0:
        return int.from_bytes(data[1:5], "big"), 5
    if len(data) >= 17 and data[0] == 1:
        return UUID(bytes=data[1:17]), 17
    return None


def framed(number: int, avro: bytes) -> bytes:
    """Return Avro with its schema's id in front."""
    return b"\0" + number.to_bytes(4, "big") + avro


# --------------------------------------------------------------------------------------------------------------- options


@dataclass(frozen=True, kw_only=True)
class Registry:
    """Where a registry is and how it is asked. Secrets are in no ``repr``, and in no error.

    Parameters
    ----------
    url : str
        ``http://...`` or ``https://...``, several with commas between; ``mock://...`` is one inside the process, for tests.
    basic_auth_user_info : str or None
        ``user:password``; also taken out of the URL.
    bearer_auth_token : str or None
    ssl_ca_location : str or None
        A PEM file or a folder of the certificates that are trusted.
    ssl_certificate_location, ssl_key_location, ssl_key_password : str or None
        The client's own certificate and key, PEM files, and what the key is encrypted with.
    properties : mapping or sequence of (str, Any)
        Anything else that confluent_kafka's SchemaRegistryClient takes, by its own names (``proxy``, ``bearer.auth.*``, ``timeout``).
    retry_seconds : float
        For how long a registry that does not answer is waited for, beside the time of the requests.
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
        for url in urls:
            if not url.startswith(("http://", "https://", "mock://")):
                raise FormatOptionError(f"url {_without_user(url)!r} is no registry's: it begins with http:// or https://")
        users = {user for url in urls if (user := _user_of(url))} | ({self.basic_auth_user_info} if self.basic_auth_user_info else set())
        if len(users) > 1:
            raise FormatOptionError("url and basic_auth_user_info name different users: give one of them")
        if users and self.bearer_auth_token:
            raise FormatOptionError("basic_auth_user_info and bearer_auth_token exclude each other")
        if users and ":" not in next(iter(users)):
            raise FormatOptionError("basic_auth_user_info is 'user:password'")
        object.__setattr__(self, "url", ",".join(map(_without_user, urls)))
        object.__setattr__(self, "basic_auth_user_info", next(iter(users), None))
        object.__setattr__(self, "properties", _pairs(self.properties))
        object.__setattr__(self, "retry_seconds", _seconds(self.retry_seconds))

    @property
    def client(self) -> RegistryClient:
        """The client of this process.

        Raises
        ------
        FormatOptionError
            When no URL is set, or the client does not take an option.
        MissingDependencyError
            When the client's package is not installed.
        """
        self.require_url("url")
        return _client(self)

    def require_url(self, option: str) -> None:
        """Refuse to go on without a URL.

        Raises
        ------
        FormatOptionError
        """
        if not self.url:
            raise FormatOptionError(f"{option} is not set: where is the schema registry? For example {option}='http://localhost:8081'")

    def configuration(self) -> dict[str, Any]:
        """Return the options by the client's own names."""
        named = {option.name.replace("_", "."): getattr(self, option.name) for option in fields(self)}
        for name in ("properties", "retry.seconds", "bearer.auth.token"):
            del named[name]
        if self.bearer_auth_token:
            # Confluent Cloud wants the last two; other registries do not look at them.
            named |= {"bearer.auth.credentials.source": "STATIC_TOKEN", "bearer.auth.token": self.bearer_auth_token}
            named |= {"bearer.auth.logical.cluster": "", "bearer.auth.identity.pool.id": ""}
        given = {name: value for name, value in named.items() if value is not None}
        return {"timeout": _REQUEST_SECONDS, "max.retries": 0, **given, **dict(self.properties)}


def _user_of(url: str) -> str:
    head, at, _ = urlsplit(url).netloc.rpartition("@")
    return unquote(head) if at else ""


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
        raise FormatOptionError("properties is a mapping of options of confluent_kafka's SchemaRegistryClient") from None


def _seconds(value: Any) -> float:
    try:
        seconds = float(value)
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds < 86_400:
        raise FormatOptionError(f"retry_seconds is {value!r}; it is a number of seconds, 0 for no second question")
    return seconds


# ---------------------------------------------------------------------------------------------------------------- client


@lru_cache(maxsize=64)
def _client(registry: Registry) -> RegistryClient:
    return RegistryClient(registry)


class RegistryClient:
    """Asks one registry, and remembers what it said. Made by `Registry.client`."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise MissingDependencyError(f"a schema registry needs {error.name}: {_INSTALL}") from error
        try:
            self.confluent = SchemaRegistryClient.new_client(registry.configuration())
        except (ValueError, TypeError, OSError) as error:
            raise FormatOptionError(f"the schema registry's client cannot be made: {type(error).__name__}: {error}") from None
        self._schemas: dict[SchemaId, AvroSchema] = {}
        self._numbers: dict[tuple[str, str, bool], int] = {}

    def schema(self, name: SchemaId) -> AvroSchema:
        """Return the schema with an id.

        Raises
        ------
        WriterSchemaError
            When the registry has none, or it is not one of Avro that can be read.
        SchemaRegistryError
            When the registry cannot be asked.
        """
        known = self._schemas.get(name)
        if known is None:
            found = self._ask(f"schema {name}", lambda: self._get(name))
            if found is None:
                raise WriterSchemaError(f"the schema registry at {self.registry.url} has no schema {name}")
            try:
                known = self._schemas[name] = self._parsed(found)
            except WriterSchemaError as error:
                raise WriterSchemaError(f"schema {name}: {error.reason}") from None
        return known

    def newest(self, subject: str) -> AvroSchema | None:
        """Return the newest schema of a subject, None where the registry has no such subject.

        Raises
        ------
        WriterSchemaError, SchemaRegistryError
            As `schema`.
        """
        found = self._ask(f"the newest schema of {subject}", lambda: self.confluent.get_latest_version(subject))
        return None if found is None else self._parsed(found.schema)

    def _get(self, name: SchemaId) -> Any:
        return self.confluent.get_schema(name) if isinstance(name, int) else self.confluent.get_schema_by_guid(str(name))

    def _parsed(self, found: Any) -> AvroSchema:
        if (found.schema_type or "AVRO") != "AVRO":
            raise WriterSchemaError(f"it is one of {found.schema_type}, not of Avro")
        texts = [found.schema_str, *self._references(found)]
        try:
            schema, *references = map(json.loads, texts)
        except (ValueError, TypeError, RecursionError):
            raise WriterSchemaError("its writer's schema is no JSON") from None
        return AvroSchema(schema, references)

    def _references(self, found: Any) -> list[str]:
        """Return the texts of all schemas that a schema refers to, each after those that it refers to itself."""
        texts: list[str] = []
        for reference in found.references or ():
            what = f"version {reference.version} of {reference.subject}"
            version = self._ask(what, lambda of=reference: self.confluent.get_version(of.subject, of.version))  # type: ignore[misc]
            if version is None:
                raise WriterSchemaError(f"it refers to {what}, which the schema registry has not")
            further = [*self._references(version.schema), str(version.schema.schema_str)]
            texts += [text for text in further if text not in texts]
        return texts

    def number(self, subject: str, schema: Mapping[str, Any] | list[Any], *, register: bool) -> int:
        """Return the id of a schema under a subject; register it there if it is not.

        Raises
        ------
        SchemaRegistryError
            When the registry cannot be asked, refuses the schema (it is not compatible with those of the subject), or does not
            have it and `register` is False.
        """
        from confluent_kafka.schema_registry import Schema

        text = json.dumps(schema)
        known = self._numbers.get((subject, text, register))
        if known is None:
            asked = Schema(text, "AVRO")
            if register:
                answer = self._ask(f"registering a schema under {subject}", lambda: self.confluent.register_schema(subject, asked))
            else:
                found = self._ask(f"the schema of {subject}", lambda: self.confluent.lookup_schema(subject, asked))
                answer = None if found is None else found.schema_id
            if answer is None:
                raise SchemaRegistryError(f"the schema registry at {self.registry.url} does not have the schema under {subject}")
            known = self._numbers[subject, text, register] = answer
        return known

    def _ask(self, what: str, question: Callable[[], T]) -> T | None:
        """Return the registry's answer, None where it says that there is no such thing."""
        waited, wait = 0.0, _FIRST_WAIT
        while True:
            answer, problem = self._once(what, question)
            if not problem:
                return answer
            if waited >= self.registry.retry_seconds:
                raise SchemaRegistryError(
                    f"the schema registry at {self.registry.url} does not answer ({what}), asked again for {waited:.0f} s: {problem}. "
                    "No record was skipped: start again when it does"
                )
            pause = min(wait, self.registry.retry_seconds - waited)
            time.sleep(pause)
            waited, wait = waited + pause, min(2 * wait, _MOST_WAIT)

    def _once(self, what: str, question: Callable[[], T]) -> tuple[T | None, str]:
        """Ask once: the answer, or why to ask again."""
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError as Answer

        try:
            return question(), ""
        except Answer as error:
            status, text = error.http_status_code, str(error.error_message)[:200]
            if status in _BUSY:
                return None, f"status {status}, {text}"
            if status == 404 and error.error_code in _NOT_FOUND:
                return None, ""
            raise self._refused(what, status, text) from None
        except OAuthTokenError as error:
            raise SchemaRegistryError(f"no token for the schema registry at {self.registry.url}: {type(error).__name__}") from None
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise SchemaRegistryError(
                f"what answers at {self.registry.url} is no schema registry ({what}): {type(error).__name__}. Is the url right?"
            ) from None
        except Exception as error:
            # The client's HTTP library is its own affair (httpx or another): what it raises is a failure of the transport.
            if "CERTIFICATE" in str(error).upper() or "SSL" in str(error).upper():
                raise SchemaRegistryError(f"no TLS with the schema registry at {self.registry.url}: {error}. See ssl_ca_location") from None
            return None, f"{type(error).__name__} {error}"

    def _refused(self, what: str, status: int, text: str) -> SchemaRegistryError:
        if status in (401, 403):
            return SchemaRegistryError(
                f"the schema registry at {self.registry.url} refuses {what} (status {status}): "
                "see basic_auth_user_info, bearer_auth_token and ssl_certificate_location"
            )
        hint = ". Is the url right?" if status in (404, 405) else ""
        return SchemaRegistryError(f"the schema registry at {self.registry.url} answers {status} to {what}: {text}{hint}")
