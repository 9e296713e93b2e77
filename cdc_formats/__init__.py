"""CDC formats: Kafka records to changelog rows (``+I -U +U -D``) and back, as pure functions.

Examples
--------
>>> from cdc_formats import get_format
>>> decoder = get_format("maxwell-json").decoder("id INT, name STRING")
>>> for change in decoder.decode(None, b'{"type": "update", "data": {"id": 1, "name": "bike"}, "old": {"name": "scooter"}}'):
...     print(change.kind.short_string, change.row)
-U (1, 'scooter')
+U (1, 'bike')
"""

from cdc_formats.values.json_reader import read_json, read_object
from cdc_formats.values.schema import ABSENT, Column, Handling, SqlType, columns, to_ddl
from cdc_formats.values.types import to_python

from .decoder import Decoder
from .events import Change, ChangelogMode, ControlEvent, Event, Ignored, KeyedChange, RowKind
from .format import Encoder, Format, MetadataColumn, get_format, list_formats, register_format

__version__ = "0.2.0"
"""The version of all four packages; setup.cfg reads it."""

__all__ = [
    "ABSENT",
    "Change",
    "ChangelogMode",
    "Column",
    "ControlEvent",
    "Decoder",
    "Encoder",
    "Event",
    "Format",
    "Handling",
    "Ignored",
    "KeyedChange",
    "MetadataColumn",
    "RowKind",
    "SqlType",
    "columns",
    "get_format",
    "list_formats",
    "read_json",
    "read_object",
    "register_format",
    "to_ddl",
    "to_python",
]
