"""Shared fixtures (one Spark session, one server of each kind), hypothesis settings, test order."""

import json
import os
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from cdc_cli import name_conflict
from normalize.spark_versions import has_package
from tests.support import quick_java
from tests.support.examples import examples
from tests.support.imports import breakable, changed_files
from tests.support.main_paths import is_main, unknown_names
from tests.support.paths import REPOSITORY
from tests.support.tiers import SERVERS, TIERS, misplaced, mixed, needs

TESTS = Path(__file__).parent
SECONDS = {"": 0.1, **dict.fromkeys(SERVERS, 0.5), "spark": 3, "connect": 3, "slow": 30}
"""The estimated seconds of a test, by its markers; ``slow(120)`` has the seconds itself."""

LONG, LONGEST, _SHARE = 60, 120, 0.03
"""The seconds of a file's tests above which the end of the run names it, and above which the run
fails if the environment has ``LONG_FILES=fail``, if they are also this share of the run. They are
those of a machine on which `_slowness` is 1. A file with one test cannot be split, and does not
fail the run."""
_spent = defaultdict[str, float](float)
_tests: dict[str, set[str]] = {}

# Spark's workers must be this interpreter and see this repository.
os.environ["PYSPARK_PYTHON"] = sys.executable
os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
)

# A background job ignores Ctrl-C, and its child processes inherit that. Some tests interrupt
# theirs.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

os.environ.update({**quick_java.options(), **os.environ})

# No deadline: a slow example on a busy machine is not a failure.
settings.register_profile("dev", deadline=None)
settings.register_profile("check", deadline=None, max_examples=examples(100))
settings.register_profile("ci", deadline=None, max_examples=200, derandomize=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to run where another package has this one's name."""
    if problem := name_conflict():
        raise pytest.UsageError(problem)
    # Processes of xdist inherit the answer.
    if commit := os.environ.pop("CHANGED", ""):
        files = breakable(changed_files(commit))
        if files is not None:
            os.environ["BREAKABLE"] = os.pathsep.join(map(str, files))


@pytest.hookimpl(wrapper=True, tryfirst=True)  # so that -m selects by these markers
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Iterator[None]:
    """Mark each test with its needs, check its folder, and start with the longest files.

    It leaves out Iceberg where Iceberg has no package, and what no change can break.
    """
    of_functions = _mark(items)
    problems = [
        text for function, markers in of_functions.items() if (text := _problem(*function, markers))
    ]
    if not any("::" in each for each in config.args):
        names = [item.nodeid.removeprefix("tests/") for item in items]
        problems += [
            f"tests/support/main_paths.py has {each}, which is no test: name the one that replaced it"
            for each in unknown_names(names)
        ]
    if problems:
        raise pytest.UsageError("\n".join(problems))
    files, has_iceberg = os.environ.get("BREAKABLE"), has_package("iceberg")
    kept = None if files is None else set(files.split(os.pathsep))

    def is_left_out(item: pytest.Item) -> bool:
        if item.get_closest_marker("iceberg") and not has_iceberg:
            return True
        return kept is not None and item.path.suffix == ".py" and str(item.path) not in kept

    config.hook.pytest_deselected(items=[*filter(is_left_out, items)])
    items[:] = [item for item in items if not is_left_out(item)]
    _longest_first(items)
    yield
    if problem := mixed({marker.name for marker in item.iter_markers()} for item in items):
        raise pytest.UsageError(problem)


def _mark(items: list[pytest.Item]) -> dict[tuple[Path, str], set[str]]:
    """Mark each test; return what each test function of these folders needs with all parameters."""
    of_functions: dict[tuple[Path, str], set[str]] = {}
    for item in items:
        if isinstance(item, pytest.Function) and item.path.is_relative_to(TESTS):
            parameters = item.callspec.params if hasattr(item, "callspec") else {}
            kind = parameters.get("kind", parameters.get("sink"))
            fixtures = set(item.fixturenames) - set(parameters)
            if kind == "iceberg":
                item.add_marker("iceberg")
            if is_main(item.nodeid.removeprefix("tests/")):
                item.add_marker("main_path")
            markers = needs((marker.name for marker in item.iter_markers()), fixtures, kind)
            for name in markers:
                item.add_marker(name)
            of_functions.setdefault((item.path, item.originalname), set()).update(markers)
    return of_functions


def _problem(path: Path, function: str, markers: set[str]) -> str | None:
    tier = path.relative_to(TESTS).parts[0]
    none = f"it is in none of {', '.join(f'tests/{name}' for name in TIERS)}"
    text = misplaced(tier, markers) if tier in TIERS else none
    return text and f"{path.relative_to(TESTS.parent)}::{function}: {text}"


def _longest_first(items: list[pytest.Item]) -> None:
    """Sort files by estimated test time, longest first, so that parallel processes end together."""
    seconds: Counter[Path] = Counter()
    for item in items:
        names = {marker.name for marker in item.iter_markers()}
        measured = [each for marker in item.iter_markers("slow") for each in marker.args]
        seconds[item.path] += max(
            [*measured, *(weight for name, weight in SECONDS.items() if not name or name in names)]
        )
    items.sort(key=lambda item: -seconds[item.path])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add up how long the tests of each file take."""
    file = report.nodeid.partition("::")[0]
    _spent[file] += report.duration / _slowness(int(time.monotonic()) // 10)
    _tests.setdefault(file, set()).add(report.nodeid)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files whose tests take long."""
    for name, seconds in _long_files(LONG).items():
        terminalreporter.write_line(
            f"{name} takes {seconds:.0f} s (see 'Long files' in tests/README.md)"
        )


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Let a run fail whose files take too long, and not one without a test that a change can break."""
    if "BREAKABLE" in os.environ and exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK
    is_limited = os.environ.get("LONG_FILES") == "fail" and exitstatus == 0
    longest, all_files = _long_files(LONGEST), sum(_spent.values())
    if is_limited and any(
        len(_tests[name]) > 1 and seconds > _SHARE * all_files for name, seconds in longest.items()
    ):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _long_files(limit: float) -> dict[str, float]:
    """Return the files whose tests take longer, longest first."""
    longest = sorted(_spent.items(), key=lambda each: -each[1])
    return {name: seconds for name, seconds in longest if seconds > limit}


@cache
def _slowness(moment: int) -> float:
    """Return how often longer this machine takes than one on which a loop takes 5 ms of CPU time.

    A machine that others share is slower at some moments.
    """

    def loop() -> float:
        start = time.process_time()
        sum(each * each for each in range(100_000))
        return time.process_time() - start

    return max(1.0, min(loop() for _ in range(3)) / 0.005)


@pytest.fixture(autouse=True)
def registries() -> None:
    """Keep the schemas of registries in the process."""
    if avro := sys.modules.get("tests.support.avro"):
        avro.keep_registries()


@pytest.fixture
def no_other_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the formats that other tests registered."""
    monkeypatch.setattr("cdc_formats.format.registered", {})


@pytest.fixture
def own_registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the formats that a test registers."""
    from cdc_formats.format import registered

    monkeypatch.setattr("cdc_formats.format.registered", dict(registered))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A Spark session with Kafka source, Delta, Iceberg (catalog ``lake``) and JDBC drivers."""
    from pyspark.sql import SparkSession

    from tests.support.spark_packages import settings

    builder = SparkSession.builder.master("local[2]").appName("tests")
    session = builder.config(map=settings(tmp_path_factory.mktemp("tables"))).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[object]:
    """A real local broker; its data is removed at the end."""
    from normalize import LocalKafka

    with LocalKafka() as broker:
        yield broker


@pytest.fixture(scope="session")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[object]:
    """A real broker with three listeners: SASL_SSL (SCRAM-SHA-256), SASL_SSL (PLAIN), and mTLS."""
    from normalize import LocalKafka
    from tests.support.servers.secured import LISTENERS, Secured, broker_properties, make_users

    made = Secured.certificates(tmp_path_factory.mktemp("certificates"))
    with LocalKafka(
        data_dir=made.folder / "broker", listeners=LISTENERS, properties=broker_properties(made)
    ) as broker:
        make_users(broker)
        yield made._replace(kafka=broker)


@pytest.fixture(scope="session")
def registry() -> Iterator[object]:
    """A real local schema registry."""
    from tests.support.servers.local_registry import LocalRegistry

    with LocalRegistry() as server:
        yield server


@pytest.fixture(scope="session")
def recorded_registry() -> Iterator[str]:
    """The URL of an in-process registry with the recorded topics' Avro schemas by recorded id."""
    from tests.support.replay.topics import FOLDER
    from tests.support.servers.registry_front import RegistryFront

    recorded = json.loads((FOLDER / "records" / "avro-schemas.json").read_text("utf-8"))
    with RegistryFront(
        schemas={int(number): entry["schema"] for number, entry in recorded.items()}
    ) as front:
        yield front.url


@pytest.fixture(scope="session")
def postgres() -> Iterator[object]:
    """A real PostgreSQL server."""
    from tests.support.servers.local_databases import LocalPostgres

    with LocalPostgres() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[object]:
    """A real MariaDB server."""
    from tests.support.servers.local_databases import LocalMariaDb

    with LocalMariaDb() as server:
        yield server


@pytest.fixture(scope="session")
def source() -> Iterator[object]:
    """A real MariaDB that writes a binary log."""
    from tests.support.servers.local_source import LocalSource

    with LocalSource() as server:
        yield server
