"""The record of a query's last micro-batch: what is a repetition, and what another driver."""

import pytest

from normalize.tables.batches import (
    Batch,
    BatchOrderError,
    Record,
    digest_of,
    is_repeat,
    record_of,
    version_of,
)

NOW = Batch("q", 7, "0000000a")


@pytest.mark.parametrize(
    ("record", "is_repeated"),
    [
        (None, False),  # a table of release 0.2.0, or of another query
        (Record(6, "0000000a"), False),
        (Record(7, "0000000a"), True),
        (Record(7), True),  # the offsets are unknown
    ],
)
def test_new_and_repeated_micro_batches(record: Record | None, is_repeated: bool) -> None:
    assert is_repeat(NOW, record, "t") == is_repeated


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (Record(7, "0000000b"), "the table has this micro-batch with other offsets"),
        (Record(8), "the table has the later micro-batch 8"),
    ],
)
def test_error_names_both_causes_and_both_ways_out(record: Record, text: str) -> None:
    with pytest.raises(BatchOrderError, match=text) as error:
        is_repeat(NOW, record, "t")
    for part in (
        "another driver runs this checkpoint: stop all drivers but one",
        "the checkpoint or the table was set back or restored: restore the newest checkpoint, or "
        "start from a new one",
    ):
        assert part in str(error.value)


def test_versions_increase_with_the_number_whatever_the_offsets() -> None:
    batches = [Batch("q", number, f"{2**32 - 1 - number:08x}") for number in (0, 1, 2, 2**31 - 1)]
    versions = list(map(version_of, batches))
    assert versions == sorted(versions)
    assert versions[-1] < 2**63
    assert [record_of(version) for version in versions] == [Record(*each[1:3]) for each in batches]


def test_digest_depends_on_both_ends_of_each_source() -> None:
    ranges = [([], ["1"]), (["0"], ["1"]), (["1"], ["1"]), (["0"], ["1", None]), (["0", "1"], [])]
    assert len({digest_of(*each) for each in ranges}) == len(ranges)
