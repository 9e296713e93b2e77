"""Changelog conversion to and from Delta's change-feed names: `to_change_feed`, `from_change_feed`.

=============  ====================
``row_kind``   ``_change_type``
=============  ====================
``+I``         ``insert``
``-U``         ``update_preimage``
``+U``         ``update_postimage``
``-D``         ``delete``
=============  ====================

Delta's ``readChangeFeed``, Iceberg's ``create_changelog_view`` (in upper case) and the
``changes()`` of Spark 4.2 use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cdc_formats.errors import ArgumentError
from cdc_formats.values.schema import backquoted
from normalize.core.output import ROW_KIND
from normalize.dataframe import require_changelog

from .table_spec import CHANGE_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column as SparkColumn, DataFrame

CHANGE_TYPES = {"+I": "insert", "-U": "update_preimage", "+U": "update_postimage", "-D": "delete"}


def to_change_feed(df: DataFrame) -> DataFrame:
    """Return a changelog with ``_change_type`` as its last column, in place of ``row_kind``.

    Parameters
    ----------
    df : DataFrame
        A changelog with ``row_kind``, streaming or not. A row whose ``row_kind`` is NULL fails the
        query.

    Raises
    ------
    ArgumentError
        When `df` has no ``row_kind``, or already has a ``_change_type``.
    """
    require_changelog(df)
    if CHANGE_TYPE in df.columns:
        raise ArgumentError(f"the DataFrame already has a column {CHANGE_TYPE}: drop or rename it")
    others = [backquoted(name) for name in df.columns if name != ROW_KIND]
    return df.select(*others, _translated(ROW_KIND, CHANGE_TYPES).alias(CHANGE_TYPE))


def from_change_feed(df: DataFrame) -> DataFrame:
    """Return a change feed as a changelog: ``row_kind``, then the other columns.

    Parameters
    ----------
    df : DataFrame
        The result of Delta's ``readChangeFeed``, a change feed that `apply_changes` wrote, or
        another DataFrame with ``_change_type``. Its rows have no order: to apply them, pass
        ``order_by="_commit_version"`` (for one of `apply_changes`, add a column that orders the
        changes of a micro-batch, such as ``offset``). Delta's feed has preimages: to aggregate it,
        pass ``changelog_mode="all"``.

    Raises
    ------
    ArgumentError
        When `df` has no ``_change_type``, or already has a ``row_kind``.
    """
    if CHANGE_TYPE not in df.columns:
        raise ArgumentError(
            f"the DataFrame has no column {CHANGE_TYPE}, as a change feed has: read Delta with "
            "readChangeFeed=true"
        )
    if ROW_KIND in df.columns:
        raise ArgumentError(f"the DataFrame already has a column {ROW_KIND}: drop or rename it")
    others = [backquoted(name) for name in df.columns if name != CHANGE_TYPE]
    kinds = {change_type: kind for kind, change_type in CHANGE_TYPES.items()}
    return df.select(_translated(CHANGE_TYPE, kinds, lower=True).alias(ROW_KIND), *others)


def _translated(name: str, words: Mapping[str, str], *, lower: bool = False) -> SparkColumn:
    from pyspark.sql import functions as F

    column = F.lower(F.col(name)) if lower else F.col(name)
    unknown = F.concat(
        F.lit(f"[ARGUMENT] {name} is "),
        F.coalesce(F.col(name), F.lit("NULL")),
        F.lit(f", not one of {', '.join(words)}"),
    )
    translated = F.raise_error(unknown).cast("string")
    for word, other in words.items():
        translated = F.when(column == word, other).otherwise(translated)
    return translated
