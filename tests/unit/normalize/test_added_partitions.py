"""Added partitions, late for the native engine exactly when late for the guard of key groups."""

from hypothesis import given, strategies as st

from cdc_formats.errors import PartitionsAddedError
from cdc_formats.topics.client import TopicDescription
from normalize.core.guard import Expected, PartitionSummary, check
from normalize.core.last import FirstRecord, is_late, partition_facts
from tests.support.states import LAYOUT

COUNT = 2
STAMPS = st.lists(st.integers(0, 30), max_size=6).map(sorted)


def by_guard(batches: list[dict[int, tuple[int, int]]], counts: list[int]) -> int | None:
    """The number of the micro-batch that the guard refuses."""
    state = None
    for number, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        expected = Expected(topics={"t": TopicDescription("id", count)})
        seen = [
            PartitionSummary("t", partition, stamp, [], offset)
            for partition, (offset, stamp) in batch.items()
        ]
        try:
            state = check(state, seen, LAYOUT, expected, 0)
        except PartitionsAddedError:
            return number
    return None


def by_facts(batches: list[dict[int, tuple[int, int]]], counts: list[int]) -> int | None:
    """The same by the least and the greatest fact of each group, which Spark keeps."""
    kept: dict[str, list[str]] = {}
    for number, (batch, count) in enumerate(zip(batches, counts, strict=True)):
        touched = set()
        for partition, first in batch.items():
            for name, fact in partition_facts(
                FirstRecord("t", partition, *first), {"t": count}, number
            ):
                kept.setdefault(name, []).append(fact)
                touched.add(name)
        if any(is_late(min(kept[name]), max(kept[name])) for name in touched):
            return number
    return None


@st.composite
def histories(draw: st.DrawFn, added: int) -> tuple[list[dict[int, tuple[int, int]]], list[int]]:
    """Draw micro-batches of a topic, and the number of partitions that a query knows in each.

    The topic grows after the first micro-batch.
    """
    partitions = [
        [(offset, stamp) for offset, stamp in enumerate(draw(STAMPS))] for _ in range(COUNT + added)
    ]
    partitions[0] = [(0, 0), *partitions[0]]  # a first micro-batch has a record
    batches: list[dict[int, tuple[int, int]]] = []
    for size in draw(st.lists(st.integers(1, 4), min_size=2, max_size=6)):
        partition_count = COUNT + added if batches else COUNT
        batches.append(
            {
                number: partitions[number][0]
                for number in range(partition_count)
                if partitions[number]
            }
        )
        partitions[:partition_count] = [
            partition[size:] for partition in partitions[:partition_count]
        ]
    restart = draw(st.integers(1, 6))
    return batches, [COUNT if number < restart else COUNT + added for number in range(len(batches))]


@given(histories(added=1))
def test_late_records_are_found_where_the_guard_finds_them(
    history: tuple[list[dict[int, tuple[int, int]]], list[int]],
) -> None:
    assert by_facts(*history) == by_guard(*history)


@given(histories(added=2))
def test_late_records_are_found_not_later_than_the_guard_finds_them(
    history: tuple[list[dict[int, tuple[int, int]]], list[int]],
) -> None:
    by_key_groups, native = by_guard(*history), by_facts(*history)
    assert by_key_groups is None or (native is not None and native <= by_key_groups)


def test_a_partition_that_was_empty_is_not_an_added_one() -> None:
    batches = [{0: (0, 10)}, {1: (0, 90)}, {0: (1, 70)}]
    assert by_facts(batches, [2, 2, 2]) is None
    assert by_facts(batches, [1, 2, 2]) == 2
