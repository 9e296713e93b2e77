"""The page `docs/restarts.md`: what `sync_table` does when something happened to the log of its target."""

import pytest

from tests.support.restarts import Query, cells_of, check_cell, happened_to_sync

FUNCTION = "sync_table"


@cells_of(FUNCTION, on_log=True)
def test_cell(
    restarted: Query, caplog: pytest.LogCaptureFixture, section: str, change: str, content: str
) -> None:
    check_cell(happened_to_sync(restarted, section, change, caplog), content)
