"""Each block of Python on each page of the documentation runs as pasted; `test_task_pages` has the tasks.

It runs with what its title says that it needs.
"""

from collections.abc import Callable

import pytest

from tests.support.running_pages import pages


@pytest.mark.slow(6)
@pytest.mark.usefixtures("no_other_formats")
@pages(of_tasks=False)
def test_a_page_runs_block_by_block(run_blocks: Callable[[], None]) -> None:
    run_blocks()
