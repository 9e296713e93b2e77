"""Inference of a table's columns, primary key and format options.

The source is a sample of the table's topic or a schema registry.
"""

from .infer import InferredSchema, infer_schema, infer_subject
from .sample import ColumnEvidence

__all__ = ["ColumnEvidence", "InferredSchema", "infer_schema", "infer_subject"]
