"""Changelogs applied to tables: Delta, Iceberg, PostgreSQL, MySQL and MariaDB (`apply_changes`), and Delta's change feed, both ways."""
