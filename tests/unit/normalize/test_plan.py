"""The planner's rule, compared with Flink 2.2's EXPLAIN CHANGELOG_MODE, and its explanation."""

import pytest

from cdc_formats import ChangelogMode, get_format
from cdc_formats.errors import ArgumentError
from cdc_formats.events import RowKind
from normalize.api import explain_changelog
from normalize.query import ChangelogNormalize
from normalize.stage_options import make_plan

UPSERT = get_format("upsert-kafka").changelog_mode
CHANGELOG = ChangelogMode.all()


# (source, source_duplicates, consumer) -> ChangelogNormalize in the plan, whether it emits -U,
# DropUpdateBefore without it. Flink: ups / dbz_pk with the flag off and on, into a retract sink
# ("all") and an upsert sink of the same key ("upsert").
@pytest.mark.parametrize(
    ("source", "duplicates", "consumer", "normalize", "makes_before", "drops_before"),
    [
        pytest.param(UPSERT, False, "all", True, True, False, id="ups, off, retract sink"),
        pytest.param(UPSERT, True, "all", True, True, False, id="ups, on, retract sink"),
        pytest.param(UPSERT, False, "upsert", False, False, False, id="ups, off, upsert sink"),
        pytest.param(UPSERT, True, "upsert", True, False, False, id="ups, on, upsert sink"),
        pytest.param(CHANGELOG, False, "all", False, False, False, id="dbz_pk, off, retract sink"),
        pytest.param(CHANGELOG, True, "all", True, True, False, id="dbz_pk, on, retract sink"),
        pytest.param(CHANGELOG, False, "upsert", False, False, True, id="dbz_pk, off, upsert sink"),
        pytest.param(CHANGELOG, True, "upsert", True, False, False, id="dbz_pk, on, upsert sink"),
        pytest.param(
            ChangelogMode.insert_only(),
            True,
            "all",
            False,
            False,
            False,
            id="append-only, on, retract sink",
        ),
    ],
)
def test_the_stage_is_placed_like_in_flinks_plans(
    source, duplicates, consumer, normalize, makes_before, drops_before
):
    plan = make_plan(source, ["id"], consumer, duplicates)
    adds_before = plan.normalize and plan.mode.contains(RowKind.UPDATE_BEFORE)
    assert (plan.normalize, adds_before, plan.drop_update_before) == (
        normalize,
        makes_before,
        drops_before,
    )
    assert plan.reason


@pytest.mark.parametrize(
    ("source", "duplicates", "consumer", "text"),
    [
        pytest.param(CHANGELOG, True, "all", "set normalize=False", id="dbz_nopk, on"),
        pytest.param(UPSERT, False, "all", "requires primary_key", id="upserts without a key"),
        pytest.param(
            CHANGELOG, False, "upsert", "only the key identifies", id="dbz_nopk into upserts"
        ),
    ],
)
def test_a_missing_primary_key_is_refused_if_required(source, duplicates, consumer, text):
    with pytest.raises(ArgumentError, match=text):
        make_plan(source, [], consumer, duplicates)


def test_a_changelog_without_a_key_passes_if_no_duplicates_are_removed():
    assert not make_plan(CHANGELOG, [], "all", False).normalize


STAGE = ChangelogNormalize(order="source", where="qty > 1")


def test_the_plan_explains_its_options():
    text = explain_changelog("a", format="maxwell-json", primary_key="id", normalize=STAGE)
    condition, normalize, exchange, drop = text.splitlines()[:4]
    assert "at or before their key's position" in normalize
    assert condition.startswith("Filter(qty > 1, changelogMode=[+I, -U, +U, -D]): ")
    assert exchange.endswith("changelogMode=[+I, +U, -D])")
    assert "DropUpdateBefore" in drop


def test_the_plan_explains_itself():
    text = explain_changelog(
        ["a", "b"],
        format="upsert-kafka",
        primary_key=["id"],
        normalize=ChangelogNormalize(source_duplicates=False, key_groups=8),
    )
    lines = text.splitlines()
    assert lines.pop(2).startswith(
        "   +- Decode(format=[upsert-kafka], changelogMode=[+U, ~D]): by "
    )
    assert lines == [
        "ChangelogNormalize(key=[id], changelogMode=[+I, -U, +U, -D]): the consumer needs -U, and "
        "the source has none (changelog_mode='all'); the state contains each key's row, changes "
        "apply in the order of arrival",
        "+- Exchange(hash[key group of id], key_groups=8, changelogMode=[+U, ~D])",
        "      +- Kafka(a,b)",
        "engine='native' is not possible: it refuses key_groups=8: its state has a row for each key",
    ]
    assert "DropUpdateBefore" in explain_changelog(
        "a",
        format="canal-json",
        primary_key="id",
        normalize=ChangelogNormalize(source_duplicates=False),
        changelog_mode="upsert",
    )


def test_the_plan_says_whether_the_native_engine_could_serve():
    def last_line(**options) -> str:
        return explain_changelog(
            "a", format="debezium-json", primary_key="id", normalize=ChangelogNormalize(**options)
        ).splitlines()[-1]

    assert last_line().startswith(
        "engine='native' is possible: on Spark 4.2, in output mode update, for rows with all "
        "columns"
    )
    refused = last_line(order="source", mini_batch=True)
    assert refused.startswith(
        "engine='native' is not possible: it refuses order='source': its state has no positions"
    )
    assert "; mini_batch=True: it always keeps" in refused
    assert last_line(engine="native").startswith("engine='native': write in output mode update")
    plan = explain_changelog(
        "a", format="debezium-json", primary_key="id", normalize=ChangelogNormalize(engine="native")
    )
    assert "the newest two rows of each key" in plan
    assert "Exchange(hash[id], changelogMode=[+I, +U, -D])" in plan
    assert not explain_changelog("a", format="debezium-json", normalize=False).count("native")
