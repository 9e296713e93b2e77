"""The documentation: its Python, its links, its pages of formats, and its docstrings.

Its Python uses the public API, its links lead somewhere, every format has a page, and docstrings
become Markdown.
"""

import ast
import functools
import inspect
import re
import subprocess
import sys
from configparser import ConfigParser
from contextlib import suppress
from datetime import date
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import walk_packages

import pytest

import cdc_formats
import normalize
from cdc_formats.errors import ChangelogError
from cdc_formats.format import BUILT_IN, get_format
from tests.support.pages import NOT_PROVIDED, PAGES, PROVIDED, blocks
from tests.support.paths import REPOSITORY
from tests.support.public_names import PUBLIC
from tools.docs_docstrings import to_markdown
from tools.docs_hooks import (
    PROJECT,
    format_pages,
    on_page_markdown,
    project_pages,
    whole_names,
    whole_tables,
)
from tools.pictures import MOST_BYTES

PACKAGES = ("capture", "cdc_formats", "normalize")
SOURCES = (*PACKAGES, "bench", "cdc_cli", "demo")
NAMES_OF_OTHERS = frozenset(
    {
        "ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION", "AUTOCDC_TARGET_DOES_NOT_SUPPORT_MERGE", "AvailableNow", "CloudEventsConverter",
        "DateString", "DebeziumSource", "DebeziumTransform", "DmsTransform", "HTTPS_PROXY", "MapState", "MysqlDebeziumSource",
        "OverwriteFiles",
        "PostgresDebeziumSource", "RewriteFiles", "RollingUpdate", "RowDelta", "addBatch", "append_flow", "apply_as_deletes",
        "apply_as_truncates", "boundedMemoryUsage", "bucketing", "changelogV2", "commitOffsets", "except_column_list",
        "foreachPartition", "ignore_null_updates", "maxAppAttempts", "maxBatchesToRetainInMemory", "maxMemoryUsageMB", "memoryOverhead",
        "net_read_timeout", "pushPartValues", "requireAllClusterKeysForCoPartition", "temporary_view",
        "track_history_except_column_list", "transformWithStateInPandas", "try_evolve", "walCommit", "yarn",
    }
)  # fmt: skip
"""Names of Spark, Delta, Flink, Kubernetes and others, which only the documentation has."""


def test_the_examples_of_all_docstrings_run():
    rooms = {
        path.relative_to(REPOSITORY).parts[0]
        for name in SOURCES
        for path in (REPOSITORY / name).rglob("*.py")
        if ">>> " in path.read_text()
    }
    unit = re.search(r"^UNIT := (.*)$", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)[
        1
    ].split()
    configuration = ConfigParser()
    configuration.read(REPOSITORY / "setup.cfg")
    assert rooms <= {*unit} & {*configuration["tool:pytest"]["testpaths"].split()}
    assert [
        path
        for name in SOURCES
        for path in (REPOSITORY / name).rglob("*.py")
        if re.search(r"# doctest: *\+SKIP", path.read_text())
    ] == []


def calls_in_text(text):
    """Return the inline code that is a call: `read_state(spark, checkpoint)`."""
    spans = re.findall(r"(?<!`)`([A-Za-z_]+\([^`\n]+\))`(?!`)", prose(text))
    return [span for span in spans if compiles(span)]


def compiles(source):
    with suppress(SyntaxError):
        return bool(ast.parse(source))
    return False


def imported(tree):
    """Return (module, name) for each name that a block imports from these packages."""
    imports = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES
    ]
    return [(node.module, alias.name) for node in imports for alias in node.names]


def prose(text):
    """Return a page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


@functools.cache
def known_words():
    """Return the words of all files but those of the documentation, and the conditions of errors."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    written = [
        REPOSITORY / name
        for name in listed
        if not name.startswith("docs/") and name not in {*PAGES, "CHANGELOG.md"}
    ]
    words = set()
    for path in written:
        if path.is_file() and path != Path(__file__):
            words |= {*re.findall(r"\w+", path.read_text("utf-8", errors="ignore"))}
    errors = [word.removesuffix("Error") for word in words if word.endswith("Error")]
    conditions = {re.sub(r"(?<!^)([A-Z])", r"_\1", word).upper() for word in errors}
    return words | conditions | NAMES_OF_OTHERS


def names_that_exist_nowhere(text):
    """Return each path and each name in back-quotes that no file of the repository has."""
    folders = {path.name for path in REPOSITORY.iterdir() if path.is_dir()}
    missing = []
    for span in re.findall(r"(?<!`)`([^`\s]+)`(?!`)", prose(text)):
        if re.fullmatch(r"[\w.-]+(/[\w.-]+)+/?", span) and span.split("/")[0] in folders:
            missing += [span] * (not (REPOSITORY / span).exists())
        elif re.fullmatch(r"(normalize|cdc_formats|capture)(\.\w+)+", span):
            missing += [span] * (not is_importable(span))
        elif re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*(\(\))?", span) and re.search("_|[a-z][A-Z]", span):
            missing += [span] * (not {*re.findall(r"\w+", span)} <= known_words())
    return missing


def is_importable(name):
    """Return whether a name is a module, or a name that a module has."""
    module, _, last = name.rpartition(".")
    with suppress(ModuleNotFoundError):
        return hasattr(import_module(module), last) or find_spec(name) is not None
    return False


def is_public(module, name):
    home = import_module(module)
    private = any(part.startswith("_") for part in [*module.split("."), name])
    return not private and name in getattr(home, "__all__", dir(home))


def unknown_arguments(tree):
    """Return ``function(argument=)`` for each keyword these packages' public functions lack."""
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and callable(PUBLIC.get(node.func.id))
    ]
    wrong = []
    for call in calls:
        parameters = inspect.signature(PUBLIC[call.func.id]).parameters
        if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
            wrong += [
                f"{call.func.id}({word.arg}=)"
                for word in call.keywords
                if word.arg and word.arg not in parameters
            ]
    return wrong


@pytest.mark.parametrize("page", PAGES)
def test_python_in_the_docs_uses_the_public_api(page):
    sources = [*(block.source for block in blocks(PAGES[page])), *calls_in_text(PAGES[page])]
    trees = [ast.parse(source) for source in sources]
    missing = [
        f"{module}.{name}"
        for tree in trees
        for module, name in imported(tree)
        if not is_public(module, name)
    ]
    assert missing == []
    assert [wrong for tree in trees for wrong in unknown_arguments(tree)] == []


@pytest.mark.parametrize("page", PAGES)
def test_names_in_back_quotes_exist(page):
    assert names_that_exist_nowhere(PAGES[page]) == []


def test_a_removed_module_and_a_misspelt_name_are_found():
    text = "`normalize.no_such_module` `tests/no_such_folder/a.py` `primaryy_key` `primary_key`"
    assert names_that_exist_nowhere(text) == [
        "normalize.no_such_module", "tests/no_such_folder/a.py", "primaryy_key",
    ]  # fmt: skip


def test_each_block_of_python_runs_or_says_what_it_needs():
    of_pages = {page: blocks(text) for page, text in PAGES.items()}
    counts = {page: text.count("```python") for page, text in PAGES.items()}
    assert {page: len(each) for page, each in of_pages.items()} == counts
    needed = {need for each in of_pages.values() for block in each for need in block.needs}
    assert needed == PROVIDED | NOT_PROVIDED
    assert of_pages["docs/index.md"][0] == of_pages["README.md"][0]


@pytest.mark.parametrize("page", PAGES)
def test_links_of_the_docs_lead_to_files(page):
    links = re.findall(r"\]\((?!https?:)([^)#\s]+)", prose(PAGES[page]))
    generated = {f"docs/{name}" for name in format_pages()}
    targets = {link: (REPOSITORY / page).parent.joinpath(link).resolve() for link in links}
    assert [
        link
        for link, path in targets.items()
        if not path.exists() and str(path.relative_to(REPOSITORY)) not in generated
    ] == []


def test_the_readme_is_short_and_has_the_functions_in_the_order_of_the_reference():
    reference = (REPOSITORY / "docs" / "reference" / "normalize.md").read_text()
    members = re.findall(r"^        - (\w+)$", reference, re.MULTILINE)
    assert len(PAGES["README.md"].splitlines()) <= 200
    assert sorted(members) == sorted(normalize.__all__)
    table = PAGES["README.md"].partition("## Functions")[2].partition("## Formats")[0]
    calls = [
        name
        for row in re.findall(r"^\| `(.*?)` \|", table, re.MULTILINE)
        for name in re.findall(r"\w+", row)
        if name in members
    ]
    assert list(dict.fromkeys(calls)) == [name for name in members if name in calls]


def test_every_format_has_a_page_from_its_docstring():
    pages = format_pages()
    assert sorted(pages) == [f"formats/{identifier}.md" for identifier in sorted(BUILT_IN)]
    for identifier, path in BUILT_IN.items():
        module, _, name = path.partition(":")
        page = pages[f"formats/{identifier}.md"]
        format = get_format(identifier)
        columns = [f"| `{column}` |" for column in format.metadata]
        parts = [f"::: {module}\n", f"::: {module}.{name}\n", *columns]
        assert [part for part in parts if part not in page] == []
        assert "Parameters\n" in (type(format).__doc__ or "")


def test_links_between_docs_and_the_repositorys_own_pages_work_on_the_site():
    class Page:
        class file:  # noqa: N801
            src_uri = "tasks/your-own-format.md"

    assert (
        on_page_markdown("[a](../../CONTRIBUTING.md#b)", Page, None, None)
        == "[a](../project/CONTRIBUTING.md#b)"
    )
    assert sorted(project_pages()) == sorted(f"project/{name}" for name in PROJECT.values())
    assert not any("](docs/" in page for page in project_pages().values())


def modules():
    """Return all modules of the packages that users import."""
    return [
        import_module(module.name)
        for package in (cdc_formats, normalize)
        for module in walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]


def test_every_error_is_explained():
    found = {
        value.condition
        for module in modules()
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, ChangelogError)
    }
    conditions = found - {"CHANGELOG", "DECODE"}
    assert conditions > {"ARGUMENT", "TYPE_CONVERSION", "TARGET"}
    page = PAGES["docs/tasks/query-fails.md"]
    assert [each for each in sorted(conditions) if f"`{each}`" not in page] == []


def test_pre_commit_runs_goals_of_the_makefile():
    config = REPOSITORY / ".pre-commit-config.yaml"
    subprocess.run([sys.executable, "-m", "pre_commit", "validate-config", str(config)], check=True)
    goals = re.findall(r"entry: make ([a-z]+)$", config.read_text(), re.MULTILINE)
    assert goals == ["lint", "types"]
    assert all(f"\n{goal}: " in (REPOSITORY / "Makefile").read_text() for goal in goals)


def test_restructured_text_becomes_markdown():
    docstring = """\
First line.

A message::

    {"op": "c"}

      {"op": "d"}

=======  ==========
op       rows
=======  ==========
``a|b``  ``+I``
``d``    ``-D``,
         or nothing
=======  ==========

All of io.debezium.* here, ``a.*`` and ``b.`c``` there.

Parameters
----------
mode : {"a", "b"} or None
**options
"""
    assert to_markdown(docstring).splitlines() == [
        "First line.", "", "A message:", "", "```text", '{"op": "c"}', "", '  {"op": "d"}', "```", "",
        "| op | rows |", "| --- | --- |", "| ``a|b`` | ``+I`` |", "| ``d`` | ``-D``, or nothing |", "", "",
        "All of io.debezium.\\* here, ``a.*`` and `` b.`c` `` there.",
        "", "Parameters", "----------", 'mode : "a" | "b" or None', "**options",
    ]  # fmt: skip


def test_the_site_breaks_no_short_name_and_no_printed_table():
    name, long_name = "debezium-json", "spark.sql.streaming.maxBatchesToRetainInMemory"
    page = f"<p><code>{name}</code></p><td><code>+I -D</code> <code>{long_name}</code></td>"
    broken = long_name.replace(".", ".<wbr>")
    assert whole_names(page) == (
        f'<p><code class="name">{name}</code></p>'
        f'<td><code class="name">+I -D</code> <code>{broken}</code></td>'
    )
    blocks_of_page = [
        "<pre><span></span><code>+--------+---+\n|row_kind| id|</code></pre>",
        "<pre><span></span><code>  table  rows\n  -----  ----\n  a      1</code></pre>",
        "<pre><span></span><code>Parameters\n----------\nid : int</code></pre>",
        "<pre><span></span><code>cdc run job.yaml --color never</code></pre>",
    ]
    assert ['class="printed"' in whole_tables(block) for block in blocks_of_page] == [
        True, True, False, False,
    ]  # fmt: skip


def test_pictures_have_a_description_and_are_small_and_complete():
    pictures = [text for page in PAGES.values() for text in re.findall(r"!\[.*?\]\(\S+\)", page)]
    assert [text for text in pictures if len(text.split("]")[0].split()) < 8] == []
    files = sorted((REPOSITORY / "docs").rglob("*.svg"))
    assert {path.name for path in files} == {
        text.split("/")[-1][:-1].split("(")[-1] for text in pictures
    }
    for path in files:
        picture = path.read_text()
        assert len(picture.encode()) <= MOST_BYTES
        # They would be fetched from the network.
        assert not re.search(r"@font-face|href=\"http|url\(.?http", picture)


# --------------------------------------------------------------------------------------------------
# The pages of decisions have the same parts
DECISIONS = sorted((REPOSITORY / "docs" / "decisions").glob("*.md"))
MARK = "Unstable: a minor release may change it without a deprecation."


@pytest.mark.parametrize("page", DECISIONS, ids=lambda page: page.stem)
def test_a_decision_has_a_date_figures_and_what_would_change_it(page):
    text = page.read_text("utf-8")
    assert re.findall("^## (.+)$", text, re.M) == [
        "Decision",
        "Figures",
        "Costs of the decision",
        "What would change it",
    ]
    assert date.fromisoformat(re.search(r"^Decided on (\d{4}-\d\d-\d\d)", text, re.M)[1])
    assert f"decisions/{page.name}\n" in (REPOSITORY / "mkdocs.yml").read_text("utf-8")


def test_the_page_on_versions_lists_the_names_that_are_marked_as_unstable():
    marked = {
        name
        for module in modules()
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
        and MARK in (inspect.getdoc(value) or "")
    }
    page = (REPOSITORY / "docs" / "stability.md").read_text("utf-8")
    rows = page.partition("## Unstable names")[2].partition("\n## ")[0]
    listed = {
        name
        for cell in re.findall(r"^\| (`.+?) \|", rows, re.M)
        for name in re.findall(r"`(\w+)`", cell)
    }
    assert marked == listed
