"""DDL text to columns and back."""

import pytest
from hypothesis import given, settings, strategies as st

from cdc_formats import Column, SqlType, columns, get_format, to_ddl
from cdc_formats.errors import SchemaError
from cdc_formats.values.schema import TYPE_NAMES, backquoted, name_parts
from tests.support.examples import examples


@pytest.mark.parametrize(
    ("ddl", "written"),
    [
        pytest.param("id bigint not null", "id BIGINT NOT NULL", id="small letters"),
        pytest.param(
            "id: INT, name: STRING", "id INT, name STRING", id="colons between name and type"
        ),
        pytest.param("`a b` INT, `c``d` INT", "`a b` INT, `c``d` INT", id="names in backquotes"),
        pytest.param(
            "größe INT, 名前 STRING", "`größe` INT, `名前` STRING", id="names that are not English"
        ),
        pytest.param(
            "a DECIMAL, b DEC(5), c NUMERIC(38,38)",
            "a DECIMAL(10,0), b DECIMAL(5,0), c DECIMAL(38,38)",
            id="decimals",
        ),
        pytest.param(
            "a BYTE, b SHORT, c INTEGER, d LONG, e REAL, f BYTES",
            "a TINYINT, b SMALLINT, c INT, d BIGINT, e FLOAT, f BINARY",
            id="synonyms",
        ),
        pytest.param(
            "a CHAR(3), b VARCHAR(7), c CHAR", "a CHAR(3), b VARCHAR(7), c CHAR", id="sized text"
        ),
        pytest.param(
            "a TIME(3), b TIMESTAMP(6), c TIMESTAMP_NTZ, d TIMESTAMP_LTZ",
            "a TIME(3), b TIMESTAMP(6), c TIMESTAMP_NTZ, d TIMESTAMP",
            id="times",
        ),
        pytest.param(
            "a INTERVAL DAY TO SECOND NOT NULL",
            "a INTERVAL DAY TO SECOND NOT NULL",
            id="an interval",
        ),
        pytest.param("a INT COMMENT 'it''s', b INT", None, id="a comment that ends twice"),
        pytest.param(
            "a INT NOT NULL COMMENT 'a, b', b INT",
            "a INT NOT NULL, b INT",
            id="a comment with a comma",
        ),
        pytest.param(
            r"a INT COMMENT 'it\'s', b INT", "a INT, b INT", id="a comment with an escaped quote"
        ),
        pytest.param(
            "a ARRAY<MAP<STRING,ARRAY<INT>>>", "a ARRAY<MAP<STRING, ARRAY<INT>>>", id="nested types"
        ),
        pytest.param(
            "s STRUCT<a: INT NOT NULL, `b c`: STRUCT<d DATE>>",
            "s STRUCT<a: INT NOT NULL, `b c`: STRUCT<d: DATE>>",
            id="structs",
        ),
        pytest.param("s STRUCT<>", "s STRUCT<>", id="an empty struct"),
        pytest.param("  id\n\tINT ,\n name STRING  ", "id INT, name STRING", id="blanks and lines"),
        pytest.param(
            "`` INT, s STRUCT<``: INT>",
            "`` INT, s STRUCT<``: INT>",
            id="empty names, as JSON has them",
        ),
        pytest.param(
            "a string collate UTF8_BINARY NOT NULL, b ARRAY<VARCHAR(3) COLLATE utf8_binary>",
            "a STRING NOT NULL, b ARRAY<VARCHAR(3)>",
            id="a collation",
        ),
        pytest.param("a$b INT, 1st INT", "`a$b` INT, `1st` INT", id="names that require quoting"),
    ],
)
def test_ddl_is_read_and_written(ddl: str, written: str | None) -> None:
    if written is None:
        with pytest.raises(SchemaError, match="comma before"):
            columns(ddl)
        return
    assert to_ddl(columns(ddl)) == written
    assert columns(to_ddl(columns(ddl))) == columns(ddl)


@pytest.mark.parametrize(
    ("ddl", "reason"),
    [
        pytest.param("", "at least one column", id="nothing"),
        pytest.param("  ", "at least one column", id="blanks"),
        pytest.param("id", "unknown type 'nothing'", id="a name alone"),
        pytest.param("id INT name STRING", "expected a comma before 'name'", id="no comma"),
        pytest.param(
            "id INT,", "a column is missing after the last comma", id="a comma at the end"
        ),
        pytest.param("id INT, id STRING", "column id is declared twice", id="a name twice"),
        pytest.param("id GEOMETRY", "unknown type 'GEOMETRY' [(]known", id="an unknown type"),
        pytest.param("id uuid", "unknown type 'UUID': write STRING", id="a type of databases"),
        pytest.param(
            "id STRING COLLATE UNICODE_CI",
            "declare STRING, and apply the collation in your query",
            id="a collation",
        ),
        pytest.param(
            "a STRUCT<b: CHAR(2) COLLATE UTF8_LCASE>",
            "CHAR\\(2\\) COLLATE UTF8_LCASE cannot be declared",
            id="a nested collation",
        ),
        pytest.param(
            "id INT COLLATE UTF8_BINARY",
            "expected a comma before 'COLLATE'",
            id="a collation of a number",
        ),
        pytest.param("id DECIMAL(39,0)", "from 1 to 38, got '39'", id="too much precision"),
        pytest.param("id DECIMAL(5,6)", "from 0 to 5, got '6'", id="a scale beyond the precision"),
        pytest.param("id DECIMAL(5", "expected ,|expected [)]", id="an open parenthesis"),
        pytest.param("id DECIMAL(٣)", "from 1 to 38, got '٣'", id="a digit that is not ASCII"),
        pytest.param("id TIME(7)", "from 0 to 6", id="too fine a time"),
        pytest.param("id VARCHAR(0)", "from 1 to", id="no length"),
        pytest.param("id ARRAY", "expected <", id="an array without an element type"),
        pytest.param("id ARRAY<INT", "expected >", id="an open array"),
        pytest.param("id MAP<INT>", "expected ,", id="a map without values"),
        pytest.param(
            "id STRUCT<a INT, >",
            "a column is missing after the last comma",
            id="a comma at the end of a struct",
        ),
        pytest.param(
            "id INTERVAL YEAR TO MONTH",
            "the only supported interval is INTERVAL DAY TO SECOND",
            id="another interval",
        ),
        pytest.param("id INT COMMENT", "expected the text of COMMENT", id="a comment without text"),
        pytest.param(
            "id INT COMMENT x", "expected the text of COMMENT", id="a comment without quotes"
        ),
        pytest.param(
            "id INT; DROP", "cannot read '; DROP'", id="a character that DDL does not have"
        ),
        pytest.param(
            "<id INT", "expected a column's name", id="a punctuation mark instead of a name"
        ),
        pytest.param("'id' INT", "expected a column's name", id="quoted text instead of a name"),
        pytest.param("id `INT`", "unknown type", id="a type in backquotes"),
    ],
)
def test_invalid_ddl_is_refused_with_the_reason(ddl: str, reason: str) -> None:
    with pytest.raises(SchemaError, match=reason):
        columns(ddl)


def test_a_time_is_text_in_spark_unless_it_is_declared_without_time_zone() -> None:
    text, time = columns("a TIME(3), b time(3) without time zone")
    assert (str(text), str(time)) == ("a TIME(3)", "b TIME(3) WITHOUT TIME ZONE")
    assert (text.type.is_spark_time, time.type.is_spark_time) == (False, True)
    with pytest.raises(SchemaError, match="declare the part as STRING"):
        columns("a ARRAY<TIME WITHOUT TIME ZONE>")


def test_columns_pass_through() -> None:
    table = (Column("a", SqlType("INT")), Column("b", SqlType("STRING"), nullable=False))
    assert columns(table) == columns(list(table)) == table
    with pytest.raises(SchemaError, match="declared twice"):
        columns([table[0], table[0]])


names = st.text(st.characters() | st.sampled_from("`.-<>:,;'"), max_size=6)
plain = st.sampled_from(
    [name for name in TYPE_NAMES if name not in ("DECIMAL", "ARRAY", "MAP", "STRUCT", "VARIANT")]
).map(SqlType)
sized = st.builds(
    lambda name, size: SqlType(name, size),
    st.sampled_from(["CHAR", "VARCHAR", "TIME", "TIMESTAMP", "TIMESTAMP_NTZ"]),
    st.integers(1, 6),
)
decimals = st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: SqlType("DECIMAL", p, s))
)


def nested(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[SqlType]:
    arrays = inner.map(lambda element: SqlType("ARRAY", fields=(Column("element", element),)))
    maps = st.builds(
        lambda k, v: SqlType("MAP", fields=(Column("key", k, nullable=False), Column("value", v))),
        inner,
        inner,
    )
    fields = st.lists(st.builds(Column, names, inner, st.booleans()), max_size=3)
    return arrays | maps | fields.map(lambda members: SqlType("STRUCT", fields=tuple(members)))


types = st.recursive(plain | sized | decimals, nested, max_leaves=6) | st.just(SqlType("VARIANT"))
tables = st.lists(
    st.builds(Column, names, types, st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda column: column.name,
)


@settings(max_examples=examples(100), deadline=None, derandomize=True)
@given(table=tables)
def test_columns_are_written_as_ddl_that_reads_back(table: list[Column]) -> None:
    assert columns(to_ddl(table)) == tuple(table)


@given(parts=st.lists(names, min_size=1, max_size=3))
def test_a_qualified_name_has_its_parts(parts: list[str]) -> None:
    assert name_parts(".".join(map(backquoted, parts))) == tuple(parts)


def test_a_qualified_name_needs_backquotes_only_around_dots_and_backquotes() -> None:
    assert name_parts("first-name.a b; DROP") == ("first-name", "a b; DROP")
    assert [name_parts(name) for name in ("a..b", "", "a`b", "`a", "a.`b`c")] == [()] * 5


def test_undeclared_keys_and_metadata_are_refused() -> None:
    with pytest.raises(
        SchemaError, match="primary key column nr is not declared; the columns are id, name"
    ):
        get_format("maxwell-json").decoder("id INT, name STRING", unique_key=["nr"])
    with pytest.raises(
        SchemaError,
        match="maxwell-json has no metadata column 'tabel'; it has database, ingestion-timestamp",
    ):
        get_format("maxwell-json").decoder("id INT", metadata=["tabel"])
    with pytest.raises(
        SchemaError, match="changelog-json has no metadata column 'table'; it has none"
    ):
        get_format("changelog-json").decoder("id INT", metadata=["table"])
