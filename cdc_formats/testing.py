"""The contract tests for formats, built-in or your own: `check_format`, for any test runner.

A `Vector` is a producer's records with the expected changelog, a `Reject` is a record that must be
rejected. `check_format` decodes them, and thousands of slightly damaged copies::

    from cdc_formats.testing import Reject, Vector, check_format

    def test_acme_json_keeps_the_contract():
        check_format(
            "acme-json",
            vectors=[Vector(value=b'{"do": "add", "row": {"id": 1}}', schema="id INT", expected=["+I(1)"])],
            rejects=[Reject(value=b'{"do": "fly"}', schema="id INT", error="UnknownOperationError", path="$.do")],
        )

A violation raises an ``AssertionError`` that describes it in a sentence.
"""

from __future__ import annotations

import json
import math
import pickle
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from cdc_formats.decoding.rows import key_indices
from cdc_formats.topics.inference.infer import AnyColumns
from cdc_formats.values.schema import ABSENT, Column, SqlType, columns as to_columns
from cdc_formats.values.types import to_python

from .decoder import Decoder
from .encoding import pair_updates
from .errors import ChangelogError, DecodeError, FormatOptionError, InferenceError, clip
from .events import Change, Event, Ignored, KeyedChange, KeyValue, RowKind
from .format import Encoder, Format, get_format, json_schema_of, message_validator
from .topics.sampler import Evidence, InspectedRecord, SampledRecord, inspect_all, sampler_class
from .values import times

Result = list[Change] | list[KeyedChange] | Ignored
T = TypeVar("T")

ERROR_CHARACTERS = 1024
"""The maximum length of a `DecodeError`'s text, for any message."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    value: bytes | None = None
    key: bytes | None = None
    schema: str
    primary_key: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    keyed: bool = False


@dataclass(frozen=True, kw_only=True)
class Vector(_Case):
    """A producer's records and the changelog expected from them.

    Parameters
    ----------
    value, key : bytes or None
        One Kafka record.
    records : sequence of (key, value)
        Several records in order, instead of `value` and `key`.
    schema : str
        The columns, as DDL text.
    expected : sequence of str or None
        The changelog, with one line for each row or ignored record as `render` writes it; None
        accepts any valid result.
    primary_key : sequence of str
    options : mapping
        Options of the format, in addition to those of the checked format.
    keyed : bool
        Whether `expected` is the result of `Decoder.upserts` instead of `Decoder.decode`.
    """

    records: Sequence[KeyValue] = ()
    expected: Sequence[str] | None

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(self.records) or ((self.key, self.value),))


@dataclass(frozen=True, kw_only=True)
class Reject(_Case):
    """A record that must be rejected.

    Parameters
    ----------
    value, key : bytes or None
    schema : str
    error : str
        The name of the exception class, for example ``UnknownOperationError``.
    path : str
        The location in the message, as a JSON path.
    primary_key, options
        As in `Vector`.
    keyed : bool
        Whether `Decoder.upserts` must reject it, instead of `Decoder.decode`.
    """

    error: str
    path: str


# --------------------------------------------------------------------------------------------------
# rendering


def render(result: Result, columns: str | Sequence[Column]) -> list[str]:
    """Return the result of decoding a record as text, with one line for each row.

    Parameters
    ----------
    result : list of Change, list of KeyedChange, or Ignored
    columns : str or sequence of Column
        The declared columns.

    Returns
    -------
    list of str
        ``+I(101,scooter,Small 2-wheel scooter,3.140)``, or ``Ignored(DDL)``. A `KeyedChange` is
        ``+U(row)`` for an upsert and ``-D(key)`` for a delete. Ambiguous text is quoted as in JSON.

    Examples
    --------
    >>> from cdc_formats import get_format
    >>> decoder = get_format("maxwell-json").decoder("id INT, name STRING, weight DECIMAL(10,3)")
    >>> scooter = b'{"type": "insert", "data": {"id": 101, "name": "scooter", "weight": 3.14}}'
    >>> render(decoder.decode(None, scooter), decoder.columns)
    ['+I(101,scooter,3.140)']
    """
    if isinstance(result, Ignored):
        return [f"Ignored({result.value})"]
    types = [column.type for column in to_columns(columns)]
    # The types of the key's columns are unknown here; keys can be compared without them.
    return [
        change.kind.short_string + _row(change.row, types)
        if isinstance(change, Change)
        else "-D" + _row(change.key, None)
        if change.row is None
        else "+U" + _row(change.row, types)
        for change in result
    ]


def _row(row: Sequence[Any], types: Sequence[SqlType] | None) -> str:
    cells = [_plain(value) for value in row] if types is None else map(_cell, row, types)
    return f"({','.join(cells)})"


_AMBIGUOUS = re.compile(r"[,()\[\]{}:\"\\\x00-\x1f\u2028\u2029]|^\s|\s$|^$|^(?:NULL|ABSENT)$")


def _plain(value: Any) -> str:
    if value is None or value is ABSENT:
        return "NULL" if value is None else "ABSENT"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return f"x'{value.hex().upper()}'"
    if isinstance(value, float) and math.isnan(value):
        return "NaN"  # one text for all NaN, which are not equal to themselves
    if isinstance(value, str) and _AMBIGUOUS.search(value):
        return (
            json.dumps(value, ensure_ascii=False)
            .replace("\u2028", "\\u2028")
            .replace("\u2029", "\\u2029")
        )
    return str(value)


_CELLS: dict[str, Callable[[Any, SqlType], str]] = {
    **{
        name: lambda value, sql_type: times.TYPES[sql_type.name].to_text(value)
        for name in times.TYPES
    },
    "ARRAY": lambda value, sql_type: (
        f"[{','.join(_cell(item, sql_type.fields[0].type) for item in value)}]"
    ),
    "MAP": lambda value, sql_type: (
        "{"
        + ",".join(
            ":".join(map(_cell, entry, [column.type for column in sql_type.fields]))
            for entry in value
        )
        + "}"
    ),
    "STRUCT": lambda value, sql_type: _row(value, [column.type for column in sql_type.fields]),
}


def _cell(value: Any, sql_type: SqlType) -> str:
    if value is None or value is ABSENT or sql_type.name not in _CELLS:
        return _plain(value)
    return _CELLS[sql_type.name](value, sql_type)


# --------------------------------------------------------------------------------------------------
# contract


def check_format(
    format: Format | str,
    vectors: Iterable[Vector] = (),
    rejects: Iterable[Reject] = (),
    *,
    mutations: int = 200,
    seed: int = 1,
) -> None:
    """Check that a format fulfils the contract that readers rely on.

    Parameters
    ----------
    format : Format or str
        The format, or the identifier of a registered one.
    vectors : iterable of Vector
    rejects : iterable of Reject
    mutations : int
        The number of damaged copies of each vector's records to decode.
    seed : int
        The random seed; the same seed gives the same damage.

    Raises
    ------
    AssertionError
        When the format violates the contract; the text describes how.
    """
    format = get_format(format) if isinstance(format, str) else format
    check_identity(format)
    check_options(format)
    for vector in vectors:
        check_vector(format, vector)
        check_purity(format, vector)
        check_empty(format, vector)
        check_encoder(format, vector)
        check_damaged(format, vector, mutations=mutations, seed=seed)
        check_sampling(format, vector, mutations=mutations, seed=seed)
        check_json_schema(format, vector)
    for reject in rejects:
        check_reject(format, reject)
        check_json_schema(format, reject)


def check_identity(format: Format) -> None:
    """Check that a format is registered, can be pickled, and is rebuilt by its ``repr``.

    Check also that it is equal only with equal options.
    """
    cls, name = type(format), type(format).identifier
    try:
        registered = type(get_format(name))
    except ChangelogError as error:
        raise AssertionError(f"get_format({name!r}) fails: {error}") from error
    _require(
        registered is cls,
        f"{name!r} is registered as {registered.__qualname__}, not as {cls.__qualname__}",
    )
    _require(bool(format.changelog_mode.kinds), f"{name}: the changelog mode declares no row kind")
    rebuilt = eval(repr(format), {cls.__name__: cls})
    _require(rebuilt == format, f"{name}: {format!r} does not rebuild an equal format")
    _require(hash(rebuilt) == hash(format), f"{name}: equal formats have different hashes")
    _require(pickle.loads(pickle.dumps(format)) == format, f"{name}: pickling changes the format")
    other = _with_options(format, {"error_excerpt": not format.error_excerpt})
    _require(other != format, f"{name}: formats with different options are equal")


def check_options(format: Format) -> None:
    """Check that an unknown option is rejected, and that the error lists the existing options."""
    cls = type(format)
    try:
        cls.from_options({"no_such_option": 1})
    except FormatOptionError as error:
        unlisted = [option.name for option in fields(cls) if option.name not in str(error)]
        _require(
            not unlisted,
            f"{cls.identifier}: the error of an unknown option does not list {', '.join(unlisted)}",
        )
    else:
        raise AssertionError(f"{cls.identifier}: an unknown option is accepted")


def check_vector(format: Format, vector: Vector) -> None:
    """Check that a vector gives the expected changelog, with only row kinds the format declares."""
    decode, decoder = _decoding(format, vector)
    lines: list[str] = []
    for number, (key, value) in enumerate(vector.records):
        what = _of(format, vector, number)
        result = _result_or_error(what, decode, key, value)
        if isinstance(result, DecodeError):
            raise AssertionError(f"{what} is refused: {result}") from result
        _check_result(result, decoder, what)
        lines += render(result, decoder.columns)
    expected = lines if vector.expected is None else list(vector.expected)
    if lines != expected:
        pairs = enumerate(zip(lines, expected, strict=False))
        shorter = min(len(lines), len(expected))
        at = next((number for number, (got, must_be) in pairs if got != must_be), shorter)
        got, must_be = (some[at] if at < len(some) else "the end" for some in (lines, expected))
        raise AssertionError(
            f"{format.identifier}: line {at + 1} of the changelog is {got}, but must be {must_be}"
        )


def check_purity(format: Format, vector: Vector) -> None:
    """Check that a record gives the same result again: after others, and with another decoder.

    Also as bytearray and memoryview, since Spark passes all three.
    """
    decode, decoder = _decoding(format, vector)
    records = vector.records
    ways = {
        "at first": _outcomes(decode, records, decoder),
        "after other records": _outcomes(decode, records[::-1], decoder)[::-1],
        "with another decoder": _outcomes(_decoding(format, vector)[0], records, decoder),
    }
    for buffer in (bytearray, memoryview):
        parts = [[None if part is None else buffer(part) for part in each] for each in records]
        ways[f"as {buffer.__name__}"] = _outcomes(decode, parts, decoder)
    for number, outcomes in enumerate(zip(*ways.values(), strict=True)):
        texts = [f"{outcome} {way}" for way, outcome in zip(ways, outcomes, strict=True)]
        _require(len(set(outcomes)) == 1, f"{_of(format, vector, number)} gives {', '.join(texts)}")


def check_empty(format: Format, vector: Vector) -> None:
    """Check that a null or empty value is a tombstone, unless the format reads tombstones."""
    decode, decoder = _decoding(format, vector)
    for number, (key, _) in enumerate(vector.records):
        for value in (None, b""):
            what = f"{_of(format, vector, number)} with the value {value!r}"
            result = _result_or_error(what, decode, key, value)
            wrong = (
                f"is rejected instead of Ignored.TOMBSTONE: {result}"
                if isinstance(result, DecodeError)
                else f"gives {result}, not Ignored.TOMBSTONE"
            )
            is_read = format.traits.reads_tombstones or result is Ignored.TOMBSTONE
            _require(is_read, f"{what} {wrong}")
            _check_result(result, decoder, what)


def check_reject(format: Format, reject: Reject) -> None:
    """Check that a record is rejected with the expected exception class at the expected path."""
    decode, _ = _decoding(format, reject)
    what = f"{format.identifier}: {_excerpt(reject.value)} for {reject.schema!r}"
    result = _result_or_error(what, decode, reject.key, reject.value)
    expected = f"{reject.error} at {reject.path!r}"
    if not isinstance(result, DecodeError):
        raise AssertionError(f"{what} gives {result}, but must raise {expected}")
    got = f"{type(result).__name__} at {result.path!r}"
    _require(got == expected, f"{what} raises {got}, not {expected}: {result}")


def check_encoder(format: Format, vector: Vector) -> None:
    """Check that encoding and decoding keep a vector's changelog, if the format has an encoder.

    Each row is encoded alone. If an update is one record (`Encoder.pairs_updates`), each ``-U`` is
    also encoded together with its ``+U``. The record must decode to:

    - ``-U`` and ``+U`` together: both, or the ``+U`` if the format declares no ``-U``.
    - A lone row with ``pairs_updates = False``: the row.
    - A lone ``-U``: ``-D``; a lone ``+U``: ``+I``. A format without ``-U`` has no record for a lone
      ``-U`` and gives ``+U``.
    - ``+I``: the row, or ``+U`` if the format declares no ``+I``.
    - ``-D``: the row, or only the key if the format declares such deletes.
    """
    format = _with_options(format, vector.options)
    try:
        encoder = format.encoder(vector.schema, unique_key=vector.primary_key)
    except FormatOptionError:
        return
    decode, decoder = _decoding(format, vector)
    rows = [row for key, value in vector.records for row in _whole_rows(decode(key, value))]
    if not decoder.format.changelog_mode.contains(RowKind.UPDATE_BEFORE):
        # The format's vectors have no -U, but a changelog written in the format can.
        rows += [
            (kind, row) for _, row in rows for kind in (RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER)
        ]
    changes = [(kind, row, None) for kind, row in rows]
    paired = (
        pair_updates(rows, key_indices(decoder.columns, vector.primary_key))
        if encoder.pairs_updates
        else []
    )
    for kind, row, before in (*changes, *paired):
        record = encoder.encode(kind, row, before)
        got = [] if record is None else render(decoder.decode(*record), decoder.columns)
        expected = [
            render(result, decoder.columns)
            for result in _encoded_as(kind, row, before, encoder, decoder)
        ]
        _require(
            got in expected,
            f"{format.identifier}: {kind.short_string}{row} with {before} before it, of "
            f"{vector.schema!r}, is encoded to {_excerpt_of(record)}, which decodes to {got} "
            f"instead of {' or '.join(map(str, expected))}",
        )


def _excerpt_of(record: KeyValue | None) -> str:
    return (
        "no record"
        if record is None
        else f"the record with key {_excerpt(record[0])} and value {_excerpt(record[1])}"
    )


def _whole_rows(result: Result) -> list[tuple[RowKind, tuple[Any, ...]]]:
    """Return the rows of a result; a keyed result has rows only for upserts."""
    if isinstance(result, Ignored):
        return []
    rows = [
        (c.kind, c.row) if isinstance(c, Change) else (RowKind.UPDATE_AFTER, c.row) for c in result
    ]
    return [(kind, row) for kind, row in rows if row is not None and ABSENT not in row]


def _encoded_as(
    kind: RowKind,
    row: tuple[Any, ...],
    before: tuple[Any, ...] | None,
    encoder: Encoder,
    decoder: Decoder,
) -> list[list[Change]]:
    """Return the valid decoding results of a change's record."""
    mode = decoder.format.changelog_mode
    if before is not None:
        both = [Change(RowKind.UPDATE_BEFORE, before), Change(RowKind.UPDATE_AFTER, row)]
        return [[change for change in both if mode.contains(change.kind)]]
    if kind is RowKind.DELETE and mode.key_only_deletes:
        key = key_indices(decoder.columns, decoder.unique_key)
        return [
            [Change(kind, row)],
            [
                Change(
                    kind,
                    tuple([value if index in key else None for index, value in enumerate(row)]),
                )
            ],
        ]
    if not encoder.pairs_updates or kind is RowKind.DELETE:
        return [[Change(kind, row)]]
    if mode.contains(RowKind.UPDATE_BEFORE):
        return [[Change(RowKind.DELETE if kind is RowKind.UPDATE_BEFORE else RowKind.INSERT, row)]]
    if kind is RowKind.UPDATE_BEFORE:
        return [[]]
    return [[Change(kind if mode.contains(kind) else RowKind.UPDATE_AFTER, row)]]


def check_json_schema(format: Format, case: Vector | Reject) -> None:
    """Check that a JSON Schema, if any, accepts a vector's values and rejects an unknown operation.

    Needs the package ``jsonschema``. Other rejects are not checked: many depend on the declared
    columns, which a JSON Schema does not contain.
    """
    schema = json_schema_of(type(format))
    if schema is None:
        return
    check = message_validator(format.identifier, schema)
    validating = _with_options(format, {**case.options, "validate": True}).decoder(
        case.schema, unique_key=case.primary_key
    )
    for key, value in case.records if isinstance(case, Vector) else [(case.key, case.value)]:
        what = f"{format.identifier}: the JSON Schema of {_excerpt(value)}"
        error = _result_or_error(what, check, value) if value else None
        _require(error is None or isinstance(case, Reject), f"{what} rejects it: {error}")
        unknown = (
            isinstance(case, Reject) and case.error == "UnknownOperationError" and not case.options
        )
        _require(
            error is not None or not unknown, f"{what} accepts it, but its operation is unknown"
        )
        check_record(validating, key, value)


def check_damaged(format: Format, vector: Vector, *, mutations: int = 200, seed: int = 1) -> None:
    """Check that damaged or random bytes give only valid changes, `Ignored` or a `DecodeError`."""
    _, decoder = _decoding(format, vector)
    for key, value in _damaged_records(vector, mutations, seed):
        check_record(decoder, key, value)


def _damaged_records(vector: Vector, mutations: int, seed: int) -> Iterator[KeyValue]:
    draw = random.Random(seed)
    for _ in range(mutations):
        key, value = draw.choice(list(vector.records))
        part = draw.randrange(4)
        if part == 0 and key is not None:
            key = damaged(key, draw)
        elif part == 1:
            value = draw.randbytes(draw.randrange(40))
        else:
            value = damaged(value or b"", draw)
        yield key, value


def check_sampling(format: Format, vector: Vector, *, mutations: int = 200, seed: int = 1) -> None:
    """Check that the hooks of the format's `Sampler` accept a vector's records.

    For damaged records they may raise only a `DecodeError`.

    A format whose messages have no column names may refuse samples with an `InferenceError`.
    """
    format = _with_options(format, vector.options)
    records = inspect_all(
        [
            SampledRecord("", 0, number, 0, *record, ())
            for number, record in enumerate(vector.records)
        ]
    )
    options = sampler_class(type(format)).detected_options(records, vector.options)
    unknown = sorted(set(options) - {option.name for option in fields(format)})
    _require(
        not unknown,
        (
            f"{format.identifier}: detected_options gives {', '.join(unknown)}, which are no "
            "options of the format"
        ),
    )
    try:
        reader = AnyColumns(format)
    except InferenceError:
        return
    for key, value in vector.records:
        _check_hooks(reader, key, value, valid=True)
    for key, value in _damaged_records(vector, mutations, seed):
        _check_hooks(reader, key, value)


def _check_hooks(
    reader: AnyColumns, key: bytes | None, value: bytes | None, *, valid: bool = False
) -> None:
    """Check that the hooks accept any record, or raise a `DecodeError` (not for a valid record)."""
    sampler, what = (
        reader.sampler,
        f"{reader.format.identifier}: a sample with {_excerpt_of((key, value))}",
    )
    inspected = InspectedRecord(SampledRecord("", 0, 0, 0, key, value, ()))

    def ask_of_events(events: Sequence[Event]) -> None:
        for event in events:
            sampler.declaration(key, value or b"")
            sampler.connector(event.message)
            reader.format.traits.row_names(event)

    read = _result_or_error(
        what,
        lambda: (
            sampler.key_columns(key),
            sampler.evidence(inspected),
            reader.events(key, value),
        ),
    )
    if isinstance(read, DecodeError):
        return
    columns, evidence, events = read
    error = None if isinstance(events, Ignored) else _result_or_error(what, ask_of_events, events)
    _require(not (valid and error), f"{what} is refused by a hook: {error}")
    _require(isinstance(columns, Mapping), f"{what}: key_columns gives {columns!r}, not a mapping")
    _require(
        isinstance(evidence, Evidence), f"{what}: evidence gives {evidence!r}, not an Evidence"
    )


def check_record(decoder: Decoder, key: bytes | None, value: bytes | None) -> None:
    """Check that any record gives valid changes, `Ignored` or a `DecodeError`.

    Parameters
    ----------
    decoder : Decoder
    key, value : bytes or None
        Arbitrary bytes.
    """
    what = f"{decoder.format.identifier}: {_excerpt_of((key, value))}"
    for decode in (decoder.decode, decoder.upserts) if decoder.unique_key else (decoder.decode,):
        _check_result(_result_or_error(what, decode, key, value), decoder, what)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return `data` with one to three damages.

    A damage flips, removes or inserts bytes, cuts off the end, replaces a value, or leaves out a
    member.
    """
    for _ in range(draw.randrange(1, 4)):
        data = draw.choice(_DAMAGES)(data, draw)
    return data


def _edited(data: bytes, draw: random.Random) -> bytes:
    """Return data with a byte flipped, removed or inserted, or without its end."""
    at = draw.randrange(len(data) + 1)
    rest = data[at:]
    inserted = (draw.randbytes(1), b'"', b"{", b"]", b"\\", b"9", b"-", b"\xef\xbb\xbf")
    rests = (
        bytes([byte ^ (1 << draw.randrange(8)) for byte in rest[:1]]) + rest[1:],
        rest[draw.choice((1, 1, 4, 20)) :],
        draw.choice(inserted) + rest,
        b"",
    )
    return data[:at] + draw.choice(rests)


_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
_ODD_VALUES = (
    b"null", b"true", b"[]", b"{}", b"[[1]]", b'[null,"x",{}]', b'{"scale":1,"value":"AQ=="}', b'""', b'"x"', b'"-"', b'"1E+999999999"',
    b"1E+999999999", b"-1E-999999999", b"-0", b"1e400", b"0.5", b"99999999999999999999", b"-9223372036854775809", b'"NaN"', b'"AAECAw=="',
    b'"0000-00-00"', b'"9999-12-31 23:59:59.999999999"', b'"2020-02-30T25:61:61Z"', b'"-00:00:00"', b'"\\ud83d\\ude00"', b'"\\ud83d"',
)  # fmt: skip


_MEMBER = re.compile(rb'"(?:[^"\\]|\\.)*": ?(?:' + _VALUE.pattern + rb"),")


def _replacing(
    pattern: re.Pattern[bytes], *others: bytes
) -> Callable[[bytes, random.Random], bytes]:
    # Valid JSON reaches more of a decoder's code than invalid JSON.
    def replace(data: bytes, draw: random.Random) -> bytes:
        begin, end = draw.choice([match.span() for match in pattern.finditer(data)] or [(0, 0)])
        return data[:begin] + (draw.choice(others) if end else b"") + data[end:]

    return replace


_leave_out, _replace = _replacing(_MEMBER, b""), _replacing(_VALUE, *_ODD_VALUES)
_DAMAGES = (*[_edited] * 4, _leave_out, *[_replace] * 3)


# --------------------------------------------------------------------------------------------------
# helpers


def _require(condition: bool, sentence: str) -> None:
    # Not `assert`, which python -O removes.
    if not condition:
        raise AssertionError(sentence)


def _with_options(format: Format, options: Mapping[str, Any]) -> Format:
    own = {option.name: getattr(format, option.name) for option in fields(format)}
    return type(format).from_options({**own, **options})


def _decoding(
    format: Format, vector: Vector | Reject
) -> tuple[Callable[[bytes | None, bytes | None], Result], Decoder]:
    decoder = _with_options(format, vector.options).decoder(
        vector.schema, unique_key=vector.primary_key
    )
    return (decoder.upserts if vector.keyed else decoder.decode), decoder


def _outcomes(
    decode: Callable[..., Result], records: Sequence[Sequence[Any]], decoder: Decoder
) -> list[str]:
    """Return the changelog of each record as text, or its error."""

    def outcome(key: Any, value: Any) -> str:
        try:
            return "\n".join(render(decode(key, value), decoder.columns))
        except DecodeError as error:
            return str(error)

    return [outcome(key, value) for key, value in records]


def _check_result(result: Any, decoder: Decoder, what: str) -> None:
    if isinstance(result, Ignored | DecodeError):
        return
    _require(type(result) is list, f"{what} gives {result!r}, which is neither a list nor Ignored")
    for change in result:
        if isinstance(change, KeyedChange):
            _require(
                len(change.key) == len(decoder.unique_key),
                f"{what}: {change} has another key than {decoder.unique_key}",
            )
            _require(
                None not in change.key and ABSENT not in change.key,
                f"{what}: {change} has an incomplete key",
            )
            row = (
                None
                if change.row is None
                else [None if value is ABSENT else value for value in change.row]
            )
        else:
            _require(isinstance(change, Change), f"{what} gives {change!r}, which is not a Change")
            mode = decoder.format.changelog_mode
            _require(
                mode.contains(change.kind),
                f"{what} gives {change.kind.short_string}, but the format declares {mode}",
            )
            row = list(change.row)
        if row is not None:
            _require(
                len(row) == len(decoder.columns),
                f"{what} gives {len(row)} values for {len(decoder.columns)} columns",
            )
            try:
                to_python(decoder.columns, row)
                render([Change(RowKind.INSERT, tuple(row))], decoder.columns)
            except (ArithmeticError, TypeError, ValueError) as error:
                raise AssertionError(
                    f"{what} gives {row}, whose values are not canonical: {error}"
                ) from error


def _result_or_error(what: str, call: Callable[..., T], *arguments: Any) -> T | DecodeError:
    """Return what a call returns, or the `DecodeError` that it raises, after a check of it."""
    try:
        return call(*arguments)
    except DecodeError as error:
        text = str(error)
        _require(
            len(text) <= ERROR_CHARACTERS,
            f"{what}: the error's text has {len(text)} characters, more than {ERROR_CHARACTERS}",
        )
        try:
            copy = pickle.loads(pickle.dumps(error))
        except (pickle.PicklingError, AttributeError, TypeError) as failure:
            raise AssertionError(
                f"{what}: the error {type(error).__name__} does not pickle: {failure}"
            ) from failure
        _require(
            type(copy) is type(error) and str(copy) == text,
            f"{what}: pickling changes the error to {copy}",
        )
        return error
    except Exception as error:
        raise AssertionError(
            f"{what} raises {type(error).__name__}, which is not a DecodeError: {error}"
        ) from error


def _of(format: Format, vector: Vector, number: int) -> str:
    return (
        f"{format.identifier}: record {number} {_excerpt(vector.records[number][1])} for "
        f"{vector.schema!r}"
    )


def _excerpt(data: bytes | None) -> str:
    return clip(repr(None if data is None else bytes(data)), 400)
