"""What a module imports, and which files a change can break.

``CHANGED=<commit> pytest`` runs only the tests that the changes since a commit can break, also those
that are not committed; ``CHANGED=1`` is those alone. A module also counts as imported where a string
has its name, as in the registry of formats and for programs that a test starts.
"""

import ast
import re
import subprocess
from functools import cache
from pathlib import Path

from tests.support.paths import REPOSITORY

PAGES = "tests.support.pages"
"""The module that reads the documentation: who imports it depends on each page."""
EXAMPLES = (PAGES, "tools.notebooks")
"""The modules that read examples, which use all of the library."""
_DOTTED = re.compile(r"""["'/ ](\w+(?:\.\w+)+)["':]""")
"""A module's name, or a file's, in a string."""


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def imported(path: Path) -> set[str]:
    """Return the packages that a module imports."""
    return {base.partition(".")[0] for base, _ in imported_names(path)}


def module_name(path: Path) -> str:
    """Return the name of a module of the repository."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


@cache
def module_paths(*packages: str) -> dict[str, Path]:
    """Return the modules of these folders of the repository."""
    return {
        module_name(path): path
        for package in packages
        for path in sorted((REPOSITORY / package).rglob("*.py"))
    }


@cache
def imported_names(path: Path) -> set[tuple[str, str]]:
    """Return modules and names that a module imports from them, also in functions and for types."""
    name = module_name(path)
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    names: set[tuple[str, str]] = set()
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.Import):
            names |= {(alias.name, "") for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = (
                package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            )
            base = ".".join([*parents, *([node.module] if node.module else [])])
            names |= {(base, alias.name) for alias in node.names}
    return names


def imported_modules(name: str, paths: dict[str, Path]) -> set[str]:
    """Return which of these modules a module imports."""
    return {
        f"{base}.{each}" if f"{base}.{each}" in paths else base
        for base, each in imported_names(paths[name])
    } & set(paths) - {name}


def _uses(name: str, paths: dict[str, Path]) -> set[str]:
    """Return the modules that a module runs: a name that a package passes on is its own module's."""
    homes = {
        (package, each): base
        for package in {base for base, _ in imported_names(paths[name])} & set(paths)
        if paths[package].name == "__init__.py"
        for base, each in imported_names(paths[package])
    }
    named = set(_DOTTED.findall(paths[name].read_text("utf-8")))
    files = {each.removesuffix(".py") for each in named if each.endswith(".py")}
    return (
        {
            f"{base}.{each}" if f"{base}.{each}" in paths else homes.get((base, each), base)
            for base, each in imported_names(paths[name])
        }
        | (named & set(paths))
        | {each for each in paths if files and each.rpartition(".")[2] in files}
    )


def breakable(changed: set[str]) -> set[Path] | None:
    """Return the files that changes of these files can break; None if that is every file.

    A changed file that is neither a module nor a page, as a setting or a vector, can break all; so
    can one that Pytest imports by itself.
    """
    folders = sorted(each.name for each in REPOSITORY.iterdir() if each.is_dir())
    paths = module_paths(*(each for each in folders if not each.startswith(".")))
    names = {path.relative_to(REPOSITORY).as_posix(): name for name, path in paths.items()}
    known = {each for each in names if not each.endswith("conftest.py")}
    if any(each not in known and not each.endswith(".md") for each in changed):
        return None
    affected = {names.get(each, PAGES) for each in changed}
    uses = {name: _uses(name, paths) for name in paths}
    library = set(module_paths("capture", "cdc_cli", "cdc_formats", "normalize"))
    uses |= {name: uses[name] | library for name in EXAMPLES}
    while more := {name for name, used in uses.items() if used & affected} - affected:
        affected |= more
    return {paths[name] for name in affected} | {REPOSITORY / each for each in changed}


def changed_files(commit: str) -> set[str]:
    """Return the files that changed since a commit, and those that Git does not know yet."""
    since = "HEAD" if commit == "1" else commit
    commands = (
        ["diff", "--name-only", since],
        ["ls-files", "--others", "--exclude-standard"],
    )
    return {
        line
        for command in commands
        for line in subprocess.run(
            ["git", *command], cwd=REPOSITORY, capture_output=True, text=True, check=True
        ).stdout.splitlines()
    }
