"""The contract detects violations: one format for each violation, and the reported sentence."""

from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar

import pytest

from cdc_formats import (
    ABSENT,
    Change,
    ChangelogMode,
    Encoder,
    Event,
    Format,
    Ignored,
    KeyedChange,
    RowKind,
    columns,
    read_object,
    register_format,
)
from cdc_formats.errors import (
    DecodeError,
    FormatOptionError,
    MalformedMessageError,
    UnknownOperationError,
)
from cdc_formats.testing import Reject, Vector, check_format, damaged, render

pytestmark = pytest.mark.usefixtures("own_registrations")


@register_format
@dataclass(frozen=True, kw_only=True)
class Sound(Format):
    """A format that keeps the contract; each of the others breaks one rule."""

    identifier = "sound-json"
    loud: bool = False

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        row = read_object(value)
        if "do" in row:
            raise UnknownOperationError(f"do is {str(row['do'])[:9]}", "$.do")
        return [Event.insert(row, path="$")]


VECTOR = Vector(
    value=b'{"id": 1, "name": "bike"}',
    schema="id INT, name STRING",
    expected=["+I(1,bike)"],
    primary_key=["id"],
)
REJECT = Reject(value=b'{"do": "fly"}', schema="id INT", error="UnknownOperationError", path="$.do")


def broken(**members: Any) -> Format:
    """Return a registered format that equals `Sound` except for some members."""
    cls = type(
        "Broken",
        (Sound,),
        {"identifier": "broken-json", "__module__": __name__, "__qualname__": "Broken", **members},
    )
    globals()["Broken"] = cls  # so that it can be pickled, like a class of a module
    register_format(cls, replace=True)
    return cls()


def test_a_sound_format_passes_by_name_and_as_an_object() -> None:
    check_format("sound-json", [VECTOR], [REJECT])
    check_format(Sound(loud=True), [VECTOR], [REJECT], mutations=5, seed=2)
    check_format(broken(), [VECTOR], [REJECT])


def test_a_format_may_be_checked_without_vectors() -> None:
    check_format("sound-json")


class FadingError(DecodeError):
    """Pickling loses its text."""

    def __reduce__(self):
        return FadingError, ("",)


class StuckError(DecodeError):
    """It cannot be pickled."""

    def __reduce__(self):
        return lambda: None, ()


class EndlessError(DecodeError):
    """Its text is as long as the message makes it."""

    def __str__(self) -> str:
        return "x" * 2000


def fails_with(error: Exception):
    def read(self, key, value):
        if value == VECTOR.value:
            return [Event.insert(read_object(value))]
        raise error

    return read


def remembers(self, key, value, seen=[]):  # noqa: B006 - the fault that is to be found
    seen.append(value)
    return [Event.insert({"id": len(seen), "name": "bike"})]


def wants_bytes(self, key, value):
    if type(value) is not bytes:
        raise MalformedMessageError("no bytes")
    return [Event.insert(read_object(value))]


def says(*events: Any):
    return lambda self, key, value: list(events)


class Spoken(Format):
    identifier = "unregistered-json"


BIKE = Event.insert({"id": 1, "name": "bike"})
DELETES = ChangelogMode(frozenset({RowKind.DELETE}))
CASES = [
    ("its name leads to another class", {"identifier": "sound-json"}, "'sound-json' is registered as Sound, not as Broken"),
    ("a mode of no kinds", {"changelog_mode": ChangelogMode(frozenset())}, "the changelog mode declares no row kind"),
    ("a repr that is not its own", {"__repr__": lambda self: "Broken(loud=True)"}, "does not rebuild an equal format"),
    ("a hash that is not of its options", {"__hash__": lambda self: id(self)}, "equal formats have different hashes"),
    ("it pickles as another", {"__reduce__": lambda self: (Sound, ())}, "pickling changes the format"),
    ("all are equal", {"__eq__": lambda self, other: True, "__hash__": lambda self: 1}, "formats with different options are equal"),
    ("it takes any option", {"from_options": classmethod(lambda cls, options: cls())}, "formats with different options are equal"),
    (
        "it overlooks options that it has not",
        {"from_options": classmethod(lambda cls, options: cls(error_excerpt=options.get("error_excerpt", True)))},
        "an unknown option is accepted",
    ),
    ("other rows", {"read": says(Event.insert({"id": 2}))}, r"line 1 of the changelog is \+I\(2,NULL\), but must be \+I\(1,bike\)"),
    ("no rows", {"read": says()}, r"line 1 of the changelog is the end, but must be \+I\(1,bike\)"),
    ("a row too many", {"read": says(BIKE, BIKE)}, r"line 2 of the changelog is \+I\(1,bike\), but must be the end"),
    ("a kind that it does not declare", {"changelog_mode": DELETES}, r"gives \+I, but the format declares \[-D\]"),
    ("a state", {"read": remembers}, "gives .* at first, .* after other records and .* with another decoder|line 1"),
    ("bytes alone", {"read": wants_bytes}, "as bytes and .* as bytearray"),
    ("another exception", {"read": fails_with(KeyError("op"))}, "raises KeyError, which is not a DecodeError: 'op'"),
    ("an error without end", {"read": fails_with(EndlessError("x"))}, "the error's text has 2000 characters, more than 1024"),
    ("an error that fades", {"read": fails_with(FadingError("x"))}, "pickling changes the error to"),
    ("an error that does not pickle", {"read": fails_with(StuckError("x"))}, "the error StuckError does not pickle"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("members", "sentence"), [case[1:] for case in CASES], ids=[case[0] for case in CASES]
)
def test_a_format_that_breaks_the_contract_is_reported(members: dict, sentence: str) -> None:
    format = type("Broken", (Sound,), members)() if "identifier" in members else broken(**members)
    with pytest.raises(AssertionError, match=sentence):
        check_format(format, [VECTOR], mutations=50)


@pytest.mark.parametrize(
    "members",
    [
        pytest.param({"read": fails_with(DecodeError("no"))}, id="all but the vectors are refused"),
        pytest.param({"reads_tombstones": True, "read": says(BIKE)}, id="a null value is a row"),
    ],
)
def test_an_unusual_format_that_keeps_the_contract_passes(members: dict) -> None:
    check_format(broken(**members), [VECTOR], mutations=50)


def test_a_refused_vector_is_reported_with_the_error() -> None:
    with pytest.raises(
        AssertionError,
        match=r"sound-json: record 0 b'\[' for 'id INT' is refused: \[MALFORMED_MESSAGE\]",
    ):
        check_format("sound-json", [Vector(value=b"[", schema="id INT", expected=[])])


def test_an_unregistered_format_is_reported() -> None:
    with pytest.raises(AssertionError, match="get_format\\('unregistered-json'\\) fails"):
        check_format(Spoken())


def test_unlisted_options_are_reported() -> None:
    def from_options(cls, options):
        if "no_such_option" in options:
            raise FormatOptionError("no")
        return cls(**options)

    with pytest.raises(
        AssertionError,
        match=(
            "the error of an unknown option does not list error_excerpt, validate, rounding, "
            "unknown_columns, mask, mask_key_env, mask_key_file, loud"
        ),
    ):
        check_format(broken(from_options=classmethod(from_options)))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"error": "MissingFieldError"},
            "raises UnknownOperationError at '[$].do', not MissingFieldError at '[$].do'",
        ),
        (
            {"path": "$.op"},
            "raises UnknownOperationError at '[$].do', not UnknownOperationError at '[$].op'",
        ),
        ({"value": b'{"id": 1}'}, "gives .*Change.*, but must raise UnknownOperationError"),
    ],
)
def test_a_reject_with_another_error_is_reported(changes: dict, sentence: str) -> None:
    reject = Reject(**{**vars(REJECT), **changes})
    with pytest.raises(AssertionError, match=sentence):
        check_format("sound-json", rejects=[reject])


class Reads(Sound):
    """It reads tombstones correctly."""

    identifier = "reads-json"
    reads_tombstones: ClassVar[bool] = True

    def read(self, key, value):
        return Ignored.MESSAGE if not value else super().read(key, value)


def test_a_format_that_reads_tombstones_may_ignore_them_in_its_own_way() -> None:
    register_format(Reads)
    check_format("reads-json", [VECTOR])


def test_an_empty_value_that_is_not_a_tombstone_is_reported() -> None:
    def decoder(self, columns_, *, unique_key=(), metadata=()):
        reads = type("Reads", (type(self),), {"reads_tombstones": True})()
        return Sound.decoder(reads, columns_, unique_key=unique_key, metadata=metadata)

    with pytest.raises(
        AssertionError, match=r"with the value None is rejected instead of Ignored\.TOMBSTONE"
    ):
        check_format(
            broken(
                decoder=decoder,
                read=lambda self, key, value: [Event.insert(read_object(value or b""))],
            ),
            [VECTOR],
        )
    says_rows = says(Event.insert({"id": 1, "name": "bike"}))
    with pytest.raises(
        AssertionError, match=r"with the value None gives .*, not Ignored\.TOMBSTONE"
    ):
        check_format(broken(decoder=decoder, read=says_rows), [VECTOR])


class Forgetful(Encoder):
    """It writes every row kind as an insert of another row."""

    def encode(self, kind, row, before=None):
        return None, b'{"id": 9}'


def test_an_encoder_that_writes_other_rows_is_reported() -> None:
    with pytest.raises(
        AssertionError,
        match=r"is encoded to the record .* which decodes to .*9.* instead of .*bike",
    ):
        check_format(broken(encoder=lambda self, columns_, *, unique_key=(): Forgetful()), [VECTOR])


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        ((), "which is neither a list nor Ignored"),
        (None, "which is neither a list nor Ignored"),
        ([(RowKind.INSERT, (1, "a"))], "which is not a Change"),
        ([Change(RowKind.INSERT, (1,))], "gives 1 values for 2 columns"),
        ([Change(RowKind.INSERT, (1, "a", 2))], "gives 3 values for 2 columns"),
        ([Change(RowKind.INSERT, (1, "x"))], None),
        ([KeyedChange((1, 2), None)], "has another key than"),
        ([KeyedChange((None,), None)], "has an incomplete key"),
        ([KeyedChange((ABSENT,), None)], "has an incomplete key"),
        ([KeyedChange((1,), (1, ABSENT))], None),
        (Ignored.DDL, None),
    ],
    ids=str,
)
def test_results_outside_the_interface_are_reported(result: Any, sentence: str | None) -> None:
    def decoder(self, columns_, *, unique_key=(), metadata=()):
        made = Sound.decoder(self, columns_, unique_key=unique_key, metadata=metadata)
        made.decode = lambda key, value: result if value else Ignored.TOMBSTONE
        return made

    vector = Vector(value=b"x", schema="id INT, name STRING", expected=None, primary_key=["id"])
    if sentence is None:
        check_format(broken(decoder=decoder), [vector], mutations=5)
        return
    with pytest.raises(AssertionError, match=sentence):
        check_format(broken(decoder=decoder), [vector], mutations=5)


@pytest.mark.parametrize(
    ("sql_type", "value"),
    [
        ("DECIMAL(5,2)", "ten"),
        ("DATE", 10**9),
        ("DATE", "2020-01-01"),
        ("TIMESTAMP", 2**63),
        ("TIME", None),
        ("ARRAY<DATE>", ["x"]),
        ("MAP<STRING, INT>", [1]),
    ],
)
def test_values_that_are_not_canonical_are_reported(sql_type: str, value: Any) -> None:
    def decoder(self, columns_, *, unique_key=(), metadata=()):
        made = Sound.decoder(self, columns_, unique_key=unique_key, metadata=metadata)
        made.decode = lambda key, data: (
            [Change(RowKind.INSERT, (value,))] if data else Ignored.TOMBSTONE
        )
        return made

    vector = Vector(value=b"x", schema=f"v {sql_type}", expected=None)
    if value is None:
        check_format(broken(decoder=decoder), [vector], mutations=2)
        return
    with pytest.raises(AssertionError, match="whose values are not canonical"):
        check_format(broken(decoder=decoder), [vector], mutations=2)


# --------------------------------------------------------------------------------------------------
# rendering


@pytest.mark.parametrize(
    ("sql_type", "value", "text"),
    [
        ("INT", None, "NULL"),
        ("INT", -1, "-1"),
        ("BOOLEAN", True, "true"),
        ("DOUBLE", float("nan"), "NaN"),
        ("DOUBLE", float("inf"), "inf"),
        ("DECIMAL(10,3)", "3.140", "3.140"),
        ("STRING", "Small 2-wheel scooter", "Small 2-wheel scooter"),
        ("STRING", "", '""'),
        ("STRING", "NULL", '"NULL"'),
        ("STRING", "ABSENT", '"ABSENT"'),
        ("STRING", "NULLS", "NULLS"),
        ("STRING", "a,b", '"a,b"'),
        ("STRING", " x", '" x"'),
        ("STRING", "é\n\u2028", '"é\\n\\u2028"'),
        ("STRING", ABSENT, "ABSENT"),
        ("BINARY", b"\x00\xab", "x'00AB'"),
        ("DATE", 0, "1970-01-01"),
        ("TIME", 1, "00:00:00.000001"),
        ("TIMESTAMP", -1, "1969-12-31 23:59:59.999999Z"),
        ("TIMESTAMP_NTZ", 0, "1970-01-01 00:00:00"),
        ("INTERVAL DAY TO SECOND", -1, "-00:00:00.000001"),
        ("ARRAY<DATE>", [0, None], "[1970-01-01,NULL]"),
        ("MAP<STRING, DATE>", [["a:b", 0]], '{"a:b":1970-01-01}'),
        ("STRUCT<a: DATE, b: STRUCT<c: INT>>", [0, [1]], "(1970-01-01,(1))"),
    ],
)
def test_a_change_is_rendered(sql_type: str, value: Any, text: str) -> None:
    declared = columns(f"id INT, v {sql_type}")
    assert render([Change(RowKind.UPDATE_BEFORE, (1, value))], declared) == [f"-U(1,{text})"]
    assert render([KeyedChange((1,), (1, value))], declared) == [f"+U(1,{text})"]


def test_keys_and_reasons_are_rendered() -> None:
    assert render([KeyedChange((1, "a,b"), None)], "id INT, n STRING") == ['-D(1,"a,b")']
    assert render(Ignored.SNAPSHOT_MARK, "id INT") == ["Ignored(SNAPSHOT_MARK)"]
    assert render([], "id INT") == []


def test_a_vector_is_one_record_or_several() -> None:
    assert VECTOR.records == ((None, VECTOR.value),)
    assert Vector(records=[(b"k", b"v"), (None, None)], schema="id INT", expected=[]).records == (
        (b"k", b"v"),
        (None, None),
    )


def test_damaging_an_empty_value_gives_bytes_or_none() -> None:
    draw = Random(5)
    assert {type(damaged(b"", draw)) for _ in range(100)} == {bytes}
