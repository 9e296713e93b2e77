"""``make demo``: its results are the expected ones, and its output has nothing else."""

from typing import Any

import pytest

from demo.__main__ import run


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.slow(15)
def test_each_result_of_the_demo_is_the_expected_one(spark: Any, kafka: Any) -> None:
    lines: list[str] = []
    results = run(spark, kafka, lines.append)
    assert [(result.messages, result.rows, result.equal) for result in results] == [
        (3_828, 684, True),
        (6_432, 607, True),
        (4_805, 607, True),
        (122, 6, True),
        (13, 10, True),
    ]
    assert lines[-len(results) - 1].split() == [
        "what",
        "was",
        "read",
        "messages",
        "changes",
        "rows",
        "result",
    ]
    assert all(line.strip("\n").isprintable() and len(line) <= 150 for line in lines)
