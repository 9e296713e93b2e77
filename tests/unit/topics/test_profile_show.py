"""Renderings of a profile: message content is escaped in HTML, in a terminal and in the call."""

import io
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from cdc_formats.errors import printable
from cdc_formats.topics.encodings import SampledRecord
from cdc_formats.topics.profile import TopicProfile, profile_records
from cdc_formats.topics.profile.terminal import tracked
from tests.support.databases import debezium
from tests.support.examples import examples
from tests.support.samples import call_of, recorded

TAGS = {"div", "span", "table", "thead", "tbody", "tr", "th", "td", "pre", "details", "summary"}
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</pre></td></table></div><iframe src='//evil'>",
    "&lt;b&gt; &amp;",
    "\x1b[2J\x1b]0;owned\x07\x9b31m",
    "[bold red]markup[/] [link=https://evil]x[/link] [/] :smile:",
    "'); import os; os.system('x') #",
    '""" + open("/etc/passwd") + """',
    "\n__import__('os')\n",
    "back`tick\\",
    "\u202eexe.txt\u2066\u2028",
    "x" * 100_000,
]
TEXT = st.sampled_from(HOSTILE) | st.text(max_size=30).filter(
    lambda text: text.encode("utf-8", "ignore").decode() == text
)
SGR = re.compile(r"\x1b\[[0-9;]*m")


def hostile_records(
    table: str, column: str, value: str, key: bytes, header: str, broken: str
) -> list[SampledRecord]:
    """A Maxwell topic whose every text comes from an attacker."""
    row = {
        "type": "insert",
        "database": table,
        "table": table,
        "data": {column: value, "id": 1},
        "primary_key_columns": ["id"],
    }
    ddl = {"type": "table-alter", "database": table, "table": table, "sql": broken}
    values = [row, row, {**row, "table": "other"}, ddl, {"type": broken}]
    headers = ((header, b"1"),)
    return [
        SampledRecord("t", 0, n, n, key, json.dumps(each).encode(), headers)
        for n, each in enumerate(values)
    ]


@st.composite
def profiles(draw: Any) -> TopicProfile:
    """Profiles of hostile topics, with a hostile name."""
    texts = [draw(TEXT) for _ in range(6)]
    key = draw(st.binary(max_size=20) | TEXT.map(str.encode))
    return profile_records(
        hostile_records(*texts[:3], key, *texts[3:5]),
        topic=texts[5],
        servers=texts[5],
        connection=(texts[4],),
    )


class Page(HTMLParser):
    """Parses HTML and collects its tags, attributes and text."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.open: list[str] = []
        self.attributes: set[str] = set()
        self.styles: set[str] = set()
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.open.append(tag)
        self.attributes |= {name for name, _ in attrs}
        self.styles |= {value or "" for _, value in attrs}

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError("a comment")


def shown_by_rich(profile: TopicProfile) -> str:
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=200, color_system="truecolor").print(profile)
    return out.getvalue()


def assert_harmless_for_a_terminal(text: str) -> None:
    assert printable(text.replace("\n", "")) == text.replace("\n", "")


@given(profiles())
@settings(max_examples=examples(25), deadline=None)
def test_message_content_is_escaped_in_every_rendering(profile: TopicProfile) -> None:
    page = Page(profile._repr_html_())
    assert set(page.tags) <= TAGS
    assert page.attributes == {"style"}
    assert page.open == []
    assert all("url(" not in style and "expression" not in style for style in page.styles)
    assert_harmless_for_a_terminal(page.text)
    assert_harmless_for_a_terminal(str(profile))
    assert_harmless_for_a_terminal(SGR.sub("", shown_by_rich(profile)))
    json.dumps(profile.to_dict(), ensure_ascii=False)
    for table in (each for each in profile.tables if each.schema is not None):
        call = call_of(profile.calls[table.name])
        assert (call["schema"], call["topic"]) == (table.ddl, profile.topic)
        assert_harmless_for_a_terminal(profile.calls[table.name])


def test_each_hostile_text_is_shown_escaped() -> None:
    for text in HOSTILE[:6]:
        profile = profile_records(
            hostile_records(text, text, text, text.encode(), text, text), topic=text
        )
        assert printable(text) in Page(profile._repr_html_()).text
        assert printable(text) in str(profile)
        assert printable(text).partition(" ")[0] in SGR.sub("", shown_by_rich(profile))


def test_the_html_check_detects_unescaped_markup() -> None:
    class Naive(TopicProfile):
        def _repr_html_(self) -> str:
            return f"<div style=''>{self.topic}</div>"

    profile = Naive(**vars(profile_records([], topic=HOSTILE[0])))
    assert not set(Page(profile._repr_html_()).tags) <= TAGS


def test_texts_of_other_packages_formats_are_escaped() -> None:
    record = SampledRecord("t", 0, 0, 0, b"\xff", b'{"op": "\\u001b[31m<b>", "after": {}}', ())
    profile = profile_records([record], format="debezium-json")
    assert r"\x1b[31m" in str(profile)
    assert "\x1b" not in profile._repr_html_()
    assert "<b>" not in profile._repr_html_()


def test_a_profile_in_a_terminal() -> None:
    profile = profile_records(
        recorded("dbz34-mariadb-json.inventory.customers"), topic="customers", ranges={0: (0, 3828)}
    )
    lines = str(profile).splitlines()
    assert lines[0] == "customers  debezium-json: 250 records of 3,828 in 1 partition"
    titles = [line for line in lines if line and not line.startswith(" ")][1:]
    first, last = (
        ["Format", "Tables", "Columns", "Records", "What the producer writes"],
        ["Order", "Records without rows", "Partitions", "Read it"],
    )
    assert titles == [*first, *last]
    assert max(map(len, lines)) <= 120
    (header,) = [line.split() for line in lines if "+I" in line]
    assert header[:7] == ["table", "records", "+I", "-U", "+U", "-D", "operations"]
    drawn = SGR.sub("", shown_by_rich(profile))
    assert all(title in drawn for title in titles)
    # The shown code equals the result of `call`.
    code = str(profile).split("Read it\n", 1)[1]
    assert "\n".join(line[2:] for line in code.splitlines()) == profile.call()


def test_a_narrow_terminal_shows_a_line_for_each_cell_and_whole_names() -> None:
    names = ("customer_accounts", "order_items")
    rows = [debezium(name, "c", None, {"id": 1}) for name in names]
    records = [
        SampledRecord("t", 0, offset, 0, key, value, ()) for offset, (key, value) in enumerate(rows)
    ]
    out = io.StringIO()
    Console(file=out, width=80).print(profile_records(records))
    lines = [line.rstrip() for line in out.getvalue().splitlines()]
    first = lines.index("  shop.customer_accounts")
    assert lines[first + 1 : first + 6] == [
        "    records  1",
        "    +I  1",
        "    operations  1 c",
        "    primary key  (id)",
        "    is the Kafka key  yes: (id), equal to the row's in 1 events",
    ]
    assert "  shop.order_items" in lines


def test_html_is_small_and_loads_nothing_external() -> None:
    profile = profile_records(recorded("maxwell-mariadb"))
    html = profile._repr_html_()
    assert len(html) < 60_000
    assert "http" not in html
    assert "<script" not in html
    drawn = Page(html).text
    assert all(line in drawn for line in profile.call().splitlines() if len(line) < 100)


@pytest.mark.parametrize(("progress", "drawn"), [(False, False), (None, False), (True, True)])
def test_a_progress_bar_is_drawn_on_request(
    progress: bool | None, drawn: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    # stderr is not a terminal here.
    assert list(tracked(range(3), 3, "[bold]topic[/]", progress=progress)) == [0, 1, 2]
    out, err = capfd.readouterr()
    assert out == ""
    assert ("[bold]topic[/]" in err and "3/3" in err) is drawn


def test_without_rich_a_profile_prints_and_only_the_bar_is_missing() -> None:
    script = (
        "import sys; sys.modules['rich'] = None\n"
        "from cdc_formats.topics.profile import profile_records\n"
        "from cdc_formats.topics.profile.terminal import tracked\n"
        "from cdc_formats.errors import MissingDependencyError\n"
        "print(profile_records([], topic='t'))\n"
        "try: list(tracked([1], 1, 't', progress=True))\n"
        "except MissingDependencyError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "t  no format: 0 records in 0 partitions" in done.stdout
    assert "a progress bar requires rich: pip install" in done.stdout
