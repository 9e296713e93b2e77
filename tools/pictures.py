"""Draw the documentation's pictures from a recorded topic, which is read through a real Kafka.

    python -m tools.pictures

It does what docs/tasks/undocumented-topic.md shows, and writes to docs/pictures/:

profile.svg      the report of ``cdc profile`` in a terminal
history.svg      the result of ``history`` in a notebook
operations.svg   the plot of ``plot_operations``
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

REPOSITORY = Path(__file__).parents[1]
PICTURES = REPOSITORY / "docs" / "pictures"
TOPIC = "inventory.customers"
RECORDING = REPOSITORY / "demo" / "topics" / "records" / f"dbz34-mariadb-json.{TOPIC}.jsonl.gz"
KEY = {"id": 754}
WIDE_COLUMNS = ("email", "created", "timestamp")
"""The columns that the picture of the history leaves out: with them its text would be too small."""
MOST_BYTES = 100_000
"""A larger picture is an error: readers load it with the page."""

_TERMINAL_WIDTH = 100
_FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
_PAPER, _INK, _LINE = "#ffffff", "#1f2430", "#c9ced8"
_CHARACTER, _PADDING, _ROW = 8.3, 10, 26  # pixels of a font of 13


def main() -> None:
    """Draw all pictures."""
    from cdc_formats.topics.kafka import profile_topic
    from normalize import LocalKafka, from_kafka_changelog, local_session
    from normalize.explore import history, plot_operations

    with LocalKafka() as kafka:
        kafka.load_recording(RECORDING, TOPIC)
        _write("profile.svg", terminal(profile_topic(kafka.bootstrap_servers, TOPIC)))
        spark = local_session()
        customers = from_kafka_changelog(
            spark,
            TOPIC,
            format="debezium-json",
            format_options={
                "decimal_handling_mode": "precise",
                "time_precision_mode": "adaptive_time_microseconds",
            },
            schema=(
                "id INT, name STRING, email STRING, balance DECIMAL(20,4), "
                "created TIMESTAMP(3), updated TIMESTAMP_NTZ(6)"
            ),
            primary_key="id",
            metadata=["timestamp"],
            options={"kafka.bootstrap.servers": kafka.bootstrap_servers},
            bounded=True,
        )
        _write("history.svg", table(history(customers.drop(*WIDE_COLUMNS), KEY)))
        _write("operations.svg", plot(plot_operations(customers)))
        spark.stop()


def terminal(profile: Any) -> str:
    """Return a report as a terminal shows it."""
    from rich.console import Console

    console = Console(
        record=True,
        width=_TERMINAL_WIDTH,
        file=io.StringIO(),
        force_terminal=True,
        color_system="standard",
    )
    console.print(profile)
    picture = console.export_svg(title=f"cdc profile {TOPIC}", unique_id="profile")
    # The font would be fetched from the network.
    picture = re.sub(r"@font-face {.*?}\s*", "", picture, flags=re.DOTALL)
    return picture.replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


def table(history: Any) -> str:
    """Return the table of a history, with the changed values marked as in a notebook."""
    rows = [[_text(value) for value in row] for row in history.changes]
    widths = [
        max(map(len, column)) * _CHARACTER + 2 * _PADDING
        for column in zip(history.columns, *rows, strict=True)
    ]
    width, height = round(sum(widths)) + 2, (len(rows) + 1) * _ROW + 2
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 {width} {height}" '
            f'font-family="{_FONT}" font-size="13">',
            f'<rect width="{width - 2}" height="{height - 2}" rx="6" fill="{_PAPER}" stroke="{_LINE}"/>',
            *_cells(history.columns, widths, 0, ' font-weight="600"'),
            *(
                line
                for number, (row, changed) in enumerate(
                    zip(rows, history.changed(), strict=True), start=1
                )
                for line in _row(history.columns, row, changed, widths, number)
            ),
            "</svg>",
            "",
        ]
    )


def _row(
    columns: Sequence[str],
    row: Sequence[str],
    changed: set[str],
    widths: Sequence[float],
    number: int,
) -> Iterator[str]:
    from normalize.explore import KIND_COLORS

    color = KIND_COLORS[row[0]]
    yield f'<path d="M0 {number * _ROW}h{sum(widths):.0f}" stroke="{_LINE}"/>'
    for index, name in enumerate(columns):
        if name in changed:
            yield (
                f'<rect x="{sum(widths[:index]):.1f}" y="{number * _ROW}" '
                f'width="{widths[index]:.1f}" height="{_ROW}" fill="{color}" fill-opacity="0.2"/>'
            )
    yield from _cells(row[:1], widths, number, f' font-weight="700" fill="{color}"')
    yield from _cells(["", *row[1:]], widths, number, "")


def _cells(texts: Sequence[str], widths: Sequence[float], row: int, style: str) -> Iterator[str]:
    for index, text in enumerate(texts):
        if text:
            x, y = sum(widths[:index]) + _PADDING, row * _ROW + 0.68 * _ROW
            ink = style if "fill=" in style else f'{style} fill="{_INK}"'
            yield f'<text x="{x:.1f}" y="{y:.1f}"{ink}>{escape(text)}</text>'


def _text(value: Any) -> str:
    return "NULL" if value is None else str(value)


def plot(axes: Any) -> str:
    """Return a plot of matplotlib; the same rows give the same bytes."""
    import matplotlib as mpl

    picture = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pictures"}):
        axes.figure.savefig(
            picture, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None}
        )
    return picture.getvalue()


def _write(name: str, picture: str) -> None:
    size = len(picture.encode())
    if size > MOST_BYTES:
        sys.exit(f"{name} has {size:,} bytes, more than {MOST_BYTES:,}: draw less")
    PICTURES.mkdir(exist_ok=True)
    (PICTURES / name).write_text(picture)
    print(f"docs/pictures/{name}: {size:,} bytes")


if __name__ == "__main__":
    main()
