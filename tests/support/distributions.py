"""Installs distributions with formats for the tests."""

from __future__ import annotations

from pathlib import Path

from cdc_formats.registry import GROUP


def install(folder: Path, points: dict[str, str], name: str = "acme", modules: dict[str, str] | None = None) -> None:
    """Write a distribution with entry points, and its modules, into a folder, as an installer does."""
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n" + "".join(f"{key} = {value}\n" for key, value in points.items()))
    for module, text in (modules or {}).items():
        (folder / f"{module}.py").write_text(text)
