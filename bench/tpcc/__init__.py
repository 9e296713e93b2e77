"""``python -m bench.tpcc``: TPC-C from a database to a copy whose rows are compared in the end."""
