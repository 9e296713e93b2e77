"""TPC-C's consistency conditions 3.3.2.1 to 3.3.2.12, as SQL that returns the rows that violate one.

The conditions are those of the specification with two exceptions. Condition 11 has the number of
deliveries added: an order that is delivered leaves NEW-ORDER, so that the 2,100 of the
specification are true only of the first rows. Conditions 10 and 12 compare a customer without
delivered order lines with 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

_PER_DISTRICT_OF_NEW_ORDERS = """
    SELECT no_w_id, no_d_id, MIN(no_o_id) AS least, MAX(no_o_id) AS most, COUNT(*) AS orders
    FROM new_order GROUP BY no_w_id, no_d_id
"""
_DELIVERED = """
    SELECT o_w_id, o_d_id, o_c_id, SUM(ol_amount) AS amount FROM orders
    JOIN order_line ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
    WHERE ol_delivery_d IS NOT NULL GROUP BY o_w_id, o_d_id, o_c_id
"""

CONDITIONS = {
    # W_YTD = sum(D_YTD)
    "3.3.2.1": """
        SELECT w_id FROM warehouse
        LEFT JOIN (SELECT d_w_id, SUM(d_ytd) AS ytd FROM district GROUP BY d_w_id) AS d ON d_w_id = w_id
        WHERE ytd IS NULL OR ytd <> w_ytd
    """,
    # D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID); a district may have no new orders
    "3.3.2.2": f"""
        SELECT d_w_id, d_id FROM district
        LEFT JOIN (SELECT o_w_id, o_d_id, MAX(o_id) AS last FROM orders GROUP BY o_w_id, o_d_id) AS o
          ON o_w_id = d_w_id AND o_d_id = d_id
        LEFT JOIN ({_PER_DISTRICT_OF_NEW_ORDERS}) AS n ON no_w_id = d_w_id AND no_d_id = d_id
        WHERE last IS NULL OR d_next_o_id - 1 <> last OR d_next_o_id - 1 <> most
    """,
    # max(NO_O_ID) - min(NO_O_ID) + 1 = the number of new orders
    "3.3.2.3": f"""
        SELECT no_w_id, no_d_id FROM ({_PER_DISTRICT_OF_NEW_ORDERS}) AS n
        WHERE most - least + 1 <> orders
    """,
    # sum(O_OL_CNT) = the number of order lines, by district
    "3.3.2.4": """
        SELECT o_w_id, o_d_id
        FROM (SELECT o_w_id, o_d_id, SUM(o_ol_cnt) AS expected FROM orders GROUP BY o_w_id, o_d_id) AS o
        LEFT JOIN (SELECT ol_w_id, ol_d_id, COUNT(*) AS counted FROM order_line GROUP BY ol_w_id, ol_d_id) AS l
          ON ol_w_id = o_w_id AND ol_d_id = o_d_id
        WHERE counted IS NULL OR counted <> expected
    """,
    # an order has no carrier if and only if it is a new order
    "3.3.2.5": """
        SELECT o_w_id, o_d_id, o_id FROM orders
        LEFT JOIN new_order ON no_w_id = o_w_id AND no_d_id = o_d_id AND no_o_id = o_id
        WHERE (o_carrier_id IS NULL) <> (no_o_id IS NOT NULL)
    """,
    # O_OL_CNT = the number of the order's lines
    "3.3.2.6": """
        SELECT o_w_id, o_d_id, o_id FROM orders
        LEFT JOIN (
          SELECT ol_w_id, ol_d_id, ol_o_id, COUNT(*) AS counted FROM order_line GROUP BY ol_w_id, ol_d_id, ol_o_id
        ) AS l ON ol_w_id = o_w_id AND ol_d_id = o_d_id AND ol_o_id = o_id
        WHERE counted IS NULL OR counted <> o_ol_cnt
    """,
    # an order line has no delivery date if and only if its order has no carrier
    "3.3.2.7": """
        SELECT ol_w_id, ol_d_id, ol_o_id, ol_number FROM order_line
        LEFT JOIN orders ON o_w_id = ol_w_id AND o_d_id = ol_d_id AND o_id = ol_o_id
        WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)
    """,
    # W_YTD = sum(H_AMOUNT)
    "3.3.2.8": """
        SELECT w_id FROM warehouse
        LEFT JOIN (SELECT h_w_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id) AS h ON h_w_id = w_id
        WHERE paid IS NULL OR paid <> w_ytd
    """,
    # D_YTD = sum(H_AMOUNT)
    "3.3.2.9": """
        SELECT d_w_id, d_id FROM district
        LEFT JOIN (SELECT h_w_id, h_d_id, SUM(h_amount) AS paid FROM history GROUP BY h_w_id, h_d_id) AS h
          ON h_w_id = d_w_id AND h_d_id = d_id
        WHERE paid IS NULL OR paid <> d_ytd
    """,
    # C_BALANCE = sum(OL_AMOUNT) of delivered lines - sum(H_AMOUNT)
    "3.3.2.10": f"""
        SELECT c_w_id, c_d_id, c_id FROM customer
        LEFT JOIN ({_DELIVERED}) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        LEFT JOIN (
          SELECT h_c_w_id, h_c_d_id, h_c_id, SUM(h_amount) AS paid FROM history GROUP BY h_c_w_id, h_c_d_id, h_c_id
        ) AS h ON h_c_w_id = c_w_id AND h_c_d_id = c_d_id AND h_c_id = c_id
        WHERE c_balance <> COALESCE(amount, 0) - COALESCE(paid, 0)
    """,
    # orders - new orders = 2,100 + deliveries, by district
    "3.3.2.11": f"""
        SELECT c_w_id, c_d_id
        FROM (SELECT c_w_id, c_d_id, SUM(c_delivery_cnt) AS delivered FROM customer GROUP BY c_w_id, c_d_id) AS c
        LEFT JOIN (SELECT o_w_id, o_d_id, COUNT(*) AS counted FROM orders GROUP BY o_w_id, o_d_id) AS o
          ON o_w_id = c_w_id AND o_d_id = c_d_id
        LEFT JOIN ({_PER_DISTRICT_OF_NEW_ORDERS}) AS n ON no_w_id = c_w_id AND no_d_id = c_d_id
        WHERE counted IS NULL OR counted - COALESCE(orders, 0) <> 2100 + delivered
    """,
    # C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT) of delivered lines
    "3.3.2.12": f"""
        SELECT c_w_id, c_d_id, c_id FROM customer
        LEFT JOIN ({_DELIVERED}) AS o ON o_w_id = c_w_id AND o_d_id = c_d_id AND o_c_id = c_id
        WHERE c_balance + c_ytd_payment <> COALESCE(amount, 0)
    """,
}


def violations(rows: Callable[[str], Iterable[object]]) -> dict[str, int]:
    """Return the number of rows that violate each condition.

    Parameters
    ----------
    rows : callable
        It returns the rows of a SQL query over the nine tables.
    """
    return {name: sum(1 for _ in rows(query)) for name, query in CONDITIONS.items()}
