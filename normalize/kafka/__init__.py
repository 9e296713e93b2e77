"""Kafka: topics of a query, client options, and dead letters, which workers write."""
