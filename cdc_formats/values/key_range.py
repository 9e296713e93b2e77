"""Ranges of keys as SQL: the chunks of a table, for the capture and for comparisons of tables.

A range ``(after, upto]`` excludes its lower end and includes its upper end. Keys of several columns
are compared as rows, so a constant first column can still be divided. Whoever reads by a range
chooses the order and the literals, because they depend on the columns:

- The capture reads in the order of the server's collations, which an index has. The server itself
  answers on which side of an end a key of the log is.
- A comparison of two tables reads text in the order of its bytes, which both sides have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

Key = tuple[Any, ...]
"""Values of key columns as text; bytes are hexadecimal digits."""


class KeyRange(NamedTuple):
    """The keys greater than `after`, up to and including `upto`; None is the end of the table."""

    after: Key | None
    upto: Key | None

    @property
    def ends(self) -> list[tuple[str, Key]]:
        """The operator and the key of each end."""
        both = ((">", self.after), ("<=", self.upto))
        return [(operator, key) for operator, key in both if key is not None]

    def condition(
        self,
        operands: Sequence[str],
        literals: Callable[[Key], Sequence[str]],
        *,
        by_rows: bool = False,
    ) -> str:
        """Return the SQL condition that selects the rows of the range.

        Parameters
        ----------
        operands : sequence of str
            The SQL of the key columns.
        literals : callable
            Returns the SQL of a key's values.
        by_rows : bool
            Whether the server executes ``(a, b) > (1, 2)`` as one index range. PostgreSQL does.
            MySQL and MariaDB do so for ``(a > 1) OR (a = 1 AND b > 2)``.

        Examples
        --------
        >>> print(KeyRange(("1", "2"), None).condition(["a", "b"], list))
        ((a > 1) OR (a = 1 AND b > 2))
        >>> print(KeyRange(("1", "2"), ("3", "4")).condition(["a", "b"], list, by_rows=True))
        (a, b) > (1, 2) AND (a, b) <= (3, 4)
        """
        compared = _as_row if by_rows else _by_column
        ends = (compared(operands, operator, literals(key)) for operator, key in self.ends)
        return " AND ".join(ends) or "TRUE"


def _as_row(operands: Sequence[str], operator: str, values: Sequence[str]) -> str:
    return f"({', '.join(operands)}) {operator} ({', '.join(values)})"


def _by_column(operands: Sequence[str], operator: str, values: Sequence[str]) -> str:
    equal = [f"{operand} = {value}" for operand, value in zip(operands, values, strict=True)]
    # Only the last column may be equal to that of an end which belongs to the range.
    operators = [*operator[0] * (len(equal) - 1), operator]
    compared = [" ".join(each) for each in zip(operands, operators, values, strict=True)]
    cases = (" AND ".join([*equal[:index], each]) for index, each in enumerate(compared))
    return f"({' OR '.join(f'({case})' for case in cases)})"
