"""The kinds of target tables that the fixture ``sink`` has.

Not in `sinking`, which jobs import that do not need pytest.
"""

import pytest

KINDS = ("delta", "iceberg", "postgresql", "mariadb")
delta_in_each_version = pytest.mark.parametrize(
    "sink", [pytest.param("delta", marks=pytest.mark.cross_section), *KINDS[1:]], indirect=True
)
"""All kinds; Delta also on each version of Spark, where Iceberg has a marker of its own."""
