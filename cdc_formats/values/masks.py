"""The option `mask` of a format: which columns are masked, and with which key.

`decoding.rows` replaces the values. The key is read when the format is made, on the driver, and
travels to the workers with the format. It appears in no repr, plan, error or file.
"""

from __future__ import annotations

import hmac
import json
import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from cdc_formats.errors import FormatOptionError

HMAC, REDACT, DROP = "hmac", "redact", "drop"
KINDS = (HMAC, REDACT, DROP)
LEAST_KEY_BYTES = 16


@dataclass(frozen=True)
class MaskKey:
    """Where the key of ``hmac`` comes from, and the key.

    Parameters
    ----------
    env, file : str or None
        The options ``mask_key_env`` and ``mask_key_file``.
    secret : bytes
    """

    env: str | None = None
    file: str | None = None
    secret: bytes = field(default=b"", repr=False)

    @property
    def fingerprint(self) -> str:
        """Text that is the same for the same key, from which the key cannot be computed."""
        return hmac.digest(
            self.secret, b"cdc_formats: fingerprint of a mask's key", "sha256"
        ).hex()[:16]


@dataclass(frozen=True, repr=False)
class Masks:
    """The masks of columns.

    Parameters
    ----------
    pairs : tuple of (str, str)
        Names of columns, each with one of `KINDS`. A name is that of every column that differs from
        it in case alone, since Spark and Delta treat them as one.
    key : MaskKey
    """

    pairs: tuple[tuple[str, str], ...] = ()
    key: MaskKey = MaskKey()

    def __repr__(self) -> str:
        return repr(dict(self.pairs))

    def __bool__(self) -> bool:
        return bool(self.pairs)

    @cached_property
    def _kinds(self) -> Mapping[str, str]:
        return {folded(name): kind for name, kind in self.pairs}

    def kind(self, column: str) -> str | None:
        """Return the kind of a column's mask, or None without one."""
        return self._kinds.get(folded(column))

    def digest(self, message: bytes) -> str:
        """Return the HMAC-SHA-256 of a message, as 64 hexadecimal digits."""
        return hmac.digest(self.key.secret, message, "sha256").hex()

    @property
    def facts(self) -> dict[str, str]:
        """What decides the masked values, by the name of the column; without the key."""
        suffix = {HMAC: f" with the key of fingerprint {self.key.fingerprint}"}
        return {name: kind + suffix.get(kind, "") for name, kind in sorted(self.pairs)}

    def of_columns(self, columns: Iterable[str], table: str = "") -> Masks:
        """Return the masks of a table's columns, by their names.

        Parameters
        ----------
        columns : iterable of str
        table : str
            The name of the source table, of a database whose tables share the masks. A mask of
            ``<table>.<column>`` takes precedence over one of ``<column>``.
        """
        chosen = {
            name: kind
            for name in columns
            if (kind := (table and self.kind(f"{table}.{name}")) or self.kind(name))
        }
        return Masks(tuple(chosen.items()), self.key)

    def unused(self, tables: Mapping[str, Collection[str]]) -> list[str]:
        """Return the masks that are of none of these tables' columns.

        Parameters
        ----------
        tables : mapping
            The columns of each source table.
        """
        used = {
            folded(name)
            for table, columns in tables.items()
            for column in columns
            for name in (column, f"{table}.{column}")
        }
        return [name for name, _ in self.pairs if folded(name) not in used]

    def naming(self, table: str) -> list[str]:
        """Return the masks of one table's columns: those that name the table."""
        prefix = folded(f"{table}.")
        return [name for name, _ in self.pairs if folded(name).startswith(prefix)]


NO_MASKS = Masks()


def folded(name: str) -> str:
    """Return text that is equal for names that differ in case alone.

    Examples
    --------
    >>> folded("Email") == folded("EMAIL"), folded("\u017fsn") == folded("SSN")
    (True, True)
    """
    # Spark compares characters in upper and in lower case (Java's equalsIgnoreCase).
    return name.upper().lower()


def masks_of(option: Any, *, env: str | None, file: str | None) -> Masks:
    """Return the masks of the options ``mask``, ``mask_key_env`` and ``mask_key_file``.

    Parameters
    ----------
    option : mapping, sequence of (str, str), str or Masks
        Text is a JSON object. A `Masks` with the same source of the key keeps its key: a worker may
        not have the file or the environment variable.
    env, file : str or None

    Raises
    ------
    FormatOptionError
        When the options are not valid, or the key is missing, too short or unreadable.
    """
    is_read = isinstance(option, Masks)
    if isinstance(option, Masks) and (option.key.env, option.key.file) == (env, file):
        return option
    pairs = option.pairs if is_read else _pairs(option)
    hashed = [name for name, kind in pairs if kind == HMAC]
    if not hashed:
        # The masks of one table of a database may need no key.
        if not is_read and (env is not None or file is not None):
            unused = "mask_key_file" if env is None else "mask_key_env"
            raise FormatOptionError(
                f"{unused} has no effect, since mask has no column with 'hmac': remove it"
            )
        return Masks(pairs)
    return Masks(pairs, _key(hashed[0], env, file))


def _pairs(option: Any) -> tuple[tuple[str, str], ...]:
    try:
        pairs = tuple(dict(json.loads(option) if isinstance(option, str) else option).items())
    except (TypeError, ValueError):
        raise FormatOptionError(
            "mask must be a mapping from columns to 'hmac', 'redact' or 'drop', such as "
            "{'email': 'hmac'}"
        ) from None
    first = dict[str, tuple[str, str]]()
    for name, kind in pairs:
        if not isinstance(name, str) or kind not in KINDS:
            raise FormatOptionError(
                f"mask has {kind!r} for {name!r}: use 'hmac', 'redact' or 'drop'"
            )
        other, of_other = first.setdefault(folded(name), (name, kind))
        if kind != of_other:
            raise FormatOptionError(
                f"mask has {of_other!r} for {other!r} and {kind!r} for {name!r}, which Spark cannot "
                "tell apart: remove one of them"
            )
    return pairs


def _key(column: str, env: str | None, file: str | None) -> MaskKey:
    if (env is None) == (file is None):
        raise FormatOptionError(
            f"mask has 'hmac' for {column!r}, which requires a key: set "
            f"{'one' if env is None else 'only one'} of mask_key_env, the name of an environment "
            "variable, and mask_key_file, the path of a file"
        )
    source = f"the environment variable {env}" if file is None else f"the file {file}"
    secret = _from_environment(env) if file is None else _from_file(file)
    # Editors and shells add a line break to the end of a file.
    secret = secret.rstrip(b"\r\n")
    if len(secret) < LEAST_KEY_BYTES:
        raise FormatOptionError(
            f"the key of mask in {source} has less than {LEAST_KEY_BYTES} bytes: make a random one, "
            "for example with openssl rand -hex 32"
        )
    return MaskKey(env, file, secret)


def _from_environment(name: str | None) -> bytes:
    value = os.environ.get(name or "")
    if value is None:
        raise FormatOptionError(
            f"the environment variable {name}, which mask_key_env names, is not set on the driver"
        )
    return value.encode(errors="surrogateescape")


def _from_file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise FormatOptionError(
            f"the file {path}, which mask_key_file names, cannot be read on the driver: "
            f"{error.strerror or type(error).__name__}"
        ) from None
