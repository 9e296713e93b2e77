"""Pairs of values, and whether Spark's SQL says that they are equal."""

import math
import struct

NAN, OTHER_NAN = (
    struct.unpack("<d", struct.pack("<Q", bits))[0]
    for bits in (0x7FF8000000000000, 0xFFF8000000000001)
)

PAIRS = [
    ("DOUBLE", 0.0, -0.0, True),
    ("DOUBLE", NAN, OTHER_NAN, True),
    ("FLOAT", NAN, NAN, True),
    ("DOUBLE", NAN, math.inf, False),
    ("DOUBLE", math.inf, -math.inf, False),
    ("DOUBLE", None, NAN, False),
    ("DOUBLE", None, None, True),
    ("ARRAY<DOUBLE>", [NAN, -0.0, None], [OTHER_NAN, 0.0, None], True),
    ("ARRAY<DOUBLE>", [NAN], [NAN, NAN], False),
    ("ARRAY<DOUBLE>", [None], [0.0], False),
    ("ARRAY<DOUBLE>", None, [], False),
    ("STRUCT<a: FLOAT, b: ARRAY<STRUCT<c: DOUBLE>>>", [-0.0, [[NAN]]], [0.0, [[OTHER_NAN]]], True),
    ("STRUCT<a: FLOAT, b: INT>", [-0.0, 1], [0.0, 2], False),
    ("MAP<DOUBLE, DOUBLE>", [[-0.0, NAN], [NAN, 0.0]], [[0.0, OTHER_NAN], [OTHER_NAN, -0.0]], True),
    ("MAP<STRING, DOUBLE>", [["a", 0.0]], [["b", -0.0]], False),
    ("ARRAY<STRING>", ["a"], ["a"], True),
    ("STRING", "-0.0", "0.0", False),
]
