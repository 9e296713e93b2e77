"""`ChangelogNormalize` on DataFrames from other sources than Kafka, and Spark's equality."""

import json
import math
from datetime import timedelta

import pytest

from cdc_formats import columns, to_python
from cdc_formats.errors import ArgumentError, MissingDependencyError
from normalize import ChangelogNormalize
from normalize.spark_versions import installed_version
from tests.support.equal_pairs import PAIRS
from tests.support.streams import run_stream, spell, spelled

DIRTY = [("+I", 1, "a", 10), ("+I", 1, "a", 11), ("-U", 1, "a", 12), ("+U", 1, "b", 12), ("-D", 9, "x", 13), ("-U", 1, "b", 14),
         ("+U", 2, "b", 14), ("-D", 2, None, 15)]  # fmt: skip

CLEAN = ["+I(1,a,10)", "-U(1,a,12)", "+U(1,b,12)", "-D(1,b,14)", "+I(2,b,14)", "-D(2,b,15)"]

DDL = "row_kind STRING, id INT, name STRING, position INT"


def test_changelogs_from_other_sources_accept_where_and_ignored_columns(spark):
    rows = [
        ("+I", 1, "a", 0),
        ("-U", 1, "a", 0),
        ("+U", 1, "a", 1),
        ("+I", 2, "b", 5),
        ("-U", 1, "a", 1),
        ("+U", 1, "c", 1),
    ]
    df = spark.createDataFrame(rows, "row_kind STRING, id INT, name STRING, qty INT").coalesce(1)
    clean = df.transform(
        ChangelogNormalize(primary_key="id", where="name <> 'c'", ignore_columns=["qty"])
    )
    assert sorted(spelled(clean)) == ["+I(1,a,0)", "+I(2,b,5)", "-D(1,a,0)"]
    with pytest.raises(
        ArgumentError,
        match=r"where reads a column of ignore_columns \(qty\).*: remove it from one of them",
    ):
        df.transform(
            ChangelogNormalize(
                primary_key="id", where="name <> 'c' AND qty < 5", ignore_columns=["qty"]
            )
        )


def test_float_keys_of_changelogs_from_other_sources_are_equal_as_in_sparks_sql(spark):
    rows = [
        ("+I", 0.0, math.nan),
        ("+U", -0.0, math.nan),
        ("+I", math.nan, 1.0),
        ("-D", -0.0, None),
        ("-D", math.nan, None),
    ]
    changelog = spark.createDataFrame(rows, "row_kind STRING, id DOUBLE, score DOUBLE").coalesce(1)
    clean = changelog.transform(ChangelogNormalize(primary_key="id"))
    assert sorted(spelled(clean)) == ["+I(0.0,nan)", "+I(nan,1.0)", "-D(0.0,nan)", "-D(nan,1.0)"]


def test_the_equality_of_rows_is_that_of_sparks_sql(spark):
    pairs = [pair for pair in PAIRS if "MAP" not in pair[0]]  # Spark cannot compare maps
    ddl = ", ".join(
        f"a{number} {pair[0]}, b{number} {pair[0]}" for number, pair in enumerate(pairs)
    )
    values = to_python(
        columns(ddl), [value for _, left, right, _ in pairs for value in (left, right)]
    )
    df = spark.createDataFrame([tuple(values)], ddl.replace(": ", " "))
    same = df.selectExpr(*(f"a{number} <=> b{number}" for number in range(len(pairs)))).first()
    assert list(zip(pairs, same, strict=True)) == [(pair, pair[3]) for pair in pairs]


def test_any_changelog_dataframe_is_normalised(spark):
    df = spark.createDataFrame(DIRTY, DDL).coalesce(1)
    clean = df.transform(ChangelogNormalize(primary_key="id", metadata=["position"]))
    assert clean.columns == df.columns
    assert sorted(map(spell, clean.collect())) == sorted(CLEAN)


def test_deletes_of_any_changelog_can_be_ignored(spark):
    df = spark.createDataFrame(DIRTY, DDL).coalesce(1)
    kept = df.transform(ChangelogNormalize("id", metadata="position", ignore_deletes=True))
    # The update of the key leaves the old row, and a row that stops matching is still deleted.
    assert sorted(map(spell, kept.collect())) == sorted(
        ["+I(1,a,10)", "-U(1,a,12)", "+U(1,b,12)", "+I(2,b,14)"]
    )
    matching = df.transform(
        ChangelogNormalize("id", metadata="position", ignore_deletes=True, where="name = 'a'")
    )
    assert sorted(map(spell, matching.collect())) == sorted(["+I(1,a,10)", "-D(1,a,12)"])


@pytest.mark.cross_section
def test_any_changelog_stream_is_normalised(spark, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    names = [column.split()[0] for column in DDL.split(", ")]
    for part, rows in enumerate((DIRTY[:3], DIRTY[3:])):
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
        (source / f"{part}.json").write_text("\n".join(lines))
    stream = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1).json(str(source))
    run = run_stream(
        stream.transform(
            ChangelogNormalize(primary_key=["id"], metadata=["position"], key_groups=3)
        ),
        tmp_path / "c",
    )
    # The file boundary separates a -U from its +U: the -U becomes a delete, and the table stays the
    # same.
    assert sorted(run.changelog) == sorted(
        ["+I(1,a,10)", "-D(1,a,12)", "+I(1,b,12)", "-D(1,b,14)", "+I(2,b,14)", "-D(2,b,15)"]
    )


def test_wrong_arguments_of_changelog_normalize_fail_at_the_call(spark):
    df = spark.createDataFrame(DIRTY, DDL)
    not_of_a_changelog = (
        "does not apply to a DataFrame that is already a changelog: remove it, or pass it to"
    )
    for rows, stage, text in (
        (df.drop("row_kind"), {}, "no column row_kind"),
        (df, {"state_ttl": timedelta(hours=1)}, "a bounded read has no state"),
        (df, {"metadata": ["nope"]}, "metadata has nope"),
        (df, {"primary_key": []}, "requires primary_key"),
        (df, {"order": "source"}, not_of_a_changelog),
        (df, {"source_duplicates": False}, not_of_a_changelog),
    ):
        with pytest.raises(ArgumentError, match=text):
            rows.transform(ChangelogNormalize(**{"primary_key": "id", **stage}))


@pytest.mark.cross_section
@pytest.mark.skipif(installed_version() >= "4.2", reason="Spark 4.2 has the native engine")
def test_the_native_engine_is_refused_on_older_versions(spark):
    stream = spark.readStream.format("rate").load().selectExpr("'+I' AS row_kind", "value AS id")
    with pytest.raises(
        MissingDependencyError,
        match=r"engine='native' requires Spark 4\.2, and this is Spark 4\.[01]",
    ):
        stream.transform(ChangelogNormalize(primary_key="id", engine="native"))
