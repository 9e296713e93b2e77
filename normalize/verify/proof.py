"""Compares the tables of a running query with their sources, a chunk at a time: `Verify`.

After a micro-batch the target has exactly the records up to the micro-batch's end, and nobody
writes it. Then the next rows of the source in the order of the key, a *chunk*, are read, and after
them the target's rows between the same keys. A key whose rows are equal is right, whatever either
has applied (`comparison`).

A key that differs is looked at again after later micro-batches. It is *different* if its source row
did not change for the longest lag of the producer, and if the query has then applied all records
that were in the topics at the end of that time, and a later one. The later one shows that the
producer still writes. After a pause of the micro-batches the time begins again, once for each key.

::

    chunk is read         longest lag has passed
    ──┼───────────────────────────────┼── records of the topics ──┼── a later record ──► look
      └── source row does not change ─┘

A *cycle* compares all rows. The table's file keeps its begin, and the key after which every key is
settled, so that the next run goes on there.
"""

from __future__ import annotations

import logging
import math
import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from random import random

import msgspec
from pyspark.sql import DataFrame

from cdc_formats.errors import ArgumentError, SchemaError, refuse
from cdc_formats.values.key_range import Key
from cdc_formats.values.masks import HMAC
from cdc_formats.values.schema import name_parts
from normalize.arguments import seconds_of
from normalize.monitoring.explain_error import explain_error
from normalize.monitoring.watch import Notice, log, shown_names
from normalize.spark.micro_batch import end_offsets, running_batch
from normalize.tables.batches import BatchOrderError
from normalize.tables.facts import Proof
from normalize.tables.job import TableJob
from normalize.tables.query import Query
from normalize.tables.resync_state import Offsets, offsets_between
from normalize.tables.schema import TableSchema
from normalize.tables.table_spec import END_AT

from .canonical import as_copied
from .comparison import MOST_KEYS, Comparison, Looks
from .database_table import JdbcSource
from .verify_table import compared, comparison_of, source_table, target_table

_log = logging.getLogger("normalize")
_SAVED = 600.0
"""The seconds of a pause between micro-batches whose share is saved up."""
_UNSETTLED = 3600.0
"""The seconds after which no chunk is read until all keys that differed are settled."""
_MOST_SHOWN = 20
_SOURCE_ROW = "__source_row"


class Verify(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The comparison of tables with their sources, by the query that writes them.

    Parameters
    ----------
    source : str
        The source database: ``jdbc:postgresql://host:5432/database``, ``jdbc:mysql://host:3306`` or
        ``jdbc:mariadb://...``; without a password.
    user, password : str or None
        The password never appears in reprs, plans or errors.
    options : mapping
        Same as in `JdbcSource`.
    table : str
        The table in the source database, as ``table`` or ``schema.table``; for one table only.
        Empty: as the messages name it.
    every : str
        The least time between the begins of two comparisons of all rows.
    at_most : str
        The largest part of the query's time that the comparisons of all its tables take.
    max_lag_seconds : float
        The longest time until a change of the source is in the topic. A key that still differs
        after this time is a difference.
    rows : int
        The most rows that are read from the source at a time.
    """

    source: str
    user: str | None = None
    password: str | None = None
    options: dict[str, str] = {}
    table: str = ""
    every: str = "1 day"
    at_most: str = "2 %"
    max_lag_seconds: float = 600.0
    rows: int = 100_000

    def __post_init__(self) -> None:
        self.of(self.table or "table")
        seconds_of("every", self.every)
        refuse(
            (
                not 0 < self.share <= 1,
                f"at_most is {self.at_most!r}: pass a part of the time, as '2 %'",
            ),
            (
                self.rows < 1 or not self.max_lag_seconds >= 0,
                "rows must be at least 1, and max_lag_seconds not negative",
            ),
        )

    def __repr__(self) -> str:
        return f"Verify(source={self.source!r}, every={self.every!r}, at_most={self.at_most!r})"

    @property
    def share(self) -> float:
        """The part of the time, between 0 and 1; 0 if it is not valid."""
        matched = re.fullmatch(r"(\d+(?:\.\d+)?) ?%", self.at_most)
        return float(matched[1]) / 100 if matched else 0.0

    def of(self, table: str) -> JdbcSource:
        """Return the source of a table that messages name so."""
        name = self.table or ".".join(name_parts(table)[-2:]) or table
        return JdbcSource(self.source, name, self.user, self.password, self.options)

    def is_due(self, schema: TableSchema) -> bool:
        """Return whether a table has rows, and is to be compared now."""
        facts = schema.facts
        if not facts.written or schema.stopped:
            return False
        if facts.verifying.at or not facts.verified.at:
            return True
        passed = datetime.now(timezone.utc) - datetime.fromisoformat(facts.verified.at)
        return passed.total_seconds() >= seconds_of("every", self.every)

    def verifier(self) -> Callable[[Collection[TableJob]], None]:
        """Return what compares the tables of a query after each micro-batch."""
        return Verifier()


@dataclass
class Verifier:
    """Compares the tables of a query in turn, for a part of its time."""

    clock: Callable[[], float] = time.monotonic
    _tables: dict[str, TableVerifier] = field(default_factory=dict)
    _called: float = math.inf
    _credit: float = 0.0
    _mark: tuple[float, Offsets] = (-math.inf, {})
    _applied: float = -math.inf

    def __call__(self, jobs: Collection[TableJob]) -> None:
        """Compare the next chunks, if the query has the records that the topics had before."""
        now, due, share = self.clock(), list[tuple[TableVerifier, TableJob]](), 0.0
        for job in jobs:
            options = job.policy.verify
            if isinstance(options, Verify) and options.is_due(job.schema):
                new = TableVerifier(options, self.clock)
                due.append((self._tables.setdefault(job.table, new), job))
                share = max(share, options.share)
        saved = self._credit + share * min(max(now - self._called, 0), _SAVED)
        self._called, self._credit = now, min(saved, share * _SAVED)
        if self._credit > 0 and self._has_caught_up(due[0][1].query):
            for table, job in sorted(due, key=lambda each: each[0].last):
                if self._credit > 0:
                    began = self.clock()
                    table.go_on(job, self._applied, self._credit)
                    self._credit -= self.clock() - began

    def _has_caught_up(self, query: Query) -> bool:
        """Return whether the query has all records that the topics had a micro-batch ago."""
        batch, (marked, expected) = running_batch(query.spark), self._mark
        ends = {} if batch is None else end_offsets(query.spark, batch)
        if expected and ends == expected:
            return True
        if not ends or offsets_between(ends, expected):
            return False
        self._applied, now = marked, self.clock()
        try:
            self._mark = now, query.describer.ends(ends.keys())
        except Exception:  # without Kafka, the next micro-batch fails
            return False
        return bool(expected)


@dataclass
class TableVerifier:
    """Compares a table, and keeps how far it is."""

    options: Verify
    clock: Callable[[], float]
    # Each run begins with another table: short runs compare all of them in the end.
    last: float = field(default_factory=lambda: -random())
    _looks: Looks = field(init=False)
    _applied: float = -math.inf
    _cycle: Proof = field(default_factory=Proof)
    _settled: Proof = field(default_factory=Proof)
    _settled_at: float = 0.0
    _is_at_end: bool = False
    _known: set[Key] = field(default_factory=set)
    _without: tuple[str, ...] = ()

    def go_on(self, job: TableJob, applied: float, seconds: float) -> None:
        """Look at keys that differed, and compare chunks for some time; a failure is a warning."""
        pause = self.clock() - self.last
        self._applied, self.last, failed = applied, self.last + pause, ""
        if not self._cycle.at:
            self._begin(job)
        elif pause > self.options.max_lag_seconds:
            self._looks.wait_again()
        try:
            self._compare(job, seconds)
        except BatchOrderError:
            raise
        except Exception as error:  # the rows are written, and the query goes on
            failed = f"{job.table} cannot be compared with its source: {explain_error(error)}"
            log([Notice((failed,), failed)])
        verified, different = job.schema.facts.verified, self._different
        if not self._looks.pending:
            self._settled_at, unsettled = self.clock(), len(self._looks.unsettled)
            self._settled = msgspec.structs.replace(
                self._cycle, different=different, unsettled=self._cycle.unsettled + unsettled
            )
            if self._is_at_end:
                verified, self._settled, self._cycle = self._settled, Proof(), Proof()
                self._known = {*self._looks.proven}
        text = "; ".join(filter(None, [self._described(verified), failed]))
        job.keep_proof(verified, self._settled, max(verified.different, different), text)

    @property
    def _different(self) -> int:
        return self._cycle.different + len(self._looks.proven)

    def _begin(self, job: TableJob) -> None:
        """Begin a cycle, or go on with that of an earlier run."""
        kept = job.schema.facts.verifying
        new = Proof(at=datetime.now(timezone.utc).isoformat(timespec="seconds"))
        self._cycle = self._settled = kept if kept.at else new
        self._settled_at, self._is_at_end = self.clock(), False
        self._looks = Looks(self.options.max_lag_seconds, self.clock, applied=lambda: self._applied)

    def _compare(self, job: TableJob, seconds: float) -> None:
        looks, began, comparison = self._looks, self.clock(), comparison_of_job(job, self.options)
        self._without = comparison.not_compared
        if looks.pending:
            looks.step(comparison.look)
            new = {key: pair for key, pair in looks.proven.items() if key not in self._known}
            self._known.update(new)
            if new:
                shown = [str(comparison.difference(*each)) for each in new.items()][:_MOST_SHOWN]
                more = "" if len(new) <= _MOST_SHOWN else f"; and {len(new) - _MOST_SHOWN} more"
                _log.warning(
                    "%s: %s rows differ from %s at %s: %s%s. `cdc verify --repair` writes the "
                    "source's rows",
                    *(job.table, len(new), comparison.source.name, looks.position),
                    *("; ".join(shown), more),
                )
        # A restart goes on where all keys were settled: now and then, they are waited for.
        while (
            not self._is_at_end
            and len(looks.pending) < MOST_KEYS
            and (not looks.pending or self.clock() - self._settled_at < _UNSETTLED)
        ):
            scan = comparison.chunk(self._cycle.after, self.options.rows)
            looks.add(scan.differing)
            self._is_at_end = scan.upto is None
            self._cycle = msgspec.structs.replace(
                self._cycle,
                position=self._cycle.position or scan.position,
                rows=self._cycle.rows + scan.source_rows,
                # Some keys of the chunk are not looked at again.
                unsettled=self._cycle.unsettled + (not scan.is_complete),
                after=scan.upto,
            )
            if self.clock() - began >= seconds:
                return

    def _described(self, verified: Proof) -> str:
        """Return what was found, and how far the comparison is, for ``cdc status``."""
        now, waiting = self._cycle, len(self._looks.pending)
        last = (
            f"{verified.rows:,} rows through {verified.position} at {verified.at}, "
            f"{verified.different:,} different"
        )
        unknown = f", {verified.unsettled:,} not known" * bool(verified.unsettled)
        later = f", {waiting:,} differ and wait for later records" * bool(waiting)
        going = f"now {now.rows:,} rows since {now.at}, {self._different:,} different{later}"
        return "; ".join(
            [f"{last}{unknown}"] * bool(verified.at)
            + [going] * bool(now.at)
            + [f"not compared: {shown_names(self._without)}"] * bool(self._without)
        )


def comparison_of_job(job: TableJob, options: Verify) -> Comparison:
    """Return how a table is compared with its source, with the columns that both have now.

    Raises
    ------
    ArgumentError, SchemaError, TargetError, CaptureError
    """
    policy, spark = job.policy, job.query.spark
    if policy.shards is not None:
        raise ArgumentError("it has the rows of several source tables")
    read = source_table(spark, options.of(job.table))
    copy = target_table(spark, job.target(job.kept_target_name))
    fields, copied = ({f.name.lower(): f for f in each.schema.fields} for each in (read, copy))
    masks = job.plan(job.schema).format.handling.masks
    masks = masks.of_columns(read.schema.fieldNames(), job.table)
    written = fields.keys() & copied.keys() & {name.lower() for name in job.schema.names}
    hidden = {*policy.select, *(name for name, kind in masks.pairs if kind != HMAC)}
    names = written - {name.lower() for name in hidden}
    for name in sorted(names):
        try:
            compared(read, fields[name], copied[name], masks)
        except SchemaError as error:
            text = f"{job.table} is compared with its source without a column: {error.args[0]}"
            log([Notice((text,), text)])
            names.remove(name)
    exclude = [fields[name].name for name in fields.keys() - names]
    exclude = [name for name in exclude if name not in read.primary_key]
    current = f"{END_AT} IS NULL" if policy.is_history else ""
    comparison = comparison_of(
        spark, read, copy, (), exclude, current, policy.deleted_column or "", masks
    )
    where = policy.where
    if where is None:
        return comparison
    values = as_copied(read.schema.fields, copy.schema.fields, sorted(written))

    def selected(rows: DataFrame) -> DataFrame:
        both = rows.selectExpr(f"struct(*) AS {_SOURCE_ROW}", *values)
        return both.where(where).select(f"{_SOURCE_ROW}.*")

    return replace(comparison, source_where=selected)
