"""``python -m demo``, ``make demo``: replays recorded topics in a real Kafka and compares tables.

Each recording is loaded into the broker byte for byte and read with `from_kafka_changelog` as a
streaming query. The demo prints some of the changes and compares the table that they make with the
source database's table. Two small examples follow: a sum that is updated with its rows, and a
changelog that is written to Kafka and read back.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

from normalize import LocalKafka, local_session

from . import recordings, stories
from .report import Result, Say, aligned


def main() -> int:
    """Run the demo; return exit code 1 if a table differs from the expected one."""
    begin = time.monotonic()
    # A notice lists the columns that a schema leaves out; the recordings' schemas do so
    # deliberately.
    logging.getLogger("normalize").setLevel(logging.ERROR)
    say("Starting a local Spark and a local Kafka ...")
    spark = local_session(
        "demo", **{"spark.ui.enabled": "false", "spark.sql.session.timeZone": "UTC"}
    )
    with LocalKafka() as kafka:
        results = run(spark, kafka, say)
    spark.stop()
    equal = sum(result.equal for result in results)
    say(
        f"\n{equal} of {len(results)} tables are exactly the expected ones "
        f"({time.monotonic() - begin:.0f} s)."
    )
    say(
        "Next: `make notebooks` opens the notebooks; explore_a_topic.ipynb works on a topic of "
        "your own, too."
    )
    return 0 if equal == len(results) else 1


def run(spark: Any, kafka: Any, say: Say) -> list[Result]:
    """Run each part of the demo, print the results as a table, and return them."""
    results = [
        recordings.replay(spark, kafka, recording, say) for recording in recordings.RECORDINGS
    ]
    results += [stories.product(spark, kafka, say), stories.orders(spark, kafka, say)]
    header = ["what was read", "messages", "changes", "rows", "result"]
    cells = [
        [
            result.title,
            *(f"{count:,}" for count in (result.messages, result.changes, result.rows)),
            "equal" if result.equal else "NOT EQUAL",
        ]
        for result in results
    ]
    say("\n=== Results")
    for line in aligned([header, *cells]):
        say(f"   {line}")
    return results


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main())
