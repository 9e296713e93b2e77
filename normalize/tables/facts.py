"""Facts about the query and its tables that must stay as they are, and the checks of them.

======================  ============  ==============================================================
fact                    kept in       what a micro-batch that contradicts it would do
======================  ============  ==============================================================
the table's target      its file      write the rows of two tables into one, or of one into two
the keys that records   its file      merge rows that a wider primary key distinguishes
of the table name
the masks of its        its file      write values of two masks, or of two keys of one, into a column
columns
the topics of its       its file      (they tell whose record one is that cannot be read)
records
the column of its rows' its file      drop a change that is newer than its row as a redelivery
positions
options that decide     its file      keep rows that another condition would have deleted, show deleted
which rows it has                     rows as present, or merge the rows of two shards
how it is compared      its file      (it tells through which position of the source its rows
with its source                        are right)
the columns of its      its file      add a renamed column again, with NULL in the rows that do not
target                                change
the ids of the query's  `query_file`  skip the records of a topic that was created again
topics
the state of the guard  its file      merge the rows of two tables by key, or let an older change of
                                      a key win that moved to an added partition
======================  ============  ==============================================================

All functions here are pure. `query_file` is that of `SchemaStore`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from cdc_formats.errors import refuse
from cdc_formats.topics.client import TopicDescription
from cdc_formats.values.schema import columns as to_columns
from normalize.core.guard import (
    Expected,
    PartitionSummary,
    changed_mask,
    check,
    require_same_topic,
)
from normalize.core.state import Layout

from .table_options import SyncError


class GuardFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The state of `normalize.core.guard`, before and after the last micro-batch that changed it.

    A micro-batch that is repeated is compared with the state before it.

    Attributes
    ----------
    query : str
        The query's id: another checkpoint reads other records.
    batch : int
        The micro-batch's number.
    before, after : bytes
        Empty if nothing was known.
    """

    query: str = ""
    batch: int = -1
    before: bytes = b""
    after: bytes = b""


class Proof(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How far a table is compared with its source table.

    Attributes
    ----------
    at : str
        When the first rows were read, in UTC; empty if none were.
    position : str
        The source's position at that time.
    rows : int
        The rows of the source that were read.
    different : int
        The keys whose rows differ.
    unsettled : int
        The keys whose rows differed, and that changed too often to know more.
    after : tuple of str or None
        The last key that is compared, with all before it.
    """

    at: str = ""
    position: str = ""
    rows: int = 0
    different: int = 0
    unsettled: int = 0
    after: tuple[str | None, ...] | None = None


class TableFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept about a table.

    Attributes
    ----------
    target : str
        The name of its target; empty in a file of an earlier release.
    source_keys : tuple of tuple of str
        The columns of the source's primary key, in each form that records named; empty if none
        named it.
    topics : tuple of str
        The topics of its records.
    guard : GuardFacts
    masks : dict of str to str
        The masks of its columns (`values.masks.Masks.facts`).
    written : bool
        Whether rows were written into its target, which must exist from then on.
    position_column : str
        The column with positions in the rows of its target; empty if there was none.
    options : dict of str to str
        Its options ``where``, ``deleted_column`` and ``shard_column``, empty if they are not set.
        A file of an earlier release has none.
    columns : tuple of str
        The columns of its target that the query wrote last, which are not added again.
    verified, verifying : Proof
        How all its rows were compared with the source last, and how far the comparison is that is
        going on.
    """

    target: str = ""
    source_keys: tuple[tuple[str, ...], ...] = ()
    topics: tuple[str, ...] = ()
    guard: GuardFacts = GuardFacts()
    masks: dict[str, str] = {}
    written: bool = False
    position_column: str = ""
    options: dict[str, str] = {}
    columns: tuple[str, ...] = ()
    verified: Proof = Proof()
    verifying: Proof = Proof()


class QueryFacts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept about a query.

    Attributes
    ----------
    query : str
        The query's id, which its checkpoint has: another checkpoint has other offsets.
    topics : dict of str to str
        The ids of its topics.
    address : str
        Where its table or its database is; empty in a file of an earlier release.
    """

    query: str = ""
    topics: dict[str, str] = {}
    address: str = ""


def checked_facts(
    kept: TableFacts,
    seen: TableFacts,
    primary_key: Sequence[str],
    *,
    user_key: bool,
    file: str,
    columns: Sequence[str] = (),
) -> TableFacts:
    """Return the facts about a table after a micro-batch.

    Parameters
    ----------
    kept : TableFacts
    seen : TableFacts
        What a micro-batch shows.
    primary_key : sequence of str
        The key by which the table's rows are merged.
    user_key : bool
        Whether the user passed it.
    file : str
        The table's file, for errors.
    columns : sequence of str
        The table's columns, whose masks are compared.

    Raises
    ------
    SyncError
        When the micro-batch contradicts a fact.
    """
    # Without a target, the file is new.
    changed = changed_mask(kept.masks, seen.masks, columns) if kept.target else None
    refuse(
        (
            kept.target and kept.target != seen.target,
            f"its rows are in the target {kept.target!r}, and its target is now {seen.target!r}: "
            "pass its earlier name (sync_database: in tables=), or rename the target, and write its "
            f"name into {file}",
        ),
        (
            changed,
            f"{changed} when the rows in its target were written: set it back; or delete its file "
            f"{file} and its target, and read its topics again",
        ),
        error=SyncError,
    )
    require_same_options(kept, seen, file)
    earlier = set(map(_folded, kept.source_keys))
    other = sorted({names for names in seen.source_keys if _folded(names) not in earlier})
    was = " or ".join(map(_shown, kept.source_keys)) or _shown(primary_key)
    refuse(
        *(
            (
                # A key that is part of the table's key distinguishes no more rows than it.
                earlier or not (user_key or _folded(names) <= _folded(primary_key)),
                f"the primary key of its source was {was}, and its records now name "
                f"{_shown(names)}: different rows would become one, or old rows would stay. Delete "
                f"its file and its target, and read its topics again; or, if {_shown(primary_key)} "
                f"still identifies its rows, add {list(names)!r} to source_keys in {file}",
            )
            for names in other
        ),
        error=SyncError,
    )
    return replace(
        kept,
        target=seen.target,
        source_keys=kept.source_keys or tuple(other),
        topics=tuple(sorted({*kept.topics, *seen.topics})),
        masks=seen.masks,
        position_column=seen.position_column or kept.position_column,
        options=seen.options,
    )


def require_same_options(kept: TableFacts, seen: TableFacts, file: str) -> None:
    """Raise an error for options with which the rows that the target has would be other ones.

    A column of soft deletes, of positions or of shards can be added to a table that had none.

    Parameters
    ----------
    kept, seen : TableFacts
        Their `position_column` and `options` are compared.
    file : str
        The table's file.

    Raises
    ------
    SyncError
    """
    positions, position = kept.position_column, seen.position_column
    refuse(
        (
            positions and position and positions != position,
            f"position_column is {position!r}, and its rows have their positions in {positions!r}: "
            f"set it back, or rename the column of the target, and position_column in {file}",
        ),
        *(
            (
                value != seen.options.get(name, "") and (value or name == "where"),
                f"{name} is {seen.options.get(name) or None!r}, and was {value or None!r} when the "
                f"rows in its target were written: set it back; or delete its file {file} and its "
                "target, and read its topics again",
            )
            for name, value in kept.options.items()
        ),
        error=SyncError,
    )


def checked_guard(
    kept: GuardFacts,
    seen: Sequence[PartitionSummary],
    expected: Expected,
    *,
    query: str,
    batch: int,
) -> GuardFacts:
    """Return the guard's facts after a micro-batch.

    Parameters
    ----------
    kept : GuardFacts
    seen : sequence of PartitionSummary
        What the micro-batch shows of each Kafka partition.
    expected : Expected
    query : str
        The query's id; empty for records that no query reads.
    batch : int
        The micro-batch's number.

    Raises
    ------
    SeveralTablesError, TopicReplacedError, PartitionsAddedError
        When the micro-batch contradicts a fact.
    """
    of_query = kept if kept.query == query else GuardFacts()
    before = of_query.before if batch <= of_query.batch else of_query.after
    after = check(before or None, seen, _LAYOUT, expected, 0)
    return (
        kept
        if after == kept.after and query == kept.query and batch != kept.batch
        else GuardFacts(query, batch, before, after)
    )


_LAYOUT = Layout(1, to_columns("key BINARY"), ("key",))
"""The guard compares layouts of state, of which there is none here."""


def _folded(names: Iterable[str]) -> frozenset[str]:
    # Maxwell writes the names of a key in lower case.
    return frozenset(name.lower() for name in names)


def _shown(names: Iterable[str]) -> str:
    return f"({', '.join(names)})"


def same_target(table: str, targets: Mapping[str, str], owners: Collection[str]) -> list[str]:
    """Return the other tables that have a table's target, ignoring case.

    Parameters
    ----------
    table : str
    targets : mapping
        The name of each table's target.
    owners : collection of str
        The tables that have rows in their target: a table without rows in it does not stop them.

    Examples
    --------
    >>> targets = {"shop1.orders": "orders", "shop2.orders": "Orders"}
    >>> [same_target(table, targets, ["shop1.orders"]) for table in targets]
    [[], ['shop1.orders']]
    """
    names = [
        name
        for name, target in targets.items()
        if name != table and target.lower() == targets[table].lower()
    ]
    return sorted(name for name in names if table not in owners or name in owners)


def checked_topics(
    kept: QueryFacts, query: str, described: Mapping[str, TopicDescription], address: str
) -> QueryFacts:
    """Return the facts about a query after Kafka described its topics.

    Parameters
    ----------
    kept : QueryFacts
    query : str
        The query's id.
    described : mapping
        Kafka's description of topics.
    address : str
        Where the query's table or database is.

    Raises
    ------
    TopicReplacedError
        When a topic was deleted and created again.
    """
    ids = dict(kept.topics) if kept.query == query else {}
    for name, topic in described.items():
        require_same_topic(name, ids.get(name, ""), topic.topic_id)
        ids[name] = ids.get(name) or topic.topic_id
    return replace(kept, query=query, topics=ids, address=address)


def require_same_address(kept: QueryFacts, address: str, file: str) -> None:
    """Raise an error for a query whose table or database is another one than in earlier runs.

    Parameters
    ----------
    kept : QueryFacts
    address : str
        Where the table or the database is now.
    file : str
        The query's file, for the error.

    Raises
    ------
    SyncError
    """
    if kept.address and kept.address != address:
        raise SyncError(
            f"the rows of this query are in {kept.address}, and its target is now {address}, which "
            "would have only the rows from now on: pass the earlier target. To fill another one, "
            "use a new schema_location and a new checkpoint. If you moved the tables, write the new "
            f"address into {file}"
        )


def tables_of_topic(topic: str, tables: Mapping[str, Collection[str]]) -> list[str]:
    """Return the tables that have records in a topic; the topic's own name if there are none.

    Parameters
    ----------
    topic : str
    tables : mapping
        The topics of each table.
    """
    return sorted(table for table, topics in tables.items() if topic in topics) or [topic]
