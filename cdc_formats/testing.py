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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from cdc_formats.decoding.rows import key_indices
from cdc_formats.topics.inference.sample import AnyColumns
from cdc_formats.values.schema import ABSENT, Column, SqlType, columns as to_columns
from cdc_formats.values.types import to_python

from .decoder import Decoder
from .encoding import pair_updates
from .errors import ChangelogError, DecodeError, FormatOptionError, InferenceError, clip
from .events import Change, Event, Ignored, KeyedChange, KeyValue, RowKind
from .format import Encoder, Format
from .message_format import json_schema_of, message_validator
from .registry import get_format
from .topics.encodings import InspectedRecord, SampledRecord, inspect_all
from .topics.sampler import Evidence, sampler_class
from .values import times

Result = list[Change] | list[KeyedChange] | Ignored

ERROR_CHARACTERS = 1024
"""The maximum length of a `DecodeError`'s text, for any message."""


@dataclass(frozen=True, kw_only=True)
class Vector:
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

    value: bytes | None = None
    key: bytes | None = None
    records: Sequence[KeyValue] = ()
    schema: str
    expected: Sequence[str] | None
    primary_key: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    keyed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", tuple(self.records) or ((self.key, self.value),))


@dataclass(frozen=True, kw_only=True)
class Reject:
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

    value: bytes | None = None
    key: bytes | None = None
    schema: str
    error: str
    path: str
    primary_key: Sequence[str] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    keyed: bool = False


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
    return [_line(change, types) for change in result]


def _line(change: Change | KeyedChange, types: Sequence[SqlType]) -> str:
    if isinstance(change, Change):
        return change.kind.short_string + _row(change.row, types)
    # The types of the key's columns are unknown here; keys can be compared without them.
    return "-D" + _row(change.key, None) if change.row is None else "+U" + _row(change.row, types)


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


def _array(value: Any, sql_type: SqlType) -> str:
    return f"[{','.join(_cell(item, sql_type.fields[0].type) for item in value)}]"


def _map(value: Any, sql_type: SqlType) -> str:
    key, item = (column.type for column in sql_type.fields)
    return "{" + ",".join(f"{_cell(name, key)}:{_cell(entry, item)}" for name, entry in value) + "}"


_CELLS: dict[str, Callable[[Any, SqlType], str]] = {
    **{
        name: lambda value, sql_type: times.TYPES[sql_type.name].to_text(value)
        for name in times.TYPES
    },
    "ARRAY": _array,
    "MAP": _map,
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
        check_buffers(format, vector)
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
        try:
            result = decode(key, value)
        except DecodeError as error:
            raise AssertionError(f"{_of(format, vector, number)} is refused: {error}") from error
        _check_result(result, decoder, _of(format, vector, number))
        lines += render(result, decoder.columns)
    if vector.expected is not None:
        _check_lines(format, lines, list(vector.expected))


def check_purity(format: Format, vector: Vector) -> None:
    """Check that a record gives the same result again, after others, and with another decoder."""
    decode, decoder = _decoding(format, vector)
    first = [_outcome(decode, key, value, decoder) for key, value in vector.records]
    backwards = [_outcome(decode, key, value, decoder) for key, value in reversed(vector.records)]
    again, _ = _decoding(format, vector)
    other = [_outcome(again, key, value, decoder) for key, value in vector.records]
    for number, outcomes in enumerate(zip(first, backwards[::-1], other, strict=True)):
        _require(
            len(set(outcomes)) == 1,
            f"{_of(format, vector, number)} gives {outcomes[0]} at first, {outcomes[1]} after "
            f"other records and {outcomes[2]} with another decoder",
        )


def check_buffers(format: Format, vector: Vector) -> None:
    """Check that bytes, bytearray and memoryview give the same result (Spark passes all three)."""
    decode, decoder = _decoding(format, vector)
    for number, (key, value) in enumerate(vector.records):
        expected = _outcome(decode, key, value, decoder)
        for buffer in (bytearray, memoryview):
            buffers: list[Any] = [None if part is None else buffer(part) for part in (key, value)]
            got = _outcome(decode, buffers[0], buffers[1], decoder)
            _require(
                got == expected,
                (
                    f"{_of(format, vector, number)} gives {expected} as bytes and {got} as "
                    f"{buffer.__name__}"
                ),
            )


def check_empty(format: Format, vector: Vector) -> None:
    """Check that a null or empty value is a tombstone, unless the format reads tombstones."""
    decode, decoder = _decoding(format, vector)
    for number, (key, _) in enumerate(vector.records):
        for value in (None, b""):
            what = f"{_of(format, vector, number)} with the value {value!r}"
            try:
                result = decode(key, value)
            except DecodeError as error:
                _require(
                    format.traits.reads_tombstones,
                    f"{what} is rejected instead of Ignored.TOMBSTONE: {error}",
                )
                continue
            _require(
                format.traits.reads_tombstones or result is Ignored.TOMBSTONE,
                f"{what} gives {result}, not Ignored.TOMBSTONE",
            )
            _check_result(result, decoder, what)


def check_reject(format: Format, reject: Reject) -> None:
    """Check that a record is rejected with the expected exception class at the expected path."""
    decode, _ = _decoding(format, reject)
    what = f"{format.identifier}: {_excerpt(reject.value)} for {reject.schema!r}"
    try:
        result = decode(reject.key, reject.value)
    except DecodeError as error:
        got = f"{type(error).__name__} at {error.path!r}"
        _require(
            got == f"{reject.error} at {reject.path!r}",
            f"{what} raises {got}, not {reject.error} at {reject.path!r}: {error}",
        )
        _check_error(error, what)
    else:
        raise AssertionError(
            f"{what} gives {result}, but must raise {reject.error} at {reject.path!r}"
        )


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
        try:
            if value:
                check(value)
        except DecodeError as error:
            _check_error(error, what)
            _require(isinstance(case, Reject), f"{what} rejects it: {error}")
        else:
            unknown = (
                isinstance(case, Reject)
                and case.error == "UnknownOperationError"
                and not case.options
            )
            _require(not unknown, f"{what} accepts it, but its operation is unknown")
        check_record(validating, key, value)


def check_damaged(format: Format, vector: Vector, *, mutations: int = 200, seed: int = 1) -> None:
    """Check that damaged or random bytes give only valid changes, `Ignored` or a `DecodeError`."""
    draw = random.Random(seed)
    format = _with_options(format, vector.options)
    decoder = format.decoder(vector.schema, unique_key=vector.primary_key)
    for _ in range(mutations):
        key, value = draw.choice(list(vector.records))
        part = draw.randrange(4)
        if part == 0 and key is not None:
            key = damaged(key, draw)
        elif part == 1:
            value = draw.randbytes(draw.randrange(40))
        else:
            value = damaged(value or b"", draw)
        check_record(decoder, key, value)


def check_sampling(format: Format, vector: Vector, *, mutations: int = 200, seed: int = 1) -> None:
    """Check that the hooks of the format's `Sampler` accept a vector's records.

    For damaged records they may raise only a `DecodeError`.

    A format whose messages have no column names may refuse samples with an `InferenceError`.
    """
    draw = random.Random(seed)
    format = _with_options(format, vector.options)
    _check_detected_options(format, vector)
    try:
        reader = AnyColumns(format)
    except InferenceError:
        return
    for key, value in vector.records:
        _check_hooks(reader, key, value, valid=True)
    for _ in range(mutations):
        key, value = draw.choice(list(vector.records))
        key, value = (
            (key and damaged(key, draw), value)
            if draw.randrange(3) == 0
            else (key, damaged(value or b"", draw))
        )
        _check_hooks(reader, key, value)


def _check_detected_options(format: Format, vector: Vector) -> None:
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


def _check_hooks(
    reader: AnyColumns, key: bytes | None, value: bytes | None, *, valid: bool = False
) -> None:
    """Check that the hooks accept any record, or raise a `DecodeError` (not for a valid record)."""
    sampler, what = (
        reader.sampler,
        f"{reader.format.identifier}: a sample with {_excerpt_of((key, value))}",
    )
    inspected = InspectedRecord(SampledRecord("", 0, 0, 0, key, value, ()))
    events: Sequence[Event] | Ignored = ()
    try:
        columns, evidence = sampler.key_columns(key), sampler.evidence(inspected)
        events = reader.events(key, value)
        for event in () if isinstance(events, Ignored) else events:
            sampler.declaration(key, value or b"")
            sampler.connector(event.message)
            reader.format.traits.row_names(event)
    except DecodeError as error:
        _require(not (valid and events), f"{what} is refused by a hook: {error}")
        _check_error(error, what)
        return
    except Exception as error:
        raise AssertionError(
            f"{what} raises {type(error).__name__}, which is not a DecodeError: {error}"
        ) from error
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
        try:
            result: Result = decode(key, value)
        except DecodeError as error:
            _check_error(error, what)
            continue
        except Exception as error:
            raise AssertionError(
                f"{what} raises {type(error).__name__}, which is not a DecodeError: {error}"
            ) from error
        _check_result(result, decoder, what)


def damaged(data: bytes, draw: random.Random) -> bytes:
    """Return `data` with one to three damages.

    A damage flips, removes or inserts bytes, cuts off the end, replaces a value, or leaves out a
    member.
    """
    for _ in range(draw.randrange(1, 4)):
        data = draw.choice(_DAMAGES)(data, draw)
    return data


def _flip(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return (
        data[:at]
        + bytes([byte ^ (1 << draw.randrange(8)) for byte in data[at : at + 1]])
        + data[at + 1 :]
    )


def _delete(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return data[:at] + data[at + draw.choice((1, 1, 4, 20)) :]


def _insert(data: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(data) + 1)
    return (
        data[:at]
        + draw.choice((draw.randbytes(1), b'"', b"{", b"]", b"\\", b"9", b"-", b"\xef\xbb\xbf"))
        + data[at:]
    )


def _truncate(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


_VALUE = re.compile(rb'"(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*|true|false|null')
_ODD_VALUES = (
    b"null", b"true", b"[]", b"{}", b"[[1]]", b'[null,"x",{}]', b'{"scale":1,"value":"AQ=="}', b'""', b'"x"', b'"-"', b'"1E+999999999"',
    b"1E+999999999", b"-1E-999999999", b"-0", b"1e400", b"0.5", b"99999999999999999999", b"-9223372036854775809", b'"NaN"', b'"AAECAw=="',
    b'"0000-00-00"', b'"9999-12-31 23:59:59.999999999"', b'"2020-02-30T25:61:61Z"', b'"-00:00:00"', b'"\\ud83d\\ude00"', b'"\\ud83d"',
)  # fmt: skip


def _replace(data: bytes, draw: random.Random) -> bytes:
    # Valid JSON reaches more of a decoder's code than invalid JSON.
    spans = [match.span() for match in _VALUE.finditer(data)]
    if not spans:
        return data
    begin, end = draw.choice(spans)
    return data[:begin] + draw.choice(_ODD_VALUES) + data[end:]


_MEMBER = re.compile(rb'"(?:[^"\\]|\\.)*": ?(?:' + _VALUE.pattern + rb"),")


def _leave_out(data: bytes, draw: random.Random) -> bytes:
    spans = [match.span() for match in _MEMBER.finditer(data)]
    if not spans:
        return data
    begin, end = draw.choice(spans)
    return data[:begin] + data[end:]


_DAMAGES = (_flip, _delete, _insert, _truncate, _leave_out, _replace, _replace, _replace)


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


def _outcome(
    decode: Callable[..., Result], key: bytes | None, value: bytes | None, decoder: Decoder
) -> str:
    try:
        return "\n".join(render(decode(key, value), decoder.columns))
    except DecodeError as error:
        return str(error)


def _check_lines(format: Format, lines: list[str], expected: list[str]) -> None:
    if lines == expected:
        return
    at = next(
        (n for n, pair in enumerate(zip(lines, expected, strict=False)) if pair[0] != pair[1]),
        min(len(lines), len(expected)),
    )
    got, must_be = (some[at] if at < len(some) else "the end" for some in (lines, expected))
    raise AssertionError(
        f"{format.identifier}: line {at + 1} of the changelog is {got}, but must be {must_be}"
    )


def _check_result(result: Any, decoder: Decoder, what: str) -> None:
    if isinstance(result, Ignored):
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
            _check_kind(change.kind, decoder, what)
            row = list(change.row)
        if row is not None:
            _check_canonical(row, decoder, what)


def _check_kind(kind: RowKind, decoder: Decoder, what: str) -> None:
    mode = decoder.format.changelog_mode
    _require(
        mode.contains(kind), f"{what} gives {kind.short_string}, but the format declares {mode}"
    )


def _check_canonical(row: list[Any], decoder: Decoder, what: str) -> None:
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


def _check_error(error: DecodeError, what: str) -> None:
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


def _of(format: Format, vector: Vector, number: int) -> str:
    return (
        f"{format.identifier}: record {number} {_excerpt(vector.records[number][1])} for "
        f"{vector.schema!r}"
    )


def _excerpt(data: bytes | None) -> str:
    return clip(repr(None if data is None else bytes(data)), 400)
