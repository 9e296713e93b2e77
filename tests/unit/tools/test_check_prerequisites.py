"""The check that `make` runs first, with real programs on a PATH made for the test."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from tests.support.paths import REPOSITORY

SCRIPT = REPOSITORY / "tools" / "check_prerequisites.py"


@pytest.fixture
def path(tmp_path):
    """A folder that is the whole PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def install(folder, name, script):
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def install_java(folder, version):
    folder.mkdir(parents=True, exist_ok=True)
    install(folder, "java", f"echo 'openjdk version \"{version}\" 2025-01-21' >&2")


def check(*names, path, python=sys.executable, **environment):
    """Return the exit code and lines of the check.

    The check finds Java only on `path` and in the folder `homes` next to it.
    """
    program = f"""
import sys
script = {{"__name__": "check"}}
exec(compile(open({str(SCRIPT)!r}).read(), "check_prerequisites.py", "exec"), script)
script["JAVA_HOMES"][:] = [{str(path.parent / "homes" / "*")!r}]
sys.exit(script["main"]({list(names)!r}))
"""
    done = subprocess.run(
        [python, "-c", program],
        env={"PATH": str(path), **environment},
        capture_output=True,
        text=True,
    )
    assert done.stdout == ""
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize("version", ["17.0.15", "21-ea", "21.0.2"])
def test_java_that_spark_supports_passes(path, version):
    install_java(path, version)
    assert check(path=path) == (0, [])


@pytest.mark.parametrize(
    ("version", "major"), [("1.8.0_402", 1), ("11.0.22", 11), ("22.0.1", 22), ("25", 25)]
)
def test_java_that_spark_does_not_support_is_an_error_that_names_it(path, version, major):
    install_java(path, version)
    code, [line] = check("java", path=path)
    assert code == 1
    assert line.startswith(f"A JDK 17 or 21 is required, but {path}/java is Java {major}: ")


def test_missing_java_is_an_error_of_one_sentence(path):
    assert check("java", path=path) == (
        1,
        [
            (
                "A JDK 17 or 21 is required, but none was found: install one from "
                "https://adoptium.net/ and export JAVA_HOME"
            )
        ],
    )


def test_java_home_takes_precedence_over_the_path(path, tmp_path):
    install_java(path, "17.0.1")
    code, [line] = check("java", path=path, JAVA_HOME=str(tmp_path / "gone"))
    assert code == 1
    assert line.startswith(
        f"A JDK 17 or 21 is required, but JAVA_HOME={tmp_path}/gone does not contain one: "
    )


def test_java_installed_elsewhere_is_suggested(path):
    install_java(path, "25")
    install_java(path.parent / "homes" / "jdk-21" / "bin", "21.0.2")
    _, [line] = check("java", path=path)
    assert line.endswith(f": export JAVA_HOME={path.parent}/homes/jdk-21")


@pytest.mark.parametrize(
    ("packages", "offered"),
    [
        pytest.param(
            "openjdk-17-jdk-headless openjdk-21-jdk-headless", "openjdk-21-jdk-headless", id="both"
        ),
        pytest.param("openjdk-17-jdk-headless", "openjdk-17-jdk-headless", id="only 17"),
        pytest.param("", "openjdk-17-jdk-headless", id="no package lists"),
    ],
)
def test_java_on_debian_is_a_package_of_the_release(path, packages, offered):
    install(path, "apt-get", "")
    install(path, "apt-cache", f'case " {packages} " in *" $3 "*) echo "Package: $3";; esac')
    _, [line] = check("java", path=path)
    assert re.search(rf": (sudo )?apt-get install {offered}$", line)


def test_java_on_macos_comes_from_homebrew(path):
    install(path, "brew", "")
    _, [line] = check("java", path=path)
    assert line.endswith(
        ': brew install openjdk@21 && export JAVA_HOME="$(brew --prefix openjdk@21)"'
    )


def test_python_of_this_environment_passes(path):
    assert check("python", path=path) == (0, [])


def test_python_without_ensurepip_names_the_package(path, tmp_path):
    # As on a Debian without python3-venv, where the module is missing.
    install(path, "apt-get", "")
    (tmp_path / "ensurepip.py").write_text("raise ImportError")
    code, [line] = check("python", path=path, PYTHONPATH=str(tmp_path))
    version = "{}.{}".format(*sys.version_info)
    assert code == 1
    assert "cannot make virtual environments" in line
    assert re.search(rf": (sudo )?apt-get install python{version}-venv$", line)


def test_old_pythons_get_a_clear_error_instead_of_a_syntax_error(path):
    # Tests the versions that this machine has; the next test covers the others.
    install(path, "python3.12", "echo Python 3.12.1")
    for name in ("python2.7", "python3.6", "python3.7", "python3.8", "python3.9"):
        if python := working(name):
            code, [line] = check("python", path=path, python=python)
            assert code == 1
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
