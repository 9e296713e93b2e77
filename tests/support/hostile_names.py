"""Column names that could end a name, a statement or a type."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from cdc_formats.values.schema import columns as to_columns

HOSTILE = [
    "first-name", "a.b", "a`b", "`", "``", "*", "a.*", "x; DROP TABLE t", "--", "/* x */", "it's", 'say "x"', '" TEXT); --', "a\nb",
    "a\tb", "a=b", "(a), b", "a:b", "<>", "{0}", "%s", "?", "\\", "select", "COMMENT 'x'", "NOT NULL", "名前", "é", "e\u0301", "\u2028",
    "t", "s", "c1", "one", "row", "flags", "kind", "last", "_flags", "_change", "_matches", "_sign", "_source", "Provider", "TIMESTAMP",
    "element", "counts",
]  # fmt: skip
"""Names that could end a name, a statement or a type, SQL keywords, and names that the statements
use."""

OF_DELTA = [name for name in HOSTILE if not set(" ,;{}()\n\t=") & set(name)]

_any_text = st.text(
    st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("`.\"-<>:,;'"),
    max_size=8,
)

names = st.sampled_from(HOSTILE) | _any_text


def nested(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """DDL types of this project whose fields have hostile names."""
    fields = st.lists(
        st.tuples(names, inner), min_size=1, max_size=3, unique_by=lambda field: field[0]
    )
    structs = fields.map(
        lambda named: f"STRUCT<{', '.join(f'{quoted(name)}: {kind}' for name, kind in named)}>"
    )
    return inner.map("ARRAY<{}>".format) | inner.map("MAP<STRING, {}>".format) | structs


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


types = st.recursive(st.just("INT"), nested, max_leaves=6)

tables = st.lists(
    st.tuples(names, types), min_size=1, max_size=4, unique_by=lambda column: column[0]
).map(lambda named: to_columns(", ".join(f"{quoted(name)} {kind}" for name, kind in named)))


def spark_type(column: Any) -> DataType:
    """The Spark type of a column, made without a parser."""
    from pyspark.sql.types import (
        ArrayType,
        IntegerType,
        MapType,
        StringType,
        StructField,
        StructType,
    )

    inner = [spark_type(field) for field in column.type.fields]
    match column.type.name:
        case "STRUCT":
            return StructType(
                [
                    StructField(field.name, kind)
                    for field, kind in zip(column.type.fields, inner, strict=True)
                ]
            )
        case "ARRAY":
            return ArrayType(*inner)
        case "MAP":
            return MapType(*inner)
        case name:
            return StringType() if name == "STRING" else IntegerType()


def hostile(
    spark: SparkSession,
    candidate: Sequence[str],
    rows: Sequence[tuple[str, int, int]],
    inner: Sequence[str] = (),
) -> DataFrame:
    """Return a changelog of these columns, the first its key; with `inner`, the last is nested."""
    from pyspark.sql.types import (
        ArrayType,
        IntegerType,
        MapType,
        StringType,
        StructField,
        StructType,
    )

    fields = [
        StructField("row_kind", StringType()),
        *(StructField(name, IntegerType()) for name in candidate),
    ]
    made = [
        (kind, key, *(value + index for index, _ in enumerate(candidate[1:])))
        for kind, key, value in rows
    ]
    if inner:
        deep = StructType([StructField(name, IntegerType()) for name in inner])
        many = [
            StructField(inner[1], ArrayType(deep)),
            StructField("m", MapType(StringType(), deep)),
        ]
        document = StructType([StructField(inner[0], deep), *many])
        fields.append(StructField("it's.deep`er", document))
        made = [
            (*row, (leaf, [leaf], {"k": leaf}))
            for row in made
            for leaf in [tuple(row[2] + index for index, _ in enumerate(inner))]
        ]
    return spark.createDataFrame(spark.sparkContext.parallelize(made, 1), StructType(fields))


def values(df: DataFrame) -> list[tuple[Any, ...]]:
    """The final rows of a changelog, without the row kind."""
    last = {row[1]: row for row in df.collect()}
    return sorted(
        (tuple(row)[1:] for row in last.values() if row.row_kind in ("+I", "+U")), key=repr
    )
