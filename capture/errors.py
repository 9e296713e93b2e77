"""Errors of the capture."""

from __future__ import annotations

from cdc_formats.errors import ChangelogError


class CaptureError(ChangelogError, RuntimeError):
    """The base class of capture errors."""

    condition = "CAPTURE"


class ServerNotReadyError(CaptureError):
    """A server or table is not set up for a capture. Each reason includes the SQL that fixes it."""

    condition = "SERVER_NOT_READY"


class ServerUnavailableError(CaptureError):
    """A server does not answer, denies access, or ended the connection."""

    condition = "SERVER_UNAVAILABLE"


class ConnectionLostError(ServerUnavailableError):
    """A connection was refused, timed out or ended. The capture retries."""


class ServerChangedError(CaptureError):
    """The connection reaches another server than the one that the offset belongs to."""

    condition = "SERVER_CHANGED"


class BinlogPurgedError(CaptureError):
    """The server no longer has the required part of its log."""

    condition = "BINLOG_PURGED"


class BinlogError(CaptureError):
    """The log contains something that cannot be read as rows."""

    condition = "BINLOG"


class SchemaChangedError(CaptureError):
    """A captured table was altered, truncated, renamed or dropped."""

    condition = "SCHEMA_CHANGED"
