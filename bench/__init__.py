"""Benchmarks: scripts that print rows per second with the machine, the versions and N; no test depends on times."""
