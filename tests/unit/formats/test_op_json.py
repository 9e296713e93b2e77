"""Rules of op-json, alone and together.

They are its codes, the places of the rows, missing columns and positions.
"""

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import Change, Ignored, RowKind, get_format
from cdc_formats.errors import (
    MissingFieldError,
    UnknownOperationError,
)
from cdc_formats.format import Format
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from normalize.decode.collectors import Blocks, TypedRows
from tests.support.both_decoders import Record, differences, odd_places, source_of
from tests.support.error_texts import error_test
from tests.support.json_bytes import json_bytes
from tests.support.samples import messages

pytestmark = pytest.mark.usefixtures("no_other_formats")

COLUMNS = "id INT, name STRING"
FLINK = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}
QLIK = {
    "op_field": "message.headers.operation",
    "row_field": "message.data",
    "before_field": "message.beforeData",
    "position_field": "message.headers.changeSequence",
    "codes": {"REFRESH": "+I", "INSERT": "+I", "UPDATE": "+U", "DELETE": "-D"},
}


def qlik(
    operation: str,
    data: Any,
    before: Any = None,
    sequence: str | None = "20230911032325000000000000000000005",
) -> bytes:
    headers = {"operation": operation, "changeSequence": sequence}
    return json_bytes(
        {
            "magic": "atMSG",
            "type": "DT",
            "message": {"data": data, "beforeData": before, "headers": headers},
        }
    )


def rows(changes: Any) -> list[tuple[str, Any]]:
    return [(change.kind.short_string, change.row) for change in changes]


def same(
    format: Format,
    values: list[bytes],
    schema: str = COLUMNS,
    in_doubt: list[int] | None = None,
    **plan: Any,
) -> None:
    """Check that both decoders give the same for every kind of plan.

    Also check which messages are decoded alone for a keyed plan.
    """
    records: list[Record] = [(None, value) for value in values]
    metadata = {"operation": "operation", "position": "position"}
    for target in (Blocks,) if plan.get("positions") else (Blocks, TypedRows):
        assert not differences(source_of(format, schema, ["id"], metadata, **plan), records, target)
    if in_doubt is not None:
        assert odd_places(source_of(format, schema, ["id"], metadata, **plan), records) == in_doubt


# --------------------------------------------------------------------------------------------------
# codes


@pytest.mark.parametrize(
    ("codes", "op", "kind"),
    [
        ({"I": "+I", "X": "-D"}, "X", RowKind.DELETE),
        ({1: "+I", 2: "-D"}, 2, RowKind.DELETE),
        ({"1": "+I", "2": "-D"}, 2, RowKind.DELETE),
        ({1: "+I", 2: "-D"}, "2", RowKind.DELETE),
        ({True: "-D", False: "+U"}, True, RowKind.DELETE),
        ({"true": "-D", "false": "+I"}, False, RowKind.INSERT),
        ([["I", "+I"]], "I", RowKind.INSERT),
        ('{"I": "+I"}', "I", RowKind.INSERT),
    ],
)
def test_a_code_is_text_a_number_or_a_boolean(codes: Any, op: Any, kind: RowKind) -> None:
    format, value = get_format("op-json", codes=codes), json_bytes({"op": op, "id": 1, "name": "a"})
    assert (
        format.decoder(COLUMNS, unique_key=["id"]).decode(None, value) == [Change(kind, (1, "a"))]
        or kind is RowKind.UPDATE_AFTER
    )
    same(format, [value], in_doubt=[])


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ({}, "[+I, +U, ~D]"),
        ({"before_field": "before"}, "[+I, -U, +U, -D]"),
        ({"before_prefix": "old_"}, "[+I, -U, +U, -D]"),
    ],
)
def test_an_update_has_its_row_before_where_the_options_name_it(
    options: dict[str, Any], mode: str
) -> None:
    assert str(get_format("op-json", **options).changelog_mode) == mode


def test_codes_can_be_given_in_any_form_and_compare_equal() -> None:
    assert get_format("op-json", codes={"I": "+I", 2: "-D"}) == get_format(
        "op-json", codes=[("2", "-D"), ("I", "+I")]
    )
    assert get_format("op-json").codes == {"I": "+I", "U": "+U", "D": "-D"}


# --------------------------------------------------------------------------------------------------
# where the rows are

NEW, OLD = {"id": 2, "name": "bike"}, {"id": 1, "name": "scooter"}


# -------------------------------------------------------------------------------------------- both
# decoders, drawn messages

NUMBERS = st.integers(0, 3) | st.none() | st.sampled_from(["1", "x", 1.0, True, []])
TEXTS = st.sampled_from(["a", "b", "", None, 1, {"a": 1}])
IMAGES = (
    st.fixed_dictionaries({}, optional={"id": NUMBERS, "name": TEXTS, "more": TEXTS})
    | st.none()
    | st.just([])
)
DRAWN = st.fixed_dictionaries(
    {"op": st.sampled_from(["I", "U", "U", "D", "B", "T", "X", 1, True, None, {"op": "U"}])},
    optional={
        "id": NUMBERS,
        "name": TEXTS,
        "old_id": NUMBERS,
        "old_name": TEXTS,
        "before": IMAGES,
        "after": IMAGES,
        "seq": st.sampled_from([None, 1, 2, "3", "x", -1, 2**70]),
        "m": st.fixed_dictionaries(
            {}, optional={"op": st.sampled_from("IUDX"), "row": IMAGES, "old": IMAGES}
        )
        | st.none(),
    },
)
DRAWN_OPTIONS: list[dict[str, Any]] = [
    {},
    {"before_field": "before"},
    {"before_prefix": "old_"},
    {"row_field": "after", "before_field": "before"},
    {"row_field": "m.row", "before_field": "m.old", "op_field": "m.op"},
    {"row_field": "after", "before_prefix": "m"},
    {"codes": {"I": "+I", "B": "-U", "U": "+U", "D": "-D", "T": "TRUNCATE", 1: "+I"}},
    {"codes": {"I": "+I", "U": "+U", "D": "-D", True: "-D"}, "before_field": "before"},
]


@pytest.mark.parametrize("options", DRAWN_OPTIONS, ids=str)
@given(
    values=st.lists(DRAWN, min_size=1, max_size=6),
    meaning=st.sampled_from(["fail", "null", "unchanged"]),
    position=st.booleans(),
    target=st.sampled_from([Blocks, TypedRows]),
)
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40, deadline=None
)
def test_drawn_messages_are_the_same_together(
    options: dict[str, Any], values: list[Any], meaning: str, position: bool, target: Any
) -> None:
    format = get_format(
        "op-json",
        **options,
        missing_columns=meaning,
        **({"position_field": "seq"} if position else {}),
    )
    source = source_of(
        format,
        COLUMNS,
        ["id"],
        {"of": "operation"},
        positions=position and target is not TypedRows,
        on_truncate="ignore",
    )
    assert not differences(source, [(None, json_bytes(value)) for value in values], target)


# -------------------------------------------------------------------------------------------------
# inference and profiles

I_U_D = [{"op": "I", **OLD}, {"op": "U", **OLD, "name": "bike"}, {"op": "D", **OLD}]
SERVER = [{"__$operation": code, "__$start_lsn": "AAA=", **OLD} for code in (2, 3, 4, 1)]
PROFILED: list[tuple[str, list[dict[str, Any]], dict[str, Any]]] = [
    ("codes of one letter", I_U_D, {"codes": {"D": "-D", "I": "+I", "U": "+U"}}),
    ("words", [{"CDC_OP": "update", **OLD}], {"op_field": "CDC_OP", "codes": {"update": "+U"}}),
    ("Flink", [{"op": code, **OLD} for code in FLINK], {"codes": FLINK}),
    (
        "Qlik",
        [json.loads(qlik("UPDATE", NEW, OLD)), json.loads(qlik("DELETE", OLD))],
        {**QLIK, "codes": {"DELETE": "-D", "UPDATE": "+U"}},
    ),
    (
        "Striim",
        [
            {
                "metadata": {"TableName": "T", "OperationName": "UPDATE"},
                "data": NEW,
                "before": OLD,
                "userdata": None,
            }
        ],
        {
            "op_field": "metadata.OperationName",
            "codes": {"UPDATE": "+U"},
            "row_field": "data",
            "before_field": "before",
        },
    ),
    (
        "Fivetran",
        [{"_fivetran_deleted": False, **OLD}, {"_fivetran_deleted": True, **OLD}],
        {"op_field": "_fivetran_deleted", "codes": {"false": "+U", "true": "-D"}},
    ),
    (
        "SQL Server",
        SERVER,
        {"op_field": "__$operation", "codes": {"1": "-D", "2": "+I", "3": "-U", "4": "+U"}},
    ),
    (
        "a prefix",
        [{"op": "U", **NEW, "old_id": 1, "old_name": "a"}],
        {"codes": {"U": "+U"}, "before_prefix": "old_"},
    ),
    (
        "a word that is often a column, next to a row",
        [{"action": "create", "row": NEW}],
        {"op_field": "action", "codes": {"create": "+I"}, "row_field": "row"},
    ),
]


@pytest.mark.parametrize(
    ("values", "options"), [each[1:] for each in PROFILED], ids=[each[0] for each in PROFILED]
)
def test_a_profile_proposes_the_fields_and_the_codes_that_it_saw(
    values: list[dict[str, Any]], options: dict[str, Any]
) -> None:
    profile = profile_records(messages(*values))
    (table,) = profile.tables
    assert (profile.format, table.options) == ("op-json", options)
    assert [column.name for column in table.schema.columns if column.name != "__$start_lsn"] == [
        "id",
        "name",
    ]
    assert (
        f"{len(values)} of {len(values)} values have an operation in "
        f"{options.get('op_field', 'op')}: "
    ) in profile.reason
    assert sum(table.operations.values()) == (
        len(values) if options.get("op_field") not in ("_fivetran_deleted", "__$operation") else 0
    )
    decoder = get_format("op-json", **table.options).decoder(table.ddl)
    assert all(isinstance(decoder.decode(None, json_bytes(value)), list) for value in values)


@pytest.mark.parametrize(
    "value",
    [
        {"id": 1, "action": "create"},
        {"id": 1, "type": "insert"},
        {"id": 1, "op": "transfer"},
        {"id": 1, "op": 1},
        {"id": 1, "is_deleted": True},
        {"id": 1, "__op": "c"},
    ],
)
def test_a_row_without_a_known_operation_is_a_row(value: dict[str, Any]) -> None:
    profile = profile_records(messages(value))
    assert profile.format in ("upsert-kafka", "debezium-flat-json")
    assert next(each for each in profile.candidates if each.identifier == "op-json").understood == 0


def test_other_formats_messages_are_not_tried() -> None:
    profile = profile_records(
        messages({"before": None, "after": {"id": 1}, "op": "c", "source": {}})
    )
    assert "op-json" not in {each.identifier for each in profile.candidates}


def test_the_users_options_have_precedence() -> None:
    values = [{"op": "I", "flag": "D", **OLD}]
    (table,) = profile_records(messages(*values), format="op-json", op_field="flag").tables
    assert table.options == {"op_field": "flag", "codes": {"D": "-D"}}


def test_a_schema_is_inferred_without_the_fields_of_the_message() -> None:
    values = [json_bytes({"op": "U", "seq": 7, **NEW, "old_id": 1, "old_name": "a"})]
    inferred = infer_schema(
        [(b'{"id": 2}', value) for value in values],
        format="op-json",
        before_prefix="old_",
        position_field="seq",
    )
    assert (inferred.ddl, inferred.primary_key) == ("id BIGINT NOT NULL, name STRING", ("id",))


def test_a_column_that_some_rows_lack_is_noted_with_the_choices() -> None:
    values = [json_bytes({"op": "I", **NEW}), json_bytes({"op": "U", "id": 2})]
    inferred = infer_schema([(b'{"id": 2}', value) for value in values], format="op-json")
    assert any(
        "1 records of the sample do not decode" in note and "missing_columns" in note
        for note in inferred.notes
    )


test_error_texts = error_test(
    __file__,
    {
        **{
            f"invalid options are refused, {number}": lambda options=options: get_format(
                "op-json", **options
            )
            for number, options in enumerate(
                [
                    {"codes": {"I": "INSERT"}},
                    {"codes": {"I": ["+I"]}},
                    {"codes": {None: "+I"}},
                    {"codes": {1.5: "+I"}},
                    {"codes": "I:+I"},
                    {"codes": "7"},
                    {"codes": {}},
                    {"codes": {"T": "TRUNCATE"}},
                    {"codes": {"T": "OTHER_TABLE"}},
                    {"codes": {"true": "-D", "1": "+I"}},
                    {"op_field": ""},
                    {"op_field": "a..b"},
                    {"op_field": 'a"'},
                    {"position_field": "op"},
                    {"row_field": "op.row"},
                    {"before_prefix": ""},
                    {"before_prefix": "b_", "before_field": "b"},
                    {"before_field": "b", "codes": FLINK},
                    {"missing_columns": "error"},
                    {"before_columns": "changed"},
                ],
                1,
            )
        },
    },
)


# --------------------------------------------------------------------------------------------------
# the operation in a header, columns that changed, and positions of two fields

HEADER = {
    "op_header": "operation",
    "codes": {"insert": "+I", "update": "+U", "delete": "-D", "begin": "TRANSACTION"},
}
SEQUIN = {
    "op_field": "action",
    "row_field": "record",
    "before_field": "changes",
    "before_columns": "changed",
    "position_field": "metadata.commit_lsn",
    "position_index_field": "metadata.commit_idx",
    "codes": {"read": "+I", "insert": "+I", "update": "+U", "delete": "-D"},
}
SHAREPLEX = {
    "op_field": "meta.op",
    "row_field": "data",
    "before_field": "key",
    "missing_columns": "unchanged",
    "position_field": "meta.scn",
    "position_index_field": "meta.seq",
    "codes": {"ins": "+I", "upd": "+U", "del": "-D"},
}


def test_the_operation_of_a_header_is_the_last_one() -> None:
    format, row = get_format("op-json", **HEADER), json_bytes({"id": 1, "name": "a"})
    own = b'{"id":1,"name":"a","header operation":"delete"}'
    headers: list[Any] = [
        (row, [("operation", b"insert")], [("+I", (1, "a"))]),
        (row, [("operation", b"insert"), ("operation", b"delete")], [("-D", (1, "a"))]),
        (own, [("operation", b"insert")], [("+I", (1, "a"))]),
        (b"{}", [("operation", b"begin")], Ignored.TRANSACTION),
        (None, [("operation", b"delete")], Ignored.TOMBSTONE),
        (row, [], MissingFieldError),
        (row, [("operation", None)], MissingFieldError),
        (row, [("operation", b"\xff")], UnknownOperationError),
    ]
    decoder = format.decoder(COLUMNS, unique_key=["id"])
    for value, pairs, expected in headers:
        if isinstance(expected, type):
            with pytest.raises(expected, match="header operation"):
                decoder.decode(None, value, pairs)
        else:
            read = decoder.decode(None, value, pairs)
            assert (read if isinstance(read, Ignored) else rows(read)) == expected
    records: list[Record] = [(None, value, pairs) for value, pairs, _ in headers]
    for target in (Blocks, TypedRows):
        plan = source_of(format, COLUMNS, ["id"], {"operation": "operation"})
        assert not differences(plan, records, target)
        assert odd_places(plan, records) == [3, 4, 5, 6, 7]


def test_a_profile_names_headers_sequin_and_shareplex() -> None:
    values = [
        {"record": {"id": 1, "name": "a"}, "changes": None, "action": "insert"},
        {"record": {"id": 1, "name": "b"}, "changes": {"name": "a"}, "action": "update"},
    ]
    metadata = {"table_name": "t", "commit_lsn": 1, "commit_idx": 0}
    (table,) = profile_records(
        messages(*({**each, "metadata": metadata} for each in values))
    ).tables
    assert table.options == {**SEQUIN, "codes": {"insert": "+I", "update": "+U"}}
    meta = {"scn": "14589063118712", "seq": 1, "table": "A.B"}
    plex = [
        {"meta": {**meta, "op": "ins"}, "data": {"id": "1", "name": "a"}},
        {"meta": {**meta, "op": "upd"}, "data": {"name": "b"}, "key": {"id": "1", "name": "a"}},
    ]
    (table,) = profile_records(messages(*plex)).tables
    assert table.options == {**SHAREPLEX, "codes": {"ins": "+I", "upd": "+U"}}
    plain = messages({"id": 1, "name": "a"}, {"id": 1, "name": "b"})
    named = [
        each._replace(headers=(("operation", what),))
        for each, what in zip(plain, (b"insert", b"update"), strict=True)
    ]
    profile = profile_records(named)
    assert profile.format == "op-json"
    assert profile.tables[0].options == {**HEADER, "codes": {"insert": "+I", "update": "+U"}}
    assert "2 of 2 values have an operation in the header operation" in profile.reason
