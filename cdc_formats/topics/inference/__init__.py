"""Inference of a table's columns, primary key and format options.

The source is a sample of the table's topic or a schema registry.
"""

from .infer import ColumnEvidence, InferredSchema, infer_schema, infer_subject

__all__ = ["ColumnEvidence", "InferredSchema", "infer_schema", "infer_subject"]
