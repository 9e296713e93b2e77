"""``cdc formats``."""

import json
import re
from pathlib import Path

import pytest

from cdc_cli.formats import manual, option_groups
from cdc_formats.format import BUILT_IN, format_class
from tests.support.commands import Terminal, cdc, quick
from tests.support.distributions import install


def test_all_formats_are_listed_with_their_properties() -> None:
    names, *lines = cdc("formats").lines
    assert names == "identifier\tmessages\trows\tKafka key\tnull value\tpositions\twritten"
    assert [line.partition("\t")[0] for line in lines] == sorted(BUILT_IN)
    rows = (
        "op-json\tRows in JSON with an operation, as of Qlik, Striim, or Flink's TO_CHANGELOG"
        "\t+I +U -D\tnot read\tignored\tno\tno",
        "upsert-kafka\tNewest rows by key, of any producer\t+U -D\tread\tread\tno\tyes",
        "maxwell-json\tMaxwell's messages\t+I -U +U -D\tnot read\tignored\tyes\tyes",
        "dms-json\tAWS DMS's messages\t+I -U +U -D\tnot read\tignored\tno\tno",
    )
    assert {*rows} <= {*lines}


def test_formats_are_listed_as_json() -> None:
    by_identifier = {
        each["identifier"]: each for each in json.loads(quick("formats", "--json").out)
    }
    assert by_identifier["debezium-flat-json"] == {
        "identifier": "debezium-flat-json",
        "messages": "Debezium's rows without the envelope",
        "changelog_mode": ["+I", "+U", "-D"],
        "reads_key": True,
        "null_value": "read",
        "positions": True,
        "written": True,
        "class": "cdc_formats.formats.debezium.flat.DebeziumFlatJson",
    }


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_each_option_of_a_format_has_a_type_a_default_and_a_description(name: str) -> None:
    described = json.loads(quick("formats", name, "--json").out)
    assert described["description"]
    assert all(
        option["type"] and option["description"] and not option["required"]
        for option in described["options"]
    )
    assert {"error_excerpt", "validate"} <= {option["name"] for option in described["options"]}


def test_description_of_a_format_leaves_out_the_comparison_with_flink() -> None:
    done = quick("formats", "maxwell-json")
    assert done.out.startswith("Maxwell JSON, as written by Zendesk's Maxwell daemon")
    texts = ("Differs from Flink", "table_include\tstr | None\tNone\tRegular expressions")
    assert [text in done.out for text in texts] == [False, True]


def shown(*arguments: str, columns: int) -> tuple[str, list[str]]:
    """Return what a terminal shows, and its lines without the codes of colours."""
    with Terminal(*arguments, columns=columns) as terminal:
        code, text = terminal.end()
    assert code == 0
    return text, re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()


def test_options_in_a_narrow_terminal_are_paragraphs_without_marks() -> None:
    for name in BUILT_IN:
        _, lines = shown("formats", name, columns=80)
        code = [line for line in lines if line.startswith("    ")]  # messages are not wrapped
        assert max(len(line) for line in lines if line not in code) <= 80
        assert [
            line for line in lines if "``" in line or line.endswith("::") or line.startswith("==")
        ] == []
    text, lines = shown("formats", "debezium-json", columns=60)
    assert "\x1b[36mdecimal_handling_mode\x1b" in text
    place = lines.index("time_zone  str | None, default None")
    assert lines[place + 1 : place + 3] == [
        "    The zone of zone-less text in a TIMESTAMP column.",
        "",
    ]


def test_options_in_a_wide_terminal_are_a_table() -> None:
    text, lines = shown("formats", "debezium-json", columns=130)
    assert any(re.match(r" *option +type +default", line) for line in lines)
    assert max(map(len, lines)) <= 130
    assert "\x1b[36m" in text


def test_a_table_that_is_too_wide_becomes_paragraphs() -> None:
    table = (
        "====  =========\nop    rows\n====  =========\n``c``  one two\n      three\n====  ========="
    )
    assert manual(table, 80) == ["op  rows", "--  -------------", "c   one two three"]
    assert manual(table, 10) == ["c", "    one two three"]


THEIRS = '''"""Shop's messages.

One for each change.

Differs from Flink: in all.
"""
from dataclasses import dataclass
from cdc_formats import Format

@dataclass(frozen=True, kw_only=True)
class Shop(Format):
    """Messages.

    Parameters
    ----------
    till : int
        Which till.
    """
    identifier = "shop-json"
    till: int
    def read(self, key, value):
        return []
'''


@pytest.fixture
def packages(tmp_path: Path) -> str:
    """Return a folder with two packages: a format with a required option, and an unloadable one."""
    fair = THEIRS.replace("shop-json", "fair-json").replace("till: int", "till: int = 1")
    points = {"shop-json": "shop:Shop", "fair-json": "fair:Shop", "broken-json": "shop:Gone"}
    install(tmp_path, points, "shop", {"shop": THEIRS, "fair": fair})
    return str(tmp_path)


def test_formats_of_installed_packages_are_listed_despite_a_broken_one(packages: str) -> None:
    done = cdc("formats", PYTHONPATH=packages)
    assert done.code == 0
    rows = {line.split("\t")[0]: line.split("\t")[2:] for line in done.lines}
    assert rows["fair-json"] == ["+I -U +U -D", "not read", "ignored", "no", "no"]
    assert rows["shop-json"] == ["+I -U +U -D", "not read", "ignored", "no", "no"]
    assert len(done.lines) == 1 + len(BUILT_IN) + 2
    assert done.err.startswith("broken-json cannot be loaded: [UNKNOWN_FORMAT]")
    shown = cdc("formats", "shop-json", PYTHONPATH=packages).out
    assert shown.startswith("Shop's messages.\n\nOne for each change.\n\nshop-json:")
    assert "till\tint\trequired\tWhich till." in shown


def test_option_of_an_installed_format_is_read_as_its_declared_type(packages: str) -> None:
    tail = ("tail", "t", "-b", "127.0.0.1:1", "-f")
    done = cdc(*tail, "fair-json", "-o", "till=one", PYTHONPATH=packages)
    assert (
        done.err
        == "error: [FORMAT_OPTION] fair-json: till must be a number (int); the given text is not\n"
    )
    done = cdc(*tail, "shop-json", PYTHONPATH=packages)
    assert "till" in done.err
    assert done.err.startswith("error: [FORMAT_OPTION]")


def test_the_options_of_a_format_come_first_and_those_of_a_registry_last() -> None:
    groups = option_groups(format_class("debezium-json"))
    names = list(groups)
    assert names[:2] == ["timestamp_format_standard", "schema_include"]
    assert names.index("decimal_handling_mode") < names.index("error_excerpt") < names.index("url")
    assert groups["url"] == groups["retry_seconds"] == "options of a registry"
    assert groups["mask"] == "options of every format"
