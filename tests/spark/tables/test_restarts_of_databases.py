"""The page `docs/restarts.md`: each cell of `sync_database` is run."""

import pytest

from tests.support.restarts import Query, cells_of, check_cell, happened_to_sync

FUNCTION = "sync_database"


@cells_of(FUNCTION)
def test_cell(
    restarted: Query, caplog: pytest.LogCaptureFixture, section: str, change: str, content: str
) -> None:
    check_cell(happened_to_sync(restarted, section, change, caplog), content)
