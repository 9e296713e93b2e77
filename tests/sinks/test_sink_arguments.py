"""Invalid arguments are refused at the call, and secrets are not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sinking import changelog

from cdc_formats.errors import ArgumentError
from normalize import DeltaTable, IcebergTable, JdbcTable, apply_changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

URL = "jdbc:postgresql://localhost/shop"


def test_a_jdbc_table_does_not_show_its_secrets() -> None:
    table = JdbcTable(URL, "products", user="me", password="hunter2", options={"sslpassword": "hunter3"})
    assert repr(table) == "JdbcTable(url='jdbc:postgresql://localhost/shop', table='products', user='me')"


@pytest.mark.parametrize(
    "url",
    [
        f"{URL}?user=me&password=hunter2",
        f"{URL}?ssl=true&sslpassword=hunter2",
        "jdbc:mysql://me:hunter2@localhost/shop",
        "jdbc:mariadb://address=(host=a)(password=hunter2)/shop",
    ],
)
def test_a_password_in_the_url_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(ArgumentError, match="has a password in its url") as caught:
        JdbcTable(url, "products")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: JdbcTable("jdbc:oracle:thin:@x", "t"), "it must begin with jdbc:postgresql:"),
        (lambda: JdbcTable(URL, ""), "'table' or 'schema.table'"),
        (lambda: JdbcTable(URL, "a..b"), "'table' or 'schema.table'"),
        (lambda: DeltaTable(""), "requires the name of a table"),
        (lambda: IcebergTable("lake..t"), "'lake..t' has an empty part"),
        (lambda: DeltaTable("shop.a`b"), "an unbalanced backquote"),
        (lambda: IcebergTable(None), "requires the name of a table"),  # type: ignore[arg-type]
    ],
)
def test_invalid_tables(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


def test_a_path_is_a_table_of_delta() -> None:
    assert DeltaTable("s3://lake/products").sql_name == "`delta`.`s3://lake/products`"
    assert DeltaTable("/lake/it`s").sql_name == "`delta`.`/lake/it``s`"
    assert DeltaTable("shop.products").sql_name == "`shop`.`products`"


def test_every_table_name_is_quoted() -> None:
    assert IcebergTable("lake.db.t USING x; --").sql_name == "`lake`.`db`.`t USING x; --`"
    assert DeltaTable("delta.`/lake/products`").sql_name == "`delta`.`/lake/products`"
    assert DeltaTable("shop.`a/b.c``d`").sql_name == "`shop`.`a/b.c``d`"


@pytest.mark.spark
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({}, r"requires primary_key=\[...\]"),
        ({"primary_key": "no"}, "primary_key has 'no', which is not one of the columns to write: id, v"),
        ({"primary_key": "id", "columns": ["v"]}, "primary_key has 'id', which is not one of the columns to write: v"),
        ({"primary_key": "id", "order_by": "no"}, "the DataFrame has no column 'no'; it has id, v"),
        ({"history": True, "order_by": "v"}, "history and order_by cannot be combined"),
    ],
)
def test_invalid_arguments(spark: SparkSession, arguments: Any, text: str, tmp_path: Any) -> None:
    with pytest.raises(ArgumentError, match=text):
        apply_changes(changelog(spark, "id INT, v INT", [("+I", 1, 2)]), DeltaTable(str(tmp_path)), **arguments)


@pytest.mark.spark
def test_a_dataframe_without_row_kind_is_refused(spark: SparkSession, tmp_path: Any) -> None:
    with pytest.raises(ArgumentError, match="no column row_kind"):
        apply_changes(spark.range(1), DeltaTable(str(tmp_path)), primary_key="id")
