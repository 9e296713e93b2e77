"""The memory of a soak is compared by quarters of its time."""

import pytest

from bench.soak import Sample, peaks_of_quarters, require_flat

MB = 1 << 20


def test_the_peaks_of_each_quarter_and_what_comes_after_the_time_is_in_the_last() -> None:
    samples = [
        Sample(0, 5, 1),
        Sample(9, 7, 3),
        Sample(11, 2, 2),
        Sample(19, 1, 4),
        Sample(20, 6, 0),
        Sample(31, 1, 1),
        Sample(55, 9, 2),
    ]
    assert peaks_of_quarters(samples, 40) == [(7, 3), (2, 4), (6, 0), (9, 2)]


@pytest.mark.parametrize("last", [(125, 100), (100, 125), (10, 10)])
def test_a_quarter_more_than_in_the_second_quarter_is_flat(
    last: tuple[int, int], capsys: pytest.CaptureFixture[str]
) -> None:
    require_flat(
        [
            (1000 * MB, 900 * MB),
            (100 * MB, 100 * MB),
            (80 * MB, 70 * MB),
            (last[0] * MB, last[1] * MB),
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        f"peak memory of the JVM by quarter: 1,000, 100, 80, {last[0]} MB",
        f"peak memory of the Python workers by quarter: 900, 100, 70, {last[1]} MB",
    ]


@pytest.mark.parametrize(
    ("last", "text"),
    [
        ((126, 100), "the JVM has 26% more than in the second one"),
        ((100, 150), "the Python workers have 50% more than in the second one"),
        (
            (200, 150),
            "the JVM has 100% more and the Python workers have 50% more than in the second one",
        ),
    ],
)
def test_memory_that_grows_ends_the_run(last: tuple[int, int], text: str) -> None:
    with pytest.raises(SystemExit, match=f"^the memory is not flat: in the last quarter, {text}$"):
        require_flat([(0, 0), (100 * MB, 100 * MB), (0, 0), (last[0] * MB, last[1] * MB)])
