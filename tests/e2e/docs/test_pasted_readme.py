"""The page that a newcomer pastes first: it runs in a Python of its own, which has no Spark yet."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import PRINTED, RUN


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow(20)
def test_the_readme_runs_as_pasted_and_prints_its_table(tmp_path: Path) -> None:
    script = tmp_path / "pasted.py"
    script.write_text("\n".join(block.source for block in RUN["README.md"]))
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert PRINTED["README.md"] in done.stdout
