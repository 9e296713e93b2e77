"""Errors: their text is complete, hides data when configured, and survives pickling."""

import pickle
from functools import partial

import pytest

from cdc_formats import Event, Format, errors, get_format, read_object
from cdc_formats.errors import (
    DECODE_CONDITIONS,
    EXCERPT_BYTES,
    ChangelogError,
    DecodeError,
    TypeConversionError,
    excerpt_of,
)
from tests.support.error_texts import error_test, text_test
from tests.support.scenarios import OF_FORMAT, REQUIRED


def classes(root: type[ChangelogError] = ChangelogError) -> list[type[ChangelogError]]:
    own = [cls for cls in root.__subclasses__() if cls.__module__ == errors.__name__]
    return [root, *[subclass for cls in own for subclass in classes(cls)]]


DECODE = [cls for cls in classes() if issubclass(cls, DecodeError)]


@pytest.mark.parametrize("cls", classes(), ids=lambda cls: cls.__name__)
def test_an_error_survives_pickling_with_all_of_its_text(cls: type[ChangelogError]) -> None:
    arguments, place = ("wrong",), ""
    if cls in DECODE:
        arguments = ("wrong", "$.a", "key", "topic[0]@1", "b'x'", "bare")
        place = " - at `$.a` of the key in topic[0]@1; it begins b'x'"
    error = cls(*arguments)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.__dict__) == (cls, error.__dict__)
    assert str(copy) == str(error) == f"[{cls.condition}] wrong{place}"


def test_every_error_class_has_its_condition() -> None:
    conditions = [cls.condition for cls in classes()]
    assert len(set(conditions)) == len(conditions)
    assert sorted(cls.condition for cls in DECODE if cls is not DecodeError) == sorted(
        DECODE_CONDITIONS
    )
    assert {cls.__name__ for cls in classes()} == {
        n for n, v in vars(errors).items() if isinstance(v, type) and n.endswith("Error")
    }


def test_at_fills_in_only_missing_fields() -> None:
    error = DecodeError("r", "$.a", "key", "", "").at(
        path="$.b", field="value", where="t[0]@0", excerpt="b''"
    )
    assert (error.path, error.field, error.where, error.excerpt) == ("$.a", "key", "t[0]@0", "b''")
    assert DecodeError("r").at(path="$.b", field="key").args[:3] == ("r", "$.b", "key")
    assert error.at(where="other[1]@1").where == "t[0]@0"
    assert type(TypeConversionError("r").at(path="$")) is TypeConversionError


@pytest.mark.parametrize(
    ("message", "text"),
    [
        pytest.param(None, "", id="no message"),
        pytest.param(b"", "", id="an empty message"),
        pytest.param(b"ab", "b'ab'", id="a short message"),
        pytest.param(bytearray(b"ab"), "b'ab'", id="a bytearray"),
        pytest.param(memoryview(b"ab"), "b'ab'", id="a memoryview"),
        pytest.param(b"\xff\n", "b'\\xff\\n'", id="bytes that are escaped"),
        pytest.param(b"a" * 200, "b'" + "a" * 200 + "'", id="as many bytes as are shown"),
        pytest.param(b"a" * 201, "b'" + "a" * 200 + "'", id="one byte more than is shown"),
        pytest.param(
            b"\xff" * 200,
            "b'" + "\\xff" * 49 + "\\x...'",
            id="bytes that grow when they are escaped",
        ),
    ],
)
def test_excerpt_is_the_beginning_of_the_message(message: bytes | None, text: str) -> None:
    assert excerpt_of(message) == text
    assert len(text) <= EXCERPT_BYTES + 10


def test_text_is_cut_to_a_kibibyte() -> None:
    error = DecodeError(
        "r" * 5000,
        "$." + "p" * 5000,
        "value",
        "t" * 249 + "[2147483647]@9223372036854775807",
        excerpt_of(b"\0" * 5000),
    )
    text = str(error)
    assert 600 < len(text) <= 1024
    assert ("r" * 300 + "..." in text, "p" * 158 + "..." in text) == (True, True)


# -------------------------------------------------------------------------------------------
# nothing of the message

SECRET = "Ada-Lovelace"
CASES = [
    (name, message % SECRET) for name, case in OF_FORMAT.items() for message in [*case.hidden, "%s"]
]


@pytest.mark.parametrize(
    ("identifier", "message"), CASES, ids=[f"{name}, {message[:50]}" for name, message in CASES]
)
@pytest.mark.parametrize("of_metadata", [False, True], ids=["", "with metadata"])
def test_without_excerpt_an_error_shows_nothing_of_the_message(
    identifier: str, message: str, of_metadata: bool
) -> None:
    key = "_id" if "mongodb" in identifier else "id"
    kafka_key = b"[1]" if identifier == "cockroachdb-json" else b'{"id": 1}'
    for shown in (True, False):
        format = get_format(identifier, error_excerpt=shown, **REQUIRED.get(identifier, {}))
        decoder = format.decoder(
            f"{key} INT", unique_key=[key], metadata=sorted(format.metadata) if of_metadata else ()
        )
        for decode in (decoder.decode, decoder.upserts):
            with pytest.raises(DecodeError) as caught:
                decode(kafka_key, message.encode())
            error = caught.value
            copied = pickle.loads(pickle.dumps(error))
            texts = (str(error), repr(error), str(copied.args))
            assert [SECRET in text for text in texts] == [shown] * 3


class PlainJson(Format):
    """A third-party format that reads objects without checks."""

    identifier = "plain-json"

    def read(self, key: bytes | None, value: bytes | None) -> list[Event]:
        return [Event.insert(read_object(value), path="$")]


BARE = TypeConversionError("got 'x1'", bare="got text").at(
    path="$.a", field="key", where="t[0]@0", excerpt="b'x1'"
)
KEYED = get_format("upsert-kafka").decoder("id INT, n INT", unique_key=["id"])


class OwnError(DecodeError):
    condition = "MINE"


STAMPS = ", ".join(f'"{name}": "{SECRET}"' for name in ("ts", "ts_ms", "op_ts", "current_ts"))
OF_STAMPS = {
    "canal-json": f'{{"type": "INSERT", "data": [{{"id": 1}}], {STAMPS}}}',
    **dict.fromkeys(
        ("ogg-json", "maxwell-json", "debezium-json"),
        '{"op": "c", "op_type": "I", "type": "insert", "after": {"id": 1}, "data": {"id": '
        f"1}}, {STAMPS}}}",
    ),
}
MANY_NAMES = ", ".join(f'"name{number}": {number}' for number in range(10_000))


def stamped(name: str, value: str, *, shown: bool) -> object:
    format = get_format(name, error_excerpt=shown)
    return format.decoder("id INT", metadata=["ingestion-timestamp"]).decode(None, value.encode())


test_texts = text_test(
    __file__,
    {
        **{
            f"the condition of {cls.__name__}": partial(getattr, cls, "condition")
            for cls in (DecodeError, errors.MissingBeforeImageError, errors.TlsError, OwnError)
        },
        "condition, path and record": lambda: TypeConversionError(
            "expected `DECIMAL(10,2)`, got `str` 'x1'", "$.after.weight"
        ).at(where="orders[3]@1042"),
        "without a path, the input": lambda: DecodeError("not JSON", field="key"),
        "without a path, the input and an excerpt": lambda: DecodeError(
            "not JSON", excerpt=excerpt_of(b"{'")
        ),
        "without arguments": ChangelogError,
        "without data, the bare reason": BARE.without_data,
        "without data, no excerpt": DecodeError("not JSON", excerpt="b'x'").without_data,
    },
)
test_error_texts = error_test(
    __file__,
    {
        "an error of the key shows the key": lambda: KEYED.decode(b"no key", b'{"n": 1}'),
        **{
            f"an error of the key without an excerpt, {number}": partial(
                get_format("upsert-kafka", error_excerpt=False)
                .decoder("id INT, n INT", unique_key=["id"])
                .decode,
                key.encode(),
                None,
            )
            for number, key in enumerate(
                [SECRET, f'{{"id": "{SECRET}"}}', f'{{"id": {{"{SECRET}": 1}}}}'], 1
            )
        },
        **{
            f"metadata of {name}, error_excerpt={shown}": partial(stamped, name, value, shown=shown)
            for name, value in OF_STAMPS.items()
            for shown in (True, False)
        },
        **{
            f"the names in a message, error_excerpt={shown}": partial(
                PlainJson(error_excerpt=shown).decoder("id INT").decode,
                None,
                b'{"%s": 1}' % SECRET.encode(),
            )
            for shown in (True, False)
        },
        "long names of columns": partial(
            get_format("maxwell-json")
            .decoder(", ".join(f"`{'ü' * 100}{number}` INT" for number in range(30)))
            .decode,
            None,
            '{"type": "insert", "data": {"ö": 1}}'.encode(),
        ),
        "a message with many names": partial(
            PlainJson().decoder("id INT, n INT").decode, None, b"{%s}" % MANY_NAMES.encode()
        ),
    },
)
