"""A commit that another writer prevented is retried after growing pauses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from normalize.tables.targets import TRIES, ConflictError, TargetError, repeat_conflicts

if TYPE_CHECKING:
    pass


class Losing:
    """A commit that another writer prevents several times."""

    def __init__(self, times: int, error: Exception) -> None:
        self.times, self.error, self.calls, self.pauses = times, error, 0, list[float]()

    def __call__(self) -> None:
        self.calls += 1
        if self.calls <= self.times:
            raise self.error


def test_a_conflict_is_logged_and_retried_after_growing_pauses(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "normalize")
    commit = Losing(TRIES - 1, ConflictError("another writer changed t at the same time (X)"))
    repeat_conflicts(commit, pause=commit.pauses.append)
    lines = [
        f"another writer changed t at the same time (X): attempt {attempt} of 10"
        for attempt in range(1, TRIES)
    ]
    assert caplog.messages == lines
    assert commit.calls == TRIES
    assert len(commit.pauses) == TRIES - 1
    for tried, pause in enumerate(commit.pauses):
        longest = min(0.2 * 2**tried, 10)
        assert longest / 2 <= pause <= longest


def test_an_endless_conflict_is_an_error_of_one_sentence() -> None:
    commit = Losing(TRIES, ConflictError("another writer changed t at the same time (X)"))
    with pytest.raises(ConflictError) as caught:
        repeat_conflicts(commit, pause=commit.pauses.append)
    assert commit.calls == TRIES
    assert len(commit.pauses) == TRIES - 1  # no pause after the last attempt
    assert str(caught.value) == (
        "[CONFLICT] another writer changed t at the same time (X), in each of 10 attempts: let "
        "fewer queries write this table at a time, and restart this query"
    )


def test_another_error_is_not_retried() -> None:
    commit = Losing(1, TargetError("no"))
    with pytest.raises(TargetError, match="no"):
        repeat_conflicts(commit, pause=commit.pauses.append)
    assert commit.calls == 1
