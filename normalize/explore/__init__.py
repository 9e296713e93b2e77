"""To look at a bounded changelog in a notebook: the history of one key, and plots. Spark counts, and little is collected."""

from .history import History, history
from .plots import plot_lag, plot_operations, plot_rows_per_key

__all__ = ["History", "history", "plot_lag", "plot_operations", "plot_rows_per_key"]
