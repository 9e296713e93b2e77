"""``python -m bench.tpcc``: TPC-C from a database into copies, whose rows are compared in the end.

python -m bench.tpcc record --warehouses 1 --minutes 1     # a recording, into the user's cache
python -m bench.tpcc record --database postgresql
python -m bench.tpcc --warehouses 1 --minutes 1            # replays it to each way in turn
# Is memory flat, is the lag flat? The changes of one recording are written five times.
python -m bench.tpcc --ways delta --at 4000 --rounds 5 --trigger "30 seconds" --replay-minutes 60
# the database, go-tpc, Debezium, Kafka and the query at once, which are killed:
python -m bench.tpcc live --live-minutes 6 --kill driver,executor,broker,connector,database --every 30
# its tables are compared with their source meanwhile: what that takes, and false alarms
python -m bench.tpcc live --live-minutes 60 --every 120 --verify "2 %"

A recording has Debezium's messages of go-tpc's transactions, and the source's tables at the end.
The replay writes the messages into Kafka at a set rate. First the snapshot is copied. Then trials
search for the highest rate at which the lag does not grow. At half of that rate, the lag from the
record to the readable row, CPU, memory and written files are measured. All further changes follow.
Then each table is compared with the source's, and TPC-C's consistency conditions are computed.
"""

from __future__ import annotations

import argparse
import os
import platform
from importlib.metadata import version
from pathlib import Path

from .compare import WAYS, compare
from .live import KINDS, TARGETS, live
from .record import Recording, record, say
from .servers import SOURCES


def main() -> None:
    """Run the command; exit with an error if a copy of this library is wrong."""
    options = parse()
    say(
        f"machine: {os.cpu_count()} cores, {platform.machine()}; Python {platform.python_version()}; "
        f"pyspark {version('pyspark')}"
    )
    if options.command == "record":
        record(options, folder_of(options))
    elif options.command == "live":
        live(options)
    else:
        compare(options, Recording.of(folder_of(options)))


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Return the options."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.tpcc",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "command", nargs="?", choices=("record", "compare", "live"), default="compare"
    )
    parser.add_argument("--database", choices=SOURCES, default="mariadb", help="the source")
    parser.add_argument("--warehouses", type=int, default=1)
    parser.add_argument(
        "--minutes", type=float, default=1, help="how long go-tpc writes transactions"
    )
    parser.add_argument("--threads", type=int, default=2, help="go-tpc's connections")
    parser.add_argument(
        "--folder", type=Path, help="of the recording; default: one in the user's cache"
    )
    replay = parser.add_argument_group("compare")
    replay.add_argument(
        "--ways",
        type=lambda text: _names(text, tuple(WAYS)),
        default=("delta", "hand"),
        help=f"comma-separated: {', '.join(WAYS)}",
    )
    replay.add_argument("--rate", type=float, default=500, help="changes/s of the first trial")
    replay.add_argument("--at", type=float, help="measure at this rate, without a search")
    replay.add_argument("--seconds", type=float, default=60, help="of each trial")
    replay.add_argument("--warm-up", type=float, default=30, help="seconds before the first trial")
    replay.add_argument("--rounds", type=int, default=1, help="how many times changes are written")
    replay.add_argument(
        "--trigger", help='time between micro-batches, such as "30 seconds"; default: none'
    )
    replay.add_argument(
        "--replay-minutes",
        type=float,
        default=0,
        help="how long half of the sustained rate is measured; default: a trial",
    )
    running = parser.add_argument_group("live")
    running.add_argument(
        "--live-minutes", type=float, default=6, help="how long go-tpc runs, and parts are killed"
    )
    running.add_argument(
        "--kill",
        type=lambda text: _names(text, KINDS),
        default=tuple(kind for kind in KINDS if kind != "target"),
        help=f"what is killed in turn, comma-separated: {', '.join(KINDS)}",
    )
    running.add_argument(
        "--into", choices=TARGETS, default="delta", help="what sync_database writes"
    )
    running.add_argument("--every", type=float, default=30, help="seconds between kills")
    running.add_argument("--kills", type=int, default=0, help="at most so many; 0: no limit")
    running.add_argument(
        "--by-hand", action="store_true", help="copy by the recipe by hand instead of sync_database"
    )
    running.add_argument(
        "--verify",
        default="",
        help="compare the copy with the source meanwhile, for this part of the time: '2 %%'",
    )
    running.add_argument(
        "--verify-lag", type=float, default=60, help="the longest lag of the producer, in seconds"
    )
    options = parser.parse_args(arguments)
    if options.rounds > 1 and {"postgresql", "mariadb", "flink"} & set(options.ways):
        parser.error(
            "--rounds works for Delta and Iceberg: databases are asked for numbers that only rise"
        )
    return options


def _names(text: str, known: tuple[str, ...]) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in known:
            raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
    return names


def folder_of(options: argparse.Namespace) -> Path:
    """Return the folder of a recording."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name = f"{options.database}-{options.warehouses}-{options.minutes:g}"
    return options.folder or cache / "pyspark-kafka-changelog" / "tpcc" / name


if __name__ == "__main__":
    main()
