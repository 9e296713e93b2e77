#!/bin/bash
# Registers a connector for each file of a folder, named after the file. Can be run again.
set -eu

for file in "$1"/*.json; do
  name=$(basename "$file" .json)
  echo "connector $name:"
  curl --fail-with-body --silent --show-error --retry 5 --retry-all-errors --request PUT --header 'Content-Type: application/json' \
    --data @"$file" "http://connect:8083/connectors/$name/config"
  echo
done
