"""The filter of `where=` behind the stage: a row that does not match is a row that is not there."""

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import RowKind, columns
from cdc_formats.fold import FoldOptions
from normalize.core.arrow import from_arrow
from normalize.core.changes import Shape, stored_columns
from normalize.core.output import Output
from normalize.engines.condition import filter_pass
from tests.support.strategies import DDL, HISTORIES, KeyChange, Row, by_key, fold_history

TABLE = Output(columns(DDL))
CHANGELOG = Shape(TABLE.columns).changelog_schema


def batches_of(
    rows: Sequence[tuple[RowKind, Row]], sizes: Iterator[int]
) -> Iterator[pa.RecordBatch]:
    """Yield typed rows in batches of these sizes, with whether they match: those whose qty is 0."""
    kinds, stored = (
        pa.array([kind for kind, _ in rows], pa.int8()),
        stored_columns(TABLE.columns, [row for _, row in rows]),
    )
    typed = TABLE.of_stored(pa.RecordBatch.from_arrays([kinds, *stored], schema=CHANGELOG))
    matches = pa.array([row[2] == 0 for _, row in rows], pa.bool_())
    whole = pa.RecordBatch.from_arrays(
        [*typed.columns, matches], names=[*typed.schema.names, "matches"]
    )
    start = 0
    while start < whole.num_rows:
        size = next(sizes)
        yield whole.slice(start, size)
        start += size


@given(HISTORIES, st.integers(1, 5), st.booleans())
def test_the_rows_are_those_of_a_table_without_the_rows_that_do_not_match(
    history: list[KeyChange], size: int, update_before: bool
) -> None:
    sizes = iter(lambda: size, None)
    passed = filter_pass(
        batches_of(fold_history(history), sizes),
        schema=TABLE.arrow_schema,
        update_before=update_before,
    )
    rows: list[tuple[RowKind, Row]] = []
    for batch in passed:
        values = [from_arrow(column.type, batch.column(column.name)) for column in TABLE.columns]
        rows += zip(
            map(RowKind.from_short_string, batch.column("row_kind").to_pylist()),
            zip(*values, strict=True),
            strict=True,
        )
    matching = [(key, row if row is not None and row[2] == 0 else None) for key, row in history]
    assert by_key(rows) == by_key(
        fold_history(matching, FoldOptions(generate_update_before=update_before))
    )


@pytest.mark.parametrize(
    ("update_before", "kinds"),
    [(True, ["+I", "-U", "+U", None, "-D"]), (False, ["+I", "+U", None, "-D"])],
)
def test_rows_without_a_kind_pass_and_upserts_have_no_update_before(
    update_before: bool, kinds: list[str | None]
) -> None:
    given_kinds = ["-U", "+U", "-U", "+U", None, "-U", "+U", "-U", "+U"]
    matches = [False, True, True, True, False, True, False, False, False]
    schema = pa.schema([("row_kind", pa.string())])
    batch = pa.RecordBatch.from_arrays(
        [pa.array(given_kinds), pa.array(matches)], names=["row_kind", "matches"]
    )
    (passed,) = filter_pass(iter([batch]), schema=schema, update_before=update_before)
    assert passed.column(0).to_pylist() == kinds
