"""The keyed stage on Spark, for streams and for bounded reads.

`key_groups` is for streams and bounded reads, and `native` for streams. The filter of `where=` is
behind them.
"""
