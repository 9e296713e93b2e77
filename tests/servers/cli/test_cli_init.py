"""``cdc init``: a job file from a look at the topics."""

import json
from pathlib import Path

import pytest

from normalize import DeltaDatabase, LocalKafka
from normalize.run import read_job
from tests.support.commands import quick
from tests.support.databases import maxwell
from tests.support.streams import new_topic

pytestmark = pytest.mark.kafka


def test_a_job_file_from_topics(kafka: LocalKafka, tmp_path: Path) -> None:
    orders = new_topic(kafka, [maxwell("orders", "insert", {"id": 1})])
    event = {
        "database": "shop",
        "table": "events",
        "type": "insert",
        "ts": 1,
        "data": {"at": 1, "body": "x"},
    }
    events = new_topic(kafka, [(None, json.dumps(event).encode())])
    path = tmp_path / "job.yaml"
    done = quick(
        "init",
        orders,
        events,
        "-b",
        kafka.bootstrap_servers,
        "--lake",
        "/lake/shop/",
        "--output",
        path,
    )
    assert (done.code, done.err) == (
        0,
        f'wrote {path}: it has 1 "?": replace each by your answer, then run it with '
        f"`cdc run {path}`\n",
    )
    # The sample shows no key of this table only.
    done = quick("run", path)
    assert done.code == 1
    assert "no answer, tables.shop.events.primary_key: replace" in " ".join(done.err.split())
    path.write_text(path.read_text().replace('"?"', "at"))
    job = read_job(path)
    assert job.arguments["topic"] == [orders, events]
    assert job.arguments["format"] == "maxwell-json"
    assert job.arguments["options"]["kafka.bootstrap.servers"] == kafka.bootstrap_servers
    target = DeltaDatabase("/lake/shop", on_question="stop_table")
    assert job.arguments["target"] == target
    assert list(job.arguments["tables"]) == ["shop.events"]
    kafka.produce(orders, [maxwell("orders", "update", {"id": 1, "photo": "Cr1t6rqqFik="})])
    done = quick("run", "--check", path)
    asked = (
        "not checked: types in shop.orders: `photo STRING` (every value is base64: if it is BINARY, "
        "declare it). Write them, or as_is, into tables.shop.orders.types (on_question is stop_table)"
    )
    assert asked in " ".join(done.err.split())
    # A file that somebody edited is not overwritten.
    again = ("init", orders, "-b", kafka.bootstrap_servers, "--output", path)
    done = quick(*again)
    assert done.code == 1
    assert "exists: name another one with --output, or replace it with --force" in " ".join(
        done.err.split()
    )
    assert quick(*again, "--force").code == 0


def test_a_job_file_has_the_options_that_the_sample_shows(
    kafka: LocalKafka, tmp_path: Path
) -> None:
    rows = [
        {"op": "I", "id": 1, "name": "a"},
        {"op": "U", "id": 1, "name": "b"},
        {"op": "D", "id": 1, "name": "b"},
    ] * 3
    topic, path = (
        new_topic(kafka, [(None, json.dumps(row).encode()) for row in rows]),
        tmp_path / "job.yaml",
    )
    done = quick("init", topic, "-b", kafka.bootstrap_servers, "--output", path)
    assert done.code == 0, done.err
    path.write_text(path.read_text().replace('primary_key: "?"', "primary_key: id"))
    arguments = read_job(path).arguments
    assert arguments["format"] == "op-json"
    assert arguments["format_options"] == {"codes": {"D": "-D", "I": "+I", "U": "+U"}}


def test_topics_without_a_common_format(kafka: LocalKafka, tmp_path: Path) -> None:
    orders = new_topic(kafka, [maxwell("orders", "insert", {"id": 1})])
    plain = new_topic(kafka, [(None, b"\x00\x01 no message")])
    done = quick("init", plain, "-b", kafka.bootstrap_servers, "--output", tmp_path / "job.yaml")
    assert f"the format of {plain} is not known" in done.err
    canal = {
        "type": "INSERT",
        "database": "shop",
        "table": "orders",
        "isDdl": False,
        "data": [{"id": "1"}],
        "old": None,
    }
    canal |= {"pkNames": ["id"], "es": 1, "ts": 1}
    other = new_topic(kafka, [(None, json.dumps(canal).encode())])
    done = quick(
        "init", orders, other, "-b", kafka.bootstrap_servers, "--output", tmp_path / "job.yaml"
    )
    assert f"the topics have several ({orders}: maxwell-json, {other}: canal-json)" in done.err
    assert not (tmp_path / "job.yaml").exists()
