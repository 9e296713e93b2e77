"""Events of the Debezium MySQL connector with positions, and a short history's clean changelog."""

import json


def row(key: int, name: str | None, qty: int) -> dict:
    return {"id": key, "name": name, "qty": qty}


def event(
    op: str,
    pos: int,
    before: dict | None,
    after: dict | None,
    *,
    file: int = 3,
    ts: int | None = None,
) -> tuple[bytes, bytes]:
    """An event of the Debezium MySQL connector."""
    source = {
        "connector": "mysql",
        "server_id": 1,
        "gtid": None,
        "file": f"mysql-bin.{file:06d}",
        "pos": pos,
        "row": 0,
    }
    source |= {
        "ts_ms": 1000 + pos if ts is None else ts,
        "table": "t",
        "snapshot": "true" if op == "r" else "false",
    }
    key = json.dumps({"id": (after or before or {})["id"]}).encode()
    return key, json.dumps({"before": before, "after": after, "op": op, "source": source}).encode()


A0, A1, A2 = row(1, "a", 0), row(1, "a", 1), row(1, "a", 2)

B0 = row(2, "b", 0)

HISTORY = [
    event("c", 10, None, A0),
    event("u", 20, A0, A1),
    event("c", 30, None, B0),
    event("d", 40, B0, None),
    event("u", 50, A1, A2),
]

CLEAN = ["+I(1,a,0)", "-U(1,a,0)", "+U(1,a,1)", "+I(2,b,0)", "-D(2,b,0)", "-U(1,a,1)", "+U(1,a,2)"]
