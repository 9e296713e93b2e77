"""Infers a table's columns, primary key and format options from a sample of its topic or from a schema registry."""

from .infer import InferredSchema, infer_schema
from .sample import ColumnEvidence
from .subject import infer_subject

__all__ = ["ColumnEvidence", "InferredSchema", "infer_schema", "infer_subject"]
