"""Before-images of keyed changes: the rows that `decode` returns as ``-U`` and ``-D``, or None when a message has none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from cdc_formats import ABSENT, Change, Decoder, Format, Ignored, KeyedChange, RowKind, get_format
from cdc_formats.errors import ChangelogError
from tests.support.scenarios import Scenario, scenarios

PLACEHOLDER = "__debezium_unavailable_value"


def upserts(format: str, value: Any, ddl: str = "id INT, n INT, s STRING", key: bytes | None = None, **options: Any) -> Any:
    decoder = get_format(format, **options).decoder(ddl, unique_key=["id"], images=True)
    return decoder.upserts(key, None if value is None else json.dumps(value).encode())


def cases() -> list[Any]:
    keyed = [scenario for scenario in scenarios() if scenario.primary_key]
    return [pytest.param(scenario, name, id=f"{name} {scenario.name}") for scenario in keyed for name in scenario.identifiers]


@pytest.mark.parametrize(("scenario", "identifier"), cases())
def test_images_equal_the_changelogs_and_change_no_other_result(scenario: Scenario, identifier: str) -> None:
    vector = scenario.vector(identifier)
    format = get_format(identifier, **vector.options)
    plain, imaged = (format.decoder(vector.schema, unique_key=vector.primary_key, images=images) for images in (False, True))
    for key, value in vector.records:
        try:
            said = plain.upserts(key, value)
        except ChangelogError as error:
            with pytest.raises(type(error)):
                imaged.upserts(key, value)
            continue
        found = imaged.upserts(key, value)
        if isinstance(found, Ignored):
            assert found is said
            continue
        # As text, because NaN equals nothing.
        assert repr([msgspec.structs.replace(change, before=None) for change in found]) == repr(said)
        if (befores := rows_before(plain, format, key, value)) is not None:
            assert repr([change.before for change in found]) == repr(befores)


def rows_before(decoder: Decoder, format: Format, key: bytes | None, value: bytes | None) -> list[Any] | None:
    """Return the rows before a record's changes, taken from its changelog; None when the changelog has none."""
    if not format.changelog_mode.contains(RowKind.UPDATE_BEFORE) or format.identifier == "changelog-json":
        return None
    try:
        changes = decoder.decode(key, value)
    except ChangelogError:
        return None
    assert not isinstance(changes, Ignored)
    names = [column.name for column in decoder.columns]
    key_of = [names.index(name) for name in decoder.unique_key]
    befores: list[Any] = []
    before: tuple[Any, ...] | None = None
    for change in changes:
        if change.kind is RowKind.UPDATE_BEFORE:
            before = change.row
        elif change.kind is RowKind.UPDATE_AFTER:
            assert before is not None
            same = all(before[index] == change.row[index] for index in key_of)
            befores += [before] if same else [before, None]
        elif change.kind is RowKind.DELETE:
            if all(value is None for index, value in enumerate(change.row) if index not in key_of):
                return None  # only the key, or a row of NULLs
            befores.append(change.row)
        else:
            befores.append(None)
    return befores


def test_an_update_carries_its_row_before_and_an_insert_none() -> None:
    update = {"op": "u", "before": {"id": 1, "n": 1, "s": "a"}, "after": {"id": 1, "n": 2, "s": None}}
    assert upserts("debezium-json", update) == [KeyedChange((1,), (1, 2, None), before=(1, 1, "a"))]
    assert upserts("debezium-json", {**update, "op": "c"}) == [KeyedChange((1,), (1, 2, None))]


def test_after_a_key_change_the_delete_carries_the_row_before() -> None:
    update = {"op": "u", "before": {"id": 1, "n": 1, "s": "a"}, "after": {"id": 2, "n": 1, "s": "a"}}
    assert upserts("debezium-json", update) == [KeyedChange((1,), None, before=(1, 1, "a")), KeyedChange((2,), (2, 1, "a"))]


def test_a_delete_carries_its_row() -> None:
    message = {"op": "d", "before": {"id": 1, "n": 1, "s": "a"}}
    assert upserts("debezium-json", message) == [KeyedChange((1,), None, before=(1, 1, "a"))]
    assert upserts("maxwell-json", {"type": "delete", "data": {"id": 1, "n": 1}}) == [KeyedChange((1,), None, before=(1, 1, None))]


def test_an_update_without_its_before_image_has_none() -> None:
    assert upserts("debezium-json", {"op": "u", "before": None, "after": {"id": 1, "n": 2, "s": "a"}}) == [KeyedChange((1,), (1, 2, "a"))]


@pytest.mark.parametrize("format", ["debezium-json", "ogg-json"])
def test_a_before_image_with_only_the_key_is_none(format: str) -> None:
    gone: dict[str, Any] = {"before": {"id": 1}, "op": "d", "op_type": "D"}
    assert upserts(format, gone) == [KeyedChange((1,), None)]
    assert upserts(format, gone, "id INT") == [KeyedChange((1,), None, before=(1,))]


def test_changed_columns_are_applied_to_the_row() -> None:
    update = {"type": "update", "data": {"id": 2, "n": 5, "s": "a"}, "old": {"id": 1, "n": None}}
    assert upserts("maxwell-json", update) == [KeyedChange((1,), None, before=(1, None, "a")), KeyedChange((2,), (2, 5, "a"))]


def test_each_row_of_a_message_has_its_own_image() -> None:
    message = {"type": "UPDATE", "data": [{"id": "1", "n": "2"}, {"id": "2", "n": "9"}], "old": [{"n": "1"}, {"s": "x"}]}
    assert upserts("canal-json", message) == [
        KeyedChange((1,), (1, 2, None), before=(1, 1, None)),
        KeyedChange((2,), (2, 9, None), before=(2, 9, "x")),
    ]


def test_a_compressed_image_is_none() -> None:
    update = {"op_type": "U", "before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 2}}
    assert upserts("ogg-json", update) == [KeyedChange((1,), (1, 2, ABSENT), partial=True)]


def test_an_image_with_an_unknown_unchanged_value_is_none() -> None:
    source, after = {"connector": "postgresql"}, {"id": 1, "n": 2, "s": PLACEHOLDER}
    update = {"op": "u", "source": source, "before": {"id": 1, "n": 1, "s": PLACEHOLDER}, "after": after}
    assert upserts("debezium-json", update) == [KeyedChange((1,), (1, 2, ABSENT), partial=True)]
    assert upserts("debezium-json", {**update, "op": "d", "after": None}) == [KeyedChange((1,), None)]
    update["before"] = {"id": 1, "n": 1, "s": "long"}
    assert upserts("debezium-json", update) == [KeyedChange((1,), (1, 2, "long"), before=(1, 1, "long"))]


def test_an_unchanged_value_is_taken_from_the_after_image() -> None:
    """PostgreSQL with REPLICA IDENTITY FULL: the before-image is incomplete, the after-image is complete."""
    source, before = {"connector": "postgresql"}, {"id": 1, "n": 1, "s": PLACEHOLDER}
    update = {"op": "u", "source": source, "before": before, "after": {"id": 1, "n": 2, "s": "long"}}
    for message in (update, {"schema": None, "payload": update}):
        assert upserts("debezium-json", message) == [KeyedChange((1,), (1, 2, "long"), before=(1, 1, "long"))]


def test_a_document_carries_its_pre_image_if_present() -> None:
    def documents(value: Any) -> Any:
        decoder = get_format("debezium-mongodb-json").decoder("_id INT, n INT", unique_key=["_id"], images=True)
        return decoder.upserts(b'{"id": "1"}', json.dumps(value).encode())

    after, before = json.dumps({"_id": 1, "n": 2}), json.dumps({"_id": 1, "n": 1})
    assert documents({"op": "u", "before": before, "after": after}) == [KeyedChange((1,), (1, 2), before=(1, 1))]
    assert documents({"op": "u", "before": None, "after": after}) == [KeyedChange((1,), (1, 2))]
    assert documents({"op": "d", "before": before}) == [KeyedChange((1,), None, before=(1, 1))]
    assert documents({"op": "d", "before": None}) == [KeyedChange((1,), None)]


def test_only_rewritten_deletes_have_a_before_image() -> None:
    assert upserts("debezium-flat-json", None, key=b'{"id": 1}') == [KeyedChange((1,), None)]
    assert upserts("debezium-flat-json", {"id": 1, "n": 2, "s": "a", "__deleted": "true"}) == [KeyedChange((1,), None, before=(1, 2, "a"))]
    assert upserts("upsert-kafka", None, key=b'{"id": 1}') == [KeyedChange((1,), None)]
    assert upserts("upsert-kafka", None, "id INT", key=b'{"id": 1}') == [KeyedChange((1,), None, before=(1,))]


def test_before_images_in_extra_fields_are_read() -> None:
    def updated(image: dict[str, Any], **options: Any) -> Any:
        data = {"id": 1, "n": 2, "s": "a"} | {f"BI_{name}": value for name, value in image.items()}
        message = {"data": data, "metadata": {"record-type": "data", "operation": "update"}}
        return upserts("dms-json", message, before_image_prefix="BI_", **options)

    whole = {"id": 1, "n": 1, "s": "a"}
    assert updated(whole, before_image_column_filter="all") == [KeyedChange((1,), (1, 2, "a"), before=(1, 1, "a"))]
    assert updated({"id": 1}) == [KeyedChange((1,), (1, 2, "a"))]


def test_decode_is_the_same_with_images() -> None:
    decoder = get_format("debezium-json").decoder("id INT, n INT", unique_key=["id"], images=True)
    value = b'{"op": "u", "before": {"id": 1, "n": 1}, "after": {"id": 1, "n": 2}}'
    assert decoder.decode(None, value) == [Change(RowKind.UPDATE_BEFORE, (1, 1)), Change(RowKind.UPDATE_AFTER, (1, 2))]
