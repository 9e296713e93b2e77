"""The package is pure Python over the standard library and one JSON reader: no Spark, no data frames, no clock, no sockets."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cdc_formats

PACKAGE = Path(cdc_formats.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"pyspark", "py4j", "pandas", "numpy", "pyarrow", "confluent_kafka", "rich"}
FORBIDDEN = {*HEAVY, "normalize", "time", "socket", "asyncio", "requests", "urllib", "http", "subprocess", "threading", "locale"}
EXTRAS = {
    "avro/reader.py": {"fastavro"},
    "avro/registry_options.py": {"urllib"},
    "avro/schema_registry.py": {"confluent_kafka", "time"},
    "avro/writer.py": {"fastavro"},
    "decoding/validation.py": {"jsonschema", "referencing"},
    "topics/client.py": {"confluent_kafka", "time"},
    "topics/kafka.py": {"time"},
    "topics/profile/progress.py": {"rich"},
    "topics/profile/terminal.py": {"rich"},
    "topics/reader.py": {"confluent_kafka", "time"},
}
"""Additional imports of some modules: Kafka and registry clients with their deadlines, lazy imports, and packages of an extra."""
CLOCKS = {"now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp", "astimezone"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def run(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=PACKAGE.parent, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_and_every_format_loads_no_large_package() -> None:
    script = (
        "import sys, pkgutil, importlib, cdc_formats\n"
        "for module in pkgutil.walk_packages(cdc_formats.__path__, 'cdc_formats.'): importlib.import_module(module.name)\n"
        "for name in cdc_formats.list_formats():\n"
        "    key = '_id' if 'mongodb' in name else 'id'\n"
        "    options = {'url': 'http://localhost'} if 'avro' in name else {}\n"
        "    cdc_formats.get_format(name, **options).decoder(f'{key} INT', unique_key=[key])\n"
        f"print(sorted({HEAVY!r} & set(sys.modules)), len([n for n in sys.modules if n.startswith('cdc_formats.')]))"
    )
    loaded, count = run(script).rsplit(" ", 1)
    assert loaded == "[]"
    assert int(count) == len(MODULES) - 1  # except cdc_formats itself


def test_listing_formats_imports_none_of_them() -> None:
    script = "import sys, cdc_formats\ncdc_formats.list_formats()\nprint([n for n in sys.modules if n.startswith('cdc_formats.formats.')])"
    assert run(script) == "[]"


def test_getting_a_format_imports_only_that_one() -> None:
    script = (
        "import sys, cdc_formats\n"
        "cdc_formats.get_format('ogg-json')\n"
        "print([n for n in sys.modules if n.startswith('cdc_formats.formats.')])"
    )
    assert run(script) == "['cdc_formats.formats.ogg']"


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").partition(".")[0])
    return names


@pytest.mark.parametrize("path", MODULES, ids=room)
def test_module_imports_nothing_forbidden(path: Path) -> None:
    assert imported(path) & FORBIDDEN <= EXTRAS.get(room(path), set())


@pytest.mark.parametrize("path", MODULES, ids=room)
def test_module_needs_only_the_standard_library_and_msgspec(path: Path) -> None:
    assert {name for name in imported(path) if name not in sys.stdlib_module_names} <= {
        "msgspec",
        "cdc_formats",
        *EXTRAS.get(room(path), set()),
    }


@pytest.mark.parametrize("path", MODULES, ids=room)
def test_module_reads_neither_clock_nor_local_time_zone(path: Path) -> None:
    called = {
        node.func.attr
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    }
    assert called & CLOCKS == set()


@pytest.mark.parametrize("name", cdc_formats.__all__)
def test_public_names_exist_and_are_documented(name: str) -> None:
    value = getattr(cdc_formats, name)
    assert name == "ABSENT" or (value.__doc__ or "").strip()
    assert list(cdc_formats.__all__) == sorted(cdc_formats.__all__)


ROOT = PACKAGE.parent
PACKAGES = {
    "cdc_formats": set(),
    "capture": {"cdc_formats"},
    "normalize": {"cdc_formats", "capture"},
    "cdc_cli": {"cdc_formats", "normalize"},
}
"""The packages that each package may import."""
LAYERS = (
    ("errors", "printable", "row_kind", "changelog_mode"),
    ("decoding.json_reader", "decoding.images", "decoding.wrappers"),
    ("position", "values"),
    ("decoding", "events", "fold"),
    ("avro",),
    ("message_format",),
    ("decoder",),
    ("format",),
    ("registry", "encoding"),
    ("formats",),
    ("topics",),
    ("testing",),
)
"""The rooms of cdc_formats: a module imports from its own layer and from those above it. The longest name that fits is a module's room."""


def arrows(package: str, *, types: bool) -> dict[str, set[str]]:
    """The modules of a package, each with the modules that it imports, for its types too if `types`."""
    paths = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in (ROOT / package).rglob("*.py")
    }
    return {name: {each for each in imports(path, types=types) if each in paths} - {name} for name, path in paths.items()}


def imports(path: Path, *, types: bool) -> set[str]:
    """The names that a module imports anywhere, as modules and as members of modules."""
    package = path.relative_to(ROOT).parts[:-1]
    names: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text("utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING" and not types:
            continue
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            names |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
        todo += ast.iter_child_nodes(node)
    return names


def layer(module: str) -> int:
    rooms = [name for names in LAYERS for name in names if f"{module}.".startswith(f"cdc_formats.{name}.")]
    return next(index for index, names in enumerate(LAYERS) if max(rooms, key=len, default="") in names)


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_are_imported_in_one_direction(package: str) -> None:
    imported_packages = {name.partition(".")[0] for path in (ROOT / package).rglob("*.py") for name in imports(path, types=True)}
    assert imported_packages & PACKAGES.keys() <= {package, *PACKAGES[package]}


def test_rooms_are_imported_in_one_direction() -> None:
    graph = arrows("cdc_formats", types=False)
    graph.pop("cdc_formats")
    assert len(graph) > 50
    wrong = [
        f"{name} -> {each}" for name, others in graph.items() for each in others if each != "cdc_formats" and layer(each) > layer(name)
    ]
    assert wrong == []


@pytest.mark.parametrize("package", ["cdc_formats", "capture", "cdc_cli"])
def test_no_modules_import_each_other(package: str) -> None:
    graph = arrows(package, types=True)
    while ends := [name for name, others in graph.items() if not others & graph.keys()]:
        for name in ends:
            del graph[name]
    assert graph == {}


CORE = PACKAGE.parent / "normalize" / "core"


def test_the_core_of_the_stage_loads_no_spark() -> None:
    modules = [f"normalize.core.{path.stem}" for path in CORE.glob("*.py") if path.stem != "__init__"]
    assert len(modules) > 5
    script = f"import sys, importlib\nfor module in {modules!r}: importlib.import_module(module)\n"
    assert run(script + "print(sorted({'pyspark', 'py4j', 'confluent_kafka'} & set(sys.modules)))") == "[]"


@pytest.mark.parametrize("path", sorted(CORE.glob("*.py")), ids=lambda path: path.name)
def test_a_module_of_the_core_imports_neither_spark_nor_other_rooms_of_normalize(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    typing = {
        id(n)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for n in ast.walk(block)
    }
    names = {n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level == 0 and id(n) not in typing}
    names |= {alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names}
    assert not [name for name in names if name.partition(".")[0] in ("pyspark", "py4j", "normalize")]
    assert not [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.level > 1]
