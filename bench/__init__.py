"""Benchmark scripts that print rows/s, machine, versions and N; no test depends on times."""
