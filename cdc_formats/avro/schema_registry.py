"""Schemas from a registry with Confluent's API, and the schema ids in records.

Such registries are Confluent, Apicurio, Karapace and Redpanda.

A key or a value contains the id of its writer's schema before its Avro, or a header of the record
does (`schema_id`)::

    0x00 <id: 4 bytes, big-endian> <Avro>                                 in front
    0x01 <GUID: 16 bytes>                                                 in the header __value_schema_id or __key_schema_id

Requests to a registry that does not answer are repeated for `Registry.retry_seconds`, and then
raise `SchemaRegistryError`. This is never a bad record, so no mode drops records because of it. A
schema that the registry does not have is an error of the record, `WriterSchemaError`.

The client is Confluent's (``pip install 'pyspark-kafka-changelog[avro]'``), created on first use,
once per process and `Registry`. A schema is fetched and parsed once, since its id never changes its
meaning.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import lru_cache
from typing import Any, TypeVar

from cdc_formats.decoding.frames import SchemaId, read_id
from cdc_formats.decoding.protobuf import OF_REGISTRY as PROTOBUF
from cdc_formats.errors import (
    FormatOptionError,
    MalformedMessageError,
    MissingDependencyError,
    SchemaRegistryError,
    WriterSchemaError,
)
from cdc_formats.events import Headers

from .reader import AvroSchema
from .registry_options import RegistryOptions

T = TypeVar("T")
VALUE_HEADER = "__value_schema_id"

_FIRST_WAIT, _MOST_WAIT = 0.5, 8.0  # seconds between two requests
_REQUEST_SECONDS = 10
MOST_ANSWER_BYTES = 16 * 2**20
"""The most bytes of a registry's answer, decompressed. Schemas are far smaller."""
_NOT_FOUND = (40400, 40401, 40402, 40403)
_BUSY = (408, 425, 429, 500, 502, 503, 504)
_INSTALL = "pip install 'pyspark-kafka-changelog[avro]'"


# --------------------------------------------------------------------------------------------------
# framing


def schema_id(part: str, data: bytes, headers: Headers = ()) -> tuple[SchemaId, int]:
    """Return the id of a key's or value's writer's schema, and the offset of its Avro.

    Parameters
    ----------
    part : str
        ``key`` or ``value``.
    data : bytes
    headers : sequence of (str, bytes or None)
        The record's headers. The first one with the part's schema has precedence over an id before
        the Avro.

    Raises
    ------
    MalformedMessageError
        When there is no schema id.
    """
    for name, value in headers:
        if name == f"__{part}_schema_id" and value is not None:
            identified = read_id(bytes(value))
            if identified is None or identified[1] != len(value):
                raise MalformedMessageError(
                    f"the header {name} is not a schema id: expected 0x01 and 16 bytes, or 0x00 "
                    "and 4 bytes"
                )
            return identified[0], 0
    identified = read_id(data)
    if identified is None:
        raise MalformedMessageError(
            "not in a schema registry's framing: it does not begin with 0x00 and a schema id of 4 "
            "bytes"
        )
    return identified


def framed(number: int, avro: bytes) -> bytes:
    """Return Avro with its schema's id before it."""
    return b"\0" + number.to_bytes(4, "big") + avro


class Registry(RegistryOptions):
    """The connection to a schema registry. Secrets never appear in its ``repr`` or in errors."""

    @property
    def client(self) -> RegistryClient:
        """The client of this process.

        Raises
        ------
        FormatOptionError
            When no URL is set, or the client rejects an option.
        MissingDependencyError
            When the client's package is not installed.
        """
        self.require_url("url")
        return _client(self)

    def require_url(self, option: str) -> None:
        """Raise if no URL is set.

        Raises
        ------
        FormatOptionError
        """
        if not self.url:
            raise FormatOptionError(
                f"{option} is not set: set it to the schema registry's URL, such as "
                "'http://localhost:8081'"
            )

    def configuration(self) -> dict[str, Any]:
        """Return the options with the client's names."""
        named = {
            option.name.replace("_", "."): getattr(self, option.name) for option in fields(self)
        }
        for name in ("properties", "retry.seconds", "bearer.auth.token"):
            del named[name]
        if self.bearer_auth_token:
            # Confluent Cloud requires the last two; other registries ignore them.
            named |= {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": self.bearer_auth_token,
            }
            named |= {"bearer.auth.logical.cluster": "", "bearer.auth.identity.pool.id": ""}
        options = {name: value for name, value in named.items() if value is not None}
        return {"timeout": _REQUEST_SECONDS, "max.retries": 0, **options, **dict(self.properties)}


# --------------------------------------------------------------------------------------------------
# client


@lru_cache(maxsize=64)
def _client(registry: Registry) -> RegistryClient:
    return RegistryClient(registry)


class _TooLargeError(Exception):
    """A registry's answer has more than `MOST_ANSWER_BYTES`."""


def _limited(response: Any) -> None:
    """Limit an answer of the client's HTTP library, which is read after this call."""
    read = response.iter_bytes

    def iter_bytes(*arguments: Any) -> Iterator[bytes]:
        size = 0
        for part in read(*arguments):
            size += len(part)
            if size > MOST_ANSWER_BYTES:
                raise _TooLargeError
            yield part

    response.iter_bytes = iter_bytes


class RegistryClient:
    """A caching client of one registry; `Registry.client` returns it."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise MissingDependencyError(
                f"a schema registry needs {error.name}: {_INSTALL}"
            ) from error
        try:
            self.confluent = SchemaRegistryClient.new_client(registry.configuration())
        except (ValueError, TypeError, OSError) as error:
            raise FormatOptionError(
                f"the schema registry's client cannot be created: {type(error).__name__}: {error}"
            ) from None
        # The in-process registry of tests has no HTTP session.
        if session := getattr(getattr(self.confluent, "_rest_client", None), "session", None):
            session.event_hooks = {"response": [_limited]}
        self._schemas: dict[SchemaId, AvroSchema] = {}
        self._numbers: dict[tuple[str, str, bool], int] = {}

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
            answer = self._ask(f"schema {name}", lambda: self._get(name))
            if answer is None:
                raise WriterSchemaError(
                    f"the schema registry at {self.registry.url} has no schema {name}"
                )
            try:
                schema = self._schemas[name] = self._parsed(answer)
            except WriterSchemaError as error:
                raise WriterSchemaError(f"schema {name}: {error.reason}") from None
        return schema

    def json_schema(self, name: SchemaId) -> Any:
        """Return the parsed JSON Schema with an id.

        It is None if it is a schema of another type, or if the registry does not have it.

        Raises
        ------
        SchemaRegistryError
            As `schema`.
        """
        answer = self._ask(f"schema {name}", lambda: self._get(name))
        try:
            return (
                json.loads(answer.schema_str)
                if answer is not None and answer.schema_type == "JSON"
                else None
            )
        except (ValueError, TypeError, RecursionError):
            return None

    def newest(self, subject: str) -> AvroSchema | None:
        """Return the newest schema of a subject, or None if the registry does not have the subject.

        Raises
        ------
        WriterSchemaError, SchemaRegistryError
            As `schema`.
        """
        version = self._ask(
            f"the newest schema of {subject}", lambda: self.confluent.get_latest_version(subject)
        )
        return None if version is None else self._parsed(version.schema)

    def _get(self, name: SchemaId) -> Any:
        return (
            self.confluent.get_schema(name)
            if isinstance(name, int)
            else self.confluent.get_schema_by_guid(str(name))
        )

    def _parsed(self, written: Any) -> AvroSchema:
        if written.schema_type == "PROTOBUF":
            raise WriterSchemaError(PROTOBUF)
        if (written.schema_type or "AVRO") != "AVRO":
            raise WriterSchemaError(f"it is a {written.schema_type} schema, not an Avro schema")
        texts = [written.schema_str, *self._references(written)]
        try:
            schema, *references = map(json.loads, texts)
        except (ValueError, TypeError, RecursionError):
            raise WriterSchemaError("its writer's schema is not JSON") from None
        return AvroSchema(schema, references)

    def _references(self, written: Any) -> list[str]:
        """Return the texts of all schemas that a schema references, each after its references."""
        texts: list[str] = []
        for reference in written.references or ():
            what = f"version {reference.version} of {reference.subject}"
            version = self._ask(
                what,
                lambda of=reference: self.confluent.get_version(of.subject, of.version),  # type: ignore[misc]
            )
            if version is None:
                raise WriterSchemaError(
                    f"it references {what}, which the schema registry does not have"
                )
            further = [*self._references(version.schema), str(version.schema.schema_str)]
            texts += [text for text in further if text not in texts]
        return texts

    def number(self, subject: str, schema: Mapping[str, Any] | list[Any], *, register: bool) -> int:
        """Return the id of a schema under a subject; register a missing schema.

        Raises
        ------
        SchemaRegistryError
            When the request fails, the registry rejects the schema (it is incompatible with those
            of the subject), or it does not have it and `register` is False.
        """
        from confluent_kafka.schema_registry import Schema

        text = json.dumps(schema)
        number = self._numbers.get((subject, text, register))
        if number is None:
            asked = Schema(text, "AVRO")
            if register:
                answer = self._ask(
                    f"registering a schema under {subject}",
                    lambda: self.confluent.register_schema(subject, asked),
                )
            else:
                registered = self._ask(
                    f"the schema of {subject}", lambda: self.confluent.lookup_schema(subject, asked)
                )
                answer = None if registered is None else registered.schema_id
            if answer is None:
                raise SchemaRegistryError(
                    f"the schema registry at {self.registry.url} does not have the schema under "
                    f"{subject}"
                )
            number = self._numbers[subject, text, register] = answer
        return number

    def _ask(self, what: str, question: Callable[[], T]) -> T | None:
        """Return the registry's answer, or None if it does not have the object."""
        waited, wait = 0.0, _FIRST_WAIT
        while True:
            answer, problem = self._once(what, question)
            if not problem:
                return answer
            if waited >= self.registry.retry_seconds:
                raise SchemaRegistryError(
                    f"the schema registry at {self.registry.url} does not answer ({what}) after "
                    f"{waited:.0f} s of retries: {problem}. No record was skipped: restart the "
                    "query when it answers"
                )
            pause = min(wait, self.registry.retry_seconds - waited)
            time.sleep(pause)
            waited, wait = waited + pause, min(2 * wait, _MOST_WAIT)

    def _once(self, what: str, question: Callable[[], T]) -> tuple[T | None, str]:
        """Send one request; return the answer, or the reason to repeat it."""
        from confluent_kafka.schema_registry.error import (
            OAuthTokenError,
            SchemaRegistryError as Answer,
        )

        try:
            return question(), ""
        except Answer as error:
            status, text = error.http_status_code, str(error.error_message)[:200]
            if status in _BUSY:
                return None, f"status {status}, {text}"
            if status == 404 and error.error_code in _NOT_FOUND:
                return None, ""
            raise self._refused(what, status, text) from None
        except _TooLargeError:
            raise SchemaRegistryError(
                f"{self.registry.url} is not a schema registry ({what}): its answer has more than "
                f"{MOST_ANSWER_BYTES >> 20} MiB. Check the url"
            ) from None
        except OAuthTokenError as error:
            raise SchemaRegistryError(
                f"no token for the schema registry at {self.registry.url}: {type(error).__name__}"
            ) from None
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise SchemaRegistryError(
                f"{self.registry.url} is not a schema registry ({what}): {type(error).__name__}. "
                "Check the url"
            ) from None
        except Exception as error:
            # The client's HTTP library (httpx or another) is an implementation detail: its
            # exceptions are transport failures.
            if "CERTIFICATE" in str(error).upper() or "SSL" in str(error).upper():
                raise SchemaRegistryError(
                    f"no TLS with the schema registry at {self.registry.url}: {error}. See "
                    "ssl_ca_location"
                ) from None
            return None, f"{type(error).__name__} {error}"

    def _refused(self, what: str, status: int, text: str) -> SchemaRegistryError:
        if status in (401, 403):
            return SchemaRegistryError(
                f"the schema registry at {self.registry.url} refuses {what} (status {status}): "
                "see basic_auth_user_info, bearer_auth_token and ssl_certificate_location"
            )
        hint = ". Check the url" if status in (404, 405) else ""
        return SchemaRegistryError(
            f"the schema registry at {self.registry.url} answers {status} to {what}: {text}{hint}"
        )
