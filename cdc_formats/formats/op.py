"""op-json: rows in JSON with a column for the operation.

Many tools and hand-made producers write them in this way.

A message, with ``op_field="op"`` and ``before_field="before"``; the row is the message itself::

    {"op": "U", "id": 103, "name": "hammer", "before": {"id": 103, "name": "nail"}}

=========  =========================
op         rows
=========  =========================
``I``      ``+I`` row
``U``      ``-U`` before, ``+U`` row
``D``      ``-D`` row
=========  =========================

These are the default ``codes``. A code is text, a number or a boolean, and stands for ``+I``,
``-U``, ``+U`` or ``-D``, or for the reason why a message has no rows (``TRUNCATE``, ``HEARTBEAT``,
...). Other operations are errors, as is a record without the header `op_header`. With a code for
``-U``, the row before an update is a message of its own; a keyed stage drops it, so that the old row
remains after an update that changes the primary key, as in changelog-json. A message without `row_field` is the row. Dots in the name of a
field lead into an object:

===============================  =======================================================================================
producer                         options
===============================  =======================================================================================
Flink's TO_CHANGELOG             ``codes={"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}``
Qlik Replicate                   ``op_field="message.headers.operation"``,
                                 ``row_field="message.data"``,
                                 ``before_field="message.beforeData"``,
                                 ``position_field="message.headers.changeSequence"``,
                                 ``codes={"REFRESH": "+I", "INSERT": "+I", "UPDATE": "+U", "DELETE": "-D"}``
Striim's JSONFormatter           ``op_field="metadata.OperationName"``, ``row_field="data"``,
                                 ``before_field="before"``,
                                 ``codes={"INSERT": "+I", "UPDATE": "+U", "DELETE": "-D"}``
rows with ``_fivetran_deleted``  ``op_field="_fivetran_deleted"``,
                                 ``codes={False: "+U", True: "-D"}``
GoldenGate, row mode             ``op_field="op_type"``, ``position_field="pos"``,
                                 ``missing_columns="unchanged"``
Sequin                           ``op_field="action"``, ``row_field="record"``,
                                 ``before_field="changes"``, ``before_columns="changed"``,
                                 ``position_field="metadata.commit_lsn"``,
                                 ``position_index_field="metadata.commit_idx"``,
                                 ``codes={"read": "+I", "insert": "+I", "update": "+U", "delete": "-D"}``
SharePlex, Alibaba DTS's         ``op_field="meta.op"``, ``row_field="data"``,
SharePlex JSON                   ``before_field="key"``, ``missing_columns="unchanged"``,
                                 ``position_field="meta.scn"``, ``position_index_field="meta.seq"``,
                                 ``codes={"ins": "+I", "upd": "+U", "del": "-D"}``
Redpanda Connect, outbox topics  ``op_header="operation"``,
                                 ``codes={"read": "+I", "insert": "+I", "update": "+U", "delete": "-D"}``
===============================  =======================================================================================

Changelog mode: all with `before_field`, `before_prefix` or a code for ``-U``; otherwise ``+I``,
``+U``, ``-D`` by key. Key: not read. Null value: `Ignored.TOMBSTONE`. A delete has the deleted row,
or its key, as its row; with `row_field`, also in `before_field`.

Absent and null: by default a row without one of the declared columns is an error, because producers
differ: ``missing_columns="null"`` is for those that omit NULLs, ``"unchanged"`` for those that omit
columns that did not change. The latter are completed by ChangelogNormalize. A row before an update
that lacks columns is only used for its key, unless missing columns are NULL or
``before_columns="changed"``. If that row then has no declared column, it is unknown: PostgreSQL logs old
values only with REPLICA IDENTITY FULL.

Types: JSON numbers and text, bytes base64, times as text. No unit of a number is guessed.

Position: `position_field`, an integer or text of digits that grows with the source's log, up to 128
bits; with `position_index_field`, two numbers of 64 bits each. There is one history. A ``+I`` without
it, as in a full load, has none: it is applied as it arrives.

Differs from Flink: Flink has no such format; FROM_CHANGELOG reads such rows from a table, with text
as operations.

Source: the documentation of the producers above; FLIP-564.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, ClassVar

import msgspec

from cdc_formats.decoding.envelope import Codes, Envelope, Images, text
from cdc_formats.decoding.rows import RowConverter
from cdc_formats.errors import (
    FormatOptionError,
    MalformedMessageError,
    MissingFieldError,
    refuse,
)
from cdc_formats.events import (
    INSERT,
    SHORT_STRINGS,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    ChangelogMode,
    Event,
    Ignored,
    Position,
    RowKind,
    digits,
)
from cdc_formats.format import MetadataColumn, RowNames, ZonedFormat, choice, names_in_row
from cdc_formats.values.json_reader import read_json
from cdc_formats.values.schema import ABSENT

_MEANINGS: dict[str, RowKind | Ignored] = {
    **{each: RowKind.from_short_string(each) for each in SHORT_STRINGS},
    **{each.name: each for each in Ignored if each is not Ignored.OTHER_TABLE},
}
_INTEGER = re.compile("0|-?[1-9][0-9]{0,8}")
_BOOLEANS = {"true": True, "false": False}
_IN_METADATA = ("op_field", "position_field", "position_index_field")


@dataclass(frozen=True, kw_only=True)
class OpJson(ZonedFormat):
    """Rows in JSON with an operation, as of Qlik, Striim, or Flink's TO_CHANGELOG.

    Parameters
    ----------
    op_field : str
        The field with the operation; dots lead into objects.
    op_header : str or None
        The Kafka header with the operation, instead of `op_field`.
    codes : mapping
        By the operation, ``+I``, ``-U``, ``+U``, ``-D``, or the reason why the message has no rows;
        it can be a JSON text. A number or a boolean is equal to its text.
    row_field : str or None
        The field with the row; None: the message is the row.
    before_field : str or None
        The field with the row before an update, next to `row_field`.
    before_prefix : str or None
        The prefix of the columns of the row before an update, which are next to the row's columns.
    before_columns : {"all", "changed"}
        The columns in `before_field`: those of the whole row, or only those that changed.
    position_field : str or None
        The field with the position in the source's log: an integer, or text of digits.
    position_index_field : str or None
        The field with the order of changes with one position, as `position_field`.
    missing_columns : {"fail", "null", "unchanged"}
        The meaning of a declared column that a row lacks.
    time_zone : str or None
        The zone of zone-less text in a TIMESTAMP column.
    """

    identifier = "op-json"
    sampler = "cdc_formats.topics.samplers.messages:OpSampler"

    op_field: str = "op"
    op_header: str | None = None
    codes: Any = field(default=(("I", "+I"), ("U", "+U"), ("D", "-D")), hash=False)
    row_field: str | None = None
    before_field: str | None = None
    before_prefix: str | None = None
    before_columns: str = choice("all", "changed")
    position_field: str | None = None
    position_index_field: str | None = None
    missing_columns: str = choice("fail", "null", "unchanged")

    metadata: ClassVar[Mapping[str, MetadataColumn]] = {
        "operation": MetadataColumn("STRING", lambda message: text(message.operation)),
        "position": MetadataColumn("STRING", lambda message: text(message.position)),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "codes", _codes(self.codes))
        refuse(*self._checks_of_fields(), *self._checks_of_befores(), error=FormatOptionError)

    def _checks_of_fields(self) -> Iterator[tuple[object, str]]:
        names = self._paths
        for name, path in names.items():
            shown = f"{name} {'.'.join(path)!r}"
            unnamed = not all(path) or any(each in '"\\' or each < " " for each in "".join(path))
            yield unnamed, f"op-json: {shown} is not the name of a field"
            yield (
                name in _IN_METADATA and self.handling.masks.kind(path[-1]) is not None,
                f"op-json: {name} is {'.'.join(path)!r}, which mask has too: the state and the "
                "metadata would have its value. Remove one of them",
            )
        paths = names.values()
        yield (
            any(path[: len(each)] == each for path in paths for each in paths if path is not each),
            f"op-json: {', '.join(names)} must name different fields, and none may be within another",
        )

    def _checks_of_befores(self) -> Iterator[tuple[object, str]]:
        field, prefix = self.before_field, self.before_prefix
        code = "a code for -U, whose messages are the rows before updates,"
        yield prefix == "", "op-json: before_prefix is empty, and would match every column"
        yield (
            self.before_columns == "changed" and field is None,
            "op-json: before_columns='changed' needs before_field",
        )
        for first, second, both in (
            ("before_field", "before_prefix", field is not None and prefix is not None),
            ("before_field", code, field is not None and self._single),
            ("before_prefix", code, prefix is not None and self._single),
        ):
            yield both, f"op-json: {first} and {second} cannot be combined: remove one of them"

    @property
    def reads_headers(self) -> bool:
        """Whether the operation is in a header."""
        return self.op_header is not None

    @property
    def _paths(self) -> dict[str, tuple[str, ...]]:
        """The paths of the fields, by the options."""
        paths = {
            name: tuple(path.split("."))
            for name in (*_IN_METADATA, "row_field", "before_field")
            if (path := getattr(self, name)) is not None
        }
        # No message has a field with this name.
        return (
            paths if self.op_header is None else paths | {"op_field": (f"header {self.op_header}",)}
        )

    @property
    def _kinds(self) -> dict[Any, RowKind | Ignored]:
        """The row kind, or the reason, by the operation as text.

        An operation that can be a number or boolean is also included as one.
        """
        kinds: dict[Any, RowKind | Ignored] = {}
        for code, meaning in self.codes.items():
            kinds[code] = _MEANINGS[meaning]
            if code in _BOOLEANS or _INTEGER.fullmatch(code):
                kinds[_BOOLEANS[code] if code in _BOOLEANS else int(code)] = _MEANINGS[meaning]
        return kinds

    @property
    def _single(self) -> bool:
        """Whether the row before an update is a message of its own."""
        return "-U" in self.codes.values()

    @property
    def changelog_mode(self) -> ChangelogMode:  # type: ignore[override]
        """All kinds if messages have the rows before updates; otherwise upserts by key."""
        has_befores = (
            self._single or self.before_field is not None or self.before_prefix is not None
        )
        return ChangelogMode.all() if has_befores else ChangelogMode.upsert()

    @property
    def positions(self) -> str:
        """The reason why messages have no position."""
        return (
            ""
            if self.position_field
            else "position_field is not set: set it to the field that grows with the source's log"
        )

    def envelope(
        self, rows: RowConverter, metadata: Sequence[str] = (), *, positions: bool = False
    ) -> Envelope:
        """Return where the operation and the rows are.

        The scalar decoder reads rows that lack columns, unless these columns are NULL.
        """
        names = {option: _attribute(path) for option, path in self._paths.items()}
        after, before = names.get("row_field", ""), names.get("before_field", "")
        position, index = map(names.get, ("position_field", "position_index_field"))
        return Envelope(
            fields=_struct(
                self._paths.values(),
                operation=property(attrgetter(names["op_field"])),
                position=property(attrgetter(position) if position else lambda message: None),
                position_index=property(attrgetter(index) if index else lambda message: None),
            ),
            operation=(names["op_field"],),
            operation_header=self.op_header or "",
            kinds=self._kinds,
            codes=Codes(are_text=False, or_else=": add it to codes"),
            adjust=partial(self._adjust, rows),
            after=after,
            before=before,
            deleted=after,
            images=Images(
                before_has="changed columns" if self.before_columns == "changed" else "all columns",
                before_prefix=self.before_prefix or "",
                deleted_in_either=bool(after and before),
                remedy="Write the deleted row, or its key, into it or into row_field",
                missing_is_null=self.missing_columns == "null",
            ),
        )

    def _adjust(
        self, rows: RowConverter, event: Event, value: bytes, index: int, keyed: bool
    ) -> None:
        """Refuse a row that lacks columns if they have no meaning.

        Also remove a row before an update that is not whole.
        """
        if event.after is not None:
            event.sparse = self.missing_columns == "unchanged" and event.kind is UPDATE_AFTER
            self._require_columns(rows, event.after, event.after_path)
        elif event.kind is UPDATE_BEFORE:
            self._require_columns(rows, event.before, event.before_path)
        # A delete with only the key is enough for a keyed stage.
        elif not keyed:
            event.sparse = self.missing_columns != "null"
        if event.after is not None and event.before is not None:
            values = rows.raw(event.before)
            # A part of the key that is not in the row before did not change.
            absent = {at for at, each in enumerate(values) if each is ABSENT} - {*rows.key_indices}
            whole = (
                keyed
                or self.before_columns == "changed"
                or self.missing_columns == "null"
                or not absent
            )
            event.before = (
                event.before if whole and any(each is not ABSENT for each in values) else None
            )

    def _require_columns(self, rows: RowConverter, image: Any, path: str) -> None:
        values = rows.raw(image) if self.missing_columns == "fail" and not rows.untyped else ()
        # A row without any declared column is another error.
        if ABSENT in values and not all(each is ABSENT for each in values):
            name = rows.names[values.index(ABSENT)]
            raise MissingFieldError(
                f"`{name}` is missing in the row: set missing_columns to 'null' if the producer "
                "omits NULLs, or to 'unchanged' if it omits columns that did not change",
                f"{path}.{name}",
            )

    def row_names(self, event: Event) -> RowNames | None:
        """Return the names in the row.

        The fields of the message are no columns, unless the row has its own field.
        """
        row = names_in_row(event)
        if row is None:
            return None
        own = {path[0] for path in self._paths.values()} if self.row_field is None else set()
        prefix = self.before_prefix
        added = [
            name
            for name in row.names
            if name in own or (prefix is not None and name.startswith(prefix))
        ]
        return RowNames(row.names, row.whole and self.missing_columns != "null", added)

    def position(self, message: Any) -> Position | None:
        """Return the position of `position_field`; None for a ``+I`` without it.

        Raises
        ------
        MissingFieldError
            When another message lacks it.
        TypeConversionError
            When it is neither an integer nor text of digits, or has more than 128 bits.
        """
        value, path = message.position, f"$.{self.position_field}"
        if value is None and self._kinds.get(message.operation) is INSERT:
            return None
        if value is None:
            raise MissingFieldError(
                f"`{path.rpartition('.')[2]}` is missing or null: write it, or use order='arrival'",
                path,
            )
        # Integers and text of digits are equal.
        numbers = [
            str(each) if type(each) is int else each for each in (value, message.position_index)
        ]
        if self.position_index_field is None:
            return Position("", *divmod(digits(numbers[0], 128, path), 2**64), None)
        return Position(
            "",
            digits(numbers[0], 64, path),
            digits(numbers[1], 64, f"$.{self.position_index_field}"),
            None,
        )


def _codes(codes: Any) -> dict[str, str]:
    """Return codes with their text.

    Raises
    ------
    FormatOptionError
        When they are no mapping of codes to their meanings.
    """
    expected = (
        "codes must map the values of op_field to '+I', '-U', '+U' or '-D', or to the reason why a "
        "message has no rows"
    )
    try:
        pairs = list(dict(read_json(codes.encode()) if isinstance(codes, str) else codes).items())
    except (TypeError, ValueError, MalformedMessageError):
        raise FormatOptionError(f"op-json: {expected}") from None
    texts: dict[str, str] = {}
    for code, meaning in pairs:
        if not (isinstance(code, (str, int)) and isinstance(meaning, str) and meaning in _MEANINGS):
            raise FormatOptionError(
                f"op-json: {expected} ({', '.join(list(_MEANINGS)[4:])}), not {code!r} to "
                f"{meaning!r}"
            )
        texts[str(code).lower() if isinstance(code, bool) else str(code)] = meaning
    refuse(
        (
            {*SHORT_STRINGS}.isdisjoint(texts.values()),
            f"op-json: no code has rows: {expected}",
        ),
        (
            # Python takes true for 1.
            not {"true", "false"}.isdisjoint(texts) and not {"0", "1"}.isdisjoint(texts),
            "op-json: codes are numbers or booleans, not both",
        ),
        error=FormatOptionError,
    )
    return texts


def _attribute(path: Sequence[str]) -> str:
    """Return the attribute with the field at a path: names in a message may have any characters."""
    return ".".join(f"f{name.encode().hex()}" for name in path)


def _struct(paths: Iterable[Sequence[str]], **properties: Any) -> type[msgspec.Struct]:
    """Return the struct of the fields at paths; one within another is ``outer.inner``."""
    inner: dict[str, list[Sequence[str]]] = {}
    for first, *rest in paths:
        inner.setdefault(first, []).extend([rest] if rest else [])
    structs: dict[str, Any] = {
        name: _struct(rest) if rest else None for name, rest in inner.items()
    }
    return msgspec.defstruct(
        "Fields",
        [
            (_attribute([name]), of or Any, msgspec.field(default_factory=of) if of else None)
            for name, of in structs.items()
        ],
        rename={_attribute([name]): name for name in inner},
        namespace=properties,
        gc=False,
    )
