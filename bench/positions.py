"""``python -m bench.positions``: the cost of `TableOptions.position_column`.

It is what the option costs `sync_table` into a Delta table.

python -m bench.positions             # 1,000,000 debezium-json messages over 100,000 keys
python -m bench.positions --messages 500000 --runs 3

Three ways, in turns: hard deletes, soft deletes, and soft deletes with positions. A twentieth of
the messages are redeliveries. In the end, each table is compared with the expected rows: with
positions those of the source's log, otherwise those of the last arrival.
"""

from __future__ import annotations

import argparse
import tempfile
from typing import Any

from normalize import DeltaTarget, sync_table
from normalize.tables.table_options import TableOptions

from .by_hand import FORMAT, require_table
from .history import SCHEMA
from .spark import start_session
from .steady import Run, run_steadily, side_of
from .topics import Topic, broker, producer_of

WAYS = {
    "hard deletes": TableOptions(),
    "soft deletes": TableOptions(deletes="soft"),
    "soft deletes and positions": TableOptions(deletes="soft", position_column="position"),
}


def main() -> None:
    """Run each way in turns, and print its rate and CPU time."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=250_000, help="messages in a micro-batch")
    parser.add_argument("--runs", type=int, default=2, help="measured runs of each way")
    parser.add_argument(
        "--warm-up", type=int, default=1, help="runs of each way before them that are not measured"
    )
    options = parser.parse_args()
    options.topic = None
    spark = start_session(delta=True)
    runs: dict[str, list[Run]] = {name: [] for name in WAYS}
    with broker(options) as topic_of:
        topic = topic_of(FORMAT, options.messages, options.keys)
        for _ in range(options.warm_up + options.runs):
            for name, table in WAYS.items():
                runs[name].append(synchronized(spark, options, topic, table))
    for name, of_way in runs.items():
        measured = side_of(name, of_way[options.warm_up :])
        print(
            f"{name:27} {measured.rate:9,.0f} messages/s  CPU µs a message: {measured.cpu}",
            flush=True,
        )


def synchronized(spark: Any, options: argparse.Namespace, topic: Topic, table: TableOptions) -> Run:
    """Write the topic into a new table, and compare its rows."""
    with tempfile.TemporaryDirectory(prefix="bench-positions-") as folder:
        writer = sync_table(
            spark,
            topic.name,
            format=FORMAT,
            format_options=producer_of(FORMAT).options,
            schema=SCHEMA,
            primary_key="id",
            target=DeltaTarget(f"{folder}/table"),
            schema_location=f"{folder}/schemas",
            options={**topic.reader_options(options.batch), "startingOffsets": "earliest"},
            table=table,
        )
        run = run_steadily(writer)
        rows = f"delta.`{folder}/table`" + (
            " WHERE deleted_at IS NULL" if table.deletes == "soft" else ""
        )
        require_table(
            "sync_table's",
            spark,
            rows,
            topic.expected["source" if table.position_column else "arrival"],
        )
        return run


if __name__ == "__main__":
    main()
