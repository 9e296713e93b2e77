"""A column as its producer declares it, and what only the user can know of one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc_formats.format import Format
from cdc_formats.values.schema import Column


@dataclass(frozen=True)
class Question:
    """What only the user can know of a column whose type is guessed from its values.

    Parameters
    ----------
    text : str
    options : mapping
        The format's options that another type may need, each with the values with which the
        guessed type is right.
    """

    text: str
    options: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)

    def is_settled(self, format: Format) -> bool:
        """Whether an option of the format answers the question."""
        return any(getattr(format, name, None) in right for name, right in self.options.items())

    def __str__(self) -> str:
        return self.text


class DeclaredColumn(NamedTuple):
    """A column as its producer declares it.

    Attributes
    ----------
    column : Column
    source_type : str
        The producer's name of the type.
    note : str
        A note for the user on the chosen type, or an empty string.
    comment : str
        The column's comment in the source, or an empty string.
    """

    column: Column
    source_type: str
    note: str = ""
    comment: str = ""
