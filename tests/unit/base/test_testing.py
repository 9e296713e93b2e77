"""The contract detects violations: one format for each violation, and the reported sentence."""

from dataclasses import dataclass
from functools import partial
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
from tests.support.error_texts import error_test, text_test


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


@pytest.fixture(autouse=True)
def registered(own_registrations: None) -> None:
    register_format(Sound)


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


class Reads(Sound):
    """It reads tombstones correctly."""

    identifier = "reads-json"
    reads_tombstones: ClassVar[bool] = True

    def read(self, key, value):
        return Ignored.MESSAGE if not value else super().read(key, value)


class Forgetful(Encoder):
    """It writes every row kind as an insert of another row."""

    def encode(self, kind, row, before=None):
        return None, b'{"id": 9}'


# --------------------------------------------------------------------------------------------------
# rendering


def test_a_vector_is_one_record_or_several() -> None:
    assert VECTOR.records == ((None, VECTOR.value),)
    assert Vector(records=[(b"k", b"v"), (None, None)], schema="id INT", expected=[]).records == (
        (b"k", b"v"),
        (None, None),
    )


def test_damaging_an_empty_value_gives_bytes_or_none() -> None:
    draw = Random(5)
    assert {type(damaged(b"", draw)) for _ in range(100)} == {bytes}


def decoding(result: Any) -> Format:
    """Return a format whose decoder gives this result for a value."""

    def decoder(self, columns_, *, unique_key=(), metadata=()):
        made = Sound.decoder(self, columns_, unique_key=unique_key, metadata=metadata)
        made.decode = lambda key, value: result if value else Ignored.TOMBSTONE
        return made

    return broken(decoder=decoder)


def ignoring_tombstones(**members: Any) -> Format:
    """Return a format whose decoder reads tombstones although the format does not say so."""

    def decoder(self, columns_, *, unique_key=(), metadata=()):
        reads = type("Reads", (type(self),), {"reads_tombstones": True})()
        return Sound.decoder(reads, columns_, unique_key=unique_key, metadata=metadata)

    return broken(decoder=decoder, **members)


def refuses_options(cls, options):
    if "no_such_option" in options:
        raise FormatOptionError("no")
    return cls(**options)


def check(format: Format | str | dict[str, Any], *vectors: Vector, mutations: int = 50) -> None:
    """Check a format, or one that equals `Sound` except for some members."""
    if isinstance(format, dict):
        of_name = "identifier" in format
        format = type("Broken", (Sound,), format)() if of_name else broken(**format)
    check_format(format, vectors, mutations=mutations)


def check_rejected(**changes: Any) -> None:
    check_format("sound-json", rejects=[Reject(**{**vars(REJECT), **changes})])


BIKE = Event.insert({"id": 1, "name": "bike"})
DELETES = ChangelogMode(frozenset({RowKind.DELETE}))
BYTES = Vector(value=b"x", schema="id INT, name STRING", expected=None, primary_key=["id"])
BROKEN: dict[str, dict[str, Any]] = {
    "its name leads to another class": {"identifier": "sound-json"},
    "a mode of no kinds": {"changelog_mode": ChangelogMode(frozenset())},
    "a repr that is not its own": {"__repr__": lambda self: "Broken(loud=True)"},
    "a hash that is not of its options": {"__hash__": lambda self: id(self)},
    "it pickles as another": {"__reduce__": lambda self: (Sound, ())},
    "all are equal": {"__eq__": lambda self, other: True, "__hash__": lambda self: 1},
    "it takes any option": {"from_options": classmethod(lambda cls, options: cls())},
    "it overlooks options that it has not": {
        "from_options": classmethod(
            lambda cls, options: cls(error_excerpt=options.get("error_excerpt", True))
        )
    },
    "other rows": {"read": says(Event.insert({"id": 2}))},
    "no rows": {"read": says()},
    "a row too many": {"read": says(BIKE, BIKE)},
    "a kind that it does not declare": {"changelog_mode": DELETES},
    "a state": {"read": remembers},
    "bytes alone": {"read": wants_bytes},
    "another exception": {"read": fails_with(KeyError("op"))},
    "an error without end": {"read": fails_with(EndlessError("x"))},
    "an error that fades": {"read": fails_with(FadingError("x"))},
    "an error that does not pickle": {"read": fails_with(StuckError("x"))},
    "options that an error does not list": {"from_options": classmethod(refuses_options)},
    "an encoder of other rows": {"encoder": lambda self, columns_, *, unique_key=(): Forgetful()},
}
RESULTS: list[Any] = [
    *((), None, [(RowKind.INSERT, (1, "a"))]),
    *([Change(RowKind.INSERT, (1,))], [Change(RowKind.INSERT, (1, "a", 2))]),
    *([KeyedChange((1, 2), None)], [KeyedChange((None,), None)], [KeyedChange((ABSENT,), None)]),
]
SOUND_RESULTS: list[Any] = [
    *([Change(RowKind.INSERT, (1, "x"))], [KeyedChange((1,), (1, ABSENT))], Ignored.DDL),
]
VALUES: list[tuple[str, Any]] = [
    *(("DECIMAL(5,2)", "ten"), ("DATE", 10**9), ("DATE", "2020-01-01"), ("TIMESTAMP", 2**63)),
    *(("ARRAY<DATE>", ["x"]), ("MAP<STRING, INT>", [1])),
]
RENDERED: list[tuple[str, Any]] = [
    ("INT", None),
    ("INT", -1),
    ("BOOLEAN", True),
    ("DOUBLE", float("nan")),
    ("DOUBLE", float("inf")),
    ("DECIMAL(10,3)", "3.140"),
    ("STRING", "Small 2-wheel scooter"),
    ("STRING", ""),
    ("STRING", "NULL"),
    ("STRING", "ABSENT"),
    ("STRING", "NULLS"),
    ("STRING", "a,b"),
    ("STRING", " x"),
    ("STRING", "é\n\u2028"),
    ("STRING", ABSENT),
    ("BINARY", b"\x00\xab"),
    ("DATE", 0),
    ("TIME", 1),
    ("TIMESTAMP", -1),
    ("TIMESTAMP_NTZ", 0),
    ("INTERVAL DAY TO SECOND", -1),
    ("ARRAY<DATE>", [0, None]),
    ("MAP<STRING, DATE>", [["a:b", 0]]),
    ("STRUCT<a: DATE, b: STRUCT<c: INT>>", [0, [1]]),
]


def of_one_column(sql_type: str) -> Vector:
    return Vector(value=b"x", schema=f"v {sql_type}", expected=None)


def rendered(sql_type: str, value: Any) -> list[str]:
    changes = [Change(RowKind.UPDATE_BEFORE, (1, value)), KeyedChange((1,), (1, value))]
    return render(changes, columns(f"id INT, v {sql_type}"))


# What keeps the contract gives None.
test_texts = text_test(
    __file__,
    {
        "a format by its name": partial(check_format, "sound-json", [VECTOR], [REJECT]),
        "a format as an object": lambda: check_format(
            Sound(loud=True), [VECTOR], [REJECT], mutations=5, seed=2
        ),
        "a format that equals it": lambda: check_format(broken(), [VECTOR], [REJECT]),
        "a format without vectors": partial(check_format, "sound-json"),
        "all but the vectors are refused": lambda: check(
            {"read": fails_with(DecodeError("no"))}, VECTOR
        ),
        "a null value is a row": lambda: check(
            {"reads_tombstones": True, "read": says(BIKE)}, VECTOR
        ),
        "tombstones that are ignored in a way of its own": lambda: check(
            register_format(Reads).identifier, VECTOR
        ),
        **{
            f"the result {result}": lambda result=result: check(decoding(result), BYTES)
            for result in SOUND_RESULTS
        },
        "NULL is canonical": lambda: check(
            decoding([Change(RowKind.INSERT, (None,))]), of_one_column("TIME")
        ),
        **{
            f"the text of {sql_type} {value!r}": partial(rendered, sql_type, value)
            for sql_type, value in RENDERED
        },
        "the text of a deleted key": partial(
            render, [KeyedChange((1, "a,b"), None)], "id INT, n STRING"
        ),
        "the text of a reason": partial(render, Ignored.SNAPSHOT_MARK, "id INT"),
        "the text of no change": partial(render, [], "id INT"),
    },
)
test_error_texts = error_test(
    __file__,
    {
        **{name: partial(check, members, VECTOR) for name, members in BROKEN.items()},
        "a refused vector": partial(
            check, "sound-json", Vector(value=b"[", schema="id INT", expected=[])
        ),
        "an unregistered format": lambda: check(Spoken()),
        **{
            f"a reject with other {', '.join(changes)}": partial(check_rejected, **changes)
            for changes in (
                *({"error": "MissingFieldError"}, {"path": "$.op"}),
                {"value": b'{"id": 1}'},
            )
        },
        "an empty value that is refused": lambda: check(
            ignoring_tombstones(
                read=lambda self, key, value: [Event.insert(read_object(value or b""))]
            ),
            VECTOR,
        ),
        "an empty value that is a row": lambda: check(ignoring_tombstones(read=says(BIKE)), VECTOR),
        **{
            f"the result {result}": lambda result=result: check(decoding(result), BYTES)
            for result in RESULTS
        },
        **{
            f"the value {value!r} of {sql_type}": lambda sql_type=sql_type, value=value: check(
                decoding([Change(RowKind.INSERT, (value,))]), of_one_column(sql_type)
            )
            for sql_type, value in VALUES
        },
    },
)
