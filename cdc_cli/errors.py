"""Errors that only the command line raises; they extend `cdc_formats.errors`."""

from __future__ import annotations

from cdc_formats.errors import ChangelogError


class DeliveryError(ChangelogError, RuntimeError):
    """Kafka did not accept a record."""

    condition = "DELIVERY"


class FileError(ChangelogError, OSError):
    """A file cannot be read or written."""

    condition = "FILE"

    def __str__(self) -> str:  # OSError has its own
        return ChangelogError.__str__(self)


class LineError(ChangelogError, ValueError):
    """A line of a file does not have the requested form, or a record cannot be written as a line."""

    condition = "LINE"
