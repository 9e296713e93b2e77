"""Rewriting a checkpoint for another number of key groups: the query continues unchanged."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cdc_formats.errors import ArgumentError
from normalize import ChangelogNormalize, from_kafka_changelog
from normalize.checkpoint.read_state import read_state
from normalize.checkpoint.rescale import rescale
from normalize.core.packing import key_group_of, pack
from tests.support.histories import TABLE, changes, random_history, records_of, rows_by_key
from tests.support.strategies import by_key, fold_history, last_rows, table_of
from tests.support.streams import ROCKSDB, new_topic, run_stream, servers, settings

HISTORY = random_history(23, changes=600)
HALF = len(HISTORY) // 2


def changelog_of(spark, kafka, topic: str, key_groups: int, **options: int):
    stage = ChangelogNormalize(key_groups=key_groups)
    return from_kafka_changelog(
        spark, topic, **TABLE, options=servers(kafka, **options), normalize=stage, check=False
    )


def content_of(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def assert_whole(batches: dict[int, list]) -> None:
    """Assert that the batches together are the changelog of the whole history."""
    rows = [row for number in sorted(batches) for row in batches[number]]
    assert rows_by_key(rows) == by_key(fold_history(HISTORY))


class Stopped(NamedTuple):
    """A query with 4 key groups that has read the first half of a topic in two batches.

    The second half was written afterwards.
    """

    topic: str
    checkpoint: Path
    batches: dict[int, list]


def stopped(spark, kafka, folder: Path) -> Stopped:
    topic = new_topic(kafka, records_of(HISTORY[:HALF]), partitions=2)
    batches = run_stream(
        changelog_of(spark, kafka, topic, 4, maxOffsetsPerTrigger=300), folder / "old"
    ).batches
    assert sorted(batches) == [0, 1]
    kafka.produce(topic, records_of(HISTORY[HALF:]))
    return Stopped(topic, folder / "old", batches)


@pytest.fixture(scope="module")
def query(spark, kafka, tmp_path_factory):
    return stopped(spark, kafka, tmp_path_factory.mktemp("query"))


@pytest.mark.cross_section
def test_the_query_continues_with_another_number_of_key_groups(spark, kafka, tmp_path, query):
    before = content_of(query.checkpoint)
    # A sink of files skips a batch whose number it has: the next number is that of the following
    # batch.
    batch = rescale(spark, str(query.checkpoint), str(tmp_path / "new"), 12, shuffle_partitions=3)
    assert content_of(query.checkpoint) == before
    second = run_stream(changelog_of(spark, kafka, query.topic, 12), tmp_path / "new").batches
    assert_whole({**query.batches, **second})
    assert min(second) == batch == max(query.batches) + 1
    assert (tmp_path / "new" / "metadata").read_bytes() == before["metadata"]
    state = read_state(spark, str(tmp_path / "new"))
    assert state.dtypes == [
        ("id", "int"),
        ("name", "string"),
        ("qty", "int"),
        ("_key_group", "int"),
    ]
    rows = state.collect()
    assert {row.id: tuple(row)[:3] for row in rows} == last_rows(HISTORY)
    assert len(rows) == len(last_rows(HISTORY))
    assert all(row._key_group == key_group_of(pack((row.id,)), 12) for row in rows)
    earlier = read_state(spark, str(query.checkpoint), batch_id=0).drop("_key_group").collect()
    assert (
        {row.id: tuple(row) for row in earlier}
        == table_of(changes(query.batches[0]))
        != last_rows(HISTORY[:HALF])
    )
    assert {path.name for path in (tmp_path / "new" / "state" / "0").iterdir()} == {
        "0",
        "1",
        "2",
        "_metadata",
    }


def test_the_command_rewrites_a_checkpoint_of_rocksdb(spark, kafka, tmp_path):
    with settings(spark, ROCKSDB):
        old = stopped(spark, kafka, tmp_path)
        new, batch = f"file://{tmp_path}/new", max(old.batches) + 1
        command = [
            sys.executable,
            "-m",
            "normalize.checkpoint.rescale",
            str(old.checkpoint),
            new,
            "--key-groups",
            "3",
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-5000:]
        assert done.stdout == (
            f"Wrote {new}: start the query from it with key_groups=3; the next batch is {batch}\n"
        )
        second = run_stream(changelog_of(spark, kafka, old.topic, 3), tmp_path / "new").batches
    assert_whole({**old.batches, **second})


def test_a_batch_that_was_planned_and_not_committed_is_run_from_the_new_checkpoint(
    spark, kafka, tmp_path, query
):
    last = max(query.batches)
    shutil.copytree(query.checkpoint, tmp_path / "old")
    # The state after a crash before the commit.
    for name in (str(last), f".{last}.crc"):
        (tmp_path / "old" / "commits" / name).unlink()
    assert rescale(spark, str(tmp_path / "old"), str(tmp_path / "new"), 12) == last
    second = run_stream(changelog_of(spark, kafka, query.topic, 12), tmp_path / "new").batches
    # A sink that recognises repeated batches by their number still works.
    assert rows_by_key(second[last]) == rows_by_key(query.batches[last]) != {}
    assert_whole({**query.batches, **second})


# --------------------------------------------------------------------------------------------------
# what is refused


def test_checkpoints_that_cannot_be_rewritten_are_refused_and_unchanged(spark, tmp_path, query):
    old, new = str(query.checkpoint), str(tmp_path / "new")
    for arguments, text in (
        ((old, old, 12), "old exists"),
        ((old, new, 0), "at least 1"),
        ((str(tmp_path / "no"), new, 12), "is not a checkpoint"),
    ):
        with pytest.raises(ArgumentError, match=text):
            rescale(spark, *arguments)
    assert not list(tmp_path.iterdir())
