"""What a test needs, by its fixtures and markers, and the folder that it belongs to.

=======  ==========================================================
folder   its tests need
=======  ==========================================================
unit     neither Java nor servers
spark    a Spark session
servers  Kafka, a registry or databases, without Spark
e2e      Spark together with servers
connect  a session of Spark Connect, with or without servers
=======  ==========================================================

A test gets the markers of its fixtures. A test that starts Spark or a server itself has the marker
in its source.
"""

from collections.abc import Container, Iterable

TIERS = ("unit", "spark", "servers", "e2e", "connect")
SERVERS = frozenset({"kafka", "mariadb", "postgres", "registry"})
NEEDS = SERVERS | {"spark", "connect"}
FIXTURES = {
    **{name: name for name in NEEDS},
    "connect_server": "connect",
    "encrypted": "mariadb",
    "secured": "kafka",
    "source": "mariadb",
}
KINDS = {"postgresql": "postgres", "mariadb": "mariadb", "mysql-driver": "mariadb"}
"""The server of a target table's kind."""


def needs(markers: Iterable[str], fixtures: Iterable[str], kind: object = None) -> set[str]:
    """Return the markers that a test needs: its own, its fixtures' and its target table's."""
    needed = {FIXTURES[name] for name in fixtures if name in FIXTURES}
    return (
        needed
        | (set(markers) & NEEDS)
        | ({KINDS[kind]} if isinstance(kind, str) and kind in KINDS else set())
    )


def misplaced(tier: str, needed: set[str]) -> str | None:
    """Return why a test that needs this does not belong to the folder, or None."""
    servers = needed & SERVERS
    if {"spark", "connect"} <= needed:
        return (
            "it needs a classic session and one of Spark Connect, which cannot share a process: "
            "split it"
        )
    classic = (
        ("e2e" if servers else "spark") if "spark" in needed else "servers" if servers else "unit"
    )
    belongs = "connect" if "connect" in needed else classic
    if tier == belongs:
        return None
    return (
        f"it needs {', '.join(sorted(needed)) or 'neither Spark nor servers'}: move it to "
        f"tests/{belongs}"
    )


def mixed(tests: Iterable[Container[str]]) -> str | None:
    """Return why tests with these markers cannot run in one process, or None."""
    engines = {name for markers in tests for name in ("spark", "connect") if name in markers}
    if len(engines) < 2:
        return None
    return (
        "tests/connect needs a session of Spark Connect, which cannot share a process with a "
        "classic one: run pytest tests/connect alone"
    )
