"""delta-rs on S3 of a local server, with the credentials that Hadoop's settings have."""

from collections.abc import Iterator

import boto3
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from moto.server import ThreadedMotoServer

from normalize.tables.merge import merge_plan
from normalize.tables.targets import ConflictError
from normalize.tables.writers import delta_rs

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
