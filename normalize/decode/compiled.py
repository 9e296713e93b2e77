"""What a task of the decode pass compiles of its plan, and leaves to the worker's next task.

PySpark runs the tasks of many micro-batches in one worker. Compiling a plan takes longer than
decoding a hundred messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import Any

from cdc_formats.decoder import Decoder
from normalize.core.changes import Shape
from normalize.core.output import Output
from normalize.decode.plan import DecodePlan

from .canonical import canonical_check
from .columnar import ColumnarDecoder, ColumnarMaker

_MOST_IDLE = 64
_idle: list[Compiled] = []
"""The compiled plans that no task uses; the one used last is the last."""
_lock = Lock()
"""The driver decodes in several threads."""


class Compiled:
    """A compiled plan; only one task at a time uses it, since decoders collect tables.

    Parameters
    ----------
    plan : DecodePlan

    Attributes
    ----------
    output : Output
    shape : Shape
    """

    def __init__(self, plan: DecodePlan) -> None:
        self.plan = plan
        self.output: Output = plan.output
        self.shape: Shape = plan.shape
        self._columnar: dict[tuple[bool, ColumnarMaker], ColumnarDecoder | None] = {}

    @cached_property
    def decoder(self) -> Decoder:
        """The decoder of one message."""
        return self.plan.decoder()

    def columnar(self, make: ColumnarMaker, *, keyed: bool) -> ColumnarDecoder | None:
        """Return the decoder of many messages that `make` returns; None without one."""
        if (keyed, make) not in self._columnar:
            self._columnar[keyed, make] = make(self.plan, keyed=keyed)
        return self._columnar[keyed, make]

    @cached_property
    def check_metadata(self) -> Callable[[Sequence[Any]], Any] | None:
        """The check of the format's metadata, which may be of another package."""
        columns = self.decoder.metadata_columns
        return canonical_check(columns) if columns else None

    @cached_property
    def merge_metadata(
        self,
    ) -> Callable[[tuple[Any, ...], tuple[Any, ...]], tuple[Any, ...]] | None:
        """The function that orders format and Kafka metadata as asked; None without Kafka's."""
        plan = self.plan
        if not plan.kafka_metadata:
            return None
        names = plan.format_metadata + plan.kafka_metadata
        places = [names.index(name) for name in plan.metadata.values()]
        return lambda ours, kafka: tuple([(ours + kafka)[place] for place in places])

    def clear(self) -> None:
        """Forget the tables of the task's messages."""
        self.decoder.tables.clear()
        for columnar in filter(None, self._columnar.values()):
            columnar.tables.clear()


@contextmanager
def compiled(plan: DecodePlan) -> Iterator[Compiled]:
    """Return a compiled plan, which an equal plan's task may have left."""
    with _lock:
        index = next((at for at, each in enumerate(_idle) if each.plan == plan), None)
        idle = None if index is None else _idle.pop(index)
    taken = idle or Compiled(plan)
    yield taken
    # A task that failed leaves nothing.
    taken.clear()
    with _lock:
        _idle.append(taken)
        del _idle[:-_MOST_IDLE]
