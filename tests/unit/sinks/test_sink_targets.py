"""Targets: invalid ones are refused, names are quoted, and secrets are not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize import DeltaDatabase, DeltaTarget, IcebergTarget, JdbcTarget

if TYPE_CHECKING:
    pass


URL = "jdbc:postgresql://localhost/shop"


def test_a_jdbc_table_does_not_show_its_secrets() -> None:
    table = JdbcTarget(
        URL, "products", user="me", password="hunter2", options={"sslpassword": "hunter3"}
    )
    assert (
        repr(table)
        == "JdbcTarget(url='jdbc:postgresql://localhost/shop', table='products', user='me')"
    )


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
        JdbcTarget(url, "products")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: JdbcTarget("jdbc:oracle:thin:@x", "t"), "it must begin with jdbc:postgresql:"),
        (lambda: JdbcTarget(URL, ""), "'table' or 'schema.table'"),
        (lambda: JdbcTarget(URL, "a..b"), "'table' or 'schema.table'"),
        (lambda: DeltaTarget(""), "requires the name of a table"),
        (lambda: IcebergTarget("lake..t"), "'lake..t' has an empty part"),
        (lambda: DeltaTarget("shop.a`b"), "an unbalanced backquote"),
        (lambda: IcebergTarget(None), "requires the name of a table"),  # type: ignore[arg-type]
    ],
)
def test_invalid_tables(make: Any, text: str) -> None:
    with pytest.raises(ArgumentError, match=text):
        make()


def test_a_path_is_a_table_of_delta() -> None:
    assert DeltaTarget("s3://lake/products").sql_name == "`delta`.`s3://lake/products`"
    assert DeltaTarget("/lake/it`s").sql_name == "`delta`.`/lake/it``s`"
    assert DeltaTarget("shop.products").sql_name == "`shop`.`products`"


def test_every_table_name_is_quoted() -> None:
    assert IcebergTarget("lake.db.t USING x; --").sql_name == "`lake`.`db`.`t USING x; --`"
    assert DeltaTarget("delta.`/lake/products`").sql_name == "`delta`.`/lake/products`"
    assert DeltaTarget("shop.`a/b.c``d`").sql_name == "`shop`.`a/b.c``d`"


@pytest.mark.parametrize("name", ["lake/products", "./products", "../lake/products"])
def test_a_relative_path_is_refused(name: str) -> None:
    with pytest.raises(
        ArgumentError, match=r"is relative: pass an absolute path \(/lake/shop\) or a URI"
    ):
        DeltaTarget(name)
    with pytest.raises(ArgumentError, match="is relative"):
        DeltaDatabase(name)
