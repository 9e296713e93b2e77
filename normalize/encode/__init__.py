"""Changelog rows to Kafka records."""
