"""The keyed stage without Spark: changes, the fold of a key group, order, the state's bytes."""
