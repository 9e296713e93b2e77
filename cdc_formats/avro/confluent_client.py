"""The client of registries with Confluent's API: Confluent, Apicurio, Karapace and Redpanda.

It is Confluent's own (``pip install 'pyspark-kafka-changelog[avro]'``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

from cdc_formats.errors import (
    FormatOptionError,
    MissingDependencyError,
    SchemaRegistryError,
    WriterSchemaError,
)
from cdc_formats.values.frames import GlueVersion, SchemaId

from .records import AvroSchema
from .registry_client import BUSY, MOST_TEXT, REQUEST_SECONDS, RegistryClient, RegistryOptions, T

MOST_ANSWER_BYTES = 16 * 2**20
"""The most bytes of a registry's answer, decompressed. Schemas are far smaller."""


def configuration(options: RegistryOptions) -> dict[str, Any]:
    """Return a registry's options with the names of Confluent's client."""
    named = {
        option.name.replace("_", "."): getattr(options, option.name)
        for option in fields(RegistryOptions)
        if option.name not in ("properties", "retry_seconds", "bearer_auth_token")
    }
    if options.bearer_auth_token:
        named |= {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": options.bearer_auth_token,
            # Confluent Cloud requires these two; other registries ignore them.
            "bearer.auth.logical.cluster": "",
            "bearer.auth.identity.pool.id": "",
        }
    return {
        "timeout": REQUEST_SECONDS,
        "max.retries": 0,
        **{name: value for name, value in named.items() if value is not None},
        **dict(options.properties),
    }


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


class ConfluentClient(RegistryClient[Any]):
    """A client of one registry with Confluent's API.

    Parameters
    ----------
    options : RegistryOptions

    Raises
    ------
    FormatOptionError
        When Confluent's client rejects an option.
    MissingDependencyError
        When it is not installed.
    """

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__(options)
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
        except ImportError as error:
            raise MissingDependencyError(
                f"a schema registry needs {error.name}: pip install 'pyspark-kafka-changelog[avro]'"
            ) from error
        try:
            self.confluent = SchemaRegistryClient.new_client(configuration(options))
        except (ValueError, TypeError, OSError) as error:
            raise FormatOptionError(
                f"the schema registry's client cannot be created: {type(error).__name__}: {error}"
            ) from None
        # The in-process registry of tests has no HTTP session.
        if session := getattr(getattr(self.confluent, "_rest_client", None), "session", None):
            session.event_hooks = {"response": [_limited]}

    def refuse_id(self, name: SchemaId) -> None:
        """Raise for the id of a version in AWS Glue."""
        if isinstance(name, GlueVersion):
            raise WriterSchemaError(
                f"its schema {name} is in AWS Glue, by the message's frame: set the registry's url "
                "to glue:// and the region, such as 'glue://eu-central-1'"
            )

    def newest(self, subject: str) -> AvroSchema | None:
        """Return the newest schema of a subject."""
        version = self.ask(
            f"the newest schema of {subject}", lambda: self.confluent.get_latest_version(subject)
        )
        return None if version is None else self.parsed(version.schema)

    def get(self, name: SchemaId) -> Any:
        """Request the schema with an id."""
        return (
            self.confluent.get_schema(name)
            if isinstance(name, int)
            else self.confluent.get_schema_by_guid(str(name))
        )

    def text_of(self, answer: Any) -> tuple[str, str]:
        """Return the type and the text of the schema in an answer; without a type it is Avro."""
        return answer.schema_type or "AVRO", answer.schema_str

    def references(self, answer: Any) -> Sequence[str]:
        """Return the texts of all schemas that a schema references, each after its references."""
        texts: list[str] = []
        for reference in answer.references or ():
            what = f"version {reference.version} of {reference.subject}"
            version = self.ask(
                what,
                lambda of=reference: self.confluent.get_version(of.subject, of.version),  # type: ignore[misc]
            )
            if version is None:
                raise WriterSchemaError(
                    f"it references {what}, which the schema registry does not have"
                )
            further = [*self.references(version.schema), str(version.schema.schema_str)]
            texts += [text for text in further if text not in texts]
        return texts

    def number(self, subject: str, schema: Mapping[str, Any] | list[Any], *, register: bool) -> int:
        """Return the id of a schema under a subject; register a missing schema."""
        from confluent_kafka.schema_registry import Schema

        written = Schema(json.dumps(schema), "AVRO")
        if register:
            number = self.ask(
                f"registering a schema under {subject}",
                lambda: self.confluent.register_schema(subject, written),
            )
        else:
            registered = self.ask(
                f"the schema of {subject}",
                lambda: self.confluent.lookup_schema(subject, written),
            )
            number = None if registered is None else registered.schema_id
        if number is None:
            raise SchemaRegistryError(
                f"the schema registry at {self.options.url} does not have the schema under "
                f"{subject}"
            )
        return int(number)

    def once(self, what: str, question: Callable[[], T]) -> tuple[T | None, str]:
        """Send one request; return the answer, or the reason to repeat it."""
        from confluent_kafka.schema_registry.error import (
            OAuthTokenError,
            SchemaRegistryError as Answer,
        )

        try:
            return question(), ""
        except Answer as error:
            status, text = error.http_status_code, str(error.error_message)[:MOST_TEXT]
            if status in BUSY:
                return None, f"status {status}, {text}"
            if status == 404 and error.error_code in (40400, 40401, 40402, 40403):
                return None, ""
            raise self._refused(what, status, text) from None
        except _TooLargeError:
            raise SchemaRegistryError(
                f"{self.options.url} is not a schema registry ({what}): its answer has more than "
                f"{MOST_ANSWER_BYTES >> 20} MiB. Check the url"
            ) from None
        except OAuthTokenError as error:
            raise SchemaRegistryError(
                f"no token for the schema registry at {self.options.url}: {type(error).__name__}"
            ) from None
        except (TypeError, KeyError, AttributeError, ValueError) as error:
            raise SchemaRegistryError(
                f"{self.options.url} is not a schema registry ({what}): {type(error).__name__}. "
                "Check the url"
            ) from None
        except Exception as error:
            # The client's HTTP library (httpx or another) is an implementation detail: its
            # exceptions are transport failures.
            if "CERTIFICATE" in str(error).upper() or "SSL" in str(error).upper():
                raise SchemaRegistryError(
                    f"no TLS with the schema registry at {self.options.url}: {error}. See "
                    "ssl_ca_location"
                ) from None
            return None, f"{type(error).__name__} {error}"

    def _refused(self, what: str, status: int, text: str) -> SchemaRegistryError:
        if status in (401, 403):
            return SchemaRegistryError(
                f"the schema registry at {self.options.url} refuses {what} (status {status}): "
                "see basic_auth_user_info, bearer_auth_token and ssl_certificate_location"
            )
        hint = ". Check the url" if status in (404, 405) else ""
        return SchemaRegistryError(
            f"the schema registry at {self.options.url} answers {status} to {what}: {text}{hint}"
        )
