"""``cdc status`` with a broker: how far each partition is behind."""

import json
from pathlib import Path

from normalize import LocalKafka
from tests.support.commands import cdc
from tests.support.streams import new_topic


def test_status_says_how_far_each_partition_is_behind(kafka: LocalKafka, tmp_path: Path) -> None:
    topic = new_topic(kafka, [(b"k", b"v")] * 7, partitions=2)
    for folder, text in (
        ("offsets", f'v1\n{{"batchTimestampMs":1700000000000}}\n{{"{topic}":{{"0":0}}}}'),
        ("commits", "v1\n{}"),
    ):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "0").write_text(text)
    (tmp_path / "metadata").write_text('{"id":"0f"}')
    done = cdc("status", tmp_path, "-b", kafka.bootstrap_servers)
    assert done.code == 0, done.err
    assert f"{topic}, 7 behind" in done.out
    assert "partition 1: not read yet" in done.out
    behind = json.loads(cdc("status", tmp_path, "-b", kafka.bootstrap_servers, "--json").out)[
        "behind"
    ][topic]
    assert sum(behind.values()) == 7
    assert set(behind) == {"0", "1"}
