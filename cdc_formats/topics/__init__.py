"""Kafka topics on the driver: read samples of records, infer a schema, profile a topic."""
