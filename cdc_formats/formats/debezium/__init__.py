"""Debezium's formats: JSON and Avro envelopes, flattened messages, MongoDB."""
