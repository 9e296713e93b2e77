"""Writes a job file for `maxwell-json` messages and Delta tables."""

from pathlib import Path
from typing import Any

import yaml

from normalize import LocalKafka


def job_file(kafka: LocalKafka, folder: Path, topic: str, **changes: Any) -> Path:
    """Return the path of a new job file, whose tables, schemas and checkpoint are in a folder."""
    path = folder / "job.yaml"
    content = {
        "topic": topic,
        "format": "maxwell-json",
        "options": {"kafka.bootstrap.servers": kafka.bootstrap_servers},
        "target": {"delta": {"name": str(folder / "lake")}},
        "schema_location": str(folder / "schemas"),
        "checkpoint_location": str(folder / "checkpoint"),
        "name": "shop",
        "packages": ["delta"],
        "check": False,
        **changes,
    }
    path.write_text(yaml.safe_dump(content))
    return path
