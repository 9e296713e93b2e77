"""Records with their results: the rows of a changelog, and the changes of a keyed stage."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from cdc_formats import Change, Format, Ignored, KeyedChange, get_format
from cdc_formats.errors import DecodeError
from normalize.decode.collectors import Blocks, TypedRows
from tests.support.both_decoders import (
    Record,
    differences,
    natively,
    odd_places,
    source_of,
    together,
)
from tests.support.scenarios import Line

Result = list[str] | str | None


class Rule(Line, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """A record with its results: an error's sentence, the reason why it has no rows, or the rows.

    Attributes
    ----------
    headers : list of (str, str or None)
        The record's headers; a character of a value is a byte.
    rows, changes : list of str or str
        The results of `Decoder.decode` and, with a primary key, of `Decoder.upserts`.
    alone : bool
        Whether the columnar decoder leaves the record to the scalar one.
    """

    metadata: list[str] = msgspec.field(default_factory=list)
    positions: bool = False
    headers: list[tuple[str, str | None]] = msgspec.field(default_factory=list)
    rows: Result = None
    changes: Result = None
    alone: bool = False


class Results(NamedTuple):
    """The results of records, in order; `changes` is empty without a primary key."""

    rows: list[Result]
    changes: list[Result]
    alone: list[int]


def results_of(
    format: Format,
    records: Sequence[Record],
    schema: str,
    primary_key: Sequence[str] = (),
    metadata: Sequence[str] = (),
    *,
    positions: bool = False,
) -> Results:
    """Return the results of the scalar decoder, which must be those of the columnar and the native one."""
    decoder = format.decoder(schema, unique_key=primary_key, metadata=metadata, positions=positions)
    rows = [_result(decoder.decode, record) for record in records]
    assert rows == [_result(decoder.decode, _in_views(record)) for record in records]
    names = {name: name for name in metadata}
    plan = source_of(format, schema, primary_key, names, positions=positions)
    if not positions:
        assert not differences(plan, records, TypedRows)
    if not primary_key:
        return Results(rows, [], [])
    for columnar in (together, natively):
        assert not differences(plan, records, Blocks, columnar=columnar)
    alone = odd_places(plan, records) if together(plan, keyed=True) is not None else []
    return Results(rows, [_result(decoder.upserts, record) for record in records], alone)


def decided(identifier: str, rule: Rule) -> Rule:
    """Return the rule with the results of all decoders, which are the same."""
    headers = [(name, value and value.encode("latin-1")) for name, value in rule.headers]
    rows, changes, alone = results_of(
        get_format(identifier, **rule.options),
        [(*rule.record, headers) if headers else rule.record],
        rule.schema,
        rule.primary_key,
        rule.metadata,
        positions=rule.positions,
    )
    return msgspec.structs.replace(
        rule, rows=rows[0], changes=changes[0] if changes else None, alone=bool(alone)
    )


def _in_views(record: Record) -> tuple[Any, ...]:
    """Return the record as Spark passes it."""
    key, value, *headers = record
    return key and memoryview(key), value and memoryview(value), *headers


def _result(decode: Any, record: Record) -> Result:
    try:
        changes = decode(*record)
    except DecodeError as error:
        return f"{type(error).__name__}: {error}"
    return changes.name if isinstance(changes, Ignored) else list(map(_shown, changes))


def _shown(change: Change | KeyedChange) -> str:
    if isinstance(change, Change):
        text, more = f"{change.kind.short_string}{change.row}", {}
    else:
        text = f"{change.key}: {change.row}"
        more = {"position": change.position, "moved from": change.moved_from}
    more = {"metadata": change.metadata, **more}
    return "; ".join([text, *(f"{name} {value}" for name, value in more.items() if value)])
