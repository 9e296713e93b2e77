"""``python -m bench.capture``: rows per second of a MySQL table's snapshot and log.

They are compared with those of Flink CDC's connector.

python -m bench.capture               # starts a MariaDB; 1,000,000 rows
python -m bench.capture --rows 10000000 --parallelism 1,2 --runs 3
# an existing server:
python -m bench.capture --server localhost:3306 --user cdc --password cdc --no-flink

Each side starts a new process for each parallelism. It first reads a small table, which is not
measured. Spark and Flink both have 2 cores at every parallelism. Both count rows and sum ids and
prices by row kind, and the results must equal the server's sums. The log is written beforehand. It
has updates of one row each (one or a hundred per transaction), and one statement that updates all
rows.

whole     from the start of the query or job until its last row is counted
running   the same, from the end of the first micro-batch, or from the start of Flink's last task

On an existing server, it creates the database `bench_capture` and finally drops it. Flink CDC 3.5
does not support MySQL 8.4 or later, because it uses ``SHOW MASTER STATUS``.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib.metadata import version
from multiprocessing import get_context
from statistics import median
from typing import Any, NamedTuple

from capture.binlog import LogReader
from capture.options import CaptureOptions
from capture.server import LogPosition
from capture.statements import RowChange
from capture.tables import read_tables

from .capture_runs import JVM, PYTHON, SERVER, Job, Run, Usage, Watch
from .capture_source import SMALL_TABLE, TABLE, Counts, Source, fill, source_of, update
from .flink_cdc import CDC_VERSION, FLINK_VERSION, run_flink_cdc
from .spark import SETTINGS

SNAPSHOT, INITIAL = {"scan.startup.mode": "snapshot"}, {"scan.startup.mode": "initial"}
TOGETHER = (1, 100, None)
_SMALL = 100_000
_SERVER_ID = 2_000_000_001
_MB = 2**20


class Line(NamedTuple):
    """A line of the table: runs of one kind, and the usage of the run with the median rate."""

    what: str
    parallelism: int
    runs: list[Run]
    usage: Usage

    @property
    def middle(self) -> Run:
        return _middle(self.runs)


def main() -> None:
    """Run the requested benchmarks and print the results."""
    options = parse()
    begun = os.getloadavg()
    with (
        source_of(options.server, options.user, options.password) as source,
        Watch(source.process()) as watch,
    ):
        print(_about(source), flush=True)
        small, table = (
            fill(source, SMALL_TABLE, min(_SMALL, options.rows)),
            fill(source, TABLE, options.rows),
        )
        print(
            (
                f"table: {options.rows:,} rows of 8 columns, {_megabytes(source):,.0f} MB; "
                f"expected counts: {table}"
            ),
            flush=True,
        )
        if options.only != "log":
            lines = [
                line
                for each in options.parallelism
                for line in _snapshots(source, options, each, small, table, watch)
            ]
            print("\n".join(table_lines("snapshot, rows", lines)), flush=True)
        if options.only != "snapshot":
            lines = [
                line for together in TOGETHER for line in _logs(source, options, together, watch)
            ]
            print(
                "\n".join(table_lines("log, events (of two rows each)", lines, rows=2)), flush=True
            )
    print(
        f"\nload of the machine: {_load(begun)} at the start, {_load(os.getloadavg())} at the end"
    )


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the parsed options."""
    product = CaptureOptions()
    parser = argparse.ArgumentParser(
        prog="python -m bench.capture",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--events", type=int, default=100_000, help="updates in each log")
    parser.add_argument(
        "--parallelism",
        type=_numbers,
        default=(1, 2),
        help="comma-separated; one task reads the log (default: 1,2)",
    )
    parser.add_argument(
        "--runs",
        type=int,
        default=1,
        help="runs of each kind; the median is printed (default: %(default)s)",
    )
    parser.add_argument(
        "--chunk-size",
        type=int,
        default=product.chunk_size,
        help="for Spark and Flink (default: %(default)s)",
    )
    parser.add_argument(
        "--chunks-per-batch",
        type=int,
        default=product.chunks_per_batch,
        help="default: %(default)s",
    )
    parser.add_argument(
        "--server", help="host:port of an existing server; default: start a MariaDB"
    )
    parser.add_argument("--user", default="root")
    parser.add_argument("--password", default="")
    parser.add_argument("--only", choices=("snapshot", "log"), help="default: both")
    parser.add_argument("--no-flink", dest="flink", action="store_false", help="run only Spark")
    options = parser.parse_args(arguments)
    if options.rows < 1 or options.events < 1 or options.runs < 1:
        parser.error("--rows, --events and --runs must be at least 1")
    return options


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _snapshots(
    source: Source,
    options: argparse.Namespace,
    parallelism: int,
    small: Counts,
    table: Counts,
    watch: Watch,
) -> Iterator[Line]:
    count = table["+I"][0]
    first = (Job(SMALL_TABLE, SNAPSHOT, small["+I"][0]), small)
    whole, then = (Job(TABLE, SNAPSHOT, count), table), (Job(TABLE, INITIAL, count), table)
    ours = _checked(
        "capture",
        _ours(source, options, parallelism),
        [first, *[whole] * options.runs, *[then] * options.runs],
    )
    yield _line("capture, snapshot", parallelism, ours[1 : 1 + options.runs], watch)
    yield _line("capture, initial", parallelism, ours[1 + options.runs :], watch)
    if options.flink:
        theirs = _checked(
            "Flink CDC", _flink(source, options, parallelism), [first, *[whole] * options.runs]
        )
        yield _line("Flink CDC, snapshot", parallelism, theirs[1:], watch)


def _logs(
    source: Source, options: argparse.Namespace, together: int | None, watch: Watch
) -> Iterator[Line]:
    start, events = source.position(), min(options.events, options.rows)
    counts = update(source, events, together, options.rows)
    startup = {
        "scan.startup.specific-offset.file": start.file,
        "scan.startup.specific-offset.pos": str(start.pos),
    }
    job = (Job(TABLE, {"scan.startup.mode": "specific-offset"} | startup, 2 * events), counts)
    jobs = [job] * (1 + options.runs)
    name = "one statement" if together is None else f"{together} in a transaction"
    alone = [_read_log(source, start, source.position(), counts) for _ in range(options.runs)]
    yield _line(f"log reader alone, {name}", 1, alone, watch)
    yield _line(
        f"capture, {name}", 1, _checked("capture", _ours(source, options, 1), jobs)[1:], watch
    )
    if options.flink:
        yield _line(
            f"Flink CDC, {name}",
            1,
            _checked("Flink CDC", _flink(source, options, 1), jobs)[1:],
            watch,
        )


def _line(what: str, parallelism: int, runs: list[Run], watch: Watch) -> Line:
    line = Line(what, parallelism, runs, watch.usage(_middle(runs)))
    print(
        (
            f"{what}, parallelism {parallelism}: "
            f"{', '.join(f'{run.whole_rate:,.0f}' for run in runs)} rows/s whole"
        ),
        flush=True,
    )
    return line


def _checked(
    whose: str, run: Callable[[list[Job]], list[Run]], jobs: list[tuple[Job, Counts]]
) -> list[Run]:
    """Run jobs; raise an error if a job counted other rows than expected."""
    runs = run([job for job, _ in jobs])
    for result, (job, counts) in zip(runs, jobs, strict=True):
        if result.counts != counts:
            raise SystemExit(
                f"{whose}: {job.startup} of {job.table} counted {result.counts} instead of "
                f"{counts}: no result is valid"
            )
    return runs


def _flink(
    source: Source, options: argparse.Namespace, parallelism: int
) -> Callable[[list[Job]], list[Run]]:
    size = {"scan.incremental.snapshot.chunk.size": str(options.chunk_size)}
    return lambda jobs: run_flink_cdc(
        source, [job._replace(startup=job.startup | size) for job in jobs], parallelism
    )


def _ours(
    source: Source, options: argparse.Namespace, parallelism: int
) -> Callable[[list[Job]], list[Run]]:
    """Return a function that runs jobs in a new process with its own Spark session."""
    settings = {
        "scan.snapshot.parallelism": str(parallelism),
        "scan.incremental.snapshot.chunk.size": str(options.chunk_size),
        "scan.snapshot.chunks-per-batch": str(options.chunks_per_batch),
    }

    def run(jobs: list[Job]) -> list[Run]:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            return process.submit(_run_in_spark, source, jobs, settings).result()

    return run


def _run_in_spark(source: Source, jobs: list[Job], settings: dict[str, str]) -> list[Run]:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    import capture

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master("local[2]").config("spark.sql.session.timeZone", "UTC")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    capture.register(spark)
    try:
        return [
            _run_query(spark, source.reader(job.table, **settings, **job.startup), job.rows)
            for job in jobs
        ]
    except PySparkException as error:  # cannot be pickled for the parent process
        raise RuntimeError(str(error)) from None
    finally:
        spark.stop()


def _run_query(spark: Any, reader: dict[str, str], rows: int) -> Run:
    """Run a query until it has counted `rows`, and a second longer to detect surplus rows."""
    from pyspark.sql import functions as F

    counts: Counts = {}
    points: list[tuple[int, int]] = []

    def count(batch: Any, _: int) -> None:
        cents = F.sum(F.col("price") * 100).cast("bigint")
        for kind, *sums in (
            batch.groupBy("row_kind").agg(F.count("*"), F.sum("id"), cents).collect()
        ):
            before = counts.get(kind, (0, 0, 0))
            counts[kind] = (before[0] + sums[0], before[1] + sums[1], before[2] + sums[2])
        points.append((_now_ms(), sum(each[0] for each in counts.values())))

    folder = tempfile.mkdtemp(prefix="bench-checkpoint-")
    start = _now_ms()
    query = (
        spark.readStream.format("mysql-changelog").options(**reader).load().writeStream.foreachBatch(count)
        .option("checkpointLocation", folder).start()
    )  # fmt: skip
    while not (points and points[-1][1] >= rows) and not query.awaitTermination(0.02):
        pass
    end = len(points)
    query.awaitTermination(1)
    query.stop()
    shutil.rmtree(folder)
    running = points[0] if end > 1 else (start, 0)
    return Run(start, running, points[:end], counts)


def _read_log(source: Source, start: LogPosition, end: LogPosition, counts: Counts) -> Run:
    """Read the log without Spark."""
    from capture.server import connect

    options = source.options()
    with connect(options) as server:
        log = LogReader(server, read_tables(server, options), _SERVER_ID)
    begun = _now_ms()
    changes = sum(isinstance(entry, RowChange) for entry in log.read(start, end))
    if changes != counts["+U"][0]:
        raise SystemExit(
            f"the log reader alone found {changes} changes instead of {counts['+U'][0]}: no result "
            "is valid"
        )
    return Run(begun, (begun, 0), [(_now_ms(), 2 * changes)], counts)


def _now_ms() -> int:
    return int(time.time() * 1000)


def _middle(runs: list[Run]) -> Run:
    return sorted(runs, key=lambda run: run.whole_rate)[len(runs) // 2]


def _about(source: Source) -> str:
    versions = ", ".join(
        f"{name} {version(name)}" for name in ("pyspark", "pyarrow", "mysql-replication", "PyMySQL")
    )
    return (
        f"machine: {os.cpu_count()} cores, {platform.machine()}, {platform.system()}; Python "
        f"{platform.python_version()}; {versions}; Flink {FLINK_VERSION}, Flink CDC {CDC_VERSION}; "
        f"server {source.run('SELECT VERSION()')[0][0]}\nSpark settings that differ from the "
        f"defaults: local[2], {', '.join(f'{name}={value}' for name, value in SETTINGS.items())}"
    )


def _megabytes(source: Source) -> float:
    size = source.run(
        f"SELECT data_length FROM information_schema.tables WHERE table_name = '{TABLE}'"
    )[0][0]
    return int(size) / _MB


def _load(load: Iterable[float]) -> str:
    return " ".join(f"{each:.1f}" for each in load)


def table_lines(title: str, lines: list[Line], rows: int = 1) -> Iterator[str]:
    """Yield the lines of a text table; a unit of the title has `rows` rows."""
    yield (
        f"\n{title}: rate per second, CPU µs per unit, and peak MB; then rate per second and MB "
        "(Python's or Flink's) in the first and last tenth"
    )
    heads = (
        "whole",
        "running",
        "JVM µs",
        "Python µs",
        "server µs",
        "JVM MB",
        "Python MB",
        "tenths",
        "MB",
    )
    yield f"{'':<38}{'par.':>5}" + "".join(f"{head:>{_WIDTHS.get(head, 11)}}" for head in heads)
    for line in lines:
        run, usage = line.middle, line.usage
        rates = [
            median(each.whole_rate for each in line.runs) / rows,
            median(each.running_rate for each in line.runs) / rows,
        ]
        cpu = [
            _number(usage.cpu.get(label, 0.0) * 1e6 / (run.rows / rows), 1)
            for label in (JVM, PYTHON, SERVER)
        ]
        peak = [_number(usage.peak.get(label, 0) / _MB) for label in (JVM, PYTHON)]
        tenths = [f"{run.rate_between(first, first + 0.1) / rows:,.0f}" for first in (0.0, 0.9)]
        memory = " ".join(f"{each / _MB:,.0f}" for each in usage.tenths)
        shown = "".join(
            f"{each:>11}" for each in (*(f"{rate:,.0f}" for rate in rates), *cpu, *peak)
        )
        yield f"{line.what:<38}{line.parallelism:>5}{shown}{' '.join(tenths):>{_WIDTHS['tenths']}}{memory:>{_WIDTHS['MB']}}"


_WIDTHS = {"tenths": 18, "MB": 13}


def _number(value: float, digits: int = 0) -> str:
    return f"{value:,.{digits}f}" if value else "-"


if __name__ == "__main__":
    main()
