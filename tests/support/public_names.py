"""The public names of the packages: exported ones, and those of modules the reference documents."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import cdc_formats
import normalize

REFERENCE = Path(cdc_formats.__file__).parents[1] / "docs" / "reference"


def documented() -> dict[str, Any]:
    """Return the objects of `normalize` that the reference documents one by one, by name."""
    paths = re.findall(
        r"^::: (normalize[.][\w.]+[.]\w+)$", (REFERENCE / "normalize.md").read_text("utf-8"), re.M
    )
    places = [path.rpartition(".") for path in paths]
    return {
        name: getattr(import_module(module), name)
        for module, _, name in places
        if module != "normalize"
    }


PUBLIC = {
    name: getattr(package, name) for package in (cdc_formats, normalize) for name in package.__all__
} | documented()
