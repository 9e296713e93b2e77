"""Rules of AWS DMS: the places and forms of before-images, omitted NULLs, control records."""

import json
from typing import Any

from cdc_formats import get_format
from cdc_formats.topics.inference import infer_schema
from cdc_formats.topics.profile import profile_records
from tests.support.error_texts import error_test
from tests.support.samples import sample

FIELD = {"before_image_field": "before-image"}
PREFIX = {"before_image_prefix": "BI_"}
ALL = {"before_image_column_filter": "all"}
COLUMNS = "id INT, name STRING, weight DECIMAL(5,2)"


def message(
    operation: str,
    data: dict[str, Any] | None = None,
    before: dict[str, Any] | None = None,
    **more: Any,
) -> bytes:
    metadata = {
        "record-type": "data",
        "operation": operation,
        "schema-name": "shop",
        "table-name": "products",
        **more,
    }
    image = {} if before is None else {"before-image": before}
    return json.dumps({"data": data, **image, "metadata": metadata}).encode()


# --------------------------------------------------------------------------------------------------
# before-images

AFTER = {"id": 2, "name": "bike", "weight": 9.5}


# --------------------------------------------------------------------------------------------------
# inference


def test_a_before_image_among_the_columns_is_inferred_as_one() -> None:
    update = message(
        "update", {**AFTER, "BI_id": 1, "BI_note": "old"}
    )  # the new note is NULL, which is left out
    inferred = infer_schema([(None, message("insert", AFTER)), (None, update)], format="dms-json")
    assert [column.name for column in inferred.columns] == list(AFTER)
    assert inferred.format_options == {"before_image_prefix": "BI_"}
    assert (
        "1 of 2 rows have columns with this prefix"
        in inferred.option_reasons["before_image_prefix"]
    )
    (table,) = profile_records(sample((None, update))).tables
    assert [column.name for column in table.schema.columns] == list(AFTER)
    assert table.options == {"before_image_prefix": "BI_"}
    assert (table.before.updates, table.before.updates_with) == (1, 1)


def test_a_column_with_the_prefix_of_before_images_alone_is_a_column() -> None:
    inferred = infer_schema(
        [(None, message("update", {"id": 1, "BI_note": "x"}))], format="dms-json"
    )
    assert (inferred.ddl, inferred.format_options) == ("id BIGINT, BI_note STRING", {})
    inferred = infer_schema(
        [(None, message("update", {**AFTER, "BI_id": 1}))], format="dms-json", **FIELD
    )
    assert ([column.name for column in inferred.columns], inferred.format_options) == (
        [*AFTER, "BI_id"],
        FIELD,
    )


test_error_texts = error_test(
    __file__,
    {
        "a before image of changed columns is not a row when nulls are written": lambda: (
            get_format("dms-json", **FIELD, **ALL, include_null_and_empty=True)
            .decoder(COLUMNS)
            .decode(None, message("update", AFTER, {"name": "scooter"}))
        ),
        **{
            f"invalid options are refused, {number}": lambda options=options: get_format(
                "dms-json", **options
            ).decoder("id INT")
            for number, options in enumerate(
                [
                    {"before_image_field": "data"},
                    {"before_image_field": ""},
                    {"before_image_prefix": ""},
                    {**FIELD, **PREFIX},
                    {"before_image_column_filter": "some"},
                    {"table_include": "("},
                    {"schema_include": "("},
                ],
                1,
            )
        },
    },
)
