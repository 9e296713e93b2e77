"""What somebody does who finds this repository.

They clone it, follow the README, and paste the pages of the documentation in their order.

    python -m tools.stranger [REPOSITORY]      default: the last commit of this one

Works in a new home folder and in a new environment, and so downloads all that is needed. Each page
installs the extras that it names, and runs in a Python of its own, block by block. Blocks that need
something of the reader's (``title="needs ..."``) are counted. Prints the time of each step; the
exit code is the number of steps that failed.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tools.extras import broken
from tools.package import environment, run, spark_example

BLOCK = re.compile(r"^```python *(.*)\n((?:.*\n)*?)```$", re.M)
EXTRAS = re.compile(r"pip install \"pyspark-kafka-changelog\[([\w,]+)\]\"")


def main(arguments: list[str]) -> int:
    """Do all steps, print their times, and return how many failed."""
    repository = arguments[0] if arguments else str(Path(__file__).parents[1])
    with tempfile.TemporaryDirectory(prefix="stranger-") as folder:
        stranger = Stranger(Path(folder))
        stranger.step(
            "git clone", lambda: run("git", "clone", "--quiet", repository, stranger.clone)
        )
        stranger.step("each small extra alone", stranger.extras)
        stranger.step("README: install", stranger.install)
        stranger.step("README: examples", stranger.readme)
        stranger.step("README: make demo", stranger.demo)
        for page in re.findall(
            r": ([\w/-]+\.md)$", (stranger.clone / "mkdocs.yml").read_text("utf-8"), re.M
        ):
            stranger.page(page)
        return stranger.failed


class Stranger:
    """A new home folder, with a clone and an environment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clone, self.failed = folder, folder / "clone", 0
        self.python = folder / "environment" / "bin" / "python"
        home = folder / "home"
        home.mkdir()
        for name in ("XDG_CACHE_HOME", "PIP_CACHE_DIR", "SPARK_HOME", "VIRTUAL_ENV"):
            os.environ.pop(name, None)
        # Java takes the home folder from the system's list of users.
        os.environ.update(HOME=str(home), JAVA_TOOL_OPTIONS=f"-Duser.home={home}")

    def step(self, title: str, work: Callable[[], object]) -> None:
        """Do one step, and print its time and result."""
        start = time.monotonic()
        try:
            work()
            result = "done"
        except ValueError as error:
            self.failed += 1
            result = f"FAILED: {error}"
        print(f"{time.monotonic() - start:7.1f} s  {title}: {result}", flush=True)

    def extras(self) -> None:
        """Do what the page of each extra promises, in an environment with this extra alone."""
        folder = self.folder / "extras"
        folder.mkdir()
        if failed := broken(folder, str(self.clone)):
            raise ValueError("; ".join(failed))

    def install(self) -> None:
        """Install the clone as the README says."""
        [extras] = set(EXTRAS.findall(self.text("README.md")))
        environment(self.python.parents[1], sys.executable, f"{self.clone}[{extras}]")

    def readme(self) -> None:
        """Run the README's examples, and compare what the first one prints."""
        example, expected = spark_example(self.text("README.md"))
        if expected not in self.paste(example, capture=True):
            raise ValueError("the first example does not print the README's table")
        run(self.python, "-m", "doctest", "README.md", cwd=str(self.clone))

    def demo(self) -> None:
        """Run the demo with the Makefile's own environment."""
        run("make", "demo", f"PYTHON={sys.executable}", cwd=str(self.clone))

    def page(self, page: str) -> None:
        """Paste a page's blocks into one Python, and run its examples with prompts."""
        text = self.text(f"docs/{page}")
        blocks = BLOCK.findall(text)
        pasted = [source for title, source in blocks if not title and not source.startswith(">>>")]
        if pasted or ">>> " in text:
            left_out = sum(bool(title) for title, _ in blocks)
            self.step(
                f"docs/{page} ({left_out} blocks need something else)",
                lambda: self._run_page(page, text, "\n".join(pasted)),
            )

    def _run_page(self, page: str, text: str, pasted: str) -> None:
        if extras := set(EXTRAS.findall(text)):
            run(
                self.python,
                "-m",
                "pip",
                "install",
                "--quiet",
                *(f"{self.clone}[{each}]" for each in sorted(extras)),
            )
        if pasted:
            self.paste(pasted)
        if ">>> " in text:
            run(self.python, "-m", "doctest", f"docs/{page}", cwd=str(self.clone))

    def paste(self, source: str, *, capture: bool = False) -> str:
        """Run a program in the clone's folder, with the installed package.

        Its files in /tmp are in the new folder.
        """
        program = self.folder / "pasted.py"
        program.write_text(source.replace('"/tmp/', f'"{self.folder}/'), "utf-8")
        return run(self.python, program, cwd=str(self.clone), capture=capture)

    def text(self, path: str) -> str:
        """Return a file of the clone."""
        return (self.clone / path).read_text("utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
