"""The rows of a table that is read again are replaced at the position of the query."""

import shutil
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from normalize.spark.micro_batch import running_batch
from normalize.tables.writers.delta import DeltaSink
from tests.support.databases import maxwell
from tests.support.resyncing import ROWS, left_behind, read_again, request, state
from tests.support.syncing import Sync


def test_a_query_with_a_new_checkpoint_replaces_rows_once_it_has_read_as_far(
    sync: Sync, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync.produce("all", [maxwell("orders", "insert", row) for row in ROWS])
    sync.run()
    request(sync)
    replace_rows, numbers = DeltaSink.replace_rows, list[int | None]()

    def killed(sink: DeltaSink, *arguments: Any) -> None:
        raise RuntimeError("killed")

    def replaced(sink: DeltaSink, *arguments: Any) -> None:
        batch = running_batch(sync.spark)
        numbers.append(None if batch is None else batch.number)
        replace_rows(sink, *arguments)

    monkeypatch.setattr(DeltaSink, "replace_rows", killed)
    with pytest.raises(StreamingQueryException, match="killed"):
        read_again(sync)
    assert (state(sync).phase, state(sync).records) == ("replacing", len(ROWS))
    shutil.rmtree(sync.folder / "checkpoint")
    monkeypatch.setattr(DeltaSink, "replace_rows", replaced)
    servers = {"kafka.bootstrap.servers": sync.kafka.bootstrap_servers}
    sync.run(options={**servers, "maxOffsetsPerTrigger": "2"})
    # Six records, of which each micro-batch has two.
    assert numbers == [2]
    assert state(sync).phase == "replaced"
    assert sync.rows("orders") == ROWS
    assert left_behind(sync) == []
