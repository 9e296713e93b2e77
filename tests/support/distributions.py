"""Distributions with formats, and this package as a zip, for the tests."""

import venv
import zipfile
from pathlib import Path

import pyspark

from cdc_formats.format import GROUP
from tests.support.paths import REPOSITORY

OURS = ("__editable__", "pyspark_kafka_changelog", "cdc_formats", "normalize")


def install(
    folder: Path, points: dict[str, str], name: str = "acme", modules: dict[str, str] | None = None
) -> None:
    """Write a distribution with entry points and its modules into a folder, like an installer."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        f"[{GROUP}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items())
    )
    for module, text in (modules or {}).items():
        (folder / f"{module}.py").write_text(text)


def without_the_package(folder: Path) -> Path:
    """Make a copy of this environment without this package, and return its Python."""
    venv.create(folder, symlinks=True)
    for installed in Path(pyspark.__file__).parents[1].iterdir():
        if not installed.name.startswith(OURS) and installed.suffix != ".pth":
            next(folder.glob("lib/python*/site-packages")).joinpath(installed.name).symlink_to(
                installed
            )
    return folder / "bin" / "python"


def zipped(path: Path) -> Path:
    """Write the package as a zip, like a user: ``zip -r package.zip cdc_formats normalize``."""
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("cdc_formats", "normalize"):
            for file in (REPOSITORY / package).rglob("*"):
                if file.is_file() and "__pycache__" not in file.parts:
                    archive.write(file, file.relative_to(REPOSITORY))
    return path
