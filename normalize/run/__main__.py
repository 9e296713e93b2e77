"""``python -m normalize.run job.yaml``, and the application that ``spark-submit`` starts."""

from __future__ import annotations

import argparse
import json
import logging
import sys

from normalize.monitoring.explain_error import explain_error
from normalize.run import job_schema, read_job, run_job


def main(arguments: list[str] | None = None) -> int:
    """Run a job file; return the exit code."""
    parser = argparse.ArgumentParser("python -m normalize.run", description=__doc__)
    parser.add_argument("job", nargs="?", help="the job file, YAML or JSON")
    parser.add_argument("--schema", action="store_true", help="print the JSON Schema of a job file")
    parser.add_argument("--traceback", action="store_true", help="print the traceback of an error")
    parsed = parser.parse_args(arguments)
    if parsed.schema:
        print(json.dumps(job_schema(), indent=2))
        return 0
    if parsed.job is None:
        parser.error("the job file is missing")
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
    # Py4J logs each connection that it closes, and tracebacks when Java ends, at INFO.
    logging.getLogger("normalize").setLevel(logging.INFO)
    try:
        run_job(read_job(parsed.job))
    except Exception as error:
        if parsed.traceback:
            raise
        print(f"error: {explain_error(error)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
