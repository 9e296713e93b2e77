"""Updates of Spanner's connector: a column that is null in both images is unchanged."""

import json
from typing import Any

import pytest

from cdc_formats import Change, RowKind, get_format
from cdc_formats.errors import MalformedMessageError, MissingBeforeImageError, PartialImageError
from cdc_formats.topics.inference import infer_schema
from tests.support.both_decoders import differences, odd_places, source_of

SCHEMA = "id INT, name STRING, stock BIGINT"


def update(
    before: Any, after: Any, captured: str | None = "OLD_AND_NEW_VALUES", connector: str = "spanner"
) -> bytes:
    source = {"connector": connector, "db": "shop", "table": "parts", "ts_ms": 1, "ts_ns": 1000000}
    source |= {"sequence": "1", "mod_number": 0, "value_capture_type": captured}
    return json.dumps({"op": "u", "before": before, "after": after, "source": source}).encode()


def row(name: str | None = None, stock: int | None = None) -> dict[str, Any]:
    return {"id": 1, "name": name, "stock": stock}


def test_an_update_of_all_columns_has_both_rows_without_a_stage() -> None:
    decoder = get_format("debezium-json").decoder(SCHEMA)
    assert decoder.decode(None, update(row("fork"), row("spoon", 7))) == [
        Change(RowKind.UPDATE_BEFORE, (1, "fork", None)),
        Change(RowKind.UPDATE_AFTER, (1, "spoon", 7)),
    ]


def test_an_unchanged_column_needs_a_stage() -> None:
    decoder = get_format("debezium-json").decoder(SCHEMA)
    with pytest.raises(PartialImageError, match="the producer left out name"):
        decoder.decode(None, update(row(stock=6), row(stock=7)))


def test_a_null_of_another_connector_is_null() -> None:
    decoder = get_format("debezium-json").decoder(SCHEMA, unique_key=["id"])
    (change,) = decoder.upserts(None, update(row(stock=6), row(stock=7), None, "postgresql"))
    assert (change.row, change.partial) == ((1, None, 7), False)


@pytest.mark.parametrize("captured", ["NEW_ROW", "NEW_ROW_AND_OLD_VALUES"])
def test_a_whole_row_after_has_no_row_before(captured: str) -> None:
    message, format = update(row(), row("fork", 7), captured), get_format("debezium-json")
    (change,) = format.decoder(SCHEMA, unique_key=["id"]).upserts(None, message)
    assert (change.row, change.partial) == ((1, "fork", 7), False)
    with pytest.raises(MissingBeforeImageError):
        format.decoder(SCHEMA).decode(None, message)


@pytest.mark.parametrize("captured", ["NEW_VALUES", None])
def test_an_update_that_does_not_say_which_columns_changed_is_refused(captured: str | None) -> None:
    message = update(row(), row(stock=7), captured)
    with pytest.raises(MalformedMessageError, match="value_capture_type='NEW_ROW'") as error:
        get_format("debezium-json").decoder(SCHEMA, unique_key=["id"]).upserts(None, message)
    assert error.value.path == "$.source.value_capture_type"


@pytest.mark.parametrize("metadata", [{}, {"table": "source.table"}, {"all": "source.properties"}])
@pytest.mark.parametrize("positions", [False, True])
def test_updates_of_spanner_are_never_decoded_together(
    metadata: dict[str, str], positions: bool
) -> None:
    message = (None, update(row(stock=6), row(stock=7)))
    source = source_of(get_format("debezium-json"), SCHEMA, ["id"], metadata, positions=positions)
    assert odd_places(source, [message], keyed=True) == [0]
    assert not differences(source, [message])
    other = (None, update(row(stock=6), row(stock=7), None, "db2" if not positions else "vitess"))
    assert odd_places(source, [other], keyed=True) == ([0] if positions else [])


def test_a_sample_has_all_columns() -> None:
    inferred = infer_schema([(None, update(row(stock=6), row("fork", 7)))], format="debezium-json")
    assert inferred.ddl == "id BIGINT, name STRING, stock BIGINT"
