"""Exploration of a bounded changelog in a notebook: the history of a key, and plots.

Spark aggregates, and only the results are collected.
"""

from .history import History, history
from .plots import plot_lag, plot_operations, plot_rows_per_key

__all__ = ["History", "history", "plot_lag", "plot_operations", "plot_rows_per_key"]
