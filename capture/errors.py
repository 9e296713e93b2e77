"""Errors of the capture: why a server cannot be read from, or can no longer be."""

from __future__ import annotations

from cdc_formats.errors import ChangelogError


class CaptureError(ChangelogError, RuntimeError):
    """Base of the errors of a capture."""

    condition = "CAPTURE"


class ServerNotReadyError(CaptureError):
    """A server or table is not set up for a capture: each reason is a sentence with the statement that mends it."""

    condition = "SERVER_NOT_READY"


class ServerUnavailableError(CaptureError):
    """A server does not answer, refuses the user, or ended the connection."""

    condition = "SERVER_UNAVAILABLE"


class ConnectionLostError(ServerUnavailableError):
    """A connection was refused, timed out or ended: it is tried again."""


class ServerChangedError(CaptureError):
    """Another server answers than the one whose log the offset is of."""

    condition = "SERVER_CHANGED"


class BinlogPurgedError(CaptureError):
    """The server no longer has the part of its log that is to be read."""

    condition = "BINLOG_PURGED"


class BinlogError(CaptureError):
    """The log has what cannot be read as rows."""

    condition = "BINLOG"


class SchemaChangedError(CaptureError):
    """The captured table was altered, truncated, renamed or dropped."""

    condition = "SCHEMA_CHANGED"
