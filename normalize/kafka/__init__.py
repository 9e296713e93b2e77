"""Kafka on the driver: topics of a query, client options, samples."""
