"""Table columns narrower than the changes: no silent cuts, and errors whose SQL widens them."""

import re

import pytest
from pyspark.sql import SparkSession

from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import backquoted
from normalize import JdbcTarget
from normalize.tables.apply import apply_batch
from tests.support.sinking import NewSink

CASES = [
    # the table's type, the type of the changes, a value, whether Delta can widen the column
    ("DECIMAL(10,2)", "DECIMAL(8,4)", "1.2345", True),
    ("INT", "DECIMAL(10,2)", "1.25", True),
    ("INT", "DOUBLE", "1.25", True),
    ("DATE", "TIMESTAMP_NTZ", "2026-01-02 03:04:05", True),
    ("DATE", "TIMESTAMP", "2026-01-02 03:04:05", False),
]


@pytest.mark.parametrize("kind", ["delta", "iceberg", "postgresql", "mariadb"])
def test_statement_of_the_error_widens_the_column(
    spark: SparkSession, new_sink: NewSink, kind: str
) -> None:
    sink, quote = new_sink(kind), {"postgresql": '"', "mariadb": "`"}.get(kind, "")
    # A name of upper and lower case with the quote of the database, for each case.
    of_table = [f"Va{quote}l{index}" for index in range(len(CASES))]
    columns = [name if quote else name.lower() for name in of_table]
    quoted = [
        f"{quote}{name.replace(quote, quote * 2)}{quote}" if quote else name for name in of_table
    ]
    key, using = (
        ("INT PRIMARY KEY", "") if isinstance(sink.table, JdbcTarget) else ("INT", f"USING {kind}")
    )
    narrow = ", ".join(f"{name} {old}" for name, (old, *_) in zip(quoted, CASES, strict=True))
    sink.execute(f"CREATE TABLE {sink.sql_name} (id {key}, {narrow}) {using}")
    casts = [f"CAST('{value}' AS {new})" for _, new, value, _ in CASES]
    select_list = ", ".join(
        f"{cast} AS {backquoted(name)}" for name, cast in zip(columns, casts, strict=True)
    )
    changes = spark.sql(f"SELECT '+I' AS row_kind, 1 AS id, {select_list}")
    widened = []
    for column, (old, new, _, widens) in zip(columns, CASES, strict=True):
        with pytest.raises(
            SchemaError, match=rf"as {re.escape(old)}, which cuts values of {re.escape(new)}: "
        ) as error:
            apply_batch(changes, sink.table, keys="id", column_list=["id", column])
        advice = re.search("run (.*), or convert the column to", str(error.value))
        if kind == "iceberg" or (kind == "delta" and not widens):
            assert advice is None
            continue
        assert advice is not None
        for statement in advice[1].split("; "):
            sink.execute(statement)
        widened.append(column)
    apply_batch(changes, sink.table, keys="id", column_list=["id", *widened])
    values = [backquoted(name) for name in ["id", *widened]]
    assert [tuple(row) for row in sink.read().select(values).collect()] == [
        tuple(changes.select(values).collect()[0])
    ]
