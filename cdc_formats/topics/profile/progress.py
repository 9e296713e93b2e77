"""A progress bar, drawn by rich in a terminal or notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TypeVar

from cdc_formats.errors import MissingDependencyError

T = TypeVar("T")


def tracked(items: Iterable[T], total: int, title: str, *, progress: bool | None) -> Iterator[T]:
    """Yield the items and draw a progress bar on stderr.

    Parameters
    ----------
    items : iterable
    total : int
        The largest possible number of items.
    title : str
    progress : bool or None
        None draws the bar when rich is installed and stderr is a terminal, or this is a notebook
        that can draw it.

    Raises
    ------
    MissingDependencyError
        When `progress` is True and rich is not installed.
    """
    if progress is False or (progress is None and find_spec("rich") is None):
        yield from items
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ImportError as error:
        raise MissingDependencyError(
            "a progress bar requires rich: pip install 'pyspark-kafka-changelog[cli]'"
        ) from error
    console = Console(stderr=True, force_terminal=progress)
    # In a notebook rich draws with ipywidgets, and warns when they are not installed.
    shown = find_spec("ipywidgets") is not None if console.is_jupyter else console.is_terminal
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(
        *columns, console=console, transient=True, disable=not (progress or shown)
    ) as bar:
        task = bar.add_task(title, total=total)
        for item in items:
            yield item
            bar.advance(task)
