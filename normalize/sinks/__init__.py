"""Sinks that apply changelogs to tables, and conversions to and from Delta's change feed.

The tables are in Delta, Iceberg, PostgreSQL, MySQL or MariaDB.
"""
