"""`cdc_formats`, pure Python over the standard library and one JSON reader, and one-way imports.

In all packages, imports between rooms go only one way.
"""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import cdc_formats
import normalize
from tests.support.imports import breakable, imported, imported_modules, module_paths

PACKAGE = Path(cdc_formats.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
HEAVY = {"pyspark", "py4j", "pandas", "numpy", "pyarrow", "boto3", "confluent_kafka", "rich"}
FORBIDDEN = {
    *HEAVY,
    "normalize",
    "time",
    "socket",
    "asyncio",
    "requests",
    "urllib",
    "http",
    "subprocess",
    "threading",
    "locale",
}
EXTRAS = {
    "avro/records.py": {"fastavro"},
    "avro/confluent_client.py": {"confluent_kafka"},
    "avro/glue_client.py": {"boto3", "botocore"},
    "avro/registry_client.py": {"threading", "time", "urllib"},
    "message_format.py": {"jsonschema", "referencing"},
    "topics/kafka.py": {"time"},
    "topics/profile/terminal.py": {"rich"},
    "topics/client.py": {"confluent_kafka", "time"},
}
"""Additional imports of some modules: Kafka and registry clients with their deadlines, lazy
imports, and packages of an extra."""
CLOCKS = {"now", "utcnow", "today", "fromtimestamp", "utcfromtimestamp", "astimezone"}


def room(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def run(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=PACKAGE.parent,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_and_every_format_loads_no_large_package() -> None:
    script = (
        "import sys, pkgutil, importlib, cdc_formats\nfor module in "
        "pkgutil.walk_packages(cdc_formats.__path__, 'cdc_formats.'): "
        "importlib.import_module(module.name)\nfor name in cdc_formats.list_formats():\n    key = "
        "'_id' if 'mongodb' in name else 'id'\n    options = {'url': 'http://localhost'} if "
        "'avro' in name else {}\n    cdc_formats.get_format(name, **options).decoder(f'{key} "
        f"INT', unique_key=[key])\nprint(sorted({HEAVY!r} & set(sys.modules)), len([n for n in "
        "sys.modules if n.startswith('cdc_formats.')]))"
    )
    loaded, count = run(script).rsplit(" ", 1)
    assert loaded == "[]"
    assert int(count) == len(MODULES) - 1  # except cdc_formats itself


@pytest.mark.parametrize(
    ("call", "modules"),
    [("list_formats()", "[]"), ("get_format('ogg-json')", "['cdc_formats.formats.ogg']")],
)
def test_a_call_imports_only_the_formats_that_it_needs(call: str, modules: str) -> None:
    loaded = "[n for n in sys.modules if n.startswith('cdc_formats.formats.')]"
    assert run(f"import sys, cdc_formats\ncdc_formats.{call}\nprint({loaded})") == modules


@pytest.mark.parametrize("path", MODULES, ids=room)
def test_module_needs_only_the_standard_library_and_reads_no_clock(path: Path) -> None:
    names, more = imported(path), EXTRAS.get(room(path), set())
    assert names & FORBIDDEN <= more
    assert names - sys.stdlib_module_names <= {"msgspec", "cdc_formats", *more}
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


def test_a_shell_completes_the_public_names() -> None:
    assert {*normalize.__all__} <= {*dir(normalize)}


def test_samplers_of_json_need_no_package_of_an_extra() -> None:
    # Without its sampler, the detection takes a topic of the format for another one.
    script = (
        "import sys\n"
        "for name in ('fastavro', 'polars', 'confluent_kafka', 'pyspark', 'pandas'):\n"
        "    sys.modules[name] = None\n"
        "from cdc_formats.format import format_class, list_formats\n"
        "from cdc_formats.topics.sampler import sampler_class\n"
        "names = [each for each in list_formats() if 'avro' not in each]\n"
        "print([sampler_class(format_class(each)).__name__ for each in names])\n"
    )
    assert "DebeziumSampler" in run(script)


CORE = PACKAGE.parent / "normalize" / "core"


def test_the_core_of_the_stage_loads_no_spark() -> None:
    modules = [
        f"normalize.core.{path.stem}" for path in CORE.glob("*.py") if path.stem != "__init__"
    ]
    assert len(modules) > 5
    script = f"import sys, importlib\nfor module in {modules!r}: importlib.import_module(module)\n"
    assert (
        run(script + "print(sorted({'pyspark', 'py4j', 'confluent_kafka'} & set(sys.modules)))")
        == "[]"
    )


@pytest.mark.parametrize("path", sorted(CORE.glob("*.py")), ids=lambda path: path.name)
def test_a_module_of_the_core_imports_no_spark(path: Path) -> None:
    assert imported(path) & {"pyspark", "py4j"} == set()


# --------------------------------------------------------------------------------------------------
# rooms

REPOSITORY = PACKAGE.parent
MAY_IMPORT = {
    "capture": "",
    "cdc_cli": "",
    "cdc_formats": "decoding topics topics.inference values",
    "cdc_formats.avro": "cdc_formats decoding values",
    "cdc_formats.decoding": "cdc_formats values",
    "cdc_formats.formats": "cdc_formats decoding formats.debezium values",
    "cdc_formats.formats.debezium": "cdc_formats avro decoding values",
    "cdc_formats.formats.upsert": "cdc_formats avro decoding values",
    "cdc_formats.topics": "cdc_formats avro decoding topics.inference topics.profile values",
    "cdc_formats.topics.inference": "cdc_formats avro decoding topics values",
    "cdc_formats.topics.profile": "cdc_formats decoding topics topics.inference values",
    "cdc_formats.topics.samplers": (
        "cdc_formats avro decoding formats formats.debezium formats.upsert topics topics.inference "
        "values"
    ),
    "cdc_formats.values": "cdc_formats",
    "normalize.aggregates": "core dataframe",
    "normalize.api": (
        "arguments core dataframe decode encode kafka query spark_versions stage_options"
    ),
    "normalize.arguments": "",
    "normalize.change_feed": "arguments core dataframe tables worker",
    "normalize.checkpoint": "spark core dataframe decode engines monitoring worker",
    "normalize.core": "",
    "normalize.dataframe": "core spark spark_versions",
    "normalize.decode": "core dataframe kafka monitoring worker",
    "normalize.encode": "core worker",
    "normalize.engines": "spark core dataframe kafka monitoring worker",
    "normalize.explore": "arguments core dataframe",
    "normalize.kafka": "arguments core",
    "normalize.local_kafka": "",
    "normalize.monitoring": "spark core",
    "normalize.query": "arguments core dataframe decode engines kafka monitoring stage_options",
    "normalize.run": "arguments decode kafka monitoring session spark tables verify",
    "normalize.session": "local_kafka spark spark_versions",
    "normalize.spark": "",
    "normalize.spark_versions": "spark",
    "normalize.stage_options": "arguments core",
    "normalize.tables": (
        "arguments spark core dataframe decode kafka monitoring spark_versions worker"
    ),
    "normalize.verify": "arguments change_feed spark core monitoring tables",
    "normalize.worker": "",
}
"""The rooms of its own package that each room may import. A module of `normalize` that is in no
folder is a room of its own; the package itself exports names of all of them, and a folder within a
room belongs to it. The room `cdc_formats` has the modules of the package that are in no folder."""
LAYERS = (
    ("errors", "values"),
    ("decoding", "avro", "events", "fold"),
    ("message_format", "decoder", "format", "encoding"),
    ("formats",),
    ("topics",),
    ("testing",),
)
"""The parts of cdc_formats: a module imports from its own layer and from those above it. The
longest name that fits is a module's part."""
PACKAGES_MAY_IMPORT = {
    "capture": {"cdc_formats"},
    "cdc_cli": {"cdc_formats", "normalize"},
    "cdc_formats": set[str](),
    "normalize": {"cdc_formats", "capture"},
}
PATHS = module_paths(*PACKAGES_MAY_IMPORT)


def room_of(name: str) -> str:
    if name.startswith("normalize."):
        return ".".join(name.split(".")[:2])
    return name if PATHS[name].name == "__init__.py" else name.rpartition(".")[0]


def test_every_room_is_in_the_table() -> None:
    assert {room_of(name) for name in PATHS} - {"normalize"} == set(MAY_IMPORT)


@pytest.mark.parametrize("name", sorted(set(PATHS) - {"normalize"}))
def test_a_module_imports_only_the_rooms_that_its_own_may_import(name: str) -> None:
    package = name.partition(".")[0]
    allowed = {
        package if each == package else f"{package}.{each}"
        for each in MAY_IMPORT[room_of(name)].split()
    } | {room_of(name)}
    foreign = {each for each in imported_modules(name, PATHS) if each.partition(".")[0] != package}
    assert {room_of(each) for each in imported_modules(name, PATHS) - foreign} <= allowed
    assert {each.partition(".")[0] for each in foreign} <= PACKAGES_MAY_IMPORT[package]


def test_rooms_of_normalize_import_each_other_in_one_direction() -> None:
    rooms = {
        room.partition(".")[2]: allowed.split()
        for room, allowed in MAY_IMPORT.items()
        if room.startswith("normalize.")
    }
    TopologicalSorter(rooms).prepare()


def layer_of(name: str) -> int:
    parts = [
        part for layer in LAYERS for part in layer if f"{name}.".startswith(f"cdc_formats.{part}.")
    ]
    return next(
        index for index, layer in enumerate(LAYERS) if max(parts, key=len, default="") in layer
    )


@pytest.mark.parametrize("name", sorted(name for name in PATHS if name.startswith("cdc_formats.")))
def test_modules_of_cdc_formats_are_imported_in_one_direction(name: str) -> None:
    imports = {each for each in imported_modules(name, PATHS) if each.startswith("cdc_formats.")}
    assert {each for each in imports if layer_of(each) > layer_of(name)} == set()


@pytest.mark.parametrize("package", sorted(PACKAGES_MAY_IMPORT))
def test_no_modules_import_each_other_in_a_circle(package: str) -> None:
    TopologicalSorter(
        {name: imported_modules(name, PATHS) for name in PATHS if name.partition(".")[0] == package}
    ).prepare()


def test_a_change_can_break_the_tests_of_what_uses_it() -> None:
    files = breakable({"capture/rows.py"})
    broken = {path.relative_to(REPOSITORY).parts[1:3] for path in files if "tests" in path.parts}
    assert {("servers", "capture"), ("e2e", "capture"), ("e2e", "docs")} <= broken
    assert not broken & {("unit", "formats"), ("spark", "normalize")}
    assert breakable({"capture/rows.py", "setup.cfg"}) is None


# --------------------------------------------------------------------------------------------------
# what is private to Spark

_PRIVATE = re.compile(
    r"""\._(jvm|jdf|jsc|jsparkSession|gateway|jwrite|jc)\b|"_(jvm|origin)"|(from|import) py4j"""
    r"|java_gateway"
)
_ROOM = PACKAGE.parent / "normalize" / "spark"


def private_names(path: Path) -> list[str]:
    """Return the lines of a module with a name that is private to Spark; `self` has its own names."""
    return [
        line
        for line in path.read_text("utf-8").splitlines()
        if _PRIVATE.search(line.replace("self._", "self."))
    ]


@pytest.mark.parametrize("path", PATHS.values(), ids=lambda path: path.stem)
def test_a_module_of_another_room_names_nothing_private_of_spark(path: Path) -> None:
    if _ROOM not in path.parents:
        assert private_names(path) == []


def test_what_is_private_of_spark_is_in_few_places() -> None:
    lines = [line for path in _ROOM.glob("*.py") for line in private_names(path)]
    assert 8 < len(lines) <= 15
