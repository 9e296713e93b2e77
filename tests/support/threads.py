"""Work that goes on while a test runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count


@contextmanager
def meanwhile(step: Callable[[int], object], pause: float) -> Iterator[None]:
    """Inside the context, call `step` with 1, 2, ... in a thread, with pauses between.

    `pause` is in seconds.
    """
    done = threading.Event()

    def repeat() -> None:
        numbers = count(1)
        while not done.wait(pause):
            step(next(numbers))

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
