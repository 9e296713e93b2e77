"""The stage as pure functions: packed blocks and state, compared with the fold of single keys."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from cdc_formats import ABSENT, Change, KeyedChange, RowKind, columns
from cdc_formats.errors import StateVersionError
from cdc_formats.fold import FoldOptions, fold
from cdc_formats.values.equality import row_unifier
from normalize.core.arrow import from_arrow
from normalize.core.changes import Block, Shape, decode_block
from normalize.core.key_group import KeyGroupResult, Stage
from normalize.core.order import RowOrderError
from normalize.core.output import Output
from normalize.core.records import STAGE_COUNTS, Records
from normalize.decode.collectors import Blocks, SortedBlocks, update_before_changer
from normalize.engines.key_groups import fold_pass, normalize
from normalize.monitoring.watch import COLUMN
from normalize.query import ChangelogNormalize
from normalize.stage_options import make_stage
from tests.support.error_texts import error_test
from tests.support.strategies import (
    DDL,
    HISTORIES,
    NAN,
    OTHER_NAN,
    by_key,
    exact,
    fold_history,
    last_rows,
    table_of,
    unified,
)

SHAPE = Shape(columns("id BIGINT, name STRING, qty INT"))
OF_HISTORIES = Shape(columns(DDL))


def stage_of(key_groups: int = 4, shape: Shape = SHAPE, **options) -> Stage:
    of_stage = {
        name: options.pop(name)
        for name in ("streaming", "mode", "expected", "row_order")
        if name in options
    }
    return make_stage(
        ChangelogNormalize(key_groups=key_groups, **options),
        shape,
        ("id",),
        **{"streaming": True, **of_stage},
    )


def records(offsets, stamps, topic="t", partition=0) -> Records:
    return Records(
        topic,
        partition,
        np.array(offsets),
        np.array(stamps),
        [None] * len(offsets),
        [b"raw"] * len(offsets),
        list(stamps),
    )


def keyed(history) -> list[list[KeyedChange]]:
    """One record per change, with the key from a decoder."""
    unify = row_unifier(OF_HISTORIES.columns[:1])
    return [
        [KeyedChange(unify((key,)), row, (), row is not None and ABSENT in row)]
        for key, row in history
    ]


def blocks_of(
    history, stage: Stage, start: int = 0, written_ms: int = 0
) -> list[tuple[int, Block]]:
    """Pack a history, one record per change, like the first pass packs a task's records."""
    changes = keyed(history)
    target = Blocks(Output(stage.shape.columns), stage.layout.key_groups, stage.shape)
    offsets = range(start, start + len(changes))
    if changes:
        target.take(records(offsets, [written_ms + offset for offset in offsets]), changes)
    return flushed(target)


def flushed(target: Blocks) -> list[tuple[int, Block]]:
    return [
        (row["key_group"], decode_block(row["block"]))
        for batch in target.flush()
        for row in batch.to_pylist()
    ]


class Stream:
    """A stream of micro-batches through `normalize`, which keeps the state like Spark.

    The first record has the timestamp `written_ms`.
    """

    def __init__(self, stage: Stage, written_ms: int = 0) -> None:
        self.stage, self.written_ms = stage, written_ms
        self.state: dict[int, bytes] = {}
        self.counts = dict.fromkeys(STAGE_COUNTS, 0)
        self.offset = 0

    def run(self, history, now_ms: int = 0) -> list[tuple[RowKind, tuple]]:
        rows = blocks_of(history, self.stage, self.offset, self.written_ms)
        self.offset += len(history)
        changelog = []
        for group in sorted({row[0] for row in rows}):
            blocks = [block for of, block in rows if of == group]
            result, after = normalize(blocks, self.state.pop(group, None), self.stage, now_ms)
            if after is not None:
                self.state[group] = after
            changelog += unpacked(result, self.stage)
            for name, count in result.counts.items():
                self.counts[name] += count
        return changelog


def unpacked(result: KeyGroupResult, stage: Stage) -> list[tuple[RowKind, tuple]]:
    output = Output(stage.shape.columns)
    return [
        row
        for changelog in result.changelogs
        for row in typed_rows(output.of_stored(changelog), stage)
    ]


def typed_rows(batch, stage: Stage) -> list[tuple[RowKind, tuple]]:
    kinds = map(RowKind.from_short_string, batch.column("row_kind").to_pylist())
    values = [from_arrow(column.type, batch.column(column.name)) for column in stage.shape.columns]
    return list(zip(kinds, zip(*values, strict=True), strict=True))


SPLITS = st.lists(st.integers(0, 40), max_size=5)


def split(history, at):
    cuts = [0, *sorted(min(cut, len(history)) for cut in at), len(history)]
    return [history[start:end] for start, end in pairwise(cuts)]


@given(HISTORIES, SPLITS, st.integers(1, 9))
def test_any_split_and_any_number_of_key_groups_give_the_rows_of_the_fold(
    history, cuts, key_groups
):
    stream = Stream(stage_of(key_groups, OF_HISTORIES))
    changelog = [row for part in split(history, cuts) for row in stream.run(part)]
    assert by_key(changelog) == by_key(fold_history(history))


@given(HISTORIES, SPLITS, st.booleans())
def test_upserts_and_rows_under_a_ttl_are_those_of_the_fold(history, cuts, with_ttl):
    options = FoldOptions(generate_update_before=False, suppress_equal=not with_ttl)
    stream = Stream(
        stage_of(
            3,
            OF_HISTORIES,
            changelog_mode="upsert",
            state_ttl=timedelta(days=1) if with_ttl else None,
        )
    )
    changelog = [row for part in split(history, cuts) for row in stream.run(part)]
    assert by_key(changelog) == by_key(fold_history(history, options))


@given(HISTORIES, SPLITS)
def test_a_difference_only_in_an_ignored_column_is_no_change(history, cuts):
    expected, emitted = [], {}
    for key, row in history:
        before, key = emitted.get(unified(key)), unified(key)
        if (
            row is not None
            and before is not None
            and unified(row[:2] + row[3:]) == unified(before[:2] + before[3:])
        ):
            continue
        output, emitted[key] = fold(before, row, FoldOptions())
        expected += output
    stream = Stream(stage_of(3, shape=Shape(OF_HISTORIES.columns, ignored=(2,))))
    changelog = [row for part in split(history, cuts) for row in stream.run(part)]
    assert by_key(changelog) == by_key(expected)


@given(HISTORIES, SPLITS)
def test_mini_batch_ends_in_the_same_table(history, cuts):
    stream = Stream(stage_of(shape=OF_HISTORIES, mini_batch=True))
    changelog = [row for part in split(history, cuts) for row in stream.run(part)]
    assert table_of(changelog) == last_rows(history)


@given(HISTORIES)
def test_one_mini_batch_emits_each_key_once(history):
    changelog = Stream(stage_of(shape=OF_HISTORIES, mini_batch=True)).run(history)
    assert by_key(changelog, unified) == {
        key: [("+I", row)] for key, row in last_rows(history).items()
    }


@given(
    HISTORIES,
    st.randoms(use_true_random=False),
    st.integers(1, 3),
    st.sampled_from([0, 1_000, 10_000]),
    st.booleans(),
)
def test_the_bounded_engine_gives_the_rows_of_the_fold(
    history, random, partitions, most_held, mini_batch
):
    shape = replace(OF_HISTORIES, offsets=True)
    stage, output = (
        stage_of(shape=shape, mini_batch=mini_batch, streaming=False),
        Output(shape.columns),
    )
    # Each change goes to one of the partitions; its timestamp is the order of writing.
    places, packed = [random.randrange(partitions) for _ in history], []
    for partition in range(partitions):
        target, mine = (
            SortedBlocks(output, 1, shape),
            [index for index, place in enumerate(places) if place == partition],
        )
        while mine:
            part, mine = mine[:3], mine[3:]
            target.take(
                records(part, part, partition=partition), keyed([history[at] for at in part])
            )
            packed += target.flush() if random.random() < 0.3 else []
        packed += target.flush()
    table = pa.Table.from_batches(packed, SortedBlocks.schema)
    batches = table.sort_by(
        [(name, "ascending") for name in ("key_group", "stamp", "source", "offset", "seq")]
    ).to_batches(max_chunksize=2)
    passed = fold_pass(iter(batches), stage=stage, output=output, most_held=most_held)
    typed = [batch.filter(batch.column(COLUMN).is_null()) for batch in passed]
    changelog = [row for batch in typed for row in typed_rows(batch, stage)]
    if mini_batch:
        assert table_of(changelog) == last_rows(history)
    else:
        assert by_key(changelog) == by_key(fold_history(history))


@given(HISTORIES, st.randoms(use_true_random=False), SPLITS)
def test_records_with_offsets_in_any_order_give_the_rows_of_the_fold(history, random, cuts):
    # A block's offsets have gaps, and other blocks have the records in the gaps.
    shape = replace(OF_HISTORIES, offsets=True)
    stage = stage_of(1, shape, row_order="offset")
    offsets = list(range(len(history)))
    random.shuffle(offsets)
    target, blocks = Blocks(Output(shape.columns), 1, shape), []
    for part in filter(None, split(offsets, cuts)):
        target.take(records(part, part), keyed([history[offset] for offset in part]))
        blocks += [block for _, block in flushed(target)]
    normalized, _ = normalize(blocks, None, stage, 0)
    assert exact(unpacked(normalized, stage)) == exact(fold_history(history))


@given(HISTORIES, st.randoms(use_true_random=False), SPLITS)
def test_bounded_records_without_offsets_are_in_the_order_of_their_timestamps(
    history, random, cuts
):
    shape = replace(OF_HISTORIES, offsets=True)
    stage, stamps = stage_of(1, shape, row_order="row"), list(range(len(history)))
    random.shuffle(stamps)
    target, blocks, start = SortedBlocks(Output(shape.columns), 1, shape), [], 0
    for part in filter(None, split(stamps, cuts)):
        target.take(
            records(range(start, start + len(part)), part, partition=start % 2),
            keyed([history[stamp] for stamp in part]),
        )
        start += len(part)
        blocks += [block for _, block in flushed(target)]
    result, _ = normalize(blocks, None, stage, 0)
    assert exact(unpacked(result, stage)) == exact(fold_history(history))


def test_bounded_records_of_a_key_with_one_timestamp_must_be_equal():
    shape = replace(SHAPE, offsets=True)
    stage, target = (
        stage_of(1, shape, row_order="row"),
        SortedBlocks(Output(shape.columns), 1, shape),
    )
    first, again, other = ([KeyedChange((1,), (1, name, 0))] for name in ("a", "a", "b"))
    target.take(records([0, 1], [5, 5]), [first, again])
    blocks = [block for _, block in flushed(target)]
    assert unpacked(normalize(blocks, None, stage, 0)[0], stage) == [(RowKind.INSERT, (1, "a", 0))]
    target.take(records([2], [5]), [other])
    with pytest.raises(RowOrderError, match="the same timestamp, or none"):
        normalize([*blocks, *(block for _, block in flushed(target))], None, stage, 0)


@pytest.mark.parametrize(
    ("row_order", "text"),
    [("row", "the same timestamp, or none"), ("offset", "two Kafka partitions")],
)
def test_a_key_in_two_partitions_without_timestamps_is_an_error(row_order, text):
    shape = replace(OF_HISTORIES, offsets=row_order == "offset")
    stage, target, blocks = (
        stage_of(1, shape, row_order=row_order),
        Blocks(Output(shape.columns), 1, shape),
        [],
    )
    for partition, key in ((0, 1), (1, 2), (2, 1)):
        target.take(records([0], [0], partition=partition), keyed([(key, None)]))
        blocks += [block for _, block in flushed(target)]
    normalize(blocks[:2], None, stage, 0)
    with pytest.raises(RowOrderError, match=text):
        normalize(blocks, None, stage, 0)


@given(HISTORIES, st.randoms(use_true_random=False))
def test_blocks_in_any_order_and_partitions_merged_by_time_give_the_order_of_writing(
    history, random
):
    # Each change goes to one of three partitions; its timestamp is the order of writing.
    stage = stage_of(1, OF_HISTORIES)
    places = [random.randrange(3) for _ in history]
    blocks = []
    for partition in range(3):
        mine = [index for index, place in enumerate(places) if place == partition]
        cut = random.randrange(len(mine) + 1)
        for part in (range(cut), range(cut, len(mine))):
            target = Blocks(Output(OF_HISTORIES.columns), 1, OF_HISTORIES)
            if part:
                target.take(
                    records(part, [mine[at] for at in part], partition=partition),
                    keyed([history[mine[at]] for at in part]),
                )
            blocks += [block for _, block in flushed(target)]
    random.shuffle(blocks)
    result, _ = normalize(blocks, None, stage, 0)
    assert exact(unpacked(result, stage)) == exact(fold_history(history))


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [(NAN, OTHER_NAN, ["+U"]), (0.0, -0.0, ["+U"]), (NAN, 0.0, ["-D", "+U"])],
)
def test_upserts_without_a_stage_delete_a_key_only_if_it_changed(before, after, kinds):
    drop = update_before_changer(columns("id DOUBLE"), ["id"], drop=True, ignore_deletes=False)
    kept = drop([Change(RowKind.UPDATE_BEFORE, (before,)), Change(RowKind.UPDATE_AFTER, (after,))])
    assert [change.kind.short_string for change in kept] == kinds


def test_state_is_written_only_for_changes_and_removed_without_keys():
    stream = Stream(stage_of(1))
    stream.run([(1, (1, "a", 0))])
    before = stream.state[0]
    stream.run([(1, (1, "a", 0)), (2, None)])
    assert stream.state[0] is before
    counts = (stream.counts["SUPPRESSED_EQUAL"], stream.counts["DELETES_OF_UNKNOWN_KEYS"])
    assert counts == (1, 1)
    stream.run([(1, None)])
    assert stream.state == {}


DAY_MS, NOW_MS = 86_400_000, 1_700_000_000_000
IN_DAYS = [(0, ["+I"]), (30, ["-U", "+U"]), (61, ["+I"])]


@pytest.mark.parametrize(
    ("ttl", "written_ms", "runs", "expired"),
    [
        # The last write was at 90: at 180 the row is in the state, at 300 it has expired and the
        # next row is an insert.
        pytest.param(
            timedelta(milliseconds=100),
            0,
            [(0, ["+I"]), (90, ["-U", "+U"]), (180, ["-U", "+U"]), (300, ["+I"]), (500, None)],
            2,
            id="rows that were not written are removed, and no change is suppressed",
        ),
        *(
            pytest.param(
                timedelta(days=30),
                NOW_MS + years * 365 * DAY_MS,
                [(days * DAY_MS, kinds) for days, kinds in IN_DAYS],
                1,
                id=f"records of {years} years later",
            )
            for years in (-10, 0, 10)
        ),
    ],
)
def test_a_ttl_counts_from_the_write_to_the_state(ttl, written_ms, runs, expired):
    stream = Stream(stage_of(1, state_ttl=ttl), written_ms)
    for after_ms, kinds in runs:
        row = None if kinds is None else (1, "a", 0)
        changelog = stream.run([(1, row)], NOW_MS + after_ms)
        assert [kind.short_string for kind, _ in changelog] == (kinds or [])
    assert stream.counts["EXPIRED"] == expired


@pytest.mark.parametrize(
    ("mini_batch", "histories"),
    [
        pytest.param(False, [[(1, (1, "toast", 5))], [(1, (1, ABSENT, 6))]], id="from the state"),
        *(
            pytest.param(
                mini_batch,
                [[(1, (1, "toast", 5)), (1, (1, ABSENT, 7)), (1, (1, ABSENT, 6))]],
                id=f"from the micro-batch, mini_batch={mini_batch}",
            )
            for mini_batch in (False, True)
        ),
    ],
)
def test_a_partial_row_is_completed(mini_batch, histories):
    stream = Stream(stage_of(1, mini_batch=mini_batch))
    changelog = [row for history in histories for row in stream.run(history)]
    assert table_of(changelog) == {1: (1, "toast", 6)}


def test_a_partial_row_of_an_unknown_key_is_dropped_and_counted_or_kept_as_corrupt():
    dropping = Stream(stage_of(1, mode="DROPMALFORMED"))
    assert dropping.run([(1, (1, ABSENT, 6))]) == []
    assert dropping.counts["PARTIAL_IMAGE"] == 1
    stage = stage_of(1, mode="PERMISSIVE")
    result, _ = normalize(
        [block for _, block in blocks_of([(1, (1, ABSENT, 6))], stage)], None, stage, 0
    )
    (side_output,) = result.side_outputs
    assert side_output.column == "_corrupt_record"
    assert side_output.value[0].startswith("[PARTIAL_IMAGE]")
    assert side_output.value[1:] == ["t", 0, 0, None, b"raw"]


def test_another_number_of_key_groups_is_refused():
    stream = Stream(stage_of(4))
    stream.run([(1, (1, "a", 0))])
    (group,) = stream.state
    with pytest.raises(StateVersionError, match="set key_groups=4"):
        normalize([], stream.state[group], stage_of(8), 0)


test_error_texts = error_test(
    __file__,
    {
        "a partial row of an unknown key is an error with offset and solution": lambda: Stream(
            stage_of(1)
        ).run([(1, (1, ABSENT, 6))]),
    },
)
