"""Avro: reader, writer and schema registry."""
