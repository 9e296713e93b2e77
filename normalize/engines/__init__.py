"""The keyed stage on Spark: `key_groups` for streams, `bounded` for bounded reads."""
