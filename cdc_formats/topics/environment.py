"""Values of environment variables, which keep secrets out of files and command lines."""

from __future__ import annotations

import os
import re

from cdc_formats.errors import ArgumentError

_VARIABLE = re.compile(r"env:([A-Za-z_]\w*)", re.ASCII)


def from_environment(name: str, value: str) -> str:
    """Return a value; of ``env:NAME``, the environment variable's.

    Parameters
    ----------
    name : str
        The option whose value it is, for the error.
    value : str

    Raises
    ------
    ArgumentError
        When the environment variable is not set.
    """
    variable = _VARIABLE.fullmatch(value)
    if variable is None:
        return value
    if variable[1] not in os.environ:
        raise ArgumentError(
            f"{name} refers to the environment variable {variable[1]}, which is not set"
        )
    return os.environ[variable[1]]
