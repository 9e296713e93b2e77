"""Renderings of a profile: message content is escaped in HTML, in a terminal and in the call."""

import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console

from cdc_formats import Event, Format, Ignored, read_object, register_format
from cdc_formats.errors import MissingFieldError, printable
from cdc_formats.topics.profile import TopicProfile, profile_records
from cdc_formats.topics.profile.terminal import tracked
from cdc_formats.topics.sampler import SampledRecord
from tests.support.databases import debezium
from tests.support.error_texts import error_test
from tests.support.examples import examples
from tests.support.paths import RECORDS
from tests.support.samples import call_of, messages, recorded, sample
from tests.support.scenarios import VECTORS, read_lines
from tests.support.servers.registry_front import RegistryFront

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


def harmful(*texts: str) -> list[str]:
    """Return the texts with characters that control a terminal."""
    lines = (text.replace("\n", "") for text in texts)
    return [line for line in lines if printable(line) != line]


@given(profiles())
@settings(max_examples=examples(25), deadline=None)
def test_message_content_is_escaped_in_every_rendering(profile: TopicProfile) -> None:
    page = Page(profile._repr_html_())
    assert set(page.tags) <= TAGS
    assert (page.attributes, page.open) == ({"style"}, [])
    assert all("url(" not in style and "expression" not in style for style in page.styles)
    texts = (page.text, str(profile), SGR.sub("", shown_by_rich(profile)))
    assert harmful(*texts, *profile.calls.values()) == []
    json.dumps(profile.to_dict(), ensure_ascii=False)
    for table in (each for each in profile.tables if each.schema is not None):
        call = call_of(profile.calls[table.name])
        assert (call["schema"], call["topic"]) == (table.ddl, profile.topic)


def test_each_hostile_text_is_shown_escaped() -> None:
    for text in HOSTILE[:6]:
        profile = profile_records(
            hostile_records(text, text, text, text.encode(), text, text), topic=text
        )
        escaped = printable(text)
        assert escaped in Page(profile._repr_html_()).text
        assert escaped in str(profile)
        assert escaped.partition(" ")[0] in SGR.sub("", shown_by_rich(profile))


def test_the_html_check_detects_unescaped_markup() -> None:
    page = Page(f"<div style=''>{HOSTILE[0]}</div>")
    assert not set(page.tags) <= TAGS


def test_texts_of_other_packages_formats_are_escaped() -> None:
    record = SampledRecord("t", 0, 0, 0, b"\xff", b'{"op": "\\u001b[31m<b>", "after": {}}', ())
    profile = profile_records([record], format="debezium-json")
    html = profile._repr_html_()
    assert [r"\x1b[31m" in str(profile), "\x1b" in html, "<b>" in html] == [True, False, False]


def test_a_profile_in_a_terminal() -> None:
    profile = profile_records(
        recorded("dbz34-mariadb-json.inventory.customers"), topic="customers", ranges={0: (0, 3828)}
    )
    text, drawn = str(profile), SGR.sub("", shown_by_rich(profile))
    lines = text.splitlines()
    titles = [line for line in lines if line and not line.startswith(" ")]
    assert titles == [
        "customers  debezium-json: 250 records of 3,828 in 1 partition",
        *("Format", "Tables", "Columns", "Records", "What the producer writes"),
        *("Order", "Records without rows", "Partitions", "Read it"),
    ]
    assert [title for title in titles[1:] if title not in drawn] == []
    assert max(map(len, lines)) <= 120
    (header,) = [line.split() for line in lines if "+I" in line]
    assert header[:7] == ["table", "records", "+I", "-U", "+U", "-D", "operations"]
    code = text.split("Read it\n", 1)[1]
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
    drawn = Page(html).text
    assert len(html) < 60_000
    assert [text for text in ("http", "<script") if text in html] == []
    assert all(line in drawn for line in profile.call().splitlines() if len(line) < 100)


@pytest.mark.parametrize(("progress", "drawn"), [(False, False), (None, False), (True, True)])
def test_a_progress_bar_is_drawn_on_request(
    progress: bool | None, drawn: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    # stderr is not a terminal here.
    assert list(tracked(range(3), 3, "[bold]topic[/]", progress=progress)) == [0, 1, 2]
    out, err = capfd.readouterr()
    assert (out, "[bold]topic[/]" in err and "3/3" in err) == ("", drawn)


# --------------------------------------------------------------------------------------------------
# Detection of a sample's format: recorded topics, vectors, other packages, and unknown formats
pytestmark = pytest.mark.usefixtures("no_other_formats")

FORMATS = {
    "__debezium-heartbeat.dbz34-mysql-strings": "debezium-json",
    "canal-mariadb-flat": "canal-json",
    "dbz19-postgres-json.inventory.all_types": "debezium-json",
    "dbz34-mariadb-avro.inventory.evolving": "debezium-avro-confluent",
    "dbz34-mariadb-json": "debezium-json",
    "dbz34-mariadb-json.inventory.customers": "debezium-json",
    "dbz34-mariadb-json.inventory.order_lines": "debezium-json",
    "dbz34-mariadb-upsert.inventory.dbz_signal": "debezium-flat-json",
    "dbz34-postgres-json.message": "debezium-json",
    "dbz36-mysql-json.inventory.places": "debezium-json",
    "dbz36-postgres-avro.inventory.places": "debezium-avro-confluent",
    "dbz36-postgres-json.inventory.embeddings": "debezium-json",
    "dbz36-postgres-json.inventory.places": "debezium-json",
    "dbz37-postgres-json.inventory.indexed": "debezium-json",
    "dbz37-postgres-json.inventory.temporal": "debezium-json",
    "dbz37-postgres-structured.inventory.temporal": "debezium-json",
    "dbz37-postgres-structuredschema.inventory.temporal": "debezium-json",
    "dbz34b-mariadb-upsertplain.inventory.all_types": "debezium-flat-json",
    "dbz34b-mariadb-upsertplain.inventory.dbz_signal": "debezium-flat-json",
    "dbz34b-mariadb-upsertplain.inventory.no_pk": "debezium-flat-json",
    "flink-ogg.tags": "ogg-json",
    "flink-upsert.tags": "upsert-kafka",
    "maxwell-mariadb": "maxwell-json",
    "maxwell-mariadb-ddl": "maxwell-json",
}


@pytest.fixture(scope="module")
def schemas() -> Iterator[str]:
    """A registry with the schemas of the recorded topics."""
    schemas_by_id = json.loads((RECORDS / "avro-schemas.json").read_text("utf-8"))
    with RegistryFront(
        schemas={int(number): each["schema"] for number, each in schemas_by_id.items()}
    ) as front:
        yield front.url


@pytest.mark.parametrize("name", FORMATS)
def test_the_format_of_a_recorded_topic(name: str, schemas: str) -> None:
    assert profile_records(recorded(name), url=schemas).format == FORMATS[name]


VECTOR_FILES = sorted(
    path
    for folder in ("product", "mongodb")
    for path in (VECTORS / folder).glob("*.jsonl")
    if "avro" not in path.name
)


@pytest.mark.parametrize("path", VECTOR_FILES, ids=lambda path: path.stem)
def test_the_format_of_a_vector(path: Path) -> None:
    profile = profile_records(sample(*(line.record for line in read_lines(path))))
    assert profile.format == path.stem


def test_avro_with_a_registry(schemas: str) -> None:
    profile = profile_records(recorded(AVRO), url=schemas)
    table = profile.tables[0]
    assert "are Avro with a registry schema" in profile.reason
    assert (table.primary_key, table.options) == (("id",), {"url": schemas})
    assert table.kafka_key.startswith("yes: (id), equal to the row's in ")


class Acme(Format):
    """A format of another package."""

    identifier = "acme-json"

    def read(self, key: bytes | None, value: bytes | None) -> list[Event] | Ignored:
        message = read_object(value or b"")
        if "acme" not in message:
            raise MissingFieldError("`acme` is missing", "$.acme")
        return [Event.insert(message["acme"], path="$.acme")]


class Broken(Format):
    """A format that raises an undocumented error on every record."""

    identifier = "broken-json"

    def read(self, key: bytes | None, value: bytes | None) -> list[Event] | Ignored:
        raise KeyError("secret sauce")


class Unmakeable(Format):
    """A format whose constructor fails."""

    identifier = "unmakeable-json"

    def __init__(self) -> None:
        raise RuntimeError("no licence")


@pytest.fixture
def other_formats(no_other_formats: None) -> None:
    for each in (Acme, Broken, Unmakeable):
        register_format(each)


SAMPLED = """
from cdc_formats.errors import MissingDependencyError
from cdc_formats.topics.sampler import SampledRecord
from cdc_formats.topics.profile import profile_records
def profile(*values):
    return profile_records([SampledRecord('t', 0, at, 0, b'{"id":%d}' % at, value, ()) for at, value in enumerate(values)], topic='t')
"""
WITHOUT_PACKAGES = {
    **{
        f"rows by key in JSON, {value}": (
            "fastavro",
            f"found = profile(*[b'{value}'] * 3, None)\n"
            "print(found.format, [each.identifier for each in found.candidates if each.requirement])",
            "upsert-kafka []",
        )
        for value in ('{"id":1,"name":"bike"}', '{"name":"bike"}')
    },
    **{
        f"a format that is not installed, {value}": (
            "fastavro",
            f"print([each.requirement for each in profile({value}).candidates if 'debezium-avro' in each.identifier])",
            expected,
        )
        for value, expected in {
            "b'some text'": "['']",
            "bytes(4) + bytes([7]) + b'abc'": (
                "needs fastavro: pip install 'pyspark-kafka-changelog[avro]'"
            ),
        }.items()
    },
    "values in Avro": (
        "fastavro",
        "from cdc_formats import get_format\n"
        "try: get_format('upsert-kafka', value_format='avro-confluent', avro_confluent_url='http://localhost')\n"
        "except MissingDependencyError as error: print(error)",
        "[MISSING_DEPENDENCY] avro-confluent needs fastavro: pip install "
        "'pyspark-kafka-changelog[avro]'",
    ),
    "a profile": ("rich", "print(profile())", "t  no format: 0 records in 0 partitions"),
    "a progress bar": (
        "rich",
        "from cdc_formats.topics.profile.terminal import tracked\n"
        "try: list(tracked([1], 1, 't', progress=True))\n"
        "except MissingDependencyError as error: print(error)",
        "a progress bar requires rich: pip install",
    ),
}


@pytest.mark.parametrize(
    ("package", "code", "expected"), WITHOUT_PACKAGES.values(), ids=WITHOUT_PACKAGES
)
def test_a_package_that_is_missing_is_named_where_it_is_needed(
    package: str, code: str, expected: str
) -> None:
    script = f"import sys; sys.modules[{package!r}] = None\n{SAMPLED}{code}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert expected in done.stdout


def test_a_registrys_secrets_never_appear(schemas: str) -> None:
    profile: TopicProfile = profile_records(
        recorded(AVRO, 20), url=schemas, basic_auth_user_info="ada:lovelace"
    )
    secret = profile.tables[0].options["basic_auth_user_info"]
    assert (profile.format, secret) == ("debezium-avro-confluent", "...")
    shown = (repr(profile), str(profile), profile._repr_html_(), json.dumps(profile.to_dict()))
    assert not any("lovelace" in text for text in (*shown, profile.call()))
    assert 'replace "..." with the secret' in profile.call()


# --------------------------------------------------------------------------------------------------
# facts


def facts(profile: TopicProfile, names: str) -> list[Any]:
    return [attrgetter(name)(profile) for name in names.split()]


def candidates(profile: TopicProfile, name: str) -> dict[str, Any]:
    """Return an attribute of each candidate."""
    return {each.identifier: getattr(each, name) for each in profile.candidates}


def of_canal(**more: Any) -> list[Any]:
    """Return the format and the reason of a message that Canal or TiCDC wrote."""
    message = {"database": "d", "table": "t", "isDdl": False, "type": "INSERT", "old": None}
    message |= {"data": [{"id": "1"}], "pkNames": ["id"], **more}
    return facts(profile_records(messages(message, key=None)), "format reason")


DEBEZIUM = {"before": None, "after": {"id": 1}, "op": "c", "source": {}}
KEYLESS = messages({"id": 1}, key=None)
TEXTS = sample((b"k", b"<xml/>"), (b"k", b"a,b"), (None, b'{"op": "+I", "data": {"id": 1}}'))
ACME = messages({"acme": {"id": 1}}, {"acme": {"id": 2}})
AVRO = "dbz34-mariadb-avro.inventory.evolving"
GIVEN = partial(
    profile_records,
    messages({"id": 1, "name": "bike"}),
    format="debezium-flat-json",
    add_fields_prefix="x_",
)
FACTS: dict[str, tuple[Callable[[], object], object]] = {
    "each recording": (
        lambda: {path.name.removesuffix(".jsonl.gz") for path in RECORDS.glob("*.jsonl.gz")},
        FORMATS.keys(),
    ),
    "vectors of formats": (lambda: len(VECTOR_FILES) >= 8, True),
    "the evidence names the fields": (
        lambda: profile_records(recorded("dbz34-mariadb-json.inventory.customers")).reason,
        "235 of 235 values have before, after, op, source and ts_ms",
    ),
    "equal candidates are listed": (
        lambda: [
            (each.identifier, each.specific, each.evidence)
            for each in profile_records(
                recorded("dbz34-mariadb-json.inventory.customers")
            ).candidates[:3]
        ],
        [
            ("debezium-json", True, "235 of 235 values have before, after, op, source and ts_ms"),
            ("upsert-kafka", False, "reads any JSON object as a row: 235 of 235 values"),
            ("debezium-flat-json", False, "reads any JSON object as a row: 235 of 235 values"),
        ],
    ),
    "another format refuses the values": (
        lambda: [
            str(
                candidates(
                    profile_records(recorded("dbz34-mariadb-json.inventory.customers")), name
                )["canal-json"]
            )[:48]
            for name in ("read", "refused", "error")
        ],
        ["0", "235", "[MISSING_FIELD] `type` is missing or not a strin"],
    ),
    "TiCDC with its extension": (
        lambda: of_canal(id=0, _tidb={"commitTs": 5}),
        [
            "ticdc-canal-json",
            "1 of 1 values have _tidb, data, type, isDdl, database and table, "
            "1 have id 0, as TiCDC writes it",
        ],
    ),
    "TiCDC without it": (
        lambda: of_canal(id=0),
        [
            "ticdc-canal-json",
            "1 of 1 values have data, type, isDdl, database and table, 1 have id 0, as TiCDC writes it",
        ],
    ),
    "Canal": (
        lambda: of_canal(id=7),
        [
            "canal-json",
            "1 of 1 values have data, old, type, isDdl, database and table; ticdc-canal-json would read "
            "as many values: check which one it is",
        ],
    ),
    "Avro without a registry": (
        lambda: facts(profile_records(recorded(AVRO)), "format reason"),
        [
            None,
            "the format cannot be detected yet: 211 of 211 values name a schema of a registry (id "
            "10): pass url='https://...', or -o url=https://... to cdc",
        ],
    ),
    "what Avro without a registry requires": (
        lambda: {
            name
            for name, text in candidates(profile_records(recorded(AVRO)), "requirement").items()
            if text
        },
        {"debezium-avro-confluent", "upsert-kafka"},
    ),
    "an unknown format has the nearest candidate": (
        lambda: facts(profile_records(TEXTS), "format reason values tables"),
        [
            None,
            "no format reads most of the 3 values; the nearest is changelog-json, with 1",
            {"text": 2, "JSON object": 1},
            (),
        ],
    ),
    "and shows its errors": (
        lambda: profile_records(TEXTS).candidates[0].error[:28],
        "[MALFORMED_MESSAGE] not JSON",
    ),
    **{
        f"{len(records)} records without a value": (
            lambda records=records: facts(profile_records(records), "format reason tombstones"),
            [None, "no record has a value to detect the format from", len(records)],
        )
        for records in ([], sample((b"k", None), (b"k", None)))
    },
    "a format that reads most values ranks before one that reads any object": (
        lambda: facts(
            profile_records(messages(*[DEBEZIUM] * 6, *[{"id": 1}] * 4)), "format corrupt"
        ),
        ["debezium-json", 4],
    ),
    "a format that reads a few values": (
        lambda: profile_records(messages(*[DEBEZIUM] * 3, *[{"id": 1}] * 7)).format,
        None,
    ),
    "plain objects with keys are upserts": (
        lambda: facts(profile_records(messages({"id": 1, "name": "bike"})), "format reason"),
        [
            "upsert-kafka",
            "reads any JSON object as a row: 1 of 1 values; debezium-flat-json would read as many "
            "values: check which one it is",
        ],
    ),
    "plain objects without keys": (
        lambda: [
            profile_records(KEYLESS).format,
            *map(
                candidates(profile_records(KEYLESS), "error").get,
                ("upsert-kafka", "debezium-flat-json"),
            ),
        ],
        [
            None,
            "[DECODE] the Kafka key is null - at the key",
            "[DECODE] the Kafka key is null, and the value has none of Debezium's fields - at the key",
        ],
    ),
    "a given format is not detected again": (
        lambda: [
            *facts(GIVEN(), "format reason"),
            len(GIVEN().candidates),
            GIVEN().tables[0].options,
        ],
        ["debezium-flat-json", "as given", 1, {"add_fields_prefix": "x_"}],
    ),
}
"""Facts of a detected format, and what they must be."""


@pytest.mark.parametrize(("fact", "expected"), FACTS.values(), ids=FACTS)
def test_what_a_detection_has(fact: Callable[[], object], expected: object) -> None:
    assert fact() == expected


def test_a_profile_without_a_format_can_be_shown() -> None:
    assert "not JSON" in str(profile_records(TEXTS))
    assert "empty" in profile_records([], topic="empty")._repr_html_()


def test_formats_of_other_packages_are_candidates(other_formats: None) -> None:
    profile = profile_records(ACME)
    reason = "2 of 2 values are messages of this format"
    assert facts(profile, "format reason") == ["acme-json", reason]
    assert (profile.tables[0].kinds, profile.tables[0].ddl) == ({"+I": 2}, "id BIGINT")
    broken, unmakeable = (
        next(each for each in profile.candidates if each.identifier == name)
        for name in ("broken-json", "unmakeable-json")
    )
    assert (broken.refused, "KeyError: 'secret sauce'" in broken.error) == (2, True)
    assert unmakeable.requirement == "it cannot be tried: no licence"


test_error_texts = error_test(
    __file__,
    {
        "an option that no format has is an error, 1": lambda: profile_records(
            messages({"id": 1}), decimals="precise"
        ),
        "an option that no format has is an error, 2": lambda: profile_records(
            messages({"id": 1}), decimal_handeling_mode="precise"
        ),
        "a given format is not detected again": lambda: profile_records([], format="nonsense"),
    },
)
