#!/bin/bash
# The producers' users, with the grants that each producer's documentation requires and passwords from the environment.
set -eu

MYSQL_PWD=$MYSQL_ROOT_PASSWORD mysql --user=root <<SQL
CREATE USER 'debezium'@'%' IDENTIFIED BY '$MYSQL_DEBEZIUM_PASSWORD';
GRANT SELECT, RELOAD, SHOW DATABASES, REPLICATION SLAVE, REPLICATION CLIENT, LOCK TABLES ON *.* TO 'debezium'@'%';

CREATE USER 'maxwell'@'%' IDENTIFIED BY '$MYSQL_MAXWELL_PASSWORD';
GRANT ALL ON maxwell.* TO 'maxwell'@'%';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'maxwell'@'%';

CREATE USER 'canal'@'%' IDENTIFIED BY '$MYSQL_CANAL_PASSWORD';
GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'canal'@'%';
SQL
