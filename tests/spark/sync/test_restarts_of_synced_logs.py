"""The page `docs/restarts.md`: what `sync_table` does when something happened to the log of its target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.restarts import Query, cells_of, check_cell, happened_to_sync

if TYPE_CHECKING:
    import pytest


FUNCTION = "sync_table"


@cells_of(FUNCTION, on_log=True)
def test_cell(
    restarted: Query, caplog: pytest.LogCaptureFixture, section: str, change: str, content: str
) -> None:
    check_cell(happened_to_sync(restarted, section, change, caplog), content)
