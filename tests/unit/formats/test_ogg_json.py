"""GoldenGate's own rules: compressed updates, and timestamps without a zone."""

import pytest

from cdc_formats import ABSENT, Change, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.decoder import NameDifference
from cdc_formats.errors import PartialImageError
from cdc_formats.events import SHORT_STRINGS
from cdc_formats.topics.inference.infer import infer_schema
from tests.support.error_texts import error_test

U, V = RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER
DECODER = get_format("ogg-json").decoder("id INT, n INT, s STRING", unique_key=["id"])


def test_a_compressed_update_is_completed_from_a_full_before() -> None:
    value = b'{"op_type":"U","before":{"id":1,"n":2,"s":"x"},"after":{"id":1,"n":3}}'
    assert DECODER.decode(None, value) == [Change(U, (1, 2, "x")), Change(V, (1, 3, "x"))]
    assert DECODER.upserts(None, value) == [KeyedChange((1,), (1, 3, "x"))]


def test_a_compressed_update_is_left_to_the_stored_row() -> None:
    value = b'{"op_type":"U","before":{"id":1,"n":2},"after":{"id":1,"n":3}}'
    assert DECODER.upserts(None, value) == [KeyedChange((1,), (1, 3, ABSENT), (), True)]
    with pytest.raises(PartialImageError, match=r"left out s \(unchanged\)"):
        DECODER.decode(None, value)


@pytest.mark.parametrize(
    ("value", "changes"),
    [
        pytest.param(
            b'{"op_type":"U","after":{"id":1,"n":null}}',
            [KeyedChange((1,), (1, None, ABSENT), (), True)],
            id="null in a compressed update is null",
        ),
        pytest.param(
            b'{"op_type":"U","before":{"id":1},"after":{"id":2}}',
            [
                KeyedChange((1,), None),
                KeyedChange((2,), (2, ABSENT, ABSENT), (), True, moved_from=(1,)),
            ],
            id="an update of only the key",
        ),
        pytest.param(
            b'{"op_type":"I","after":{"id":1}}',
            [KeyedChange((1,), (1, None, None))],
            id="missing columns of an insert are null",
        ),
    ],
)
def test_rows_that_lack_columns(value: bytes, changes: list[KeyedChange]) -> None:
    assert DECODER.upserts(None, value) == changes


def test_missing_columns_of_a_delete_are_null() -> None:
    assert DECODER.decode(None, b'{"op_type":"D","before":{"id":1}}') == [
        Change(RowKind.DELETE, (1, None, None))
    ]


MARKED = (
    b'{"op_type":"%s","before":%s,"after":{"id":1,"id_isMissing":false,"n":null,"n_isMissing":%s,'
    b'"s":null,"s_isMissing":false}}'
)


def test_a_column_that_is_marked_as_missing_is_missing() -> None:
    assert DECODER.upserts(None, MARKED % (b"U", b"null", b"true")) == [
        KeyedChange((1,), (1, ABSENT, None), (), True)
    ]
    assert DECODER.upserts(None, MARKED % (b"U", b"null", b"false")) == [
        KeyedChange((1,), (1, None, None))
    ]
    before = b'{"id":1,"n":2,"n_isMissing":false,"s":null,"s_isMissing":true}'
    assert DECODER.upserts(None, MARKED % (b"U", before, b"true")) == [
        KeyedChange((1,), (1, 2, None))
    ]
    # The row before does not have it either.
    unknown = b'{"id":1,"n":null,"n_isMissing":true,"s":"x","s_isMissing":false}'
    assert DECODER.upserts(None, MARKED % (b"U", unknown, b"true")) == [
        KeyedChange((1,), (1, ABSENT, None), (), True)
    ]
    with pytest.raises(PartialImageError, match=r"left out n \(unchanged\)"):
        DECODER.decode(None, MARKED % (b"U", unknown, b"true"))
    assert DECODER.decode(None, MARKED % (b"I", b"null", b"true")) == [
        Change(RowKind.INSERT, (1, None, None))
    ]


def test_a_field_that_marks_a_missing_column_is_a_column_if_it_is_declared() -> None:
    decoder = get_format("ogg-json").decoder(
        "id INT, n INT, n_isMissing BOOLEAN", unique_key=["id"]
    )
    assert decoder.upserts(None, MARKED % (b"U", b"null", b"true")) == [
        KeyedChange((1,), (1, ABSENT, True), (), True)
    ]


def test_a_field_that_marks_a_missing_column_is_no_undeclared_column() -> None:
    decoder = get_format("ogg-json", unknown_columns="fail").decoder(
        "id INT, n INT, s STRING", unique_key=["id"]
    )
    value = MARKED % (b"U", b"null", b"true")
    assert decoder.upserts(None, value) == DECODER.upserts(None, value)
    assert DECODER.compare_names(None, MARKED % (b"I", b"null", b"true")) == NameDifference((), ())
    inferred = infer_schema(
        [(None, MARKED % (b"I", b"null", each)) for each in (b"true", b"false")], format="ogg-json"
    )
    assert [column.name for column in inferred.columns] == ["id", "n", "s"]


def test_a_filter_matches_the_owner_and_the_table() -> None:
    decoder = get_format("ogg-json", table_include=r"SHOP\.A.*").decoder("id INT")
    assert decoder.decode(None, b'{"op_type":"I","table":"SHOP.APPLES","after":{"id":1}}') == [
        Change(RowKind.INSERT, (1,))
    ]
    assert decoder.decode(None, b'{"op_type":"T","table":"SHOP.BANANAS"}') is Ignored.OTHER_TABLE
    assert decoder.decode(None, b'{"op_type":"T","table":"SHOP.APPLES"}') is Ignored.TRUNCATE


# --------------------------------------------------------------------------------------------------
# changelog-json's own rules: one row per message, read and written
DECODER_OF_CHANGELOG_JSON = get_format("changelog-json").decoder(
    "id INT, n DECIMAL(5,2)", unique_key=["id"]
)


@pytest.mark.parametrize("op", SHORT_STRINGS)
def test_each_op_is_one_row(op: str) -> None:
    value = b'{"data":{"id":1,"n":12.5},"op":"%s"}' % op.encode()
    assert DECODER_OF_CHANGELOG_JSON.decode(None, value) == [
        Change(RowKind.from_short_string(op), (1, "12.50"))
    ]


def test_a_keyed_stage_drops_before_images() -> None:
    def upserts(op: bytes) -> list:
        return DECODER_OF_CHANGELOG_JSON.upserts(None, b'{"data":{"id":1,"n":12.5},"op":"%s"}' % op)

    assert upserts(b"-U") == []
    assert upserts(b"+I") == upserts(b"+U") == [KeyedChange((1,), (1, "12.50"))]
    assert upserts(b"-D") == [KeyedChange((1,), None)]


@pytest.mark.parametrize("kind", RowKind)
def test_rows_are_written_as_flink_cdc_did(kind: RowKind) -> None:
    key, value = (
        get_format("changelog-json").encoder("id INT, n DECIMAL(5,2)").encode(kind, (1, "100.00"))
    )
    assert key is None
    assert value == b'{"data":{"id":1,"n":100.00},"op":"%s"}' % kind.short_string.encode()


def test_the_key_is_written_in_the_order_of_the_primary_key() -> None:
    encoder = get_format("changelog-json").encoder("a INT, b INT, c INT", unique_key=["c", "a"])
    assert encoder.encode(RowKind.INSERT, (1, 2, 3))[0] == b'{"c":3,"a":1}'


def test_both_standards_of_timestamps_are_read() -> None:
    decoder = get_format("changelog-json").decoder("t TIMESTAMP_NTZ")
    for between in (b" ", b"T"):
        assert decoder.decode(None, b'{"data":{"t":"1970-01-01%s00:00:01"},"op":"+I"}' % between)[
            0
        ].row == (1_000_000,)


def test_row_kinds_have_flinks_values_and_short_strings() -> None:
    assert [(kind.name, kind.value, kind.short_string) for kind in RowKind] == [
        ("INSERT", 0, "+I"),
        ("UPDATE_BEFORE", 1, "-U"),
        ("UPDATE_AFTER", 2, "+U"),
        ("DELETE", 3, "-D"),
    ]


test_error_texts = error_test(
    __file__,
    {
        **{
            f"an invalid timestamp is an error, {number}": lambda member=member: (
                get_format("ogg-json")
                .decoder("id INT", metadata=["ingestion-timestamp", "event-timestamp"])
                .decode(None, b'{"op_type":"I","after":{"id":1},"%s":"soon"}' % member.encode())
            )
            for number, member in enumerate(["op_ts", "current_ts"], 1)
        },
        "the key is written in the order of the primary key": lambda: get_format(
            "changelog-json"
        ).encoder("a INT", unique_key=["d"]),
        **{
            f"an unknown kind is an error that lists the known ones, {number}": lambda text=text: (
                RowKind.from_short_string(text)
            )
            for number, text in enumerate(["I", "+X", "", "+i"], 1)
        },
    },
)
