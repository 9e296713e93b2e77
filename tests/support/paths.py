"""The folders that tests read."""

from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
VECTORS = REPOSITORY / "tests" / "vectors"
PRODUCT = VECTORS / "product"
TOPICS = REPOSITORY / "demo" / "topics"
RECORDS = TOPICS / "records"
