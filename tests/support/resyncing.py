"""Requests to read a table of a query again, and what is left of them."""

from typing import Any

from normalize.tables.database_target import table_name
from normalize.tables.resync import resync_table
from normalize.tables.resync_state import Resync
from normalize.tables.schema_store import SchemaStore
from tests.support.databases import Message, maxwell
from tests.support.syncing import Sync

ROWS = [{"id": number, "name": f"n{number}"} for number in range(1, 6)]


def request(sync: Sync, table: str = "orders", **options: bool) -> None:
    location = str(sync.folder / "schemas")
    resync_table(sync.spark, f"shop.{table}", schema_location=location, **options)


def state(sync: Sync, table: str = "orders") -> Resync:
    return SchemaStore(sync.spark, str(sync.folder / "schemas")).read_resync(f"shop.{table}")


def read_again(sync: Sync, *messages: Message, topic: str = "all", **options: Any) -> None:
    """Let the query have a micro-batch, by these records or by one of another table."""
    other = [maxwell("items", "insert", {"id": 1, "qty": 5})]
    sync.produce(topic, [*messages] or other)
    sync.run(**options)


def left_behind(sync: Sync) -> list[str]:
    """Files and tables of new tables, after the end."""
    paths = [*sync.folder.rglob("*_resync_*"), *sync.folder.glob("schemas/query/resync/*")]
    return [path.name for path in paths if not path.name.startswith("shop.")]


def sync_name(sync: Sync, table: str) -> str:
    """Return the name in SQL of a table of the database ``shop``."""
    name = table_name(sync.tables.database.table, f"shop.{table}")
    return sync.tables.database.target(name).sql_name


def cut(sync: Sync, topic: str, offset: int) -> None:
    """Let Kafka remove the records before an offset."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": sync.kafka.bootstrap_servers})
    for future in client.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)
