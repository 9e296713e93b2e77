"""A catalog whose tables support row-level operations, which AUTO CDC requires of its target.

It is the catalog of Spark's own tests, whose tables are in the memory of the server. On Spark 4.2, no package of a
kind of table has one: Delta implements MERGE in another way, and Iceberg has no package.
"""

from pathlib import Path

from normalize.local_kafka import fetch_jars

CLASS = "org.apache.spark.sql.connector.catalog.SharedTablesInMemoryRowLevelOperationTableCatalog"
_VERSION = "4.2.0"
_IVY_MODULE = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="local" module="row-level-catalog"/>
  <dependencies>
    <dependency org="org.apache.spark" name="spark-catalyst_2.13" rev="{_VERSION}" conf="default" transitive="false">
      <artifact name="spark-catalyst_2.13" type="jar" ext="jar" m:classifier="tests"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def jars() -> list[Path]:
    """Return the jars with the catalog, fetching them if the cache has none."""
    folder = fetch_jars(
        f"row-level-catalog-{_VERSION}", _IVY_MODULE, "Spark's test catalog", "5 MB"
    )
    return sorted(folder.glob("*.jar"))
