"""TPC-C's nine tables: columns as Spark's DDL, and keys.

The specification gives HISTORY no key, and neither does go-tpc. The benchmark adds ``h_id``, which
the database counts.
"""

from __future__ import annotations

from typing import NamedTuple


class Table(NamedTuple):
    """A table: its name, columns as Spark's DDL by name, and primary key."""

    name: str
    columns: dict[str, str]
    key: tuple[str, ...]

    @property
    def ddl(self) -> str:
        """The columns as Spark's DDL."""
        return ", ".join(f"{name} {kind}" for name, kind in self.columns.items())


_ADDRESS = ("street_1", "street_2", "city", "state", "zip")
_TEXT, _MONEY, _TIME = "STRING", "DECIMAL(12,2)", "TIMESTAMP_NTZ"


def _columns(prefix: str, **kinds: str) -> dict[str, str]:
    return {f"{prefix}_{name}": kind for name, kind in kinds.items()}


def _address() -> dict[str, str]:
    return dict.fromkeys(_ADDRESS, _TEXT)


WAREHOUSE = Table(
    "warehouse",
    _columns("w", id="INT", name=_TEXT, **_address(), tax="DECIMAL(4,4)", ytd=_MONEY),
    ("w_id",),
)
DISTRICT = Table(
    "district",
    _columns(
        "d",
        id="INT",
        w_id="INT",
        name=_TEXT,
        **_address(),
        tax="DECIMAL(4,4)",
        ytd=_MONEY,
        next_o_id="INT",
    ),
    ("d_w_id", "d_id"),
)
CUSTOMER = Table(
    "customer",
    _columns(
        "c",
        id="INT",
        d_id="INT",
        w_id="INT",
        first=_TEXT,
        middle=_TEXT,
        last=_TEXT,
        **_address(),
        phone=_TEXT,
        since=_TIME,
        credit=_TEXT,
        credit_lim=_MONEY,
        discount="DECIMAL(4,4)",
        balance=_MONEY,
        ytd_payment=_MONEY,
        payment_cnt="INT",
        delivery_cnt="INT",
        data=_TEXT,
    ),
    ("c_w_id", "c_d_id", "c_id"),
)
HISTORY = Table(
    "history",
    _columns(
        "h",
        id="BIGINT",
        c_id="INT",
        c_d_id="INT",
        c_w_id="INT",
        d_id="INT",
        w_id="INT",
        date=_TIME,
        amount="DECIMAL(6,2)",
        data=_TEXT,
    ),
    ("h_id",),
)
NEW_ORDER = Table(
    "new_order",
    _columns("no", o_id="INT", d_id="INT", w_id="INT"),
    ("no_w_id", "no_d_id", "no_o_id"),
)
ORDERS = Table(
    "orders",
    _columns(
        "o",
        id="INT",
        d_id="INT",
        w_id="INT",
        c_id="INT",
        entry_d=_TIME,
        carrier_id="INT",
        ol_cnt="INT",
        all_local="INT",
    ),
    ("o_w_id", "o_d_id", "o_id"),
)
ORDER_LINE = Table(
    "order_line",
    _columns(
        "ol",
        o_id="INT",
        d_id="INT",
        w_id="INT",
        number="INT",
        i_id="INT",
        supply_w_id="INT",
        delivery_d=_TIME,
        quantity="INT",
        amount="DECIMAL(6,2)",
        dist_info=_TEXT,
    ),
    ("ol_w_id", "ol_d_id", "ol_o_id", "ol_number"),
)
STOCK = Table(
    "stock",
    _columns(
        "s",
        i_id="INT",
        w_id="INT",
        quantity="INT",
        **{f"dist_{number:02}": _TEXT for number in range(1, 11)},
        ytd="INT",
        order_cnt="INT",
        remote_cnt="INT",
        data=_TEXT,
    ),
    ("s_w_id", "s_i_id"),
)
ITEM = Table(
    "item",
    _columns("i", id="INT", im_id="INT", name=_TEXT, price="DECIMAL(5,2)", data=_TEXT),
    ("i_id",),
)

TABLES = (WAREHOUSE, DISTRICT, CUSTOMER, HISTORY, NEW_ORDER, ORDERS, ORDER_LINE, STOCK, ITEM)
_INDEX = "CREATE INDEX history_of_customer ON history (h_c_w_id, h_c_d_id, h_c_id)"
SURROGATE = {
    "mariadb": (
        "ALTER TABLE history ADD h_id BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY FIRST",
        _INDEX,
    ),
    "postgresql": (
        "ALTER TABLE history ADD h_id BIGSERIAL PRIMARY KEY",
        _INDEX,
        *(f"ALTER TABLE {table.name} REPLICA IDENTITY FULL" for table in TABLES),
    ),
}
"""Statements that give HISTORY its key, and an index, without which go-tpc's check takes minutes.

Flink requires the before-images of PostgreSQL's updates."""
