"""When tables are maintained, and that a failure is a warning."""

from types import SimpleNamespace
from typing import Any

import pytest

from cdc_formats.errors import ArgumentError
from normalize.tables.maintenance import Maintainer
from normalize.tables.policy import Maintenance
from normalize.tables.targets import TargetError


class Unreachable:
    """A table whose maintenance fails."""

    sql_name, provider = "`orders`", "delta"

    def __init__(self) -> None:
        self.tried = 0

    def session(self, spark: Any) -> Any:
        self.tried += 1
        raise TargetError("it cannot be reached")


def test_a_failure_is_a_warning_and_is_tried_again_at_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table: Any = Unreachable()
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda name: None))
    maintainer = Maintainer()
    maintainer(spark, table, Maintenance(every="1 hour"))
    assert table.tried == 0
    for _ in range(2):
        maintainer(spark, table, Maintenance(every="0 seconds"))
    assert table.tried == 2
    maintainer(spark, table, Maintenance(every="1 hour"))
    assert table.tried == 2
    assert caplog.messages[0] == ("`orders`: the maintenance failed: [TARGET] it cannot be reached")


@pytest.mark.parametrize(("provider", "least"), [("delta", 7), ("iceberg", 1)])
def test_a_retention_that_a_running_statement_needs_is_refused(provider: str, least: int) -> None:
    Maintenance(expire=f"{least} days").check(provider)
    with pytest.raises(ArgumentError, match=rf"at least '{least} days', or expire=True"):
        Maintenance(expire=f"{least * 24 - 1} hours").check(provider)
