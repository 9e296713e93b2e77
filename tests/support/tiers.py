"""What a test needs, by its fixtures and markers, and the folder that it belongs to.

=======  ==========================================================
folder   its tests need
=======  ==========================================================
unit     neither Java nor servers
spark    a Spark session
servers  Kafka, a registry or databases, without Spark
e2e      Spark together with servers
=======  ==========================================================

A test gets the markers of its fixtures. A test that starts Spark or a server itself has the marker in its source.
"""

from __future__ import annotations

from collections.abc import Iterable

TIERS = ("unit", "spark", "servers", "e2e")
SERVERS = frozenset({"kafka", "mariadb", "postgres", "registry"})
NEEDS = SERVERS | {"spark"}
FIXTURES = {**{name: name for name in NEEDS}, "encrypted": "mariadb", "secured": "kafka", "source": "mariadb"}
KINDS = {"postgresql": "postgres", "mariadb": "mariadb", "mysql-driver": "mariadb"}
"""The server of a target table's kind."""


def needs(markers: Iterable[str], fixtures: Iterable[str], kind: object = None) -> set[str]:
    """Return the markers of what a test needs: its own markers, those of its fixtures, and that of its target table."""
    found = {FIXTURES[name] for name in fixtures if name in FIXTURES}
    return found | (set(markers) & NEEDS) | ({KINDS[kind]} if isinstance(kind, str) and kind in KINDS else set())


def misplaced(tier: str, found: set[str]) -> str | None:
    """Return why a test that needs this does not belong to the folder, or None."""
    servers = found & SERVERS
    belongs = ("e2e" if servers else "spark") if "spark" in found else "servers" if servers else "unit"
    if tier == belongs:
        return None
    return f"it needs {', '.join(sorted(found)) or 'neither Spark nor servers'}: move it to tests/{belongs}"
