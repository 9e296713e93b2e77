"""The client of AWS Glue's schema registry, which reads schemas by the ids of their versions.

It is boto3 (``pip install 'pyspark-kafka-changelog[glue]'``). Login, endpoint and proxy are those
of AWS's own chain: the environment, a profile or a role. No option has them.

Source: AWS Glue's API reference (``GetSchemaVersion``), and the serializers of
awslabs/aws-glue-schema-registry.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from cdc_formats.errors import (
    FormatOptionError,
    MissingDependencyError,
    SchemaRegistryError,
    WriterSchemaError,
)
from cdc_formats.values.frames import GlueVersion, SchemaId

from .registry_client import (
    BUSY,
    GLUE,
    MOST_TEXT,
    REQUEST_SECONDS,
    RegistryClient,
    RegistryOptions,
    T,
)

_THROTTLED = ("RequestLimitExceeded", "Throttling", "ThrottlingException")
_DENIED = (
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "UnrecognizedClientException",
)
"""The errors of a login, by the names that AWS's services share."""
READ_ONLY = (
    "AWS Glue's registry is only read: write with another registry's url, or in a format without "
    "one"
)
_CHAIN = "boto3 takes the login from the environment, a profile or a role"


class GlueClient(RegistryClient[Mapping[str, Any]]):
    """A client of AWS Glue's schema registries in one region.

    Parameters
    ----------
    options : RegistryOptions

    Raises
    ------
    FormatOptionError
        When there is no region, or boto3's own configuration is wrong.
    MissingDependencyError
        When boto3 is not installed.
    """

    def __init__(self, options: RegistryOptions) -> None:
        super().__init__(options)
        try:
            from boto3.session import Session
            from botocore.config import Config
            from botocore.exceptions import BotoCoreError, NoRegionError
        except ImportError as error:
            raise MissingDependencyError(
                f"AWS Glue needs {error.name}: pip install 'pyspark-kafka-changelog[glue]'"
            ) from error
        # Requests are repeated by `ask`.
        config = Config(
            connect_timeout=REQUEST_SECONDS,
            read_timeout=REQUEST_SECONDS,
            retries={"total_max_attempts": 1},
        )
        try:
            region = options.url.removeprefix(GLUE) or None
            self.glue = Session(region_name=region).client("glue", config=config)
        except NoRegionError:
            raise FormatOptionError(
                f"url {options.url!r} has no region, and AWS_DEFAULT_REGION and the profile neither: "
                "add it, such as 'glue://eu-central-1'"
            ) from None
        except (BotoCoreError, ValueError) as error:
            raise FormatOptionError(
                f"boto3's client of AWS Glue cannot be created: {type(error).__name__}: {error}"
            ) from None

    def refuse_id(self, name: SchemaId) -> None:
        """Raise for an id that is not of a version in AWS Glue."""
        if not isinstance(name, GlueVersion):
            raise WriterSchemaError(
                f"its schema {name} is not in AWS Glue, by the message's frame: set url to the "
                "registry with Confluent's API, such as 'http://localhost:8081'"
            )

    def get(self, name: SchemaId) -> Mapping[str, Any]:
        """Request the schema of a version."""
        answer: Mapping[str, Any] = self.glue.get_schema_version(SchemaVersionId=str(name))
        if "SchemaVersionId" not in answer:
            raise self._other(f"schema {name}")
        return answer

    def text_of(self, answer: Mapping[str, Any]) -> tuple[str, str]:
        """Return the type and the text of the schema in an answer."""
        if "SchemaDefinition" not in answer:
            raise WriterSchemaError(f"AWS Glue has no text of it: it is {answer.get('Status')}")
        return answer["DataFormat"], answer["SchemaDefinition"]

    def newest(self, subject: str) -> NoReturn:
        """Raise: AWS Glue has no subjects."""
        raise FormatOptionError(
            f"AWS Glue has no subject {subject!r}: call infer_schema() with a sample"
        )

    def number(
        self, subject: str, schema: Mapping[str, Any] | list[Any], *, register: bool
    ) -> NoReturn:
        """Raise: nothing is written with AWS Glue."""
        raise FormatOptionError(READ_ONLY)

    def once(self, what: str, question: Callable[[], T]) -> tuple[T | None, str]:
        """Send one request; return the answer, or the reason to repeat it."""
        from botocore.exceptions import (
            BotoCoreError,
            ClientError,
            NoCredentialsError,
            PartialCredentialsError,
            SSLError,
        )
        from botocore.parsers import ResponseParserError

        try:
            return question(), ""
        except ClientError as error:
            return None, self._reason(what, error.response)
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise SchemaRegistryError(
                f"no login for the schema registry at {self.options.url} ({what}): {error}. {_CHAIN}"
            ) from None
        except SSLError as error:
            raise SchemaRegistryError(
                f"no TLS with the schema registry at {self.options.url}: {error}. See AWS_CA_BUNDLE"
            ) from None
        except ResponseParserError:
            raise self._other(what) from None
        except BotoCoreError as error:
            return None, f"{type(error).__name__} {str(error)[:MOST_TEXT]}"

    def _other(self, what: str) -> SchemaRegistryError:
        return SchemaRegistryError(
            f"the endpoint of {self.options.url} is not AWS Glue ({what}): check "
            "AWS_ENDPOINT_URL_GLUE"
        )

    def _reason(self, what: str, answer: Mapping[str, Any]) -> str:
        """Return the reason to repeat a request; empty if AWS Glue does not have the schema.

        Raises
        ------
        SchemaRegistryError
            When the request need not be repeated.
        """
        code, text = answer["Error"]["Code"], answer["Error"].get("Message", "")[:MOST_TEXT]
        status = answer["ResponseMetadata"]["HTTPStatusCode"]
        if code == "EntityNotFoundException":
            return ""
        if status in BUSY or code in _THROTTLED:
            return f"{code}, {text}"
        if code in _DENIED:
            raise SchemaRegistryError(
                f"the schema registry at {self.options.url} refuses {what}: {code}, {text}. "
                f"{_CHAIN}, which must have the permission glue:GetSchemaVersion"
            )
        raise SchemaRegistryError(
            f"the schema registry at {self.options.url} answers {code} to {what}: {text}"
        )
