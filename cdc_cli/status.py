"""``cdc status``: shows what a query has processed, from its checkpoint."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cdc_formats.errors import printable

from .connection import Config, Connection, Properties, Servers, Timeout, Verbose, connection
from .options import Json, WhichColor
from .reading import Topic
from .terminal import Color, print_result

if TYPE_CHECKING:
    from normalize.checkpoint.status import CheckpointStatus

Checkpoint = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The query's checkpointLocation: a path, or s3://, gs://, abfs://, hdfs://.",
        show_default=False,
    ),
]
Ends = dict[str, dict[int, int]]
"""The end of each partition of each topic: the offset of the next record."""


def status(
    checkpoint: Checkpoint,
    servers: Servers = "",
    *,
    json: Json = False,
    color: WhichColor = Color.AUTO,
    config: Config = None,
    properties: Properties = None,
    timeout: Timeout = 10.0,
    verbose: Verbose = False,
) -> None:
    """Show what a query has processed: offsets, last micro-batch and when it was planned, state.

    Of Delta tables also whether Spark or delta-rs writes them, and why; and how far a table is that
    `cdc resync` reads again.

    With -b, also how many records each partition has that are not processed yet. The query may be
    running. Spark is not needed; a checkpoint at a URL needs pyarrow.
    """
    from normalize.checkpoint.status import checkpoint_status

    described = checkpoint_status(checkpoint)
    broker = (
        connection(servers, config, properties, timeout, verbose) if servers or config else None
    )
    ends = {} if broker is None else _ends(broker, described)
    if json:
        typer.echo(
            json_text.dumps(
                {
                    **asdict(described),
                    "state_version": described.state_version,
                    "behind": _behind(described, ends),
                },
                default=datetime.isoformat,
            )
        )
    else:
        print_result(_shown(described, ends), color, "bold")


def _ends(broker: Connection, checkpoint: CheckpointStatus) -> Ends:
    ends: Ends = {}
    for name in checkpoint.offsets:
        with Topic(broker, name) as topic:
            ends[name] = {partition: high for partition, (_, high) in topic.ranges.items()}
    return ends


def _behind(checkpoint: CheckpointStatus, ends: Ends) -> Ends:
    """Return how many records are unprocessed: all of a partition still unknown to the query."""
    return {
        name: {
            partition: end - checkpoint.offsets[name].get(partition, 0)
            for partition, end in partitions.items()
        }
        for name, partitions in ends.items()
    }


def _shown(checkpoint: CheckpointStatus, ends: Ends) -> str:
    lines = [f"query {checkpoint.query_id}"]
    if checkpoint.committed_batch is None:
        lines.append("  no micro-batch is done yet")
    else:
        lines.append(
            f"  last micro-batch  {checkpoint.committed_batch}, planned at "
            f"{_at(checkpoint.committed_planned_at)}"
        )
    if checkpoint.is_running_or_failed:
        lines.append(
            f"  not done          {checkpoint.planned_batch}, planned at "
            f"{_at(checkpoint.planned_at)}: it is running, or the query ended in it"
        )
    behind = _behind(checkpoint, ends)
    for name, partitions in checkpoint.offsets.items():
        lines += _topic_lines(name, partitions, ends.get(name, {}), behind.get(name, {}))
    lines += [
        f"  source            {printable(source[:300])}" for source in checkpoint.other_sources
    ]
    lines += [
        f"  table             {printable(each.table)}, written by {each.writer}: "
        f"{printable(each.reason)}"
        for each in checkpoint.writers
    ]
    lines += [
        f"  read again        {printable(each.table)}: {printable(each.progress)}"
        for each in checkpoint.resyncs
    ]
    for operator in checkpoint.operators:
        lines.append(
            f"  state             operator {operator.operator_id}, {operator.name}, "
            f"{operator.partitions} partitions"
        )
    if checkpoint.state_version is not None:
        lines.append(f"  state version     {checkpoint.state_version}")
    return "\n".join(lines)


def _topic_lines(
    name: str, offsets: Mapping[int, int], ends: Mapping[int, int], behind: Mapping[int, int]
) -> Iterator[str]:
    yield f"  {printable(name)}" + (f", {sum(behind.values()):,} behind" if behind else "")
    for partition in sorted({*offsets, *behind}):
        offset = f"{offsets[partition]:,}" if partition in offsets else "not read yet"
        end = (
            f" of {ends[partition]:,}: {behind[partition]:,} behind" if partition in behind else ""
        )
        yield f"    partition {partition}: {offset}{end}"


def _at(time: datetime | None) -> str:
    return "an unknown time" if time is None else time.isoformat(" ", "seconds")
