"""``python -m normalize.run job.yaml``, and the application that ``spark-submit`` starts."""

from __future__ import annotations

import argparse
import logging
import sys

from normalize.monitoring.explain_error import explain_error
from normalize.run import Event, check_job, read_job, run_job
from normalize.run.events import Warnings, log_event


def main(arguments: list[str] | None = None) -> int:
    """Run a job file; return the exit code."""
    parser = argparse.ArgumentParser("python -m normalize.run", description=__doc__)
    parser.add_argument("job", help="the job file, YAML or JSON")
    parser.add_argument("--check", action="store_true", help="check without Spark, and do not run")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each event")
    parser.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    parsed = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("normalize.run").setLevel(logging.INFO)
    if parsed.json:
        logger = logging.getLogger("normalize")
        logger.addHandler(Warnings(_print_json))
        logger.propagate = False
    try:
        job = read_job(parsed.job)
        if parsed.check:
            failed = False
            for finding in check_job(job):
                print(finding)
                failed |= finding.state == "error"
            return int(failed)
        run_job(job, report=_print_json if parsed.json else log_event)
    except Exception as error:
        if parsed.traceback:
            raise
        print(f"error: {explain_error(error)}", file=sys.stderr)
        return 1
    return 0


def _print_json(event: Event) -> None:
    print(event.to_json(), flush=True)


if __name__ == "__main__":
    sys.exit(main())
