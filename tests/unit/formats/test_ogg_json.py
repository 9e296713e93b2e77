"""GoldenGate's own rules: compressed updates, and timestamps without a zone."""

import pytest

from cdc_formats import RowKind, get_format
from cdc_formats.decoder import NameDifference
from cdc_formats.topics.inference.infer import infer_schema
from tests.support.error_texts import error_test

DECODER = get_format("ogg-json").decoder("id INT, n INT, s STRING", unique_key=["id"])


MARKED = (
    b'{"op_type":"%s","before":%s,"after":{"id":1,"id_isMissing":false,"n":null,"n_isMissing":%s,'
    b'"s":null,"s_isMissing":false}}'
)


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


# --------------------------------------------------------------------------------------------------
# changelog-json's own rules: one row per message, read and written


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
