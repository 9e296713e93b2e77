"""The keyed stage on Spark: `key_groups` and `native` for streams, `bounded` for bounded reads, and the filter of `where=` behind them."""
