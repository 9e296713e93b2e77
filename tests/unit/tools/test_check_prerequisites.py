"""The check that `make` runs first, with real programs on a PATH made for the test."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

SCRIPT = REPOSITORY / "tools" / "check_prerequisites.py"


JAVA, OF_DEBIAN = "echo 'openjdk version \"{}\" 2025-01-21' >&2", r".*: (sudo )?apt-get install {}$"
HAS = 'case " {} " in *" $3 "*) echo "Package: $3";; esac'
NEEDED = "A JDK 17 or 21 is required, but "
CASES = {
    **{
        f"Java {version}": ((), {"java": JAVA.format(version)}, {}, None)
        for version in ("17.0.15", "21-ea", "21.0.2")
    },
    **{
        f"Java {version}, which Spark does not support": (
            ("java",),
            {"java": JAVA.format(version)},
            {},
            NEEDED + f"PATH/java is Java {major}: ",
        )
        for version, major in (("1.8.0_402", 1), ("11.0.22", 11), ("22.0.1", 22), ("25", 25))
    },
    "no Java": (
        ("java",),
        {},
        {},
        NEEDED + "none was found: install one from https://adoptium.net/ and export JAVA_HOME$",
    ),
    "JAVA_HOME before the PATH": (
        ("java",),
        {"java": JAVA.format("17.0.1")},
        {"JAVA_HOME": "PATH/gone"},
        NEEDED + "JAVA_HOME=PATH/gone does not contain one: ",
    ),
    "Java elsewhere": (
        ("java",),
        {"java": JAVA.format("25"), "../homes/jdk-21/bin/java": JAVA.format("21.0.2")},
        {},
        ".*: export JAVA_HOME=PATH/../homes/jdk-21$",
    ),
    **{
        f"Java of Debian, which has '{packages}'": (
            ("java",),
            {"apt-get": "", "apt-cache": HAS.format(packages)},
            {},
            OF_DEBIAN.format(offered),
        )
        for packages, offered in (
            ("openjdk-17-jdk-headless openjdk-21-jdk-headless", "openjdk-21-jdk-headless"),
            ("openjdk-17-jdk-headless", "openjdk-17-jdk-headless"),
            ("", "openjdk-17-jdk-headless"),
        )
    },
    "Java of macOS": (
        ("java",),
        {"brew": ""},
        {},
        r""".*: brew install openjdk@21 && export JAVA_HOME="\$\(brew --prefix openjdk@21\)"$""",
    ),
    "this Python": (("python",), {}, {}, None),
    # As on a Debian without python3-venv, where the module is missing.
    "a Python without ensurepip": (
        ("python",),
        {"apt-get": "", "../ensurepip.py": "raise ImportError"},
        {"PYTHONPATH": "PATH/.."},
        r".*cannot make virtual environments.*: (sudo )?apt-get install python{}\.{}-venv$".format(
            *sys.version_info
        ),
    ),
}
"""The arguments, the programs on the PATH, other variables of the environment, and the error."""


def check(path, names, programs, environment, python=sys.executable):
    """Return the lines of the check, which finds Java only on `path` and in the folder `homes` next to it."""
    for name, script in programs.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_text(script if name[-3:] == ".py" else f"#!/bin/sh\n{script}\n")
        (path / name).chmod(0o755)
    program = f"""
import sys
script = {{"__name__": "check"}}
exec(compile(open({str(SCRIPT)!r}).read(), "check_prerequisites.py", "exec"), script)
script["JAVA_HOMES"][:] = [{str(path / ".." / "homes" / "*")!r}]
sys.exit(script["main"]({list(names)!r}))
"""
    variables = {name: value.replace("PATH", str(path)) for name, value in environment.items()}
    done = subprocess.run(
        [python, "-c", program],
        env={"PATH": str(path), **variables},
        capture_output=True,
        text=True,
    )
    assert (done.stdout, done.returncode) == ("", len(done.stderr.splitlines()))
    return done.stderr.splitlines()


@pytest.mark.parametrize(("names", "programs", "environment", "error"), CASES.values(), ids=CASES)
def test_what_is_missing_is_one_sentence(names, programs, environment, error, tmp_path):
    (tmp_path / "bin").mkdir()
    lines = check(tmp_path / "bin", names, programs, environment)
    assert len(lines) == (error is not None)
    assert error is None or re.match(error.replace("PATH", str(tmp_path / "bin")), lines[0])


def test_old_pythons_get_a_clear_error_instead_of_a_syntax_error(tmp_path):
    # Tests the versions that this machine has; the next test covers the others.
    for name in ("python2.7", "python3.6", "python3.7", "python3.8", "python3.9"):
        if python := working(name):
            newer = {"python3.12": "echo Python 3.12.1"}
            [line] = check(tmp_path, ["python"], newer, {}, python)
            assert line.startswith("Python 3.10 to 3.14 is required, but ")
            assert line.endswith(f" is {name[6:]}: run make with PYTHON=python3.12")


def working(name):
    program = shutil.which(name)
    works = (
        program
        and subprocess.run([program, "--version"], capture_output=True, env=os.environ).returncode
        == 0
    )
    return program if works else None


def test_script_uses_only_syntax_that_python_2_can_parse():
    # For machines without old Pythons: the most likely mistakes.
    text = SCRIPT.read_text()
    assert not re.search(r"""\bf["']|print\(|->|:=|\bnonlocal\b|async |\*, """, text)
    assert text.isascii()
