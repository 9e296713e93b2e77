"""delta-rs on tables without Spark: which it writes, what it records, and what it says of errors."""

import json
import time
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import boto3
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from moto.server import ThreadedMotoServer

from cdc_formats.errors import ArgumentError
from normalize import DeltaTarget
from normalize.spark.memory import memory_left
from normalize.tables.latest import check_rows, last_rows
from normalize.tables.maintenance import maintained
from normalize.tables.merge import merge_plan
from normalize.tables.table_options import Maintenance
from normalize.tables.targets import ConflictError, RefusedError, TargetError
from normalize.tables.writers import delta_rs
from tests.support.error_texts import error_test
from tests.support.sinking import random_changelog

PLAN = merge_plan(["id", "name"], ["id"])
COLUMNS = pa.schema([("id", pa.int64()), ("name", pa.string())])


def table(folder: Path, **protocol: Any) -> DeltaTable:
    """A new table, whose protocol and properties are those of another one."""
    path = str(folder / "table")
    DeltaTable.create(path, COLUMNS, configuration=protocol.pop("configuration", None))
    if protocol:
        first = folder / "table" / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in first.read_text("utf-8").splitlines()]
        changed = [{"protocol": protocol} if "protocol" in each else each for each in actions]
        first.write_text("\n".join(map(json.dumps, changed)), "utf-8")
    return delta_rs.open_table(path, {})


def changes(*rows: tuple[str, int, str | None]) -> pa.Table:
    kinds, keys, names = zip(*rows, strict=True)
    return pa.table(
        {"row_kind": kinds, "id": pa.array(keys, pa.int64()), "name": pa.array(names, pa.string())}
    )


def rows(of: DeltaTable) -> list[tuple[int, str]]:
    return sorted(tuple(row.values()) for row in pa.table(of.to_pyarrow_table()).to_pylist())


def test_an_untested_version_is_a_warning_at_the_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delta_rs, "version", lambda name: "1.7.0")
    delta_rs.not_installed.cache_clear()
    try:
        with pytest.warns(UserWarning, match="the package deltalake is 1.7.0, and tested") as shown:
            {DeltaTarget("/lake/orders"), DeltaTarget("/lake/items")}
    finally:
        delta_rs.not_installed.cache_clear()
    assert [each.filename for each in shown] == [__file__]


def with_feature(folder: Path, feature: str) -> DeltaTable:
    of_readers = [feature] if feature in ("typeWidening", "v2Checkpoint", "variantType") else []
    features = {"readerFeatures": of_readers, "writerFeatures": ["invariants", feature]}
    return table(folder, minReaderVersion=3, minWriterVersion=7, **features)


def partitioned_by(folder: Path, kind: pa.DataType) -> DeltaTable:
    schema = pa.schema([COLUMNS[0], ("name", kind)])
    return DeltaTable.create(str(folder), schema, partition_by="name")


OF_OTHER_TEXT = "it is partitioned by name, whose type is"
TABLES: dict[str, tuple[Callable[[Path], DeltaTable], str]] = {
    "a plain one": (table, ""),
    "append-only": (
        partial(table, configuration={"delta.appendOnly": "true"}),
        "it is append-only",
    ),
    "partitioned by a decimal": (
        partial(partitioned_by, kind=pa.decimal128(10, 2)),
        f"{OF_OTHER_TEXT} decimal(10,2)",
    ),
    "partitioned by a timestamp": (
        partial(partitioned_by, kind=pa.timestamp("us", "UTC")),
        f"{OF_OTHER_TEXT} timestamp",
    ),
    "partitioned by a date": (partial(partitioned_by, kind=pa.date32()), ""),
    **{
        feature: (partial(with_feature, feature=feature), f"it has the feature {feature}")
        for feature in (
            *("rowTracking", "domainMetadata", "clustering", "typeWidening", "v2Checkpoint"),
            *("inCommitTimestamp", "identityColumns", "allowColumnDefaults", "generatedColumns"),
            *("variantType", "a feature of next year"),
        )
    },
}


@pytest.mark.parametrize(("create", "reason"), TABLES.values(), ids=TABLES)
def test_a_table_of_which_no_test_proves_all_is_left_to_spark(
    tmp_path: Path, create: Callable[[Path], DeltaTable], reason: str
) -> None:
    assert next(delta_rs.unsupported(create(tmp_path)), "") == reason


def test_a_commit_records_its_transaction_and_a_later_one_of_the_same_fails(tmp_path: Path) -> None:
    of = table(tmp_path)
    delta_rs.merge(of, PLAN, changes(("+I", 1, "a"), ("-D", 2, None)), ("q", 7))
    frozen = delta_rs.open_table(of.table_uri, {})
    assert (rows(frozen), frozen.transaction_version("q")) == ([(1, "a")], 7)
    newer = delta_rs.open_table(of.table_uri, {})
    delta_rs.merge(newer, PLAN, changes(("+I", 2, "b")), ("q", 8))
    # It has read 7, and other keys: only the transaction shows that another driver wrote.
    with pytest.raises(ConflictError):
        delta_rs.merge(frozen, PLAN, changes(("+I", 3, "c")), ("q", 8))
    now = delta_rs.open_table(of.table_uri, {})
    assert rows(now) == [(1, "a"), (2, "b")]
    # Without changes there is no commit, and so no record.
    delta_rs.merge(now, PLAN, changes(("-D", 9, None)), ("q", 9))
    assert delta_rs.open_table(of.table_uri, {}).transaction_version("q") == 8


def test_only_files_that_may_have_the_keys_are_rewritten(tmp_path: Path) -> None:
    of = table(tmp_path)
    for first in (1, 100):
        delta_rs.merge(of, PLAN, changes(("+I", first, "a"), ("+I", first + 9, "b")), None)

    def size(*keys: int, most: int = 0) -> int:
        files = delta_rs.touched_files(of, "id", lambda: pa.chunked_array([keys]), most)
        return sum(files.column("size_bytes").to_pylist())

    assert 0 == size(50) < size(5, 11) < size(5, 105) == size(50, most=10_000)


def bounds(of: DeltaTable) -> dict[str, Any]:
    """The greatest values in the log's statistics, as they are written there."""
    for path in sorted(Path(of.table_uri.removeprefix("file://")).rglob("*.json"), reverse=True):
        for line in path.read_text("utf-8").splitlines():
            if add := json.loads(line).get("add"):
                maximum: dict[str, Any] = json.loads(add["stats"], parse_float=Decimal)["maxValues"]
                return maximum
    return {}


def test_statistics_are_written_only_where_they_are_right(tmp_path: Path) -> None:
    random = Random(7)
    kinds = {"small": pa.decimal128(15, 4), "large": pa.decimal128(16, 4), "float": pa.float64()}
    nested = pa.struct({"large": pa.decimal128(20, 0), "small": pa.int64()})
    columns = {**kinds, "a.b": pa.string(), "a": pa.struct({"b": pa.decimal128(20, 0)})}
    schema = pa.schema([("id", pa.int64()), *columns.items(), ("nested", nested)])
    for number in range(30):
        path = str(tmp_path / str(number))
        value = Decimal(random.randrange(-(10 ** random.randrange(1, 16)), 10**15)).scaleb(-4)
        row = {"id": 1, "small": value, "large": value, "float": float("nan"), "a.b": "x" * 70}
        row |= {"a": {"b": Decimal(2**63)}, "nested": {"large": Decimal(2**63), "small": 1}}
        of, plan = DeltaTable.create(path, schema), merge_plan(schema.names, ["id"])
        one = pa.Table.from_pylist(
            [{"row_kind": "+I", **row}], pa.schema([("row_kind", pa.string()), *schema])
        )
        delta_rs.merge(of, plan, one, None)
        found = bounds(of)
        assert (set(found), Decimal(found["small"])) == ({"id", "small", "a.b"}, value)
        assert found["a.b"] >= row["a.b"]
        assert delta_rs.wrong_statistics(of, {}) == {}


@pytest.mark.parametrize(
    ("kind", "value", "wrong"),
    [
        (pa.decimal128(20, 0), "12345678901234567891", True),
        (pa.decimal128(19, 0), "1234567890123456789", True),
        (pa.decimal128(19, 0), "1000000000000000001", True),
        (pa.decimal128(30, 3), "12345678901234567.891", True),
        (pa.decimal128(17, 2), "123456789012345.67", True),
        (pa.decimal128(17, 2), "0.25", False),
        (pa.decimal128(20, 0), "-4503599627370496", False),
        (pa.decimal128(15, 2), "1234567890123.45", False),
    ],
)
def test_wrong_statistics_that_delta_rs_has_written_are_found(
    tmp_path: Path, kind: pa.DataType, value: str, wrong: bool
) -> None:
    path, number = str(tmp_path / "table"), pa.array([Decimal(value), None], kind)
    write_deltalake(
        path,
        pa.table(
            {
                "id": number,
                "in": pa.array([{"x": None}, {"x": Decimal(value)}], pa.struct({"x": kind})),
            }
        ),
    )
    found = delta_rs.wrong_statistics(delta_rs.open_table(path, {}), {})
    assert found == ({"id": 1, "in.x": 1} if wrong else {})


def test_a_file_with_an_int96_timestamp_at_any_depth_is_found(tmp_path: Path) -> None:
    instant = pa.timestamp("us", "UTC")
    kinds = {"plain": instant, "in": pa.struct({"a.b": instant}), "list": pa.list_(instant)}
    for name, kind in {**kinds, "map": pa.map_(pa.string(), instant), "no": instant}.items():
        path = tmp_path / name
        DeltaTable.create(str(path), pa.schema([("id", pa.int64()), (name, kind)]))
        rows = pa.table({"id": [1], name: pa.nulls(1, kind)})
        # Without Arrow's schema in the footer, which would hide the type.
        options: Any = {"use_deprecated_int96_timestamps": name != "no", "store_schema": False}
        pq.write_table(rows, path / "a b.parquet", **options)
        add = {
            "path": "a%20b.parquet",
            "partitionValues": {},
            "modificationTime": 0,
            "dataChange": True,
        }
        add["size"] = (path / "a b.parquet").stat().st_size
        (path / "_delta_log" / f"{1:020}.json").write_text(json.dumps({"add": add}), "utf-8")
        of, known = delta_rs.open_table(str(path), {}), dict[str, bool]()
        files = delta_rs.touched_files(of, "id", lambda: pa.chunked_array([[1]]), 1 << 20)
        for _ in range(2):
            reason = delta_rs.unreadable(of, files, {}, known)
            assert ("of the type INT96" in reason) == (name != "no"), reason
            assert known == {"a%20b.parquet": name != "no"}
            (path / "a b.parquet").unlink(missing_ok=True)  # it is read once


def test_a_violated_constraint_is_named_without_values(tmp_path: Path) -> None:
    of = table(tmp_path)
    of.alter.add_constraint({"small": "id < 10"})
    path = str(tmp_path / "required")
    required = pa.schema([COLUMNS[0], COLUMNS[1].with_nullable(nullable=False)])
    DeltaTable.create(path, required)
    for uri, rows_of_table, violated in (
        (
            of.table_uri,
            changes(("+I", 77, "secret")),
            "CHECK constraint small (id < 10) violated by row",
        ),
        (
            path,
            changes(("+I", 77, None), ("-D", 1, None)),
            "NOT NULL constraint violated for column: name",
        ),
    ):
        with pytest.raises(RefusedError) as refused:
            delta_rs.merge(delta_rs.open_table(uri, {}), PLAN, rows_of_table, None, name="t")
        remedy = "correct it in its source, or drop the constraint"
        assert refused.value.args[0] == f"t: {violated}: {remedy}"


def test_pages_of_files_that_the_kernel_can_drop_are_available_memory():
    of_version_2 = "anon 900\nfile 600\ninactive_file 500\n"
    of_version_1 = "cache 600\ninactive_file 100\ntotal_inactive_file 500\n"
    used = ((1600, of_version_2), (1600, of_version_1), (2100, "anon 2100\n"))
    assert [memory_left(2000, *each) for each in used] == [900, 900, 0]


# --------------------------------------------------------------------------------------------------
# delta-rs on S3 of a local server, with the credentials that Hadoop's settings have
ACCOUNT, LOCATION = ("me", "hunter2"), "s3a://lake/orders"


@pytest.fixture
def s3() -> Iterator[str]:
    """The address of a server with the bucket ``lake``."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    url = "http://{}:{}".format(*server.get_host_and_port())
    key, secret = ACCOUNT
    boto3.client(
        "s3",
        endpoint_url=url,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        region_name="us-east-1",
    ).create_bucket(Bucket="lake")
    yield url
    server.stop()


def test_the_second_of_two_commits_of_one_version_fails(s3: str) -> None:
    settings = {
        "fs.s3a.access.key": ACCOUNT[0],
        "fs.s3a.secret.key": ACCOUNT[1],
        "fs.s3a.endpoint": "https://nowhere:1",
        "fs.s3a.bucket.lake.endpoint": s3,
        "fs.s3a.endpoint.region": "us-east-1",
    }
    options = delta_rs.storage_options(LOCATION, settings.get)
    DeltaTable.create("s3://lake/orders", pa.schema([("id", pa.int64())]), storage_options=options)
    first, second = (delta_rs.open_table(LOCATION, options) for _ in range(2))
    plan = merge_plan(["id"], ["id"])
    changes = pa.table({"row_kind": ["+I"], "id": [1]})
    delta_rs.merge(first, plan, changes, ("q", 1))
    with pytest.raises(ConflictError):
        delta_rs.merge(second, plan, changes, ("q", 1))
    rows = delta_rs.open_table(LOCATION, options).to_pyarrow_table()
    assert pa.table(rows).to_pylist() == [{"id": 1}]


# --------------------------------------------------------------------------------------------------
# When tables are maintained, and that a failure is a warning
class Unreachable:
    """A table whose maintenance fails."""

    sql_name, provider = "`orders`", "delta"

    def __init__(self) -> None:
        self.tried = 0

    def session(self, spark: Any) -> Any:
        self.tried += 1
        raise TargetError("it cannot be reached")


def test_a_failure_is_a_warning_and_is_tried_again_at_the_interval(
    caplog: pytest.LogCaptureFixture,
) -> None:
    table: Any = Unreachable()
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(getLocalProperty=lambda name: None))
    last, tried = time.monotonic(), []
    for every in ("1 hour", "0 seconds", "0 seconds", "1 hour"):
        last = maintained(spark, table, Maintenance(every=every), last)
        tried.append(table.tried)
    assert tried == [0, 1, 2, 2]
    assert caplog.messages[0] == ("`orders`: the maintenance failed: [TARGET] it cannot be reached")


@pytest.mark.parametrize(("provider", "least"), [("delta", 7), ("iceberg", 1)])
def test_a_retention_that_a_running_statement_needs_is_refused(provider: str, least: int) -> None:
    Maintenance(expire=f"{least} days").check(provider)
    with pytest.raises(ArgumentError, match=rf"at least '{least} days', or expire=True"):
        Maintenance(expire=f"{least * 24 - 1} hours").check(provider)


# --------------------------------------------------------------------------------------------------
# The last change of each key as Arrow's columns, in the order of arrival
_SCHEMA = pa.schema(
    [("row_kind", pa.string()), ("example", pa.int32()), ("id", pa.int64())]
).append(pa.field("value", pa.int64()))
_KEYS = ("example", "id")


def batch_of(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [dict(zip(_SCHEMA.names, row, strict=True)) for row in rows], _SCHEMA
    )


def test_the_last_change_agrees_with_a_dict_also_if_held_rows_are_reduced() -> None:
    random, rows, last = Random(1), [], {}
    for example in range(3_000):
        for kind, key, value in random_changelog(Random(example), 20, {}):
            rows.append((kind, example % 50, key, value))
            last[example % 50, key] = value if kind in ("+I", "+U") else None
    assert len(rows) > 65_536
    batches, at = [], 0
    while at < len(rows):
        size = random.randrange(1, 9_000)
        batches.append(batch_of(rows[at : at + size]))
        at += size
    found = pa.Table.from_batches(last_rows(batches, keys=_KEYS))
    assert {
        (row["example"], row["id"]): row["value"] if row["row_kind"] in ("+I", "+U") else None
        for row in found.to_pylist()
    } == last
    assert len(found) == len(last)
    check_rows(found, _KEYS)


test_error_texts = error_test(
    __file__,
    {
        **{
            f"an unknown last change is an error, {number}": lambda tasks=tasks: check_rows(
                pa.Table.from_batches(
                    [each for task in tasks for each in last_rows([batch_of(task)], keys=_KEYS)]
                ),
                _KEYS,
            )
            for number, tasks in enumerate(
                [
                    [[(None, 1, 1, 1), ("+I", 1, 1, 2)]],
                    [[("?", 1, 1, 1), ("+U", 1, 1, 1)]],
                    [[("+I", 1, None, 1)]],
                    [[("+I", 1, 1, 1)], [("-D", 1, 1, 1)]],
                ],
                1,
            )
        },
    },
)
