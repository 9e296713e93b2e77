"""Each format's own rules: a record, its rows in a changelog, and its changes of a keyed stage.

`ERROR_TEXTS=write pytest FILE` writes the results into `tests/vectors/rules`. Read the difference in
the review.
"""

import os

import msgspec
import pytest

from tests.support.rules import Rule, decided
from tests.support.scenarios import VECTORS

RULES = [
    (path.stem, msgspec.json.decode(line, type=Rule))
    for path in sorted((VECTORS / "rules").glob("*.jsonl"))
    for line in path.read_bytes().splitlines()
]


@pytest.mark.parametrize(
    ("identifier", "rule"), RULES, ids=[f"{name}, {rule.why}" for name, rule in RULES]
)
def test_a_record_has_its_rows_and_changes(identifier: str, rule: Rule) -> None:
    path = VECTORS / "rules" / f"{identifier}.jsonl"
    if os.environ.get("ERROR_TEXTS") == "write":
        line, new = map(msgspec.json.encode, (rule, decided(identifier, rule)))
        path.write_bytes(path.read_bytes().replace(line, new))
    else:
        assert decided(identifier, rule) == rule
