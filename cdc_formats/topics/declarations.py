"""What a record declares about its table, and what it shows about its format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from cdc_formats.errors import DecodeError
from cdc_formats.values.schema import Column

if TYPE_CHECKING:
    from cdc_formats.format import Format


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
    """

    column: Column
    source_type: str
    note: str = ""


class Declaration(NamedTuple):
    """The columns and the primary key that a record declares.

    Attributes
    ----------
    source : str
        Where the columns are declared, for example ``schema block``; empty if they are not.
    columns : sequence of DeclaredColumn
        A type without a name (``SqlType("")``) is inferred from the values.
    primary_key : tuple of str
        Empty if the record names no primary key.
    key_source : str
        Where the primary key is named.
    """

    source: str = ""
    columns: Sequence[DeclaredColumn] = ()
    primary_key: tuple[str, ...] = ()
    key_source: str = "the fields of the Kafka key"


class Evidence(NamedTuple):
    """What speaks for and against a format in a record.

    Attributes
    ----------
    distinctive : bool
        Whether the value has something that only this format writes, of all formats that read it.
    remarks : tuple of str
        Sentences for `str.format`, with the number of records that have the remark and the number
        of all records: ``"{} of {} have a schema block"``.
    refusal : DecodeError or None
        Why a record that the format reads is probably of another format.
    """

    distinctive: bool = False
    remarks: tuple[str, ...] = ()
    refusal: DecodeError | None = None


def listed_names(names: Any) -> tuple[str, ...]:
    """Return an array of names in a message; empty for another value.

    Examples
    --------
    >>> listed_names(["id", "line"]), listed_names(None)
    (('id', 'line'), ())
    """
    return tuple(map(str, names)) if isinstance(names, list) else ()
