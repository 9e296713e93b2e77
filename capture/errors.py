"""Errors of the capture."""

from __future__ import annotations

from cdc_formats.errors import ChangelogError


class CaptureError(ChangelogError, RuntimeError):
    """The base class of capture errors."""


class ServerNotReadyError(CaptureError):
    """A server or table is not set up for a capture. Each reason includes the SQL that fixes it."""


class ServerUnavailableError(CaptureError):
    """A server does not answer, denies access, or ended the connection."""


class ConnectionLostError(ServerUnavailableError):
    """A connection was refused, timed out or ended. The capture retries."""

    condition = ServerUnavailableError.condition


class ServerChangedError(CaptureError):
    """The connection reaches another server than the one that the offset belongs to."""


class BinlogPurgedError(CaptureError):
    """The server no longer has the required part of its log."""


class BinlogError(CaptureError):
    """The log contains something that cannot be read as rows."""


class SchemaChangedError(CaptureError):
    """A captured table was altered, truncated, renamed or dropped."""
