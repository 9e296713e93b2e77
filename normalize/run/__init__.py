"""Runs a job file: `sync_database` from a file, restarted after failures.

``python -m normalize.run job.yaml``, ``cdc run job.yaml``, or ``spark-submit`` with this folder's
``__main__.py`` as the application. `Job` describes the file.
"""

from cdc_formats.errors import missing_dependency

try:
    from .check import check_job
    from .events import Event
    from .job import Job, job_schema, read_job
    from .supervise import maintain_job, resync_job, run_job
except ImportError as error:
    raise missing_dependency(error, "run") from None

__all__ = [
    "Event",
    "Job",
    "check_job",
    "job_schema",
    "maintain_job",
    "read_job",
    "resync_job",
    "run_job",
]
