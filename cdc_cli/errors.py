"""The error that only the command line raises; it extends `cdc_formats.errors`."""

from __future__ import annotations

from cdc_formats.errors import ChangelogError


class FileError(ChangelogError, OSError):
    """A file cannot be read."""

    def __str__(self) -> str:  # OSError has its own
        return ChangelogError.__str__(self)
