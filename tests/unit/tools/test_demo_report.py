"""The demo's tables."""

from demo.report import aligned


def test_numbers_are_aligned_on_the_right_and_control_codes_are_escaped() -> None:
    table = [["name", "rows"], ["a\x1b[31m", 5], [None, "1,234"], ["x" * 100, 12]]
    assert [line.split() for line in aligned(table)] == [
        ["name", "rows"],
        [r"a\x1b[31m", "5"],
        ["NULL", "1,234"],
        ["x" * 57 + "...", "12"],
    ]
    assert len({len(line) for line in aligned(table)}) == 1
