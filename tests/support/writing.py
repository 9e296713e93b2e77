"""The records of written changes, which must be read back as the rows that were written."""

from collections.abc import Sequence
from typing import Any

from cdc_formats import Format


def written(format: Format, ddl: str, *changes: tuple[Any, ...], key: Sequence[str] = ()) -> str:
    """Return the key and the value of each change: a kind, a row, and a row before it, if any."""
    encoder, decoder = format.encoder(ddl, unique_key=key), format.decoder(ddl, unique_key=key)
    lines = []
    for kind, row, *before in changes:
        record = encoder.encode(kind, row, *before)
        lines.append("no record" if record is None else " ".join(map(_text, record)))
        if record is not None and record[1] is not None:
            expected = [*before, row] if encoder.pairs_updates else [row]
            assert repr([change.row for change in decoder.decode(*record)]) == repr(expected)
    return "\n".join(lines)


def _text(part: bytes | None) -> str:
    return "null" if part is None else ascii(part)[2:-1].replace('\\"', '"')
