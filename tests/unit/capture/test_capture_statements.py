"""The possible effect of a logged statement on a table, from its text alone."""

import time

import pytest
from hypothesis import example, given, strategies as st

from capture.options import read_options
from capture.statements import Effect, ServerSyntax, SqlStatement, Token, decode, scan
from capture.table import TableId
from tests.support.error_texts import error_test

MARIADB, MYSQL = ServerSyntax(mariadb=True), ServerSyntax(mariadb=False)
ANSI_QUOTES, NO_BACKSLASH_ESCAPES = 2**2, 2**20
TABLE = TableId("shop", "t")


def effect(
    text: str,
    dialect: ServerSyntax = MARIADB,
    schema: str = "shop",
    table: TableId = TABLE,
    *,
    is_exact: bool = True,
) -> Effect:
    return SqlStatement(text, dialect, is_exact=is_exact).effect(schema, table)


EFFECTS = {
    Effect.NOTHING: [
        "",
        "-- a comment alone",
        "GRANT SELECT ON t TO u",
        "REVOKE ALL ON t FROM u",
        "CREATE USER t",
        "SET PASSWORD FOR t = 'p'",
        "ANALYZE TABLE t",
        "OPTIMIZE TABLE t",
        "REPAIR TABLE t",
        "FLUSH TABLES t",
        "CREATE TABLE t (id INT)",
        "CREATE TABLE IF NOT EXISTS t LIKE u",
        "CREATE OR REPLACE TEMPORARY TABLE t (id INT)",
        "DROP TEMPORARY TABLE IF EXISTS t",
        "CREATE UNIQUE INDEX i ON t (a)",
        (
            "CREATE OR REPLACE ALGORITHM=MERGE DEFINER=`u`@`h` SQL SECURITY DEFINER VIEW v AS "
            "SELECT * FROM t"
        ),
        "CREATE DEFINER=`u`@`h` TRIGGER r BEFORE INSERT ON t FOR EACH ROW SET NEW.a = 1",
        "CREATE DEFINER=`u`@`h` PROCEDURE p() BEGIN TRUNCATE TABLE t; DROP TABLE t; END",
        "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO DELETE FROM t",
        "ALTER DATABASE shop CHARACTER SET utf8mb4",
        "CREATE DATABASE IF NOT EXISTS shop",
        "CREATE OR REPLACE TABLE u AS SELECT * FROM t",
        "REPLACE INTO sums SELECT COUNT(*) FROM t",
        "TRUNCATE TABLE t2",
        "TRUNCATE TABLE other.t",
        "TRUNCATE TABLE 't'",
        "DROP TABLE t.u",
        "DROP TABLE u /* t */",
        "DROP DATABASE t",
        "ALTER TABLE u DROP COLUMN t",
        "ALTER TABLE u ADD FOREIGN KEY (x) REFERENCES t (id), MODIFY y INT",
        "SAVEPOINT t",
        "XA COMMIT 't'",
    ],
    Effect.KEEPS: [
        "ALTER TABLE t",
        "ALTER TABLE t ADD COLUMN w INT AFTER id, ADD INDEX (w), ALGORITHM=INSTANT, LOCK=NONE",
        "ALTER ONLINE TABLE IF EXISTS `shop` . `t` WAIT 5 ADD (w INT, x INT)",
        (
            "ALTER TABLE t ALTER COLUMN a SET DEFAULT 5, DROP INDEX i, DROP FOREIGN KEY f, RENAME "
            "INDEX i TO j"
        ),
        "ALTER TABLE t ENGINE = InnoDB ROW_FORMAT DYNAMIC COMMENT 'DROP COLUMN a' AUTO_INCREMENT 5",
        "ALTER TABLE t ENGINE = 'innodb', page_compressed = 1, COMMENT 'engine'",
        "ALTER TABLE t REORGANIZE PARTITION p, q INTO (PARTITION r VALUES LESS THAN (9))",
        "ALTER TABLE t ADD w INT PARTITION BY HASH (id) PARTITIONS 4",
        "DROP INDEX i ON t",
        "FUTURE STATEMENT ON other",
        "BEGIN NOT ATOMIC DROP TABLE other; END",
        "SET STATEMENT a = 1",
        "CREATE SPATIAL REFERENCE SYSTEM 4120 NAME 'Greek'",
    ],
    Effect.RESHAPES: [
        "ALTER TABLE t MODIFY a INT COMMENT 'c'",
        "ALTER TABLE t ADD x INT, CHANGE a a INT DEFAULT (CAST('5' AS SIGNED))",
        "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a",
        "ALTER TABLE t DROP a",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
    ],
    Effect.EMPTIES: [
        "TRUNCATE t",
        "TRUNCATE TABLE .t",
        "TRUNCATE TABLE shop.t",
        "truncate table `SHOP`.`T`",
        (
            "SET STATEMENT max_statement_time=(SELECT 1 FOR UPDATE), a='FOR' FOR SET STATEMENT b=1 "
            "FOR TRUNCATE t"
        ),
    ],
    Effect.WRITES: [
        "INSERT INTO t VALUES (1)",
        "INSERT LOW_PRIORITY IGNORE shop.t SET a = 1",
        "REPLACE t SELECT 1",
        "UPDATE u JOIN t SET u.a = 1",
        "DELETE t FROM t JOIN u",
        "WITH c AS (SELECT 1) UPDATE t SET a = 1",
        "LOAD DATA INFILE 'f' INTO TABLE `t` FIELDS TERMINATED BY '\\t'",
    ],
    Effect.REPLACES: [
        "DROP TABLE u, t",
        "DROP TABLES IF EXISTS u, .t",
        "RENAME TABLE t TO u",
        "RENAME TABLES u WAIT 5 TO shop.t",
        "DROP DATABASE IF EXISTS shop",
        "CREATE OR REPLACE DATABASE shop",
        "CREATE OR REPLACE TABLE IF NOT EXISTS t (id INT)",
        "CREATE OR REPLACE SEQUENCE t",
        "ALTER IGNORE TABLE t ADD UNIQUE (a)",
        "ALTER TABLE t RENAME u",
        "ALTER TABLE t RENAME = u",
        "ALTER TABLE t ALGORITHM=COPY, RENAME AS u",
        "ALTER TABLE t TRUNCATE PARTITION p",
        "ALTER TABLE t DROP PARTITION p",
        "ALTER TABLE t DISCARD TABLESPACE",
        "ALTER TABLE t IMPORT TABLESPACE",
        "ALTER TABLE t CONVERT PARTITION p TO TABLE u",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u",
        "ALTER TABLE u EXCHANGE PARTITION p WITH TABLE t",
        "ALTER TABLE u CONVERT TABLE t TO PARTITION p VALUES LESS THAN (9)",
        "ALTER TABLE t ENGINE = BLACKHOLE",
        "ALTER TABLE t COMMENT 'InnoDB' ENGINE BLACKHOLE",
        "ALTER TABLE t MODIFY g INT AS (a + 1) STORED",
        "ALTER TABLE t FUTURE CLAUSE",
        "FUTURE STATEMENT ON t",
        "BEGIN NOT ATOMIC TRUNCATE TABLE t; END",
    ],
}
CASES = [(text, expected) for expected, texts in EFFECTS.items() for text in texts]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_effect_of_a_statement(text: str, expected: Effect) -> None:
    assert effect(text) is expected
    assert effect(f"# c\n/*!50000 {text}\n*/") is expected


SEPARATORS = [
    " ",
    "\n",
    "\t\r\n",
    "/**/",
    "/* DROP 'a\" ` */",
    "-- GRANT ' \n",
    "# it's /*\n",
    "/*!",
    "*/",
    "\x00",
    "/*+ HINT */",
]


def joined(tokens: list[Token], separators: list[str]) -> str:
    text = ""
    opened = False
    for token, separator in zip(tokens, separators, strict=True):
        if separator in ("/*!", "*/"):
            separator, opened = ("*/", False) if opened else ("/*!50100 ", True)
        quote = {"name": "`", "string": "'"}.get(token.kind, "")
        text += (
            " " * text.endswith("*")
            + separator
            + quote
            + token.text.replace(quote, quote * 2 or "")
            + quote
        )
    return text + (" */" if opened else "")


@given(st.data(), st.sampled_from([each for each in CASES if each[0]]))
def test_comments_and_white_space_change_nothing(
    data: st.DataObject, case: tuple[str, Effect]
) -> None:
    text, expected = case
    tokens, _ = scan(text, MARIADB)
    separators = data.draw(
        st.lists(st.sampled_from(SEPARATORS), min_size=len(tokens), max_size=len(tokens))
    )
    other = joined(tokens, separators)
    assert scan(other, MARIADB) == (tokens, True)
    assert effect(other) is expected


TEXT = st.text() | st.lists(
    st.sampled_from(
        [
            "'",
            '"',
            "`",
            "\\",
            "/*",
            "/*!",
            "/*M!50000",
            "*/",
            "--",
            "-- ",
            "#",
            "\n",
            "\0",
            "(",
            ")",
            ",",
            ".",
            "t",
            "shop",
            "é",
        ]
    )
    | st.sampled_from([word for text, _ in CASES for word in text.split()]),
    max_size=30,
).map(" ".join)


@given(
    TEXT,
    st.booleans(),
    st.sampled_from([0, ANSI_QUOTES, NO_BACKSLASH_ESCAPES]),
    st.sampled_from(["", "shop", "other"]),
)
@example("SET STATEMENT", True, 0, "")
@example("ALTER TABLE", True, 0, "shop")
@example("'\\", True, 0, "shop")
def test_no_text_fails(text: str, mariadb: bool, sql_mode: int, schema: str) -> None:
    parsed = SqlStatement(text, ServerSyntax(mariadb, sql_mode))
    assert isinstance(parsed.effect(schema, TABLE), Effect)
    assert isinstance(parsed.ends_transaction and parsed.may_create, bool)


@given(st.binary(), st.integers(0, 3000))
def test_no_bytes_fail(statement: bytes, charset: int) -> None:
    text, is_exact = decode(statement, charset)
    assert isinstance(SqlStatement(text, MYSQL, is_exact=is_exact).effect("shop", TABLE), Effect)


@pytest.mark.parametrize(
    "part",
    [
        "/* c */",
        "/*",
        "/*!",
        "/*!50000 */",
        "*/",
        "-- c\n",
        "--",
        "#",
        "# c\n",
        "'",
        "''",
        '"a"',
        "`a`",
        "\\'",
        "a.",
        "(",
        ",",
        "SET STATEMENT FOR ",
    ],
)
def test_scan_time_is_linear_in_the_length(part: str) -> None:
    # A former regular expression took seconds for 22 comments, and weeks for 40.
    few, many = (min(_seconds_of_scans(part * count) for _ in range(3)) for count in (1_000, 8_000))
    assert many < 32 * few  # a quadratic scan would take 64 times as long


def _seconds_of_scans(text: str) -> float:
    begin = time.process_time()
    assert isinstance(effect(f"{text} TRUNCATE TABLE t"), Effect)
    assert isinstance(effect(f"ALTER TABLE t {text}"), Effect)
    assert len(scan(text, MARIADB)[0]) <= len(text)
    return time.process_time() - begin


def test_many_comments_hide_nothing() -> None:
    assert effect("/* c */ -- c\n# c\n" * 10_000 + "TRUNCATE TABLE t") is Effect.EMPTIES


@pytest.mark.parametrize(
    ("text", "dialect", "expected"),
    [
        ('TRUNCATE TABLE "t"', MARIADB, Effect.NOTHING),
        ('TRUNCATE TABLE "t"', ServerSyntax(True, ANSI_QUOTES), Effect.EMPTIES),
        ("RENAME TABLE `a\\` TO b, `t` TO `c`", MARIADB, Effect.REPLACES),
        ("ALTER TABLE t COMMENT 'a\\', RENAME u -- '", MARIADB, Effect.KEEPS),
        (
            "ALTER TABLE t COMMENT 'a\\', RENAME u -- '",
            ServerSyntax(True, NO_BACKSLASH_ESCAPES),
            Effect.REPLACES,
        ),
        ("/*M!100000 TRUNCATE TABLE t */", MARIADB, Effect.EMPTIES),
        ("/*M!100000 GRANT SELECT ON u TO v */ TRUNCATE TABLE t", MYSQL, Effect.EMPTIES),
        ("TRUNCATE TABLE t --x", MYSQL, Effect.EMPTIES),
        ("/* 99999 a /* b */ GRANT */ TRUNCATE TABLE t", MYSQL, Effect.REPLACES),
        ("/* 99999 a /* b */ GRANT */ TRUNCATE TABLE u", MYSQL, Effect.KEEPS),
        ("CREATE VIEW v AS SELECT */* c */ FROM t", MYSQL, Effect.NOTHING),
        ("GRANT 'TRUNCATE TABLE t", MYSQL, Effect.KEEPS),
        ("ALTER TABLE t SECONDARY_LOAD", MYSQL, Effect.KEEPS),
    ],
)
def test_quotes_and_comments_depend_on_the_session_and_the_server(
    text: str, dialect: ServerSyntax, expected: Effect
) -> None:
    assert effect(text, dialect) is expected


def test_unqualified_names_belong_to_the_default_database() -> None:
    for text, schema, expected in (
        ("TRUNCATE t", "other", Effect.NOTHING),
        ("TRUNCATE .t", "other", Effect.NOTHING),
        ("TRUNCATE shop.t", "", Effect.EMPTIES),
        ("DROP DATABASE shop", "", Effect.REPLACES),
    ):
        assert effect(text, schema=schema) is expected


@pytest.mark.parametrize(
    ("charset", "statement", "expected"),
    [
        (8, "TRUNCATE TABLE é".encode("cp1252"), Effect.EMPTIES),
        (45, "TRUNCATE TABLE é".encode(), Effect.EMPTIES),
        (63, "TRUNCATE TABLE é".encode(), Effect.EMPTIES),
        (2304, "TRUNCATE TABLE é".encode(), Effect.EMPTIES),
        (8, b"TRUNCATE\xa0TABLE\xa0\xe9", Effect.EMPTIES),
        # In GBK, the second byte of a character can be that of a backslash: the comment ends where
        # it seems to continue.
        (28, b"DROP TABLE u COMMENT '\xbf\x5c', `\xa8\xa6`", Effect.REPLACES),
        (1052, b"DROP TABLE u COMMENT '\xbf\x5c', `\xa8\xa6`", Effect.REPLACES),
        (28, b"GRANT '\xff'", Effect.KEEPS),
        (45, b"GRANT '\xff'", Effect.NOTHING),
        (92, b"GRANT '\xff'", Effect.KEEPS),
        (92, b"GRANT 'a'", Effect.NOTHING),
    ],
)
def test_statement_is_decoded_in_the_clients_character_set(
    charset: int, statement: bytes, expected: Effect
) -> None:
    text, is_exact = decode(statement, charset)
    assert effect(text, MYSQL, table=TableId("shop", "é"), is_exact=is_exact) is expected


@pytest.mark.parametrize(
    ("text", "ends", "creates"),
    [
        ("", False, False),
        ("BEGIN", False, False),
        ("/* c */ BEGIN WORK", False, False),
        ("SAVEPOINT `a`", False, False),
        ("ROLLBACK TO `a`", False, False),
        ("XA START 'a'", False, False),
        ("INSERT INTO t VALUES (1)", False, False),
        ("COMMIT", True, False),
        ("ROLLBACK", True, False),
        ("XA COMMIT 'a'", True, False),
        ("TRUNCATE t", True, False),
        ("CREATE /* c */ TABLE t (a INT)", True, True),
        ("RENAME TABLE t TO u", True, True),
        ("ALTER TABLE t RENAME u", True, True),
        ("FUTURE STATEMENT", True, True),
    ],
)
def test_statements_that_end_a_transaction_or_may_create_a_table(
    text: str, ends: bool, creates: bool
) -> None:
    parsed = SqlStatement(text, MARIADB)
    assert (parsed.ends_transaction, parsed.may_create) == (ends, creates)


def test_columns_that_a_statement_drops_or_renames() -> None:
    clauses = (
        "DROP COLUMN IF EXISTS a, DROP b, CHANGE COLUMN c `D` INT, CHANGE e E INT, RENAME COLUMN f "
        "TO g, MODIFY h INT, ADD i INT"
    )
    assert SqlStatement(f"ALTER TABLE t {clauses}", MARIADB).removed == {"a", "b", "c", "f"}
    assert (
        SqlStatement(
            (
                "ALTER TABLE t DROP INDEX a, DROP PRIMARY KEY, RENAME KEY b TO c, CONVERT TO "
                "CHARACTER SET d"
            ),
            MARIADB,
        ).removed
        == set()
    )
    assert SqlStatement("ALTER TABLE t DROP `key`", MARIADB).removed == {"key"}


# --------------------------------------------------------------------------------------------------
# Options of the capture: refused ones, and no shown password


def test_password_is_not_in_the_repr_of_options() -> None:
    texts = {
        "hostname": "h",
        "username": "u",
        "password": "s3cret",
        "Database-Name": "d",
        "TABLE-NAME": "t",
    }
    assert "s3cret" not in repr(read_options(texts))


test_error_texts = error_test(
    __file__,
    {
        **{
            f"invalid options raise an error, {number}": lambda options=options: read_options(
                {
                    "hostname": "h",
                    "username": "u",
                    "password": "p",
                    "database-name": "d",
                    "table-name": "t",
                }
                | options
            )
            for number, options in enumerate(
                [
                    {"chunk": "1"},
                    {"server-id": "9-5"},
                    {"server-id": "5400"},
                    {"scan.startup.mode": "specific-offset"},
                    {"scan.startup.mode": "newest"},
                ],
                1,
            )
        },
    },
)
