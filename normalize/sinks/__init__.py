"""Apply changelogs to tables (Delta, Iceberg, PostgreSQL, MySQL, MariaDB), and convert them to and from Delta's change feed."""
