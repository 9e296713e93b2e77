"""Inferring a table's columns, primary key and format options from a sample of its topic; `infer_schema` says how."""

from .infer import InferredSchema, infer_schema
from .sample import ColumnEvidence

__all__ = ["ColumnEvidence", "InferredSchema", "infer_schema"]
