"""Inference of a table's columns, primary key and format options.

The source is a sample of the table's topic or a schema registry.
"""

from cdc_formats.topics.inference.infer import infer_subject

from .infer import InferredSchema, infer_schema
from .sample import ColumnEvidence

__all__ = ["ColumnEvidence", "InferredSchema", "infer_schema", "infer_subject"]
