"""The exceptions of this project: one hierarchy and one text layout.

Spark reports an exception of a Python worker only as traceback text, without its class and
attributes. The text therefore contains what is wrong, where, and what to do::

    [TYPE_CONVERSION] expected `DECIMAL(10,2)`, got `str` 'x1' - at `$.after.weight` of the value in orders[3]@1042

All fields are positional arguments of ``Exception``, so that an exception can be pickled. Error
texts include names and values from messages: terminal control characters in them are escaped
(`printable`).
"""

from __future__ import annotations

import re
from typing import ClassVar

_UNSAFE = re.compile(
    "["
    "\x00-\x1f\x7f-\x9f"  # C0, DEL, C1
    # invisible, or changing the direction of text
    "\u00ad\u061c\u180e\u200b-\u200f\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\u2028-\u202e"  # separators of lines and paragraphs, embeddings and overrides of direction
    "\ud800-\udfff"  # lone surrogates, which no encoding can write
    "\U000e0000-\U000e007f"  # tags, which are invisible
    "]"
)


def printable(text: str) -> str:
    r"""Return text without characters that have side effects when displayed.

    Control characters (C0, C1, DEL), Unicode's direction controls, line separators, invisible
    characters and lone surrogates are replaced by Python's escapes. All other text is unchanged,
    including backslashes: the result is for display, not for parsing.

    Parameters
    ----------
    text : str

    Examples
    --------
    >>> print(printable("\x1b[31mred\x1b[0m\nand \u202etxt.exe, café"))
    \x1b[31mred\x1b[0m\nand \u202etxt.exe, café
    """
    return _UNSAFE.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


EXCERPT_BYTES = 200
"""The most bytes of a message that an error shows."""


class ChangelogError(Exception):
    """Base of all errors raised on purpose by this project."""

    condition: ClassVar[str] = "CHANGELOG"
    """The name in the text: that of the class, ``MISSING_FIELD`` of `MissingFieldError`, unless the
    class has another."""

    def __init_subclass__(cls) -> None:
        if "condition" not in vars(cls):
            cls.condition = re.sub(
                r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")
            ).upper()

    def __str__(self) -> str:
        return printable(f"[{self.condition}] {self.args[0] if self.args else ''}")


class UnknownFormatError(ChangelogError, ValueError):
    """No format is registered under the requested identifier."""


class AmbiguousFormatError(ChangelogError, ValueError):
    """Two classes claim one identifier."""


class FormatOptionError(ChangelogError, ValueError):
    """A format's option does not exist, or its value cannot be used."""


class SchemaError(ChangelogError, ValueError):
    """The declared columns cannot be read, or are not suitable for the operation."""


class ArgumentError(ChangelogError, ValueError):
    """An argument of a public function cannot be used."""


def refuse(*checks: tuple[object, str], error: type[ChangelogError] = ArgumentError) -> None:
    """Raise an error with the sentence of the first check that is true.

    Raises
    ------
    ArgumentError
        Or `error`.
    """
    for is_wrong, sentence in checks:
        if is_wrong:
            raise error(sentence)


class MissingDependencyError(ChangelogError, ImportError):
    """An optional package is not installed; the text includes the command that installs it."""


class StateVersionError(ChangelogError, ValueError):
    """Stored state has another version, or was written with another number of key groups."""


class StateDamagedError(ChangelogError, ValueError):
    """Stored state is corrupt."""


class SeveralTablesError(ChangelogError, ValueError):
    """Records of two tables would be merged by their primary key."""


class TopicReplacedError(ChangelogError, ValueError):
    """A topic was deleted and created again after the checkpoint was written."""


class PartitionsAddedError(ChangelogError, ValueError):
    """Older records of a partition arrive after newer ones of a partition added to the topic."""


class TruncateError(ChangelogError, ValueError):
    """The source table was truncated, and no handling for that is configured."""


class EncodeError(ChangelogError, ValueError):
    """A row cannot be written in a format; the text names the column and the reason."""


class DeadLetterError(ChangelogError, RuntimeError):
    """A record that cannot be decoded could not be written to the dead-letter topic either."""


class SampleError(ChangelogError, RuntimeError):
    """A sample of a topic cannot be read."""


class UnknownTopicError(SampleError):
    """The topic does not exist."""


class KafkaUnavailableError(SampleError):
    """No Kafka broker answers."""


class LoginRefusedError(SampleError):
    """Kafka refused the login."""


class TlsError(SampleError):
    """The broker's certificate, or this client's, was refused."""


class InferenceError(ChangelogError, ValueError):
    """A schema cannot be inferred: the sample lacks information or contains several tables."""


class SchemaRegistryError(ChangelogError, RuntimeError):
    """A schema registry does not answer or refuses the request.

    No record causes this error, so none is skipped.
    """


class DecodeError(ChangelogError, ValueError):
    """A Kafka record cannot be decoded.

    Parameters
    ----------
    reason : str
        What is wrong and, if known, what to do.
    path : str
        Where in the message, as a JSON path (``$.after.weight``); empty if there is none.
    field : str
        ``value`` or ``key``.
    where : str
        The record, as ``topic[partition]@offset``; empty until the caller knows it.
    excerpt : str
        The first bytes of the message, at most `EXCERPT_BYTES`; empty for none.
    bare : str
        `reason` without data from the message; empty if `reason` contains none.
    """

    def __init__(
        self,
        reason: str,
        path: str = "",
        field: str = "value",
        where: str = "",
        excerpt: str = "",
        bare: str = "",
    ) -> None:
        super().__init__(reason, path, field, where, excerpt, bare)
        self.reason, self.path, self.field, self.where, self.excerpt, self.bare = (
            reason,
            path,
            field,
            where,
            excerpt,
            bare,
        )

    def at(
        self, *, path: str = "", field: str = "", where: str = "", excerpt: str = ""
    ) -> DecodeError:
        """Return the same error with missing parts of its location filled in; keep known parts."""
        return type(self)(
            self.reason,
            self.path or path,
            self.field if self.field != "value" else field or "value",
            self.where or where,
            self.excerpt or excerpt,
            self.bare,
        )

    def without_data(self) -> DecodeError:
        """Return the same error without any data from the message (``error_excerpt=False``)."""
        return type(self)(self.bare or self.reason, self.path, self.field, self.where)

    def __str__(self) -> str:
        path = f"`{clip(self.path)}` of " if self.path else ""
        where = f" in {self.where}" if self.where else ""
        excerpt = f"; it begins {self.excerpt}" if self.excerpt else ""
        return printable(
            f"[{self.condition}] {clip(self.reason, 300)} - at {path}the "
            f"{self.field}{where}{excerpt}"
        )


class MalformedMessageError(DecodeError):
    """The bytes are not valid in the format's encoding."""


class UnknownOperationError(DecodeError):
    """The format does not know the operation."""


class MissingFieldError(DecodeError):
    """A field that the operation needs is absent or null."""


class MissingBeforeImageError(DecodeError):
    """An update or delete lacks a required before-image.

    The text includes the producer's setting for it.
    """


class TypeConversionError(DecodeError):
    """A value does not convert to its column's type."""


class PartialImageError(DecodeError):
    """An after-image lacks columns, and no stored row can complete it."""


class WriterSchemaError(DecodeError):
    """The schema that a record was written with is unknown to the registry, or cannot be read."""


class SchemaValidationError(DecodeError):
    """A message does not match the format's JSON Schema (``validate=True``)."""


class UnknownColumnError(DecodeError):
    """A row has a value in a column that is not declared (``unknown_columns="fail"``)."""


class FormatBugError(DecodeError):
    """A format raised an unexpected exception; the text includes its class and text."""


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
            UnknownColumnError,
            UnknownOperationError,
            WriterSchemaError,
        )
    )
)
"""The error conditions for which the reader can drop a record; it counts each."""


def excerpt_of(message: bytes | None) -> str:
    """Return the beginning of a message for an error text: at most `EXCERPT_BYTES` bytes, escaped.

    Examples
    --------
    >>> print(excerpt_of(b'{"op":"x"}'))
    b'{"op":"x"}'
    """
    if not message:
        return ""
    text = repr(bytes(memoryview(message)[:EXCERPT_BYTES]))
    # Every byte may become four characters (\\xff): limit the text too.
    return text if len(text) <= EXCERPT_BYTES + 3 else text[:EXCERPT_BYTES] + "...'"


def clip(text: str, most: int = 160) -> str:
    """Return at most this many characters of a text, and dots if there are more."""
    return text if len(text) <= most else text[:most] + "..."


# --------------------------------------------------------------------------------------------------
# The command that installs an optional package which is missing

_EXTRA_OF = {
    module: extra
    for extra, modules in (
        {
            "spark": ("pandas", "py4j", "pyarrow", "pyspark"),
            "kafka": ("confluent_kafka",),
            "cli": ("rich", "typer"),
            "run": ("yaml",),
            "capture": ("connectorx", "pymysql", "pymysqlreplication"),
            "avro": ("fastavro", "polars"),
            "metrics": ("prometheus_client",),
        }
    ).items()
    for module in modules
}


def missing_dependency(error: ImportError, extras: str = "") -> ImportError:
    """Return an import error as the sentence that says what to install.

    Parameters
    ----------
    error : ImportError
    extras : str
        The extras of what the user does, such as ``cli,run``; empty: the one of the package.

    Returns
    -------
    ImportError
        The same error if it is of no optional package.

    Examples
    --------
    >>> print(missing_dependency(ModuleNotFoundError(name="pyarrow.compute")))
    [MISSING_DEPENDENCY] pyarrow is not installed: pip install 'pyspark-kafka-changelog[spark]'
    """
    module = (error.name or "").partition(".")[0]
    if module not in _EXTRA_OF:
        return error
    made = MissingDependencyError(
        f"{module} is not installed: pip install "
        f"'pyspark-kafka-changelog[{extras or _EXTRA_OF[module]}]'"
    )
    made.name = module  # a caller may know the extras better
    return made
