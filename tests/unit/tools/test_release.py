"""A release: its version, changelog, package links, and build and publish workflows."""

import re
import subprocess
import sys
from configparser import ConfigParser
from datetime import date

import pytest
from ruamel.yaml import YAML

import cdc_formats
from tests.support.paths import REPOSITORY
from tools.package import (
    absolute_links,
    installed_pythons,
    repository,
    spark_example,
    version,
    with_links,
)
from tools.release import prepared, problem, sections
from tools.versions import NEWEST, OF_IMAGES, Pin, behind, images, newest, pins, requirements

CHANGELOG = (REPOSITORY / "CHANGELOG.md").read_text("utf-8")
ADDRESS = "https://git.example/owner/name"
DAY = date(2026, 11, 25)
WORKFLOWS = sorted((REPOSITORY / ".github" / "workflows").glob("*.yaml"))
FORMS = sorted((REPOSITORY / ".github" / "ISSUE_TEMPLATE").glob("*.yaml"))


# --------------------------------------------------------------------------------------------------
# the version


def test_the_version_is_read_without_an_import():
    assert version() == cdc_formats.__version__


def test_the_changelog_begins_with_unreleased_changes_or_with_this_version():
    first, *earlier = sections(CHANGELOG)
    assert first == "Unreleased" or re.fullmatch(
        rf"{re.escape(version())} \(\d{{4}}-\d\d-\d\d\)", first
    )
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", title) for title in earlier)


def test_a_release_dates_the_unreleased_changes():
    changelog = "# Changes\n\n## Unreleased\n\n- new\n\n## 0.1.0 (2026-01-01)\n\n- old\n"
    released = prepared(changelog, "0.2.0", DAY)
    assert sections(released) == {"0.2.0 (2026-11-25)": "- new", "0.1.0 (2026-01-01)": "- old"}
    assert problem("v0.2.0", declared="0.2.0", changelog=released) is None


@pytest.mark.parametrize(
    ("changelog", "new", "text"),
    [
        ("## Unreleased\n\n- new\n", "0.2", "'0.2' is not a version"),
        ("## Unreleased\n\n## 0.1.0 (2026-01-01)\n", "0.2.0", "there is nothing to release"),
        ("## 0.1.0 (2026-01-01)\n\n- old\n", "0.2.0", "there is nothing to release"),
        (
            "## Unreleased\n\n- new\n\n## 0.10.0 (2026-01-01)\n",
            "0.9.0",
            "0.9.0 is not later than 0.10.0",
        ),
    ],
)
def test_a_release_without_changes_or_with_an_older_version_is_refused(changelog, new, text):
    with pytest.raises(ValueError, match=re.escape(text)):
        prepared(changelog, new, DAY)


@pytest.mark.parametrize(
    ("tag", "changelog", "text"),
    [
        ("v0.3.0", "## 0.2.0 (2026-11-25)\n", "the tag v0.3.0 is not v0.2.0"),
        ("0.2.0", "## 0.2.0 (2026-11-25)\n", "the tag 0.2.0 is not v0.2.0"),
        (
            "v0.2.0",
            "## Unreleased\n\n- new\n\n## 0.2.0 (2026-11-25)\n",
            "CHANGELOG.md begins with 'Unreleased'",
        ),
        ("v0.2.0", "## 0.2.0\n", "CHANGELOG.md begins with '0.2.0'"),
    ],
)
def test_a_tag_that_is_not_a_release_is_refused(tag, changelog, text):
    assert text in (problem(tag, declared="0.2.0", changelog=changelog) or "")


# --------------------------------------------------------------------------------------------------
# the links


def test_the_address_is_that_of_the_workflow_unless_one_is_set(monkeypatch):
    monkeypatch.delenv("GITHUB_REPOSITORY", raising=False)
    assert repository() == ""
    monkeypatch.setenv("GITHUB_SERVER_URL", "https://host.example")
    monkeypatch.setenv("GITHUB_REPOSITORY", "owner/name")
    assert repository() == "https://host.example/owner/name"


def test_links_of_the_packages_readme_lead_to_the_files_of_its_tag():
    page = (
        "[a](docs/a.md#b) ![p](docs/p.svg) [w](https://x.example/) [here](#there) "
        "[`c`](SECURITY.md)"
    )
    assert absolute_links(page, ADDRESS, "v0.2.0") == (
        f"[a]({ADDRESS}/blob/v0.2.0/docs/a.md#b) ![p]({ADDRESS}/raw/v0.2.0/docs/p.svg) "
        f"[w](https://x.example/) [here](#there) [`c`]({ADDRESS}/blob/v0.2.0/SECURITY.md)"
    )
    assert absolute_links(page, "", "v0.2.0") == page


def test_the_readme_of_the_package_has_no_relative_link():
    readme = absolute_links((REPOSITORY / "README.md").read_text("utf-8"), ADDRESS, "v0.2.0")
    prose = re.sub(r"^```.*?^```$", "", readme, flags=re.MULTILINE | re.DOTALL)
    assert [
        link for link in re.findall(r"\]\(([^)]+)\)", prose) if not link.startswith("https://")
    ] == []


def test_the_projects_links_come_from_one_setting():
    settings = (REPOSITORY / "setup.cfg").read_text("utf-8")
    assert with_links(settings, "") == settings
    linked = ConfigParser()
    linked.read_string(with_links(settings, ADDRESS))
    links = linked["metadata"]["project_urls"].split("\n")[1:]
    assert [link.partition(" = ")[0] for link in links] == [
        "Source",
        "Documentation",
        "Changelog",
        "Issues",
    ]
    assert all(link.partition(" = ")[2].startswith(ADDRESS) for link in links)


# --------------------------------------------------------------------------------------------------
# the package, the workflows


def test_the_example_that_is_tried_with_the_wheel_is_the_readmes():
    example, printed = spark_example((REPOSITORY / "README.md").read_text("utf-8"))
    compile(example, "README.md", "exec")
    assert "from_kafka_changelog(" in example
    assert printed.startswith("+--------+")


def test_a_python_of_this_machine_is_used():
    names = [program.rpartition("python")[2] for program in installed_pythons()]
    assert "{}.{}".format(*sys.version_info) in names
    assert names == sorted(names, key=lambda name: int(name.partition(".")[2]))


def test_the_workflows_and_forms_are_valid():
    for schema, files in (
        ("vendor.github-workflows", WORKFLOWS),
        ("custom.github-workflows-require-timeout", WORKFLOWS),
        ("vendor.github-issue-forms", FORMS),
    ):
        assert files
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", schema, *files]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stdout) == (0, "ok -- validation done\n")


def test_the_workflows_run_goals_of_the_makefile():
    makefile = (REPOSITORY / "Makefile").read_text("utf-8")
    jobs = [
        job
        for path in WORKFLOWS
        for name, job in YAML(typ="safe").load(path.read_text("utf-8"))["jobs"].items()
        if name != "wheels"  # cibuildwheel, on each platform
    ]
    commands = [
        step["run"]
        for job in jobs
        for step in job.get("steps", [])
        if "run" in step and not step["run"].startswith(("gh release", 'test "$(ls dist/*.whl'))
    ]
    goals = {
        goal for job in jobs for goal in job.get("strategy", {}).get("matrix", {}).get("goal", [])
    }
    goals |= {match[1] for command in commands if (match := re.match(r"make ([a-z-]+)", command))}
    assert all(command.startswith("make ") for command in commands)
    assert goals == {
        "audit",
        "check",
        "coverage",
        "matrix",
        "native-check",
        "next-deltalake",
        "next-spark",
        "package",
        "release-notes",
        "stranger",
        "test-all",
    }
    assert all(re.search(rf"^{goal}:", makefile, re.M) for goal in goals)
    assert {
        goal
        for goal in re.findall(
            r"make ([a-z][a-z-]*)", (REPOSITORY / ".ci" / "run").read_text("utf-8")
        )
    } <= goals


def test_the_actions_of_the_workflows_are_of_one_version():
    used = [
        line.partition("uses: ")[2]
        for path in WORKFLOWS
        for line in path.read_text("utf-8").splitlines()
        if "uses: " in line
    ]
    assert used
    assert [
        action
        for action in used
        if not re.fullmatch(r"\./[\w./-]+|[\w-]+/[\w-]+@(v\d+|release/v\d+)", action)
    ] == []


# --------------------------------------------------------------------------------------------------
# `tools.versions`: what is compared. The registries themselves are asked by hand
PRINTED = """\
\tfound org.postgresql#postgresql;42.7.14 in central
\t[42.7.14] org.postgresql#postgresql;latest.release
\t[4.0.4] org.apache.spark#spark-sql-kafka-0-10_2.13;4.0.+
"""


def test_the_pins_whose_line_has_another_version_are_behind() -> None:
    kafka, postgresql = "org.apache.spark:spark-sql-kafka-0-10_2.13", "org.postgresql:postgresql"
    lines = {kafka: "4.0.+", postgresql: NEWEST}
    served = {(name, lines[name]): version for name, version in newest(PRINTED).items()}
    old, same, lost = (
        Pin(kafka, "4.0.0", "a.py", "4.0.+"),
        Pin(postgresql, "42.7.14", "b.py"),
        Pin("org.example:gone", "1", "c.py"),
    )
    assert list(behind([old, same, lost], served)) == [(old, "4.0.4"), (lost, "")]


def test_every_pin_is_a_package_with_a_version() -> None:
    found = pins()
    assert len(found) == len(set(found))
    assert all(re.fullmatch(r"[\w.-]+:[\w.-]+", pin.package) for pin in found)
    assert all(re.match(r"\d+\.\d+", pin.version) for pin in found)
    files = {pin.file for pin in found}
    assert files == {
        "bench/flink.py",
        "bench/flink_cdc.py",
        "compose.yaml",
        "normalize/local_kafka.py",
        "normalize/spark_versions.py",
    }
    assert OF_IMAGES.keys() <= images().keys()
    assert str(requirements()["msgspec"].specifier) == "<1,>=0.18"
