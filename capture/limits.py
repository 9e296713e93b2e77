"""Limits of a micro-batch: Spark's read limit, and the target of a run with ``availableNow``."""

from __future__ import annotations

from typing import NamedTuple

from .failover import end_at, gtids_at
from .options import CaptureOptions
from .server import LogPlace, LogPosition, Server
from .table import Table, read_table
from .tables import matching

_UNLIMITED = 2**62


class Limits(NamedTuple):
    """The limits of one micro-batch.

    Attributes
    ----------
    chunks : int
        The largest number of chunks.
    max_bytes : int
        The number of bytes of the log after which the batch ends. A transaction is never divided.
    target : Position or None
        The position after which nothing is read; None reads up to the end of the log.
    """

    chunks: int
    max_bytes: int
    target: LogPosition | None = None


class RunEnd(NamedTuple):
    """Where a run with ``availableNow`` ends. The run reads nothing that is written later.

    Attributes
    ----------
    place : LogPlace
        A settled position.
    new : list of Table
        The tables that may be added: they existed at the position, with these columns.
    """

    place: LogPlace
    new: list[Table]


def fix_target(server: Server, options: CaptureOptions, server_id: int) -> RunEnd:
    """Return the target of a run that starts now."""
    # The tables are listed first: all of them exist at the position.
    tables = (
        [read_table(server, options, of) for of in matching(server, options)]
        if options.newly_added
        else []
    )
    position = server.settled()
    return RunEnd(
        LogPlace(server.identity, position, gtids_at(server, position, server_id)), tables
    )


def target_in(server: Server, target: RunEnd, server_id: int) -> RunEnd:
    """Return a target with its position in the server's log: another server may have taken over."""
    if target.place.server == server.identity:
        return target
    return target._replace(
        place=target.place._replace(
            server=server.identity, position=end_at(server, target.place, server_id)
        )
    )


def limits_of(options: CaptureOptions, target: RunEnd | None, *, unlimited: bool) -> Limits:
    """Return the limits of the next micro-batch.

    Parameters
    ----------
    target : RunEnd or None
        None for a query without ``availableNow``.
    unlimited : bool
        Whether Spark requests everything in one batch, as ``trigger(once=True)`` does.
    """
    limits = (
        Limits(_UNLIMITED, _UNLIMITED)
        if unlimited
        else Limits(options.chunks_per_batch, options.max_bytes)
    )
    return limits if target is None else limits._replace(target=target.place.position)
