"""A report as notebook HTML: inline styles, readable on light and dark themes, all data escaped."""

from __future__ import annotations

from html import escape

from cdc_formats.errors import printable

from .report import Grid, Report, Section

_LINE = "rgba(128,128,128,.35)"
_SHADE = "rgba(128,128,128,.10)"
_FONT = (
    "font-family:system-ui,-apple-system,'Segoe UI',Roboto,"
    "sans-serif;font-size:13px;line-height:1.45"
)
_MONO = "font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;font-size:12px"
_KIND_COLORS = {"+I": "#22a861", "-U": "#d18f00", "+U": "#3a95d6", "-D": "#e5533d"}
_MOST_OPEN = 12


def html_text(report: Report) -> str:
    """Return a report as HTML."""
    badge = "#1a9850" if report.good else "#d7301f"
    identifier, _, rest = report.headline.partition(": ")
    head = (
        '<div style="margin-bottom:8px"><span '
        f'style="font-size:17px;font-weight:600">{_text(report.title)}</span> <span '
        'style="margin-left:8px;padding:2px '
        f'9px;border-radius:10px;background:{badge};color:#fff;font-weight:600">{_text(identifier)}</span> '
        f'<span style="margin-left:8px;opacity:.75">{_text(rest)}</span></div>'
    )
    return (
        "<div "
        f'style="{_FONT};max-width:1100px;text-align:left">{head}{"".join(map(_section, report.sections))}</div>'
    )


def _text(text: str) -> str:
    return escape(printable(text), quote=True)


def _section(section: Section) -> str:
    facts = "".join(_fact(name, text) for name, text in section.facts)
    return (
        (
            '<div style="margin:14px 0 4px;font-weight:600;border-bottom:1px solid '
            f'{_LINE};padding-bottom:2px">{_text(section.title)}</div>'
        )
        + (
            f'<table style="border:0;border-collapse:collapse;margin:4px 0">{facts}</table>'
            if facts
            else ""
        )
        + (_grid(section.grid) if section.grid else "")
        + "".join(map(_warning, section.warnings))
        + (_code(section.code) if section.code else "")
    )


def _fact(name: str, text: str) -> str:
    return (
        '<tr style="background:transparent;border:0"><td '
        'style="text-align:left;vertical-align:top;padding:1px 16px 1px '
        f'0;border:0;opacity:.7;min-width:130px">{_text(name)}</td><td '
        'style="text-align:left;vertical-align:top;padding:1px '
        f'0;border:0;overflow-wrap:anywhere">{_text(text)}</td></tr>'
    )


def _warning(text: str) -> str:
    style = (
        "margin:4px 0;padding:3px 10px;border-left:3px solid #c98200;background:rgba(201,130,0,"
        ".12);overflow-wrap:anywhere"
    )
    return f'<div style="{style}">{_text(text)}</div>'


def _code(code: str) -> str:
    lines = "\n".join(_text(line) for line in code.split("\n"))
    style = (
        f"{_MONO};margin:4px 0;padding:10px 12px;background:{_SHADE};border:1px solid "
        f"{_LINE};border-radius:6px;overflow-x:auto"
    )
    return f'<pre style="{style};color:inherit;white-space:pre">{lines}</pre>'


def _grid(grid: Grid) -> str:
    head = "".join(_cell("th", name, name in grid.numbers, name) for name in grid.header)
    rows = "".join(
        '<tr style="background:transparent">'
        + "".join(
            _cell("td", cell, name in grid.numbers, name)
            for name, cell in zip(grid.header, row, strict=True)
        )
        + "</tr>"
        for row in grid.rows
    )
    opened = (
        '<div style="overflow-x:auto"><table style="border:0;border-collapse:collapse;margin:4px '
        '0"><thead><tr '
        f'style="background:{_SHADE}">{head}</tr></thead><tbody>{rows}</tbody></table></div>'
    )
    if len(grid.rows) <= _MOST_OPEN:
        return opened
    return (
        f'<details><summary style="cursor:pointer">{len(grid.rows)} '
        f"rows</summary>{opened}</details>"
    )


def _cell(tag: str, text: str, number: bool, column: str) -> str:
    style = (
        f"text-align:{'right' if number else 'left'};vertical-align:top;padding:3px "
        f"12px;border:0;border-bottom:1px solid {_LINE}"
    )
    style += (
        ";white-space:nowrap;font-variant-numeric:tabular-nums"
        if number
        else ";overflow-wrap:anywhere"
    )
    style += ";min-width:150px" if column == "table" else ""
    if column in _KIND_COLORS and text != "-":
        style += f";color:{_KIND_COLORS[column]};font-weight:600"
    return f'<{tag} style="{style}">{_text(text)}</{tag}>'
