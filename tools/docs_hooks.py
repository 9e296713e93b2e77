"""Hooks of `mkdocs build`.

They add a page for each built-in format and the repository's own pages, and keep names and printed
tables readable on narrow screens.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cdc_formats.format import BUILT_IN, get_format

REPOSITORY = Path(__file__).parents[1]
PROJECT = {
    "Contributing": "CONTRIBUTING.md",
    "Security policy": "SECURITY.md",
    "Changes": "CHANGELOG.md",
}

MOST_UNBROKEN = 40
"""A name with more characters may be broken: it would be wider than a telephone."""
MOST_UNBROKEN_IN_TABLE = 24
MOST_UNBROKEN_WORDS = 12

_CODE = re.compile(r"<code>([^<>\n]+)</code>")
_CELL = re.compile(r"<t([dh])\b.*?</t\1>", re.DOTALL)
_BLOCK = re.compile(r"<pre><span></span><code>(.*?)</code></pre>", re.DOTALL)
_RULE = re.compile(r"^[ +]*--+[ +]+-[-+ ]*$", re.MULTILINE)

_FORMAT = """\
# {identifier}

::: {module}
    options: {{members: false, show_root_heading: false, show_root_toc_entry: false}}

## Options

Pass them as `format_options` to `from_kafka_changelog`, or to `get_format("{identifier}", ...)`. Every format also has the options of
[MessageFormat](../reference/cdc_formats.md#cdc_formats.message_format.MessageFormat).

::: {module}.{name}
    options: {{heading_level: 3, members: false, show_bases: false, show_root_full_path: false, show_docstring_description: false}}

## Metadata columns

Kafka's own columns are in [Formats](../formats.md#metadata-columns).

{metadata}
"""


def format_pages() -> dict[str, str]:
    """Return the Markdown of each built-in format's page by its path."""
    return {
        f"formats/{identifier}.md": _format_page(identifier, path)
        for identifier, path in sorted(BUILT_IN.items())
    }


def _format_page(identifier: str, path: str) -> str:
    module, _, name = path.partition(":")
    columns = get_format(identifier).metadata
    rows = [f"| `{column}` | `{described.type}` |" for column, described in columns.items()]
    metadata = (
        "\n".join(["| name | type |", "|---|---|", *rows]) if rows else "This format has none."
    )
    return _FORMAT.format(identifier=identifier, module=module, name=name, metadata=metadata)


def project_pages() -> dict[str, str]:
    """Return the Markdown of the repository's pages by path, with links that work on the site."""
    return {
        f"project/{name}": re.sub(r"\]\(docs/", "](../", (REPOSITORY / name).read_text())
        for name in PROJECT.values()
    }


def on_config(config: Any) -> Any:
    """Add the generated pages to the navigation."""
    sections = {title: items for entry in config.nav for title, items in entry.items()}
    sections["Formats"][1:1] = [{Path(page).stem: page} for page in format_pages()]
    sections["Project"] += [{title: f"project/{name}"} for title, name in PROJECT.items()]
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    from mkdocs.structure.files import File

    for path, content in {**format_pages(), **project_pages()}.items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Let links to the repository's own pages lead to their pages here."""
    for name in PROJECT.values():
        markdown = re.sub(
            rf"\]\((?:\.\./)+{re.escape(name)}",
            f"]({'../' * page.file.src_uri.count('/')}project/{name}",
            markdown,
        )
    return markdown


def on_page_content(html: str, page: Any, config: Any, files: Any) -> str:
    """Keep names and printed tables whole."""
    return whole_names(whole_tables(html))


def whole_tables(html: str) -> str:
    """Mark the blocks that are printed tables: lines of them are not wrapped."""
    return _BLOCK.sub(
        lambda match: (
            match[0].replace("<pre>", '<pre class="printed">', 1)
            if _RULE.search(match[1])
            else match[0]
        ),
        html,
    )


def whole_names(html: str) -> str:
    """Mark short code, which is not broken, and say where a table breaks long names."""
    html = _CELL.sub(lambda cell: _CODE.sub(_in_table, cell[0]), html)
    return _CODE.sub(lambda code: _whole(code[1], MOST_UNBROKEN) or code[0], html)


def _in_table(code: re.Match[str]) -> str:
    places = re.sub(r"([(,=])" if "(" in code[1] else r"([._/=])", r"\1<wbr>", code[1])
    return _whole(code[1], MOST_UNBROKEN_IN_TABLE) or f"<code>{places}</code>"


def _whole(code: str, most: int) -> str:
    """Return code that is not broken; empty for longer code."""
    is_short = len(code) <= (most if " " not in code else MOST_UNBROKEN_WORDS)
    return f'<code class="name">{code}</code>' if is_short else ""
