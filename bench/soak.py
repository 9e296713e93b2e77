"""``python -m bench.soak``: a long catch-up with a repeatedly killed job and a check of its table.

python -m bench.soak                  # 10,000,000 messages over 1,000,000 keys
python -m bench.soak --messages 200000 --keys 20000 --batch 10000 --kill-every 5    # a short one
python -m bench.soak --engine native --kill-every 60
python -m bench.soak --minutes 60 --batch 10000       # without a kill: is the memory flat?

The topic is the benchmark's history in Debezium's messages; each Kafka partition has its own keys.
The expected table is computed while the topic is written. The job is a process with its state in
RocksDB; each micro-batch overwrites a folder of Parquet files. Its process group gets SIGKILL some
seconds after its first micro-batch began, and is started again, until the topic is read. The peak
memory of each start is printed.

With ``--minutes`` the job is not killed, and each micro-batch waits, so that the job runs for at
least that time. The peak memory of each quarter of that time is printed. The run fails if the peak
of the last quarter, of the JVM or of the Python workers, is more than 25 % above that of the second
quarter: in the first one the memory still grows to its size. A run of a few minutes may be too
short for that.

Then the folders are applied in order, and these conditions are checked:

- each ``-U`` and ``-D`` matches the stored row;
- each ``-U`` is followed by its ``+U``;
- the number of rows by kind is the expected one: that of every event, or with ``--engine native``
  that of the last event of a key in each micro-batch, whose offsets are in the checkpoint;
- the SHA-256 of the table's sorted rows is that of the expected table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from normalize import ChangelogNormalize, LocalKafka, from_kafka_changelog
from normalize.stage_options import KEY_GROUPS, NativeEngine

from .cpu import is_known, resident_bytes
from .history import FORMAT_OPTIONS, SCHEMA, Expected, Row, events, message
from .spark import start_session, use_state
from .topics import PARTITIONS, produce

TOPIC = "soak"
NATIVE = "native"
_FRUITLESS = 5  # starts in a row in which no micro-batch was committed
_GROWTH = 1.25  # the most by which the memory of the last quarter may exceed that of the second


class Truth(NamedTuple):
    """The expected result of the job.

    Attributes
    ----------
    table : list of str
        The rows of the final table, as text.
    rows : Counter
        Rows by kind.
    """

    table: list[str]
    rows: Counter[str]


class Sample(NamedTuple):
    """Resident bytes of JVM and all Python workers, seconds after the first micro-batch began."""

    seconds: float
    java: int
    python: int


class Runs(NamedTuple):
    """The job's kills, micro-batches, repeated ones, seconds, and memory of its last start."""

    kills: int
    batches: int
    again: int
    seconds: float
    samples: list[Sample]


def main() -> None:
    """Write the topic, run and kill the job, and check the result; exit with an error if wrong."""
    options = parse()
    if options.job:
        job(options)
        return
    if options.minutes and not is_known():
        raise SystemExit("--minutes measures memory in /proc: run it on Linux")
    # The job runs in its own session and must end with this process.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    folder = Path(options.folder or tempfile.mkdtemp(prefix="soak-"))
    with LocalKafka(data_dir=folder / "kafka") as kafka:
        begin = time.monotonic()
        truth = write(kafka, options)
        print(
            (
                f"topic: {options.messages:,} messages over {options.keys:,} keys, "
                f"{time.monotonic() - begin:.0f} s"
            ),
            flush=True,
        )
        runs = run(kafka.bootstrap_servers, options, folder)
    print(
        (
            f"job: killed {runs.kills} times, {runs.batches} micro-batches, {runs.again} of them "
            f"repeated, {runs.seconds:.0f} s"
        ),
        flush=True,
    )
    table, rows = applied(folder / "changelog")
    expected_rows = (
        rows_of_micro_batches(options, folder) if options.engine == NATIVE else truth.rows
    )
    print(f"rows by kind: {spelled(rows)}; expected {spelled(expected_rows)}")
    actual, expected = digest(table.values()), digest(truth.table)
    print(
        f"table: {len(table):,} rows, sha256 {actual}\nexpected: {len(truth.table):,} rows, sha256 "
        f"{expected}"
    )
    if actual != expected or rows != expected_rows:
        raise SystemExit(
            f"the job's changelog does not result in the expected table; it is kept in {folder}"
        )
    print("every retraction matches its row, and the changelog results in the expected table")
    if not options.folder:
        shutil.rmtree(folder)
    if options.minutes:
        require_flat(peaks_of_quarters(runs.samples, options.minutes * 60))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--messages", type=int, default=10_000_000)
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument(
        "--kill-every",
        type=float,
        default=120,
        help="seconds from the first micro-batch of each start to its kill",
    )
    parser.add_argument(
        "--minutes",
        type=float,
        help="run for this time without a kill, and require that the memory is flat",
    )
    parser.add_argument("--batch", type=int, default=100_000, help="messages in a micro-batch")
    parser.add_argument("--key-groups", type=int, default=KEY_GROUPS)
    parser.add_argument("--engine", choices=("key_groups", NATIVE), default="key_groups")
    parser.add_argument(
        "--folder",
        help=(
            "folder for the topic, the checkpoint and the changelog; it is kept. Default: a "
            "temporary one"
        ),
    )
    parser.add_argument("--job", nargs=2, metavar=("SERVERS", "FOLDER"), help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


# --------------------------------------------------------------------------------------------------
# the topic


def write(kafka: LocalKafka, options: argparse.Namespace) -> Truth:
    """Write the topic (a process per core, a history per partition); return the expected result."""
    kafka.create_topic(TOPIC, partitions=PARTITIONS)
    part = partial(
        write_partition,
        kafka.bootstrap_servers,
        options.messages // PARTITIONS,
        options.keys // PARTITIONS,
    )
    # Not forked: the Kafka client has threads.
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        parts = pool.map(part, range(PARTITIONS))
    return Truth(
        [row for each in parts for row in each.table], sum((each.rows for each in parts), Counter())
    )


def write_partition(servers: str, messages: int, keys: int, partition: int) -> Truth:
    """Write the history of one Kafka partition's keys, and return the expected result."""
    expected = Expected()

    def history() -> Iterator[tuple[bytes, bytes, int]]:
        for number, *images in events(messages, keys, seed=partition):
            before, after = (placed(row, partition) for row in images)
            expected.take(number, (after or before or ())[0], after)
            yield *message(number, before, after), partition

    produce(servers, TOPIC, history(), {"compression.type": "lz4"})
    return Truth(["|".join(map(text, row)) for row in expected.table.values()], expected.rows)


def placed(row: Row | None, partition: int) -> Row | None:
    """Return a row with a key that is unique to this partition."""
    return row and (row[0] * PARTITIONS + partition, *row[1:])


def text(value: Any) -> str:
    """Return a value of the history as Arrow writes it as text."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def rows_of_micro_batches(options: argparse.Namespace, folder: Path) -> Counter[str]:
    """Return the rows by kind if only each key's last event in a micro-batch of the job counts."""
    logs = sorted(
        (folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name)
    )
    if [int(file.name) for file in logs] != list(range(len(logs))):
        raise SystemExit("Spark removed offsets from the checkpoint: they are required")
    ends = [json.loads(file.read_text().splitlines()[-1])[TOPIC] for file in logs]
    part = partial(rows_of_partition, options.messages // PARTITIONS, options.keys // PARTITIONS)
    with get_context("spawn").Pool(os.cpu_count()) as pool:
        parts = pool.starmap(
            part,
            [(number, [end.get(str(number), 0) for end in ends]) for number in range(PARTITIONS)],
        )
    return sum(parts, Counter())


def rows_of_partition(messages: int, keys: int, partition: int, ends: list[int]) -> Counter[str]:
    """Return a Kafka partition's rows by kind; `ends` are the end offsets of its micro-batches."""
    expected, history = Expected(), events(messages, keys, seed=partition)
    for begin, end in zip([0, *ends], ends, strict=False):
        last = {
            (after or before or ())[0]: (number, after)
            for number, before, after in islice(history, end - begin)
        }
        for key, (number, after) in last.items():
            expected.take(number, key, after)
    return expected.rows


# --------------------------------------------------------------------------------------------------
# the job


def job(options: argparse.Namespace) -> None:
    """Read the topic to its end, and write a folder of files for each micro-batch."""
    servers, folder = options.job
    spark = start_session()
    use_state(spark, "rocksdb")
    # Snapshots are written once a minute by default: a job that is killed more often replays more
    # micro-batches at each start.
    spark.conf.set(
        "spark.sql.streaming.stateStore.maintenanceInterval",
        f"{min(60, max(1, options.kill_every / 4)):.0f}s",
    )

    # A run for a given time has its micro-batches at equal distances.
    least = (options.minutes or 0) * 60 * options.batch / options.messages

    def keep(batch: Any, number: int) -> None:
        begin = time.monotonic()
        with open(f"{folder}/begun", "a") as numbers:
            numbers.write(f"{number}\n")
        # A micro-batch that is repeated after a kill overwrites its folder.
        batch.write.mode("overwrite").parquet(f"{folder}/changelog/{number:06d}")
        time.sleep(max(0.0, begin + least - time.monotonic()))

    native = options.engine == NATIVE
    # Each Kafka partition has its own keys.
    stage = ChangelogNormalize(
        **{"engine": NativeEngine(repartition=False)}
        if native
        else {"key_groups": options.key_groups}
    )
    if native:  # its rows are checked by the offsets of all micro-batches
        spark.conf.set("spark.sql.streaming.minBatchesToRetain", "100000")
    changes = from_kafka_changelog(
        spark,
        TOPIC,
        format="debezium-json",
        format_options=FORMAT_OPTIONS,
        schema=SCHEMA,
        primary_key=["id"],
        options={"kafka.bootstrap.servers": servers, "maxOffsetsPerTrigger": options.batch},
        normalize=stage,
    )
    writer = (
        changes.writeStream.foreachBatch(keep)
        .outputMode("update" if native else "append")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
    writer.trigger(availableNow=True).start().awaitTermination()


def run(servers: str, options: argparse.Namespace, folder: Path) -> Runs:
    """Start the job, kill it, and start it again, until it has read the topic."""
    job_options = {
        "batch": options.batch,
        "key-groups": options.key_groups,
        "engine": options.engine,
        "kill-every": options.kill_every,
        "messages": options.messages,
        "minutes": options.minutes or 0,
    }
    settings = [
        argument for name, value in job_options.items() for argument in (f"--{name}", str(value))
    ]
    command = [sys.executable, "-m", "bench.soak", "--job", servers, str(folder), *settings]
    begin, kills, fruitless, done = time.monotonic(), 0, 0, 0
    until_kill = float("inf") if options.minutes else options.kill_every
    with (folder / "job.log").open("wb") as log:
        while (start := killed_or_ended(command, folder, log, until_kill)).code is None:
            kills += 1
            before, done = done, committed(folder)
            fruitless = 0 if done > before else fruitless + 1
            print(
                (
                    f"killed {kills} times, {time.monotonic() - begin:.0f} s: {done} micro-batches "
                    f"committed, {start.memory}"
                ),
                flush=True,
            )
            if fruitless == _FRUITLESS:
                raise SystemExit(
                    f"{_FRUITLESS} starts in a row committed no micro-batch: raise --kill-every, "
                    "or lower --batch"
                )
    print(f"the last start: {start.memory}", flush=True)
    if start.code:
        raise SystemExit(
            f"the job exited with code {start.code}; the end of {folder / 'job.log'}:\n"
            f"{(folder / 'job.log').read_text()[-5000:]}"
        )
    numbers = begun(folder)
    return Runs(
        kills,
        len(set(numbers)),
        len(numbers) - len(set(numbers)),
        time.monotonic() - begin,
        start.samples,
    )


class Start(NamedTuple):
    """A start of the job: its exit code (None if it was killed), its peak memory, and samples.

    The peak memory is that of the resident bytes of the JVM and of all Python workers.
    """

    code: int | None
    resident: tuple[int, int]
    samples: list[Sample]

    @property
    def memory(self) -> str:
        java, python = (size >> 20 for size in self.resident)
        return f"peak memory: JVM {java:,} MB, Python workers {python:,} MB"


def killed_or_ended(command: list[str], folder: Path, log: Any, seconds: float) -> Start:
    """Run the job, and kill it `seconds` after its first micro-batch began."""
    # A killed job leaves files here; they are removed before the next start.
    scratch = folder / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(scratch)}
    running = subprocess.Popen(
        command, stdout=log, stderr=log, env=environment, start_new_session=True
    )
    before, first, resident, samples = len(begun(folder)), float("inf"), (0, 0), list[Sample]()
    try:
        while running.poll() is None and time.monotonic() < first + seconds:
            time.sleep(0.5)
            java, python = resident_bytes(running.pid)
            resident = (max(resident[0], java), max(resident[1], python))
            if first == float("inf") and len(begun(folder)) > before:
                first = time.monotonic()
            if first < float("inf"):
                samples.append(
                    Sample(time.monotonic() - first, *resident_bytes(running.pid, now=True))
                )
        return Start(running.returncode, resident, samples)
    finally:
        # The driver's Python and its JVM; Python workers end with the JVM.
        with suppress(ProcessLookupError):
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()


def peaks_of_quarters(samples: list[Sample], seconds: float) -> list[tuple[int, int]]:
    """Return the JVM's and the Python workers' peak resident bytes in each quarter of this time.

    What comes after this time counts in the last quarter.
    """
    peaks = [(0, 0)] * 4
    for sample in samples:
        quarter = min(3, int(4 * sample.seconds / seconds))
        java, python = peaks[quarter]
        peaks[quarter] = (max(java, sample.java), max(python, sample.python))
    return peaks


def require_flat(peaks: list[tuple[int, int]]) -> None:
    """Print the quarters' memory; exit if the last quarter's is above the second's."""
    growing = []
    for place, (name, verb) in enumerate((("JVM", "has"), ("Python workers", "have"))):
        sizes = [peak[place] for peak in peaks]
        print(
            f"peak memory of the {name} by quarter: "
            f"{', '.join(f'{size >> 20:,}' for size in sizes)} MB"
        )
        if sizes[3] > sizes[1] * _GROWTH:
            growing.append(f"the {name} {verb} {sizes[3] / sizes[1] - 1:.0%} more")
    if growing:
        raise SystemExit(
            f"the memory is not flat: in the last quarter, {' and '.join(growing)} than in the "
            "second one"
        )


def begun(folder: Path) -> list[str]:
    """Return the numbers of the micro-batches that the job began, a repeated one repeatedly."""
    file = folder / "begun"
    return file.read_text().split() if file.exists() else []


def committed(folder: Path) -> int:
    """Return how many micro-batches the job has committed."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


# --------------------------------------------------------------------------------------------------
# the check


def applied(changelog: Path) -> tuple[dict[int, str], Counter[str]]:
    """Apply a changelog to an empty table; return the table, text by id, and row counts by kind."""
    table: dict[int, str] = {}
    rows: Counter[str] = Counter()
    for file in sorted(changelog.glob("*/*.parquet")):
        kinds, ids, images = spelled_rows(file)
        rows.update(kinds)
        updated = None
        for kind, key, image in zip(kinds, ids, images, strict=True):
            apply(table, kind, key, image, updated, file)
            updated = key if kind == "-U" else None
        if updated is not None:
            raise SystemExit(f"{file}: the -U of {updated} has no +U")
    return table, rows


def apply(
    table: dict[int, str], kind: str, key: int, image: str, updated: int | None, file: Path
) -> None:
    """Apply a row after a ``-U`` of the key `updated`; exit if the row contradicts the table."""
    stored = table.pop(key, None)
    if (updated is not None) != (kind == "+U") or (kind == "+U" and updated != key):
        raise SystemExit(f"{file}: {kind} {image} follows the -U of {updated}")
    if stored != (None if kind[0] == "+" else image):
        raise SystemExit(f"{file}: {kind} {image}, but the table has {stored}")
    if kind[0] == "+":
        table[key] = image


def spelled_rows(file: Path) -> tuple[list[str], list[int], list[str]]:
    """Return the kinds, ids and rows of a changelog file; rows as text."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    read = pq.ParquetFile(file).read()
    columns = [
        read[name].cast(pa.timestamp("ms")) if name == "updated_at" else read[name]
        for name in read.schema.names[1:]
    ]
    images = pc.binary_join_element_wise(*(column.cast(pa.string()) for column in columns), "|")
    return read["row_kind"].to_pylist(), read["id"].to_pylist(), images.to_pylist()


def digest(rows: Iterable[str]) -> str:
    """Return the SHA-256 of the sorted rows, one line each."""
    of_rows = sha256()
    for row in sorted(rows):
        of_rows.update(f"{row}\n".encode())
    return of_rows.hexdigest()


def spelled(rows: Counter[str]) -> str:
    """Return counts by kind as text."""
    return ", ".join(f"{kind} {rows[kind]:,}" for kind in ("+I", "-U", "+U", "-D"))


if __name__ == "__main__":
    main()
