"""AWS Glue's schema registry for the tests: moto's server, which speaks AWS's protocol.

::

    with LocalGlue() as glue:
        version = glue.register("orders", "AVRO", '{"type": "record", ...}')
        get_format("debezium-avro-confluent", url="glue://eu-central-1")

boto3 finds it and its login in the environment (`LocalGlue.environment`).
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import boto3
from moto.server import ThreadedMotoServer

REGION = "eu-central-1"


class LocalGlue:
    """An empty registry on a free port of 127.0.0.1."""

    def __enter__(self) -> LocalGlue:
        self.server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
        self.server.start()
        host, port = self.server.get_host_and_port()
        self.url = f"http://{host}:{port}"
        login = {"aws_access_key_id": "tests", "aws_secret_access_key": "tests"}
        self.client: Any = boto3.session.Session(region_name=REGION, **login).client(
            "glue", endpoint_url=self.url
        )
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.server.stop()

    @property
    def environment(self) -> dict[str, str]:
        """The variables with which boto3 finds the registry."""
        return environment(self.url)

    def register(self, name: str, data_format: str, definition: str) -> UUID:
        """Return the id of the first version of a new schema."""
        answer = self.client.create_schema(
            SchemaName=name,
            DataFormat=data_format,
            Compatibility="NONE",
            SchemaDefinition=definition,
        )
        return UUID(answer["SchemaVersionId"])


def environment(url: str) -> dict[str, str]:
    """Return the variables with which boto3 finds an endpoint and a login, and no other."""
    return {
        "AWS_ENDPOINT_URL_GLUE": url,
        "AWS_ACCESS_KEY_ID": "tests",
        "AWS_SECRET_ACCESS_KEY": "tests",
        "AWS_CONFIG_FILE": "/no/such/file",
        "AWS_SHARED_CREDENTIALS_FILE": "/no/such/file",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
