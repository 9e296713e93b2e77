"""Checkpoints of queries with the keyed stage: read the state, change the number of key groups."""
