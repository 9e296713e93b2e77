"""Rules of op-json, alone and together.

They are its codes, the places of the rows, missing columns and positions.
"""

import json
from functools import partial
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from cdc_formats import get_format
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from normalize.decode.collectors import Blocks, TypedRows
from tests.support.both_decoders import differences, source_of
from tests.support.error_texts import error_test, text_test
from tests.support.json_bytes import json_bytes
from tests.support.samples import messages

pytestmark = pytest.mark.usefixtures("no_other_formats")

COLUMNS = "id INT, name STRING"
FLINK = {"INSERT": "+I", "UPDATE_BEFORE": "-U", "UPDATE_AFTER": "+U", "DELETE": "-D"}


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


# --------------------------------------------------------------------------------------------------
# codes


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

SERVER = [{"__$operation": code, "__$start_lsn": "AAA=", **OLD} for code in (2, 3, 4, 1)]


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


def profiled(*values: dict[str, Any], header: str = "", **options: Any) -> str:
    """Return what a profile says about messages, of which each has the header, if any."""
    records = [
        each._replace(headers=((header, b"insert"),) if header else ())
        for each in messages(*values)
    ]
    profile = profile_records(records, **options)
    for table in (each for each in profile.tables if each.schema):
        format = get_format(profile.format or "", **table.options)
        decoder = format.decoder(table.ddl, unique_key=table.primary_key)
        read = [decoder.decode(each.key, each.value, each.headers) for each in records]
        assert all(isinstance(changes, list) for changes in read)
    tables = [(table.ddl, table.operations, table.options) for table in profile.tables]
    understood = {each.identifier: each.understood for each in profile.candidates}
    return f"{profile.format}: {profile.reason}\n{tables}\nof op-json: {understood.get('op-json')}"


SERVER = [{"__$operation": code, "__$start_lsn": "AAA=", **OLD} for code in (2, 3, 4, 1)]
SEQUIN = {"metadata": {"table_name": "t", "commit_lsn": 1, "commit_idx": 0}}
SHAREPLEX = {"scn": "14589063118712", "seq": 1, "table": "A.B"}
PROFILED: dict[str, list[dict[str, Any]]] = {
    "codes of one letter": [{"op": "I", **OLD}, {"op": "U", **NEW, "id": 1}, {"op": "D", **OLD}],
    "words": [{"CDC_OP": "update", **OLD}],
    "Flink": [{"op": code, **OLD} for code in FLINK],
    "Qlik": [json.loads(qlik("UPDATE", NEW, OLD)), json.loads(qlik("DELETE", OLD))],
    "Striim": [
        {
            "metadata": {"TableName": "T", "OperationName": "UPDATE"},
            "data": NEW,
            "before": OLD,
            "userdata": None,
        }
    ],
    "Fivetran": [{"_fivetran_deleted": deleted, **OLD} for deleted in (False, True)],
    "SQL Server": SERVER,
    "a prefix": [{"op": "U", **NEW, "old_id": 1, "old_name": "a"}],
    "a word that is often a column, next to a row": [{"action": "create", "row": NEW}],
    "Sequin": [
        {"record": {"id": 1, "name": "a"}, "changes": None, "action": "insert", **SEQUIN},
        {"record": {"id": 1, "name": "b"}, "changes": {"name": "a"}, "action": "update", **SEQUIN},
    ],
    "SharePlex": [
        {"meta": {**SHAREPLEX, "op": "ins"}, "data": {"id": "1", "name": "a"}},
        {
            "meta": {**SHAREPLEX, "op": "upd"},
            "data": {"name": "b"},
            "key": {"id": "1", "name": "a"},
        },
    ],
    "a message of Debezium": [{"before": None, "after": {"id": 1}, "op": "c", "source": {}}],
    **{
        f"a row without a known operation, {value}": [{"id": 1, **value}]
        for value in (
            *({"action": "create"}, {"type": "insert"}, {"op": "transfer"}, {"op": 1}),
            *({"is_deleted": True}, {"__op": "c"}),
        )
    },
}
test_texts = text_test(
    __file__,
    {
        **{name: partial(profiled, *values) for name, values in PROFILED.items()},
        "the operation in a header": partial(profiled, OLD, NEW, header="operation"),
        "the user's options have precedence": partial(
            profiled, {"op": "I", "flag": "D", **OLD}, format="op-json", op_field="flag"
        ),
        "a schema without the fields of the message": partial(
            infer_schema,
            [
                (
                    b'{"id": 2}',
                    json_bytes({"op": "U", "seq": 7, **NEW, "old_id": 1, "old_name": "a"}),
                )
            ],
            format="op-json",
            before_prefix="old_",
            position_field="seq",
        ),
        "a column that some rows lack is noted with the choices": partial(
            infer_schema,
            [
                (b'{"id": 2}', json_bytes(value))
                for value in ({"op": "I", **NEW}, {"op": "U", "id": 2})
            ],
            format="op-json",
        ),
    },
)
