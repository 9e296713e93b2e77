"""Hooks of `mkdocs build`: a page for each built-in format, and the repository's own pages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from cdc_formats.registry import BUILT_IN, get_format

REPOSITORY = Path(__file__).parents[1]
PROJECT = {
    "Contributing": "CONTRIBUTING.md",
    "Security policy": "SECURITY.md",
    "Changes": "CHANGELOG.md",
}

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
