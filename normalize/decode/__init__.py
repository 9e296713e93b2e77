"""The first pass: Kafka records to keyed changes or typed rows, on the workers."""
