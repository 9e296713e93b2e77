"""The wheel and the sdist in ``dist/``, checked as a user gets them.

    python -m tools.package check     # build both; run the README's examples with the wheel,
                                      # on the oldest and the newest Python
    python -m tools.package audit     # report known vulnerabilities of what the wheel requires,
                                      # and write build/sbom.json
    python -m tools.package next-spark    # run the README's example on the newest PySpark

Uses the standard library only. Each step runs in an environment of its own, in a temporary folder.
"""

from __future__ import annotations

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from configparser import ConfigParser
from pathlib import Path

from tools.check_prerequisites import PYTHONS, find_program, output_of

REPOSITORY = Path(__file__).parents[1]
DIST, SBOM = REPOSITORY / "dist", REPOSITORY / "build" / "sbom.json"
PACKAGES = ("capture", "cdc_cli", "cdc_formats", "normalize")
NOT_INSTALLED = {"dev", "docs", "notebooks", "release"}
"""The extras for work on this repository."""
PAGES = {
    "Source": "",
    "Documentation": "/tree/main/docs",
    "Changelog": "/blob/main/CHANGELOG.md",
    "Issues": "/issues",
}
LONGEST_SECONDS = 1800
"""The time after which a program is stopped."""
PYTHON_HOMES = ["~/.pyenv/versions/*/bin", "~/.local/share/uv/python/*/bin"]
"""Where version managers put Pythons that are not on the PATH."""


def main(arguments: list[str]) -> str | None:
    """Run a command; return what is wrong, None if nothing is."""
    commands = {("check",): check, ("audit",): audit, ("next-spark",): next_spark}
    if tuple(arguments) not in commands:
        return __doc__
    try:
        commands[tuple(arguments)]()
    except ValueError as error:
        return str(error)
    return None


def check() -> None:
    """Build the wheel and the sdist, and run the README's examples with the wheel."""
    wheel = build()
    different = files_of_the_packages() ^ files_of(wheel)
    if different:
        raise ValueError(
            f"only in {wheel.name} or only in git: {', '.join(sorted(different))}: commit, or "
            "correct package_data in setup.cfg"
        )
    pythons = installed_pythons()
    for python in dict.fromkeys([pythons[0], pythons[-1]]):
        try_wheel(wheel, python)


def build() -> Path:
    """Return the wheel for any platform, made from the sdist; both are in ``dist/``."""
    # The workflow builds those with the native decoder, of the same sdist.
    os.environ["CDC_NATIVE"] = "0"
    for old in [*DIST.glob("*.whl"), *DIST.glob("*.tar.gz")]:
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        python = environment(Path(folder) / "tools", sys.executable, *release_tools())
        run(
            python,
            "-m",
            "build",
            "--outdir",
            DIST,
            published(Path(folder) / "source"),
            capture=True,
        )
        run(python, "-m", "twine", "check", "--strict", *DIST.glob("*.whl"), *DIST.glob("*.tar.gz"))
    return next(DIST.glob("*.whl"))


def published(folder: Path) -> Path:
    """Copy the files that git has, with links that work outside of the repository.

    Return the copy's folder.
    """
    for name in output_of(["git", "-C", str(REPOSITORY), "ls-files"]).splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, folder / name)
    readme, settings = folder / "README.md", folder / "setup.cfg"
    readme.write_text(
        absolute_links(readme.read_text("utf-8"), repository(), f"v{version()}"), "utf-8"
    )
    settings.write_text(with_links(settings.read_text("utf-8"), repository()), "utf-8")
    return folder


def repository() -> str:
    """Return the repository's address: of setup.cfg, or of the workflow that runs; "" without one."""
    server, name = (os.environ.get(f"GITHUB_{each}", "") for each in ("SERVER_URL", "REPOSITORY"))
    set_there = package_settings()["project"]["repository"]
    return (set_there or (f"{server}/{name}" if server and name else "")).rstrip("/")


def version() -> str:
    """Return `cdc_formats.__version__`, without importing it."""
    return re.findall(
        '^__version__ = "(.+)"$',
        (REPOSITORY / "cdc_formats" / "__init__.py").read_text("utf-8"),
        re.M,
    )[0]


def absolute_links(markdown: str, address: str, tag: str) -> str:
    """Return a page of the repository whose links lead to the files at a tag.

    Without an address, it is the page itself.
    """
    if not address:
        return markdown
    return re.sub(
        r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)]+)\)",
        lambda link: (
            f"{link[1]}{link[2]}({address}/{'raw' if link[1] else 'blob'}/{tag}/{link[3]})"
        ),
        markdown,
    )


def with_links(settings: str, address: str) -> str:
    """Return setup.cfg with the project's links; without an address, as it is."""
    links = "".join(f"    {title} = {address}{path}\n" for title, path in PAGES.items())
    return (
        settings.replace("[metadata]\n", f"[metadata]\nproject_urls =\n{links}", 1)
        if address
        else settings
    )


def try_wheel(wheel: Path, python: str) -> None:
    """Install a wheel in a new environment and run the README's examples.

    Both happen outside of the repository.
    """
    with tempfile.TemporaryDirectory() as folder:
        print(f"== {wheel.name} on {output_of([python, '--version']).strip()}", flush=True)
        own = environment(Path(folder), python, f"{wheel}[cli,kafka,spark]")
        run(own, "-m", "pip", "check")
        version = run(own.with_name("cdc"), "--version", cwd=folder, capture=True)
        if version.split()[1] != wheel.name.split("-")[1]:
            raise ValueError(f"{wheel.name} says that it is {version.strip()}")
        readme = (REPOSITORY / "README.md").read_text("utf-8")
        (Path(folder) / "README.md").write_text(readme, "utf-8")
        run(own, "-m", "doctest", "README.md", cwd=folder)
        run_example(own, folder)


def run_example(python: Path, folder: str) -> None:
    """Run the README's example with an interpreter; raise an error if it prints something else."""
    example, expected = spark_example((REPOSITORY / "README.md").read_text("utf-8"))
    (Path(folder) / "example.py").write_text(example, "utf-8")
    printed = run(python, "example.py", cwd=folder, capture=True)
    if expected not in printed:
        raise ValueError(f"the README's example printed\n{printed}\ninstead of\n{expected}")


def spark_example(readme: str) -> tuple[str, str]:
    """Return the README's first example, which needs Spark and Kafka, and what it prints."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", readme, re.M | re.S)
    place = next(number for number, (language, _) in enumerate(blocks) if language == "python")
    return blocks[place][1], blocks[place + 1][1].strip()


def audit() -> None:
    """Report known vulnerabilities of what the wheel requires.

    Write the report down as a CycloneDX document.
    """
    wheels = list(DIST.glob("*.whl"))
    if len(wheels) != 1:
        raise ValueError("dist/ must contain one wheel: run `make package` first")
    SBOM.parent.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        tools = environment(Path(folder) / "tools", sys.executable, *release_tools())
        packages = Path(folder) / "packages"  # without the pip of an environment
        wheel = f"{wheels[0]}[{','.join(extras())}]"
        run(tools, "-m", "pip", "install", "--quiet", "--target", packages, wheel)
        command = [tools, "-m", "pip_audit", "--path", packages, "--progress-spinner", "off"]
        run(*command, "--format", "cyclonedx-json", "--output", SBOM, may_fail=True)
        # The index does not know the own version yet: with --strict, each package that is left out
        # is an error.
        for own in packages.glob("pyspark_kafka_changelog-*.dist-info"):
            shutil.rmtree(own)
        run(*command, "--strict")


def extras() -> list[str]:
    """Return the extras of setup.cfg that users install."""
    return sorted(set(package_settings()["options.extras_require"]) - NOT_INSTALLED)


def next_spark() -> None:
    """Run the README's example on the newest PySpark, which setup.cfg may not allow yet."""
    required = package_settings()["options.extras_require"]["spark"].split("\n")
    requirements = [each for each in required if each and not each.startswith("pyspark")]
    with tempfile.TemporaryDirectory() as folder:
        source = published(Path(folder) / "source")
        own = environment(
            Path(folder) / "own", sys.executable, f"{source}[kafka]", *requirements, "pyspark"
        )
        print(
            f"== {output_of([str(own), '-m', 'pip', 'show', 'pyspark']).splitlines()[1]}",
            flush=True,
        )
        run_example(own, folder)


def files_of_the_packages() -> set[str]:
    """Return the files of the packages that git has."""
    return set(output_of(["git", "-C", str(REPOSITORY), "ls-files", *PACKAGES]).splitlines())


def files_of(wheel: Path) -> set[str]:
    """Return the files of the packages in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.split("/")[0] in PACKAGES}


def installed_pythons() -> list[str]:
    """Return a program of each supported Python version on this machine, the oldest first."""
    names = ["python{}.{}".format(*version) for version in sorted(PYTHONS)]
    return [program for program in map(_working, names) if program]


def _working(name: str) -> str | None:
    elsewhere = [
        path
        for folder in PYTHON_HOMES
        for path in sorted(glob.glob(os.path.expanduser(f"{folder}/{name}")))
    ]
    candidates = [find_program(name), *elsewhere]
    return next(
        (
            each
            for each in candidates
            if each and output_of([each, "--version"]).startswith("Python 3.")
        ),
        None,
    )


def release_tools() -> list[str]:
    """Return the requirements of the extra ``release``."""
    return package_settings()["options.extras_require"]["release"].split()


def package_settings() -> ConfigParser:
    """Return the sections of setup.cfg."""
    parser = ConfigParser()
    parser.read(REPOSITORY / "setup.cfg", encoding="utf-8")
    return parser


def environment(folder: Path, python: str, *requirements: str) -> Path:
    """Return the interpreter of a new environment with these requirements."""
    run(python, "-m", "venv", folder)
    own = folder / "bin" / "python"
    run(own, "-m", "pip", "install", "--quiet", *requirements)
    return own


def run(
    program: str | Path,
    *arguments: str | Path,
    cwd: str | None = None,
    capture: bool = False,
    may_fail: bool = False,
) -> str:
    """Run a program without this process's Python settings.

    Return what the program printed if it is captured.

    Raises
    ------
    ValueError
        When it fails, unless it may, or does not end.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PYSPARK"))
    }
    output = subprocess.PIPE if capture else None
    command = [str(program), *map(str, arguments)]
    try:
        done = subprocess.run(
            command, cwd=cwd, env=kept, stdout=output, text=True, timeout=LONGEST_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise ValueError(
            f"{' '.join(command)} has not ended after {LONGEST_SECONDS:,} seconds"
        ) from None
    if done.returncode and not may_fail:
        raise ValueError(
            f"{done.stdout or ''}\nexit code {done.returncode} of: {' '.join(command)}"
        )
    return done.stdout or ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
