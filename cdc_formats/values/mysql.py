"""The SQL types of MySQL's and MariaDB's columns: one table for all that reads them.

A type holds every value of the source's column. ``TIME`` goes from -838 to 838 hours, which no TIME
holds. A producer that writes values in another way (labels as numbers, bits as bytes) has other
types for these columns, next to its reader.
"""

from __future__ import annotations

from collections.abc import Mapping

from .schema import SqlType

INTEGERS: Mapping[str, tuple[str, str]] = {
    "tinyint": ("TINYINT", "SMALLINT"),
    "smallint": ("SMALLINT", "INT"),
    "mediumint": ("INT", "INT"),
    "int": ("INT", "BIGINT"),
    "bigint": ("BIGINT", "DECIMAL"),
    "year": ("INT", "INT"),
}
"""The types of signed and unsigned integers. A DECIMAL is `UNSIGNED_BIGINT`."""
UNSIGNED_BIGINT = SqlType("DECIMAL", 20, 0)
TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
BINARIES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_OTHER = {
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "datetime": "TIMESTAMP_NTZ",
    "timestamp": "TIMESTAMP",
    "time": "INTERVAL DAY TO SECOND",
    **dict.fromkeys((*TEXTS, "json"), "STRING"),
    **dict.fromkeys(BINARIES, "BINARY"),
}


def mysql_type(
    kind: str, precision: int | None = None, scale: int | None = None, *, unsigned: bool = False
) -> SqlType | None:
    """Return the type of a column; None if the producer decides, or the type is unknown.

    Parameters
    ----------
    kind : str
        The type's name in ``information_schema``.
    precision, scale : int or None
        The digits of a DECIMAL, or the bits of a BIT.
    unsigned : bool

    Examples
    --------
    >>> print(mysql_type("bigint", unsigned=True), mysql_type("bit", 1), mysql_type("bit", 8))
    DECIMAL(20,0) BOOLEAN None
    """
    if kind in INTEGERS:
        name = INTEGERS[kind][unsigned]
        return UNSIGNED_BIGINT if name == "DECIMAL" else SqlType(name)
    if kind == "decimal":
        return SqlType("DECIMAL", precision, scale)
    if kind == "bit" and precision == 1:
        return SqlType("BOOLEAN")
    return SqlType(_OTHER[kind]) if kind in _OTHER else None
