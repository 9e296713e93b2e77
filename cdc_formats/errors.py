"""Every error of this project: one hierarchy, one shape of text.

Spark shows an exception of a Python worker as the text of its traceback: class and attributes are gone. So the text alone
says what is wrong, where, and what to do::

    [TYPE_CONVERSION] expected `DECIMAL(10,2)`, got `str` 'x1' - at `$.after.weight` of the value in orders[3]@1042

All fields are positional arguments of ``Exception`` (which is what makes an exception survive pickling). A text shows names and values
of messages, and errors are read in terminals: what would control one stands there escaped (`printable`).
"""

from __future__ import annotations

from typing import ClassVar

from .printable import printable

EXCERPT_BYTES = 200
"""The most bytes of a message that an error shows."""


class ChangelogError(Exception):
    """Base of all errors raised on purpose by this project."""

    condition: ClassVar[str] = "CHANGELOG"

    def __str__(self) -> str:
        return printable(f"[{self.condition}] {self.args[0] if self.args else ''}")


class UnknownFormatError(ChangelogError, ValueError):
    """No format is registered under the identifier asked for."""

    condition = "UNKNOWN_FORMAT"


class AmbiguousFormatError(ChangelogError, ValueError):
    """Two classes claim one identifier."""

    condition = "AMBIGUOUS_FORMAT"


class FormatOptionError(ChangelogError, ValueError):
    """A format's option does not exist, or its value cannot be used."""

    condition = "FORMAT_OPTION"


class SchemaError(ChangelogError, ValueError):
    """The declared columns cannot be read, or do not fit what is asked of them."""

    condition = "SCHEMA"


class ArgumentError(ChangelogError, ValueError):
    """An argument of a public function cannot be used."""

    condition = "ARGUMENT"


class MissingDependencyError(ChangelogError, ImportError):
    """An optional package is not installed; the text has the line that installs it."""

    condition = "MISSING_DEPENDENCY"


class StateVersionError(ChangelogError, ValueError):
    """Stored state cannot be used: its version, or the number of key groups it was written with."""

    condition = "STATE_VERSION"


class StateDamagedError(ChangelogError, ValueError):
    """Stored state is not as it was written."""

    condition = "STATE_DAMAGED"


class SeveralTablesError(ChangelogError, ValueError):
    """Records of two tables would be merged by their primary key."""

    condition = "SEVERAL_TABLES"


class TopicReplacedError(ChangelogError, ValueError):
    """A topic was deleted and created again after the checkpoint was written."""

    condition = "TOPIC_REPLACED"


class PartitionsAddedError(ChangelogError, ValueError):
    """Older records of one partition arrive after newer records of a partition that was added to the topic."""

    condition = "PARTITIONS_ADDED"


class TruncateError(ChangelogError, ValueError):
    """The source table was truncated, and the user has not said what to do then."""

    condition = "TRUNCATE"


class EncodeError(ChangelogError, ValueError):
    """A row cannot be written in a format: the text names the column, and what the format would have made of its value."""

    condition = "ENCODE"


class DeadLetterError(ChangelogError, RuntimeError):
    """A record that cannot be decoded could not be written to the dead-letter topic either."""

    condition = "DEAD_LETTER"


class SampleError(ChangelogError, RuntimeError):
    """A sample of a topic cannot be read."""

    condition = "SAMPLE"


class UnknownTopicError(SampleError):
    """There is no such topic."""

    condition = "UNKNOWN_TOPIC"


class KafkaUnavailableError(SampleError):
    """No Kafka broker answers."""

    condition = "KAFKA_UNAVAILABLE"


class InferenceError(ChangelogError, ValueError):
    """A sample does not say enough to infer a schema from, or says it of several tables."""

    condition = "INFERENCE"


class SchemaRegistryError(ChangelogError, RuntimeError):
    """A schema registry does not answer, or refuses to: no record is to blame, and none is skipped for it."""

    condition = "SCHEMA_REGISTRY"


class DecodeError(ChangelogError, ValueError):
    """A Kafka record cannot be decoded.

    Parameters
    ----------
    reason : str
        What is wrong, and what to do where that is known.
    path : str
        Where in the message, as a JSON path (``$.after.weight``); empty where there is none.
    field : str
        ``value`` or ``key``.
    where : str
        The record, as ``topic[partition]@offset``; empty until the caller knows it.
    excerpt : str
        The first bytes of the message, at most `EXCERPT_BYTES`; empty for none.
    bare : str
        `reason` without anything out of the message; empty where there is nothing of it in `reason`.
    """

    condition = "DECODE"

    def __init__(self, reason: str, path: str = "", field: str = "value", where: str = "", excerpt: str = "", bare: str = "") -> None:
        super().__init__(reason, path, field, where, excerpt, bare)
        self.reason, self.path, self.field, self.where, self.excerpt, self.bare = (
            reason,
            path,
            field,
            where,
            excerpt,
            bare,
        )

    def at(self, *, path: str = "", field: str = "", where: str = "", excerpt: str = "") -> DecodeError:
        """Return the same error with more of its place filled in; what is already known stays."""
        return type(self)(
            self.reason,
            self.path or path,
            self.field if self.field != "value" else field or "value",
            self.where or where,
            self.excerpt or excerpt,
            self.bare,
        )

    def without_data(self) -> DecodeError:
        """Return the same error with nothing in it that stood in the message (``error_excerpt=False``)."""
        return type(self)(self.bare or self.reason, self.path, self.field, self.where)

    def __str__(self) -> str:
        path = f"`{_clip(self.path)}` of " if self.path else ""
        where = f" in {self.where}" if self.where else ""
        excerpt = f"; it begins {self.excerpt}" if self.excerpt else ""
        return printable(f"[{self.condition}] {_clip(self.reason, 300)} - at {path}the {self.field}{where}{excerpt}")


class MalformedMessageError(DecodeError):
    """The bytes are not in the encoding that the format reads."""

    condition = "MALFORMED_MESSAGE"


class UnknownOperationError(DecodeError):
    """The operation is none that the format knows."""

    condition = "UNKNOWN_OPERATION"


class MissingFieldError(DecodeError):
    """A field that the operation needs is absent or null."""

    condition = "MISSING_FIELD"


class MissingBeforeImageError(DecodeError):
    """An update or delete has no before-image where one is needed; the text has the producer's remedy."""

    condition = "MISSING_BEFORE_IMAGE"


class TypeConversionError(DecodeError):
    """A value does not convert to its column's type."""

    condition = "TYPE_CONVERSION"


class PartialImageError(DecodeError):
    """An after-image lacks columns, and nothing is stored that could complete it."""

    condition = "PARTIAL_IMAGE"


class WriterSchemaError(DecodeError):
    """The schema that a record was written with is unknown to the registry, or cannot be read."""

    condition = "WRITER_SCHEMA"


class SchemaValidationError(DecodeError):
    """A message is not as the format's JSON Schema says (``validate=True``)."""

    condition = "SCHEMA_VALIDATION"


class FormatBugError(DecodeError):
    """A format failed on a record in a way that no format may: the text has the exception's class and text."""

    condition = "FORMAT_BUG"


DECODE_CONDITIONS = tuple(
    sorted(
        cls.condition
        for cls in (
            FormatBugError,
            MalformedMessageError,
            MissingBeforeImageError,
            MissingFieldError,
            PartialImageError,
            SchemaValidationError,
            TypeConversionError,
            UnknownOperationError,
            WriterSchemaError,
        )
    )
)
"""The conditions a record can be dropped for, as counted by the reader."""


def excerpt_of(message: bytes | None) -> str:
    """Return the beginning of a message as it stands in an error: at most `EXCERPT_BYTES` bytes, escaped.

    Examples
    --------
    >>> print(excerpt_of(b'{"op":"x"}'))
    b'{"op":"x"}'
    """
    if not message:
        return ""
    head = bytes(memoryview(message)[:EXCERPT_BYTES])
    text = repr(head)
    # Every byte may become four characters (\\xff): the text is held to the same measure as the bytes.
    return text if len(text) <= EXCERPT_BYTES + 3 else text[:EXCERPT_BYTES] + "...'"


def _clip(text: str, most: int = 160) -> str:
    return text if len(text) <= most else text[:most] + "..."
