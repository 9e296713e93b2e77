"""The keyed stage on Spark, for streams and for bounded reads.

`key_groups` and `native` are for streams, and `bounded` is for bounded reads. The filter of
`where=` is behind them.
"""
