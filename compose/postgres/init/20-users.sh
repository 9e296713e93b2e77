#!/bin/bash
# Debezium's user: may replicate, and read the tables for the snapshot.
set -eu

psql --set=ON_ERROR_STOP=1 --set=password="$POSTGRES_DEBEZIUM_PASSWORD" --username="$POSTGRES_USER" --dbname="$POSTGRES_DB" <<'SQL'
CREATE ROLE debezium WITH REPLICATION LOGIN PASSWORD :'password';
GRANT USAGE ON SCHEMA shop TO debezium;
GRANT SELECT ON ALL TABLES IN SCHEMA shop TO debezium;
SQL
