"""What is in a topic: the format of a sample of its records, its tables, keys, positions and faults, and the call that reads it."""
