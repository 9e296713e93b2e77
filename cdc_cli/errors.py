"""Errors of the command line's own, of the hierarchy in `cdc_formats.errors`."""

from __future__ import annotations

from cdc_formats.errors import ChangelogError


class DeliveryError(ChangelogError, RuntimeError):
    """A record was not taken by Kafka."""

    condition = "DELIVERY"


class FileError(ChangelogError, OSError):
    """A file cannot be read or written."""

    condition = "FILE"

    def __str__(self) -> str:  # OSError has its own
        return ChangelogError.__str__(self)


class LineError(ChangelogError, ValueError):
    """A line of a file is none of the form that was asked for, or a record cannot be written as one."""

    condition = "LINE"
