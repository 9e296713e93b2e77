"""`checkpoint_status` and ``cdc status`` on checkpoints by Spark and files of a Kafka query."""

import json
import shutil
from datetime import datetime, timezone
from operator import attrgetter
from pathlib import Path

import pytest

from cdc_formats.errors import ArgumentError
from normalize.checkpoint.status import checkpoint_status
from tests.support.commands import quick
from tests.support.paths import VECTORS

CHECKPOINTS = sorted((VECTORS / "checkpoints").glob("*-arrival.zip"))


def kafka_checkpoint(folder: Path, planned: int, committed: int) -> Path:
    """Write the files of a query that reads two topics."""
    for number in range(planned + 1):
        about = {
            "batchWatermarkMs": 0,
            "batchTimestampMs": 1_700_000_000_000 + number,
            "conf": {"spark.sql.shuffle.partitions": "2"},
        }
        offsets = {"orders": {"0": 1000 + number, "1": 5}, "items.\x1b": {"0": number}}
        (folder / "offsets").mkdir(exist_ok=True)
        (folder / "offsets" / str(number)).write_text(
            f"v1\n{json.dumps(about)}\n{json.dumps(offsets)}"
        )
    (folder / "commits").mkdir()
    for number in range(committed + 1):
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (folder / "metadata").write_text('{"id":"0f"}')
    return folder


@pytest.mark.parametrize("archive", CHECKPOINTS, ids=lambda path: path.stem)
def test_checkpoints_of_each_version_of_spark(archive: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(archive, tmp_path)
    status = checkpoint_status(str(tmp_path))
    assert (
        status.committed_batch
        == status.planned_batch
        == max(int(each.name) for each in (tmp_path / "commits").glob("[0-9]*"))
    )
    assert status.state_version == status.committed_batch + 1
    assert [(each.operator_id, each.name, each.partitions) for each in status.operators] == [
        (0, "applyInPandasWithState", 2)
    ]
    assert status.settings["spark.sql.shuffle.partitions"] == "2"
    assert (status.offsets, len(status.other_sources)) == ({}, 1)


def test_offsets_are_those_of_the_committed_batch(tmp_path: Path) -> None:
    status = checkpoint_status(str(kafka_checkpoint(tmp_path, planned=11, committed=9)))
    assert (
        status.planned_batch,
        status.committed_batch,
        status.is_running_or_failed,
        status.state_version,
    ) == (11, 9, True, None)
    assert status.offsets == {"orders": {0: 1009, 1: 5}, "items.\x1b": {0: 9}}
    assert status.committed_planned_at == datetime(2023, 11, 14, 22, 13, 20, 9000, timezone.utc)


def test_a_query_without_a_finished_batch(tmp_path: Path) -> None:
    status = checkpoint_status(str(kafka_checkpoint(tmp_path, planned=0, committed=-1)))
    assert (status.planned_batch, status.committed_batch, status.offsets) == (0, None, {})


def test_the_command_prints_it(tmp_path: Path) -> None:
    done = quick("status", kafka_checkpoint(tmp_path, planned=3, committed=2))
    lines = (
        "last micro-batch  2, planned at 2023-11-14 22:13:20+00:00",
        *("not done          3", "partition 0: 1,002"),
    )
    assert [line for line in lines if line not in done.out] == []
    assert (done.code, "\x1b" in done.out) == (0, False)
    assert json.loads(quick("status", tmp_path, "--json").out)["offsets"]["orders"] == {
        "0": 1002,
        "1": 5,
    }


OF_B = {"table": "`delta`.`/lake/b`", "writer": "spark", "reason": "it has the feature\x1b[1m"}
OF_A = {**OF_B, "table": "`delta`.`/lake/a`", "reason": "small"}
READ_AGAIN = {"table": "shop.orders\x1b[1m", "phase": "reading", "progress": "reading, 5 records"}
DECODED = {"table": "shop.orders", "decoder": "the native decoder"}


@pytest.mark.parametrize(
    ("part", "stored", "names", "shown", "lines"),
    [
        (
            *("writers", [OF_B, OF_A], "table writer"),
            [("`delta`.`/lake/a`", "spark"), ("`delta`.`/lake/b`", "spark")],
            ["  table             `delta`.`/lake/a`, written by spark: small\n"],
        ),
        (
            *("decoders", [DECODED], "table decoder", [tuple(DECODED.values())]),
            ["  decoded           shop.orders, by the native decoder\n"],
        ),
        (
            *("resyncs", [READ_AGAIN], "phase progress", [("reading", "reading, 5 records")]),
            ["  read again        shop.orders", "reading, 5 records\n"],
        ),
        (
            *("proofs", [{"table": "shop.orders", "progress": "9 rows"}], "table progress"),
            [("shop.orders", "9 rows")],
            ["  verified          shop.orders: 9 rows\n"],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_query_keeps_of_its_tables(
    tmp_path: Path,
    part: str,
    stored: list[dict[str, str]],
    names: str,
    shown: list[tuple[str, ...]],
    lines: list[str],
) -> None:
    name = {"resyncs": "resync", "proofs": "verified"}.get(part, part)
    folder = kafka_checkpoint(tmp_path, planned=1, committed=1) / "changelog" / name
    folder.mkdir(parents=True)
    for number, values in enumerate(stored):
        (folder / f"{number}.json").write_text(json.dumps(values))
    (folder / "9.json").write_text('{"table": "`delta`.`/lake/c`", "wri')  # which is being written
    (folder / ".1.json.crc").write_bytes(b"\xff")
    found = getattr(checkpoint_status(str(tmp_path)), part)
    assert list(map(attrgetter(*names.split()), found)) == shown
    printed = quick("status", tmp_path).out
    assert [line for line in [*lines, "\x1b"] if line not in printed] == ["\x1b"]


def test_what_is_no_checkpoint_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="is not a checkpoint"):
        checkpoint_status(str(tmp_path))
    kafka_checkpoint(tmp_path, planned=0, committed=0)
    (tmp_path / "offsets" / "0").write_text("v9\n{}\n{}")
    with pytest.raises(ArgumentError, match="version 'v9'"):
        checkpoint_status(str(tmp_path))
    done = quick("status", tmp_path / "nothing")
    assert (done.code, "is not a checkpoint" in done.err) == (1, True)
