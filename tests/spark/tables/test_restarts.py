"""The page `docs/restarts.md`: each cell of `sync_table` is run, and nothing is run that the page lacks."""

import pytest

from tests.support.restarts import (
    CHANGES,
    GUARDED,
    ON_LOG,
    ON_SNAPSHOTS,
    RUNS,
    STOPPED,
    TARGETS,
    Query,
    cells,
    cells_of,
    check_cell,
    happened_to_sync,
)

FUNCTION = "sync_table"


@cells_of(FUNCTION, on_log=False)
def test_cell(
    restarted: Query, caplog: pytest.LogCaptureFixture, section: str, change: str, content: str
) -> None:
    check_cell(happened_to_sync(restarted, section, change, caplog), content)


@pytest.mark.usefixtures("spark")
def test_page_has_each_change() -> None:
    assert set(ON_SNAPSHOTS) == set(ON_LOG) - {"another writer replaced the last commit"}
    assert {change for _, change, _, _ in cells()} == {
        *CHANGES,
        *GUARDED,
        *TARGETS,
    }
    assert {section for section, *_ in cells()} == {STOPPED, RUNS}
